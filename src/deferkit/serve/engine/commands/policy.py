"""Commands that change the budget of a policy, or delete it."""

import asyncio

import msgspec

from deferkit.errors import BudgetExhausted, DeferkitError, InvalidArgument
from deferkit.learn.decisions import PACED_BY_TASKS_LEFT
from deferkit.serve.api.common import Reply
from deferkit.serve.api.policies import BudgetBody, BudgetReply
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MAX_AMOUNT, MAX_SUM, MICRO, to_micro
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy_learner import check_affordable, check_ends, check_review
from deferkit.serve.domain.problems import Problem, budget_conflict, conflict, invalid, unavailable
from deferkit.serve.domain.rows import RequestRow
from deferkit.serve.domain.spec import PolicyChange, PolicySpec
from deferkit.serve.engine.commands.outcome import idempotent_reply
from deferkit.serve.engine.engine import Elsewhere, Engine
from deferkit.serve.engine.ownership import Key
from deferkit.serve.engine.unit_of_work import UnitOfWork, digest
from deferkit.serve.reports.budgets import budget_states
from deferkit.serve.storage.connections import ReadSet
from deferkit.types import is_number


class ChangeBudget:
    """Change totals; once for each id."""

    def __init__(self, body: BudgetBody) -> None:
        self.body = body
        self.digest = digest(body)
        self.request = f"budget {body.id}"

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, request=self.request)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Change the totals, unless they fall below the reserved and posted amounts."""
        if (done := idempotent_reply(work, owned, self.request, self.digest)) is not None:
            return done
        totals = self._totals(owned)
        try:
            for name, total in totals.items():
                owned.policy.accounts[name].with_total(total)
        except BudgetExhausted as error:
            raise budget_conflict(str(error)) from error
        work.record(owned, records.BudgetChangedRecord(request=self.body.id, totals=totals), now)
        reply = msgspec.json.encode(BudgetReply(id=self.body.id, budget=budget_states(owned, now)))
        work.answer(owned, RequestRow(owned.id, self.request, self.digest, reply))
        return Reply(200, reply)

    def _totals(self, owned: OwnedPolicy) -> dict[str, int | None]:
        body, accounts = self.body, owned.policy.accounts
        if (body.add is None) == (body.total is None):
            raise invalid("A change of the budget is either an amount to 'add' or a new 'total'.")
        given = body.add if body.total is None else body.total
        amounts = given if isinstance(given, dict) else {next(iter(accounts)): given}
        if not isinstance(given, dict) and len(accounts) > 1:
            raise invalid(f"A change of the budget is given by resource: {', '.join(accounts)}.")
        totals: dict[str, int | None] = {}
        for name, amount in amounts.items():
            if name not in accounts:
                raise invalid(f"There is no resource {name!r}. There is {', '.join(accounts)}.")
            before = accounts[name].total
            if before is None:
                raise invalid(f"The budget of {name} has no end, and nothing to change.")
            try:
                less = body.total is None and is_number(amount) and amount < 0  # type: ignore[operator]
                micro = to_micro("amount", -amount if less else amount)  # type: ignore[operator]
                total = micro if body.total is not None else before - micro if less else before + micro
                totals[name] = total
                check_total(total, renews=owned.policy.spec.budget[name].every is not msgspec.UNSET)
            except DeferkitError as error:
                raise invalid(str(error)) from error
            if total < 0:
                raise budget_conflict(f"The budget of {name} cannot be cut by more than there is.")
        return totals


def check_total(micro: int, *, renews: bool) -> None:
    """Raise if a total is larger than one may be; that of a budget that renews is the sum of all its periods."""
    most = MAX_SUM if renews else MAX_AMOUNT
    if micro > most * MICRO:
        raise InvalidArgument(f"The total is a number from 0 to {most:,}. Got {micro / MICRO:,.15g}.")


def check_plan(before: PolicySpec, spec: PolicySpec, now: float) -> None:
    """Raise if a changed horizon, end or allowance is invalid."""
    changed = {name: each for name, each in spec.budget.items() if each != before.budget[name]}
    if not changed:
        return
    if spec.pacing not in PACED_BY_TASKS_LEFT and any(each.horizon is not None for each in changed.values()):
        raise InvalidArgument(f"With the pacing {spec.pacing!r} the horizon cannot be changed.")
    check_affordable(spec)
    check_ends(msgspec.structs.replace(spec, budget=changed), now)


class ChangePolicy:
    """Change the settings of a policy."""

    def __init__(self, change: PolicyChange) -> None:
        self.change = change

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Change it from now on; tasks that wait keep their deadlines."""
        try:
            spec = self.change.of(owned.policy.spec)
            check_review(spec)
            check_plan(owned.policy.spec, spec, now / MICRO)
        except DeferkitError as error:
            raise invalid(str(error)) from error
        if spec != owned.policy.spec:
            owned.check_quota()
            work.record(owned, records.ChangedRecord(spec=spec), now)
        return Reply(200, msgspec.json.encode(spec))


PAGE = 100


async def delete_policy(engine: Engine, key: Key) -> None:
    """Delete a policy with its log, decisions, reviews and snapshots; raise if there is none.

    It is retired first, so that its tenant does not see it any more. Its rows are deleted in slices, between which
    other commands are committed; after a crash `Maintenance.finish_deletions` deletes the rest.
    """
    owned = await engine.holding(key)
    ownership = engine.ownership
    async with ownership.busy:
        if ownership.owned.get(key) is not owned:
            raise unavailable("Another process owns the policy now.")
        if not await ownership.write(engine.store.retire_policy, owned.id, ownership.owner, owned.epoch):
            ownership.lose(owned.id)
            raise unavailable("Another process owns the policy now.")
        del ownership.owned[key]
    await ownership.purge(owned.id)


async def delete_tenant(engine: Engine, tenant: str) -> None:
    """Delete all policies and webhooks of a tenant, and revoke its keys."""
    while rows := await asyncio.to_thread(engine.store.policies_of, tenant, "", PAGE):
        for row in rows:
            try:
                await delete_policy(engine, (tenant, row.name))
            except Elsewhere:
                raise conflict(f"Another process owns policy {row.name!r}: delete it first, then the tenant.") from None
            except Problem as problem:
                if problem.status != 404:  # somebody else has just deleted it
                    raise
    # not in the writer thread: a transaction may be open there
    await engine.ownership.query(engine.webhooks.store.delete_of, tenant)
    await engine.ownership.query(engine.store.revoke_keys_of, tenant, engine.clock.now())
