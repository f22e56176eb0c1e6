"""Days of office hours in fast motion: each lasts a minute, and has a budget of its own."""

import time
from collections.abc import Callable
from dataclasses import replace

from deferkit.types import Budget

DAY_S = 60.0  # the shortest period that a budget can have
OFFICE_S = 8 / 24 * DAY_S  # a day begins when the office opens


def daily(budget: Budget, days: int) -> Budget:
    """Return a budget that is shared out over days; what a day does not use lapses.

    >>> daily(Budget(30, horizon=900, max_cost=2), days=3).total
    10.0
    """
    each = max(round(budget.total / days, 6), budget.max_cost or 0.0)
    return replace(budget, total=each, horizon=None, every="1min", hold="auto")


def from_now(budget: Budget) -> Budget:
    """Return a budget whose first day begins now, if it has days."""
    return budget if budget.every is None else replace(budget, start=time.time())


def schedule(n_tasks: int, days: int) -> Callable[[int], float]:
    """Return when a task comes, by its place, in seconds: in the office hours of its day, most of them in the middle.

    >>> comes = schedule(n_tasks=90, days=3)
    >>> [round(comes(place), 1) for place in (0, 15, 29, 30, 89)]
    [0.0, 10.0, 18.9, 60.0, 138.9]
    """

    def comes(place: int) -> float:
        day, share = divmod(place * days / n_tasks, 1.0)
        evened = share - 0.5
        noon = 0.5 + evened * (0.6 + 1.6 * evened * evened)  # flat in the middle: tasks are close to each other there
        return DAY_S * day + OFFICE_S * noon

    return comes
