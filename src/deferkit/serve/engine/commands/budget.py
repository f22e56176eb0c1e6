"""Changes of a policy's budgets and settings."""

import msgspec

from deferkit.errors import BudgetExhausted, DeferkitError
from deferkit.serve.domain import log_records
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO, in_reply, to_micro
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy_learner import check_review
from deferkit.serve.domain.policy_spec import PolicyChange
from deferkit.serve.domain.problems import exhausted, invalid
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import BudgetBody, digest
from deferkit.serve.domain.rows import RequestRow
from deferkit.serve.engine.commands.outcome import repeated
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.transaction import ReadSet
from deferkit.types import is_number


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a resource; a total of null is unlimited."""

    total: float | None
    reserved: float
    posted: float
    suspense: float
    free: float | None


def budget_states(owned: OwnedPolicy) -> dict[str, BudgetState]:
    """Return the accounts of a policy."""
    return {name: budget_state(account) for name, account in owned.policy.accounts.items()}


def budget_state(account: Account) -> BudgetState:
    """Return where the budget of a resource stands."""
    total, free = account.total, account.free
    return BudgetState(
        total=None if total is None else in_reply(total),
        reserved=in_reply(account.reserved),
        posted=in_reply(account.posted),
        suspense=in_reply(account.suspense),
        free=None if free is None else in_reply(free),
    )


class BudgetReply(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts after the change."""

    id: str
    budget: dict[str, BudgetState]


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
        """Change them, unless less would be left than is reserved and posted."""
        if (done := repeated(work, owned, self.request, self.digest)) is not None:
            return done
        totals = self._totals(owned)
        try:
            for name, total in totals.items():
                owned.policy.accounts[name].changed(total)
        except BudgetExhausted as error:
            raise exhausted(str(error)) from error
        work.record(owned, log_records.BudgetChangedRecord(request=self.body.id, totals=totals), now)
        reply = msgspec.json.encode(BudgetReply(id=self.body.id, budget=budget_states(owned)))
        work.answer(RequestRow(owned.id, self.request, self.digest, reply))
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

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Change it from now on; tasks that wait keep their deadlines."""
        spec = self.change.of(owned.policy.spec)
        try:
            check_review(spec)
        except DeferkitError as error:
            raise invalid(str(error)) from error
        if spec != owned.policy.spec:
            work.record(owned, log_records.ChangedRecord(spec=spec), now)
        return Reply(200, msgspec.json.encode(spec))
