"""Where the budgets of a policy stand: accounts, and the current period of those that renew or have an end."""

import msgspec

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO, in_reply
from deferkit.serve.domain.owned_policy import OwnedPolicy


class PeriodState(msgspec.Struct, frozen=True, kw_only=True):
    """The current period of a budget that renews, or the time up to its end. Times are seconds since 1970.

    total = carried + held + granted + changed.
    """

    number: int  # counted from 1
    start: float
    end: float  # when it is renewed, or ends
    total: float  # what there is to spend in it
    posted: float  # costs that were booked in it
    granted: float
    carried: float  # from the period before
    held: float  # for reviews that were pending when it began
    changed: float  # by top-ups and cuts
    tasks_left: float | None  # that are expected until its end; null where no task has come in it
    renews: bool
    over: bool  # the end has passed


class BudgetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The account of a resource, over all periods; a total of null is unlimited."""

    total: float | None
    reserved: float
    posted: float
    suspense: float
    free: float | None
    period: PeriodState | None = None  # left out for a budget with a horizon


def budget_states(owned: OwnedPolicy, now: int) -> dict[str, BudgetState]:
    """Return the accounts of a policy as a task that came now would find them: with the renewals that are due."""
    policy = owned.policy
    accounts, periods = policy.books_at(now)
    told = policy.learner.summary().periods if periods else {}
    states = {}
    for name, account in accounts.items():
        state = budget_state(account)
        if (period := periods.get(name)) is not None:
            known = told.get(name) if period == policy.periods.get(name) else None
            state = msgspec.structs.replace(
                state,
                period=PeriodState(
                    number=period.number,
                    start=period.start,
                    end=period.end,
                    total=in_reply(period.of(account).total or 0),
                    posted=in_reply(period.of(account).posted),
                    granted=in_reply(period.granted),
                    carried=in_reply(period.carried),
                    held=in_reply(period.held),
                    changed=in_reply(period.changed),
                    tasks_left=None if known is None else known.tasks_left,
                    renews=policy.spec.budget[name].every is not msgspec.UNSET,
                    over=now / MICRO >= period.end,
                ),
            )
        states[name] = state
    return states


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
