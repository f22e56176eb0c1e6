"""Rules that learn nothing, to compare with. Each returns the route of every task: 0 for the model, 1 for the expert.

All but `human_only` stop asking for good once another cost is no longer sure to fit the budget, as learners do.
"""

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds.stream import Floats, Stream

Routes = NDArray[np.int64]

STEP = 0.01  # between two thresholds of `best_reject`
CALIBRATION = 1_000  # tasks that `threshold` is set on


def within(wanted: NDArray[np.bool_], stream: Stream, budget: float, max_cost: float) -> Routes:
    """Return who decides if the expert is asked where it is wanted and the budget allows.

    >>> one = np.ones((4, 1, 1))
    >>> within(np.array([True, False, True, True]), Stream(np.ones((4, 1)), np.ones((4, 2)), one), 2.0, 1.0)
    array([1, 0, 1, 0])
    """
    costs = np.where(wanted, stream.costs[:, 0, 0], 0.0)
    spent_before = np.cumsum(costs) - costs
    return (wanted & (spent_before <= budget - max_cost)).astype(np.int64)


def model_only(stream: Stream) -> Routes:
    """Let the model decide every task."""
    return np.zeros(stream.n_tasks, dtype=np.int64)


def human_only(stream: Stream) -> Routes:
    """Ask the first expert every time, whatever that costs: it does not know of a budget."""
    return np.ones(stream.n_tasks, dtype=np.int64)


def arbitrary_human(stream: Stream, budget: float, max_cost: float) -> Routes:
    """Ask the first expert from the first task on, until the budget is used."""
    return within(np.ones(stream.n_tasks, dtype=bool), stream, budget, max_cost)


def random_human(stream: Stream, budget: float, max_cost: float, rng: np.random.Generator) -> Routes:
    """Ask the first expert at random, at the rate that uses the budget up at the end."""
    total = float(stream.known()[1][:, 0, 0].sum())
    rate = min(1.0, budget / total) if total > 0 else 1.0
    return within(rng.random(stream.n_tasks) < rate, stream, budget, max_cost)


def threshold(stream: Stream, budget: float, max_cost: float) -> Routes:
    """Ask where the model is expected to earn no more than a threshold, which is set once and stays.

    Set on the first thousand tasks, so that the share below it would use the budget at what an expert costs on
    average: what a team does that has the model's confidence and a spreadsheet. Both are told.
    """
    rewards, costs = stream.known()
    total = float(costs[:, 0, 0].sum())
    share = min(1.0, budget / total) if total > 0 else 1.0
    confidence = rewards[:, 0]
    return within(confidence <= np.quantile(confidence[:CALIBRATION], share), stream, budget, max_cost)


def best_reject(stream: Stream, budget: float, max_cost: float) -> Routes:
    """Ask where the model is expected to earn less than a threshold: the best threshold in steps of 0.01, in hindsight.

    It knows what the model is expected to earn, and is the best of all rules that know nothing of the expert.
    """
    rewards, _ = stream.known()
    confidence, gain = rewards[:, 0], rewards[:, 1] - rewards[:, 0]
    cost = stream.costs[:, 0, 0]
    low = np.floor(confidence.min() / STEP)
    thresholds = np.arange(low, np.ceil(confidence.max() / STEP) + 1) * STEP
    worth = [gained(confidence < each, gain, cost, budget - max_cost) for each in thresholds]
    return within(confidence < thresholds[int(np.argmax(worth))], stream, budget, max_cost)


def gained(wanted: NDArray[np.bool_], gain: Floats, cost: Floats, room: float) -> float:
    """Return what asking where it is wanted gains, until more than `room` is spent."""
    at = np.flatnonzero(wanted)
    if room < 0:
        return 0.0
    asked = int(np.searchsorted(np.cumsum(cost[at]), room, side="right")) + 1
    return float(gain[at[:asked]].sum())
