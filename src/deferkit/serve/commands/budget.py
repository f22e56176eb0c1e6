"""Topping a budget up, or cutting it."""

import msgspec

from deferkit.errors import BudgetExhausted, DeferkitError
from deferkit.serve import records
from deferkit.serve.commands.bodies import BudgetBody, digest
from deferkit.serve.commands.outcome import repeated
from deferkit.serve.money import MICRO, to_micro
from deferkit.serve.problems import exhausted, invalid
from deferkit.serve.spec import PolicyChange
from deferkit.serve.storage.rows import RequestRow
from deferkit.serve.work import Held, Needs, Reply, Work
from deferkit.types import is_number


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the budget of a resource stands; a total of null has no end."""

    total: float | None
    reserved: float
    posted: float
    suspense: float
    free: float | None


def budget_states(held: Held) -> dict[str, BudgetState]:
    """Return where the budgets of a policy stand."""
    states = {}
    for name, account in held.policy.accounts.items():
        total, free = account.total, account.free
        states[name] = BudgetState(
            total=None if total is None else total / MICRO,
            reserved=account.reserved / MICRO,
            posted=account.posted / MICRO,
            suspense=account.suspense / MICRO,
            free=None if free is None else free / MICRO,
        )
    return states


class BudgetReply(msgspec.Struct, frozen=True, kw_only=True):
    """Where the budgets stood when the change was made."""

    id: str
    budget: dict[str, BudgetState]


class ChangeBudget:
    """Change totals; once for each id."""

    def __init__(self, body: BudgetBody) -> None:
        self.body = body
        self.digest = digest(body)
        self.request = f"budget {body.id}"

    def needs(self, held: Held) -> Needs:
        """Return what must be read first."""
        return Needs(held.id, request=self.request)

    def run(self, held: Held, work: Work, now: int) -> Reply:
        """Change them, unless less would be left than is reserved and posted."""
        if (done := repeated(work, held, self.request, self.digest)) is not None:
            return done
        totals = self._totals(held)
        try:
            for name, total in totals.items():
                held.policy.accounts[name].changed(total)
        except BudgetExhausted as error:
            raise exhausted(str(error)) from error
        work.record(held, records.BudgetChanged(request=self.body.id, totals=totals), now)
        reply = msgspec.json.encode(BudgetReply(id=self.body.id, budget=budget_states(held)))
        work.answer(RequestRow(held.id, self.request, self.digest, reply))
        return Reply(200, reply)

    def _totals(self, held: Held) -> dict[str, int | None]:
        body, accounts = self.body, held.policy.accounts
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
                totals[name] = to_micro("total", total / MICRO) if total >= 0 else total
            except DeferkitError as error:
                raise invalid(str(error)) from error
            if total < 0:
                raise exhausted(f"The budget of {name} cannot be cut by more than there is.")
        return totals


class ChangePolicy:
    """Change what may be changed of a policy."""

    def __init__(self, change: PolicyChange) -> None:
        self.change = change

    def needs(self, held: Held) -> Needs:
        """Return what must be read first: nothing."""
        return Needs(held.id)

    def run(self, held: Held, work: Work, now: int) -> Reply:
        """Change it from now on; tasks that wait keep their deadlines."""
        spec = self.change.of(held.policy.spec)
        if spec != held.policy.spec:
            work.record(held, records.Changed(spec=spec), now)
        return Reply(200, msgspec.json.encode(spec))
