"""Pace of a budget, and the forecast of when it is exhausted at the recent rate of spending."""

from typing import NamedTuple

RECENT_SHARE = 0.2  # share of all decisions that the recent rate is computed from
MIN_RECENT = 50  # decisions, at least, if there are so many


class Spending(NamedTuple):
    """Cumulative spending at a time."""

    at: float  # seconds
    decisions: int
    spent: float


class Pace(NamedTuple):
    """The pace of a budget, and how far its plan is."""

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
    """Return when a budget is exhausted at the rate of spending between two moments.

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
