"""Idempotent creation of policies."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.api.common import Reply
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import (
    check_affordable,
    check_ends,
    check_review,
    check_size,
    linear_remark,
    memory_of,
    with_defaults,
)
from deferkit.serve.domain.problems import MEGABYTE, TooManyPolicies, TooMuchMemory, conflict, invalid
from deferkit.serve.domain.rows import LogRow
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.ownership import Ownership
from deferkit.serve.structured_logs import logger


def new_policy(spec: PolicySpec) -> Policy:
    """Return a new policy with default settings."""
    return Policy(with_defaults(spec))


def load_libraries() -> None:
    """Load the libraries of learners: that takes seconds, which calls for a first policy would wait."""
    new_policy(PolicySpec(name="p", features=1, budget={"cost": BudgetSpec(total=1, horizon=1, max_cost=1)}))


class PolicyCreation:
    """Creates policies and acquires them.

    Args:
        ownership: The policies of this process.
        max_policies: How many policies a tenant may have; None for no limit.
        tenant_memory: How many MB the learners of a tenant may take together, by the estimate that follows from their
            settings; None for no limit.
        check_quota: Raises if a tenant, by its name, has reached its quota on the disk.
    """

    def __init__(
        self,
        ownership: Ownership,
        *,
        max_policies: int | None,
        tenant_memory: float | None,
        check_quota: Callable[[str], None],
    ) -> None:
        self.ownership = ownership
        self.check_quota = check_quota
        self.max_policies = max_policies
        self.most_memory = None if tenant_memory is None else int(tenant_memory * MEGABYTE)
        self._tenant_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by tenant

    async def create(self, tenant: str, spec: PolicySpec) -> Reply:
        """Create a policy; the same one again changes nothing.

        A tenant's policies are created one at a time: each may take 400 MB, even if it is refused in the end.
        """
        async with self._tenant_locks[tenant]:
            if await self._is_new(tenant, spec.name):  # else nothing changes, also for one created before these checks
                await self._check_new(tenant, spec)
            try:
                # in a thread: a large policy takes a second, which would block the event loop
                policy = await asyncio.to_thread(new_policy, spec)
            except DeferkitError as error:
                raise invalid(str(error)) from error
            if (number := await self._add(tenant, policy)) is not None:
                if remark := linear_remark(spec, policy.spec):
                    logger.warning(remark, extra={"policy": number})
                return Reply(201, msgspec.json.encode(policy.spec))
        return Reply(201, msgspec.json.encode(await self._check_same(tenant, spec)))

    async def _is_new(self, tenant: str, name: str) -> bool:
        """Whether there is no such policy yet; raise if a new one would exceed `max_policies` or the quota.

        This check is early, before the policy takes time and memory; `_add` repeats it in its transaction.
        """
        query, store = self.ownership.query, self.ownership.store
        if await query(store.policy, tenant, name) is not None:
            return False
        self.check_quota(tenant)
        if self.max_policies is not None and await query(store.count_policies, tenant) >= self.max_policies:
            raise TooManyPolicies(self.max_policies)
        return True

    async def _check_new(self, tenant: str, spec: PolicySpec) -> None:
        """Raise if a new policy is invalid, or needs more memory than its tenant has left.

        That is before it takes the memory; `_add` has the last word.
        """
        try:
            check_affordable(spec)
            check_ends(spec, self.ownership.clock.now() / MICRO)
            check_review(spec)
            made = with_defaults(spec)
            check_size(made)
        except DeferkitError as error:
            raise invalid(str(error)) from error
        if self.most_memory is not None:
            needed = memory_of(made)
            taken = await self.ownership.query(self.ownership.store.memory_taken, tenant)
            if taken + needed > self.most_memory:
                raise TooMuchMemory(needed, taken, self.most_memory)

    async def _add(self, tenant: str, policy: Policy) -> int | None:
        """Write and acquire a policy; return its number, or None if the name is taken."""
        async with self.ownership.busy:
            now = self.ownership.clock.now()
            first = records.CreatedRecord(spec=policy.spec)
            body = policy.append(first, now)
            row = LogRow(0, 0, now, "created", None, body, policy.head)
            number = await self.ownership.write(
                self.ownership.store.add_policy,
                tenant,
                policy,
                row,
                self.ownership.owner,
                self.ownership.address,
                self.ownership.expiry(),
                most=self.max_policies,
                most_memory=self.most_memory,
            )
            if number is not None:
                self.ownership.owned[tenant, policy.spec.name] = OwnedPolicy(number, tenant, policy, 1, 0)
            return number

    async def _check_same(self, tenant: str, spec: PolicySpec) -> PolicySpec:
        """Return the policy of this name; raise if it was created with other settings, ignoring later changes."""
        existing = await self.ownership.query(self.ownership.store.policy, tenant, spec.name)
        if existing is None:
            raise conflict(f"There is another policy {spec.name!r}.")
        [first] = await self.ownership.query(self.ownership.store.log_page, existing.id, 0, 1)
        made = records.decode(bytes(first.body))
        if not isinstance(made, records.CreatedRecord):
            raise conflict(f"There is another policy {spec.name!r}.")
        wanted = spec.with_defaults_of(made.spec)
        if made.spec != wanted:
            others = [name for name in spec.__struct_fields__ if getattr(made.spec, name) != getattr(wanted, name)]
            raise conflict(f"There is another policy {spec.name!r}, made with other settings: {', '.join(others)}.")
        return wanted
