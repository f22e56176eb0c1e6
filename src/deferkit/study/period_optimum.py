"""The best that could be done with a renewing budget, for someone who knows all tasks to come.

Tasks may be asked about in part, as in a linear programme. Without carry-over each period is a knapsack of its own. If
nothing lapses, what is spent up to the end of each period is bounded: those sets are nested, so that taking tasks by
gain per cost, as far as every bound allows, is optimal.
"""

import numpy as np
from numpy.typing import NDArray

from deferkit.types import Budget
from deferkit.worlds.task_stream import Floats

LEAST_COST = 1e-9  # a task that costs less is free


def period_numbers(times: Floats, budget: Budget) -> NDArray[np.int64]:
    """Return the period of each task, counted from that of the first; all in one if the budget does not renew.

    >>> period_numbers(np.array([0.0, 3_599.0, 3_600.0, 9_000.0]), Budget(1, every="1h", start=0)).tolist()
    [0, 0, 1, 2]
    """
    if budget.every is None or len(times) == 0:
        return np.zeros(len(times), dtype=np.int64)
    schedule = budget.schedule
    ends = [schedule.containing(float(times[0]))[1]]
    while ends[-1] <= times[-1]:
        ends.append(schedule.following(ends[-1]))
    return np.searchsorted(np.array(ends), times, side="right").astype(np.int64)


def best_shares(gains: Floats, costs: Floats, periods: NDArray[np.int64], budget: Budget) -> Floats:
    """Return the share of each task that is best asked about; with any carry-over as if nothing lapsed.

    Args:
        gains: [n] What asking is expected to gain.
        costs: [n] What it is expected to cost.
        periods: [n] The period of each task, not decreasing.
        budget: Its total is that of one period.
    """
    dear = np.maximum(costs, LEAST_COST)
    order = np.argsort(-gains / dear, kind="stable")
    order = order[gains[order] > 0]
    shares = np.zeros(len(gains))
    if budget.carry > 0 and budget.every is not None:
        room = float(budget.total) * np.arange(1, int(periods[-1]) + 2)  # up to the end of each period
        for task in order:
            first = periods[task]
            use = min(dear[task], room[first:].min())
            if use > 0:
                shares[task] = use / dear[task]
                room[first:] -= use
        return shares
    for period in np.unique(periods):
        chosen = order[periods[order] == period]
        before = np.concatenate([[0.0], np.cumsum(dear[chosen])[:-1]])
        shares[chosen] = np.clip((budget.total - before) / dear[chosen], 0.0, 1.0)
    return shares
