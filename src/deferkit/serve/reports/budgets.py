"""The state of budgets, their pace and the forecast of their exhaustion."""

from typing import NamedTuple

import msgspec

from deferkit.serve.api.reports import BudgetState, PeriodState
from deferkit.serve.domain.accounts import MICRO, Account, in_reply
from deferkit.serve.domain.books import BudgetPeriod, Periods
from deferkit.serve.domain.owned_policy import OwnedPolicy

RECENT_SHARE = 0.2  # share of all decisions that the recent rate is computed from
MIN_RECENT = 50  # decisions, at least, if there are so many


class Spending(NamedTuple):
    """Cumulative spending at a time."""

    at: float  # seconds
    decisions: int
    spent: float


class Pace(NamedTuple):
    """The pace of a budget, and the progress of its plan."""

    value: float  # 1 is on plan
    done: float  # share of the planned tasks that are decided


class Forecast(NamedTuple):
    """When a budget is exhausted: the number of the task, and the time. None: never, at the recent rate."""

    task: int | None
    at: float | None


def pace_of(spent: float, total: float, decisions: int, horizon: float) -> float | None:
    """Return the share of a budget that is spent over the share of its tasks that are decided: 1 is on plan.

    >>> pace_of(300, 600, 4000, 10_000)  # half of it for two fifths of the tasks
    1.25
    """
    if not decisions or not total:
        return None
    return (spent / total) / min(1.0, decisions / horizon)


def forecast_of(unspent: float, then: Spending, now: Spending) -> Forecast:
    """Return the forecast exhaustion time of a budget at the spending rate between two moments.

    >>> forecast_of(60, Spending(0, 0, 0), Spending(100, 1000, 40))  # 0.04 a task, 10 tasks a second
    Forecast(task=2500, at=250.0)
    """
    spent, seconds = now.spent - then.spent, now.at - then.at
    if unspent <= 0:
        return Forecast(now.decisions, now.at)
    if spent <= 0 or seconds <= 0:
        return Forecast(None, None)
    tasks = (now.decisions - then.decisions) * unspent / spent
    return Forecast(now.decisions + round(tasks), now.at + seconds * unspent / spent)


def recent_from(decisions: int) -> int:
    """Return the number of the decision from which on the recent rate is computed.

    >>> recent_from(10_000), recent_from(100), recent_from(20)
    (8000, 50, 0)
    """
    return max(0, min(int(decisions * (1 - RECENT_SHARE)), decisions - MIN_RECENT))


def budget_states(owned: OwnedPolicy, now: int) -> dict[str, BudgetState]:
    """Return the state of each budget of a policy, after the renewals that are due."""
    accounts, periods = owned.policy.books_at(now)
    states = {name: budget_state(account) for name, account in accounts.items()}
    if periods:
        left = tasks_left(owned, periods)
        decisions = owned.policy.counts().decisions
        for name, period in periods.items():
            renews = owned.policy.spec.budget[name].every is not msgspec.UNSET
            state = period_state(period, accounts[name], decisions, left[name], now / MICRO, renews=renews)
            states[name] = msgspec.structs.replace(states[name], period=state)
    return states


def tasks_left(owned: OwnedPolicy, periods: Periods) -> dict[str, float | None]:
    """Return the expected number of tasks until the end of each period; None if a period has no task yet."""
    current, learned = owned.policy.periods, owned.policy.learner.figures().periods
    return {
        name: learned[name].tasks_left if name in learned and current.get(name) == period else None
        for name, period in periods.items()
    }


def period_state(
    period: BudgetPeriod, account: Account, decisions: int, left: float | None, now: float, *, renews: bool = True
) -> PeriodState:
    """Return the state of a period.

    >>> period = BudgetPeriod(number=2, start=0, end=100, granted=8 * MICRO, carried=0, held=0, posted_before=0)
    >>> state = period_state(period, Account(8 * MICRO, posted=4 * MICRO), decisions=30, left=70, now=40)
    >>> round(state.pace, 3), state.runs_out_at  # half of it for three tenths of the tasks
    (1.667, 80.0)
    """
    current = period.of(account)
    total, spent = (current.total or 0) / MICRO, (current.posted + current.suspense) / MICRO
    seen = decisions - period.decisions_before
    runs_out = None
    if spent > 0 and now > period.start:
        runs_out = max(now, period.start + (now - period.start) * total / spent)
    return PeriodState(
        number=period.number,
        start=period.start,
        end=period.end,
        total=in_reply(current.total or 0),
        posted=in_reply(current.posted),
        granted=in_reply(period.granted),
        carried=in_reply(period.carried),
        held=in_reply(period.held),
        changed=in_reply(period.changed),
        tasks=seen,
        tasks_left=left,
        pace=None if left is None else pace_of(spent, total, seen, seen + left),
        runs_out_at=runs_out if runs_out is not None and runs_out < period.end else None,
        renews=renews,
        over=now >= period.end,
    )


def budget_state(account: Account) -> BudgetState:
    """Return the state of an account, in units."""
    total, free = account.total, account.free
    return BudgetState(
        total=None if total is None else in_reply(total),
        reserved=in_reply(account.reserved),
        posted=in_reply(account.posted),
        suspense=in_reply(account.suspense),
        free=None if free is None else in_reply(free),
    )
