"""Baselines that do not learn. Each returns the route of every task: 0 for the model, 1 for the expert.

All but `human_only` stop asking for good once another cost is no longer sure to fit the budget, as learners do.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deferkit.study.confidence import confidence
from deferkit.worlds.task_stream import Floats, TaskStream

Routes = NDArray[np.int64]

STEP = 0.01  # between two thresholds of `best_reject`; of the range of what is expected, where that is estimated
CALIBRATION = 1_000  # tasks that `threshold` is set on


def within(wanted: NDArray[np.bool_], stream: TaskStream, budgets: Sequence[float], max_cost: float) -> Routes:
    """Return who decides if the expert is asked where it is wanted and all budgets allow.

    >>> one = np.ones((4, 1, 1))
    >>> within(np.array([True, False, True, True]), TaskStream(np.ones((4, 1)), np.ones((4, 2)), one), [2.0], 1.0)
    array([1, 0, 1, 0])
    """
    at = np.flatnonzero(wanted)
    routes = np.zeros(stream.n_tasks, dtype=np.int64)
    routes[at[: affordable(stream.costs[at, 0], budgets, max_cost)]] = 1
    return routes


def affordable(costs: Floats, budgets: Sequence[float], max_cost: float) -> int:
    """Return how many of these asks [n, R] are made before another `max_cost` does not fit a budget any more."""
    spent_before = np.cumsum(costs, axis=0) - costs
    fits: NDArray[np.bool_] = np.all(spent_before <= np.asarray(budgets) - max_cost, axis=1)
    return len(fits) if fits.all() else int(fits.argmin())


def model_only(stream: TaskStream) -> Routes:
    """Let the model decide every task."""
    return np.zeros(stream.n_tasks, dtype=np.int64)


def human_only(stream: TaskStream) -> Routes:
    """Ask the first expert every time, without a budget."""
    return np.ones(stream.n_tasks, dtype=np.int64)


def arbitrary_human(stream: TaskStream, budgets: Sequence[float], max_cost: float) -> Routes:
    """Ask the first expert from the first task on, until the budget is used."""
    return within(np.ones(stream.n_tasks, dtype=bool), stream, budgets, max_cost)


def share(stream: TaskStream, budgets: Sequence[float]) -> float:
    """Return the share of tasks that the tightest budget pays for, at what the first expert costs on average."""
    total = stream.known()[1][:, 0].sum(axis=0)
    return min(1.0, *(b / c if c > 0 else 1.0 for b, c in zip(budgets, total, strict=True)))


def random_human(stream: TaskStream, budgets: Sequence[float], max_cost: float, rng: np.random.Generator) -> Routes:
    """Ask the first expert at random, at the rate that uses the budget up at the end."""
    return within(rng.random(stream.n_tasks) < share(stream, budgets), stream, budgets, max_cost)


def threshold(stream: TaskStream, budgets: Sequence[float], max_cost: float) -> Routes:
    """Ask where the model is expected to earn no more than a threshold, which is set once and stays.

    Set on the first thousand tasks, so that the share below it would use the budget at what an expert costs on
    average: what a team does that has the model's confidence and a spreadsheet. Both are told; where nobody knows the
    confidence, it is a cross-validated estimate.
    """
    sure = confidence(stream)
    level = np.quantile(sure[:CALIBRATION], share(stream, budgets))
    return within(sure <= level, stream, budgets, max_cost)


def best_reject(stream: TaskStream, budgets: Sequence[float], max_cost: float) -> Routes:
    """Ask where the model is expected to earn less than a threshold: the best of all steps of 0.01, in hindsight.

    It knows what the model is expected to earn (a cross-validated estimate of it, where nobody knows; then the steps
    are hundredths of its range), and nothing of the expert.
    """
    rewards, _ = stream.known()
    sure, gain = confidence(stream), rewards[:, 1] - rewards[:, 0]
    low, high = float(sure.min()), float(sure.max())
    step = STEP if stream.truth is not None or high - low <= abs(high) * 1e-9 else STEP * (high - low)
    thresholds = np.arange(np.floor(low / step), np.floor(high / step) + 2) * step
    worth = []
    for each in thresholds:
        at = np.flatnonzero(sure < each)
        worth.append(gain[at[: affordable(stream.costs[at, 0], budgets, max_cost)]].sum())
    return within(sure < thresholds[int(np.argmax(worth))], stream, budgets, max_cost)
