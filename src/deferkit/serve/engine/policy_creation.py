"""Creation of policies: the same one again changes nothing."""

import asyncio

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain import log_records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import remark_on, with_defaults
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.problems import conflict, invalid
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.rows import LogRow
from deferkit.serve.engine.ownership import Ownership
from deferkit.serve.structured_logs import logger


def made_of(spec: PolicySpec) -> Policy:
    """Return a new policy, with what it leaves to the service."""
    return Policy(with_defaults(spec))


class PolicyCreation:
    """Creates policies and owns them."""

    def __init__(self, ownership: Ownership) -> None:
        self.ownership = ownership

    async def create(self, tenant: str, spec: PolicySpec) -> Reply:
        """Make a policy; the same one again changes nothing."""
        try:
            # a large one takes a second, and others wait for answers
            policy = await asyncio.to_thread(made_of, spec)
        except DeferkitError as error:
            raise invalid(str(error)) from error
        async with self.ownership.busy:
            now = self.ownership.clock.now()
            first = log_records.Created(spec=policy.spec)
            body = policy.append(first, now)
            row = LogRow(0, 0, now, "created", None, body, policy.head)
            number = await self.ownership.stored(
                self.ownership.store.add_policy,
                tenant,
                policy,
                row,
                self.ownership.owner,
                self.ownership.address,
                self.ownership.expiry(),
            )
            if number is not None:
                self.ownership.owned[tenant, spec.name] = OwnedPolicy(number, tenant, policy, 1, 0)
                if remark := remark_on(spec, policy.spec):
                    logger.warning(remark, extra={"policy": number})
                return Reply(201, msgspec.json.encode(policy.spec))
        return Reply(201, msgspec.json.encode(await self._check_same(tenant, spec)))

    async def _check_same(self, tenant: str, spec: PolicySpec) -> PolicySpec:
        """Return the policy of this name, or raise if it was made with other settings, whatever was changed since."""
        there = await self.ownership.read(self.ownership.store.policy, tenant, spec.name)
        if there is None:
            raise conflict(f"There is another policy {spec.name!r}.")
        [first] = await self.ownership.read(self.ownership.store.log_page, there.id, 0, 1)
        made = log_records.decode(bytes(first.body))
        if not isinstance(made, log_records.Created):
            raise conflict(f"There is another policy {spec.name!r}.")
        wanted = spec.as_before(made.spec)
        if made.spec != wanted:
            others = [name for name in spec.__struct_fields__ if getattr(made.spec, name) != getattr(wanted, name)]
            raise conflict(f"There is another policy {spec.name!r}, made with other settings: {', '.join(others)}.")
        return wanted
