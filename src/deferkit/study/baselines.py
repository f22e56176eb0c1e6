"""Baselines that do not learn. Each returns the route of every task: 0 for the model, 1 for the expert.

A baseline is a function with the decorator `baseline`, which says how studies call and describe it.
All but `human_only` stop asking for good once another cost is no longer sure to fit the budget, as learners do.
"""

import bisect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.study.confidence import confidence
from deferkit.worlds.base import Floats, TaskStream

Routes = NDArray[np.int64]

STEP = 0.01  # between two thresholds of `best_reject`; of the range of what is expected, where that is estimated
CALIBRATION = 1_000  # tasks that `threshold` is set on


class Limits(NamedTuple):
    """The limits and the seed of a baseline."""

    budgets: Sequence[float]  # of each resource
    max_cost: float  # no task costs more
    seed: int


class Baseline(NamedTuple):
    """A rule that studies know by a name."""

    description: str
    choose: Callable[[TaskStream, Limits], Routes]


BASELINES: dict[str, Baseline] = {}
"""All baselines by name, in the order in which they are listed."""


def baseline(name: str, description: str) -> Callable[[Callable[[TaskStream, Limits], Routes]], Any]:
    """Return a decorator that lists a rule under a name."""

    def decorate(choose: Callable[[TaskStream, Limits], Routes]) -> Any:
        BASELINES[name] = Baseline(description, choose)
        return choose

    return decorate


def within(wanted: NDArray[np.bool_], stream: TaskStream, limits: Limits) -> Routes:
    """Return the decider of each task if the expert is asked where it is wanted and all budgets allow.

    >>> one = np.ones((4, 1, 1))
    >>> stream, limits = TaskStream(np.ones((4, 1)), np.ones((4, 2)), one), Limits([2.0], max_cost=1.0, seed=0)
    >>> within(np.array([True, False, True, True]), stream, limits)
    array([1, 0, 1, 0])
    """
    at = np.flatnonzero(wanted)
    routes = np.zeros(stream.n_tasks, dtype=np.int64)
    routes[at[: affordable(stream.costs[at, 0], limits)]] = 1
    return routes


def affordable(costs: Floats, limits: Limits) -> int:
    """Return the number of these asks [n, R] before another `max_cost` no longer fits a budget."""
    spent_before = np.cumsum(costs, axis=0) - costs
    fits: NDArray[np.bool_] = np.all(spent_before <= np.asarray(limits.budgets) - limits.max_cost, axis=1)
    return len(fits) if fits.all() else int(fits.argmin())


@baseline("model-only", "the model decides every task")
def model_only(stream: TaskStream, _: Limits) -> Routes:
    """Let the model decide every task."""
    return np.zeros(stream.n_tasks, dtype=np.int64)


@baseline("human-only", "the human decides every task, whatever it costs")
def human_only(stream: TaskStream, _: Limits) -> Routes:
    """Ask the first expert every time, without a budget."""
    return np.ones(stream.n_tasks, dtype=np.int64)


@baseline("arbitrary-human", "the human decides from the first task on, until the budget is used")
def arbitrary_human(stream: TaskStream, limits: Limits) -> Routes:
    """Ask the first expert from the first task on, until the budget is used."""
    return within(np.ones(stream.n_tasks, dtype=bool), stream, limits)


def share(stream: TaskStream, limits: Limits) -> float:
    """Return the share of tasks that the tightest budget pays for, at what the first expert costs on average."""
    total = stream.known()[1][:, 0].sum(axis=0)
    return min(1.0, *(b / c if c > 0 else 1.0 for b, c in zip(limits.budgets, total, strict=True)))


@baseline("random", "the human decides at random, at the budget's rate")
def random_human(stream: TaskStream, limits: Limits) -> Routes:
    """Ask the first expert at random, at the rate that uses the budget up at the end."""
    rng = np.random.default_rng(np.random.SeedSequence([limits.seed, 1]))
    return within(rng.random(stream.n_tasks) < share(stream, limits), stream, limits)


@baseline(
    "threshold",
    "the human decides where the model's expected reward is low (on a table, a cross-validated estimate); the threshold"
    " is set once, in advance",
)
def threshold(stream: TaskStream, limits: Limits) -> Routes:
    """Ask where the model is expected to earn no more than a threshold, which is set once and stays.

    Set on the first thousand tasks, so that the share below it would use the budget at what an expert costs on
    average: what a team does that has the model's confidence and a spreadsheet. Both are told; where nobody knows the
    confidence, it is a cross-validated estimate.
    """
    sure = confidence(stream)
    level = np.quantile(sure[:CALIBRATION], share(stream, limits))
    return within(sure <= level, stream, limits)


@baseline("best-reject", "the same with the best threshold in hindsight, in steps of 0.01 (on a table, of the range)")
def best_reject(stream: TaskStream, limits: Limits) -> Routes:
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
        worth.append(gain[at[: affordable(stream.costs[at, 0], limits)]].sum())
    return within(sure < thresholds[int(np.argmax(worth))], stream, limits)


@baseline(
    "confidence-quantile",
    "eleven lines: the human decides where the model's confidence is among the lowest of the last 500 tasks, as many as"
    " the budget left affords; of several experts the one who is right most often",
)
def least_confident(stream: TaskStream, limits: Limits) -> Routes:
    """Ask the best expert where `confidence_quantile` says so, in the first resource.

    The confidence is that of the model where the stream has it, else what the model is expected to earn. Of several
    experts it knows who earns most on average.
    """
    sure = confidence(stream) if stream.confidence is None else stream.confidence
    best = int(np.argmax(stream.known()[0][:, 1:].mean(axis=0)))
    asked = confidence_quantile(sure, stream.costs[:, best, 0], limits.budgets[0], limits.max_cost)
    return np.where(asked, best + 1, 0)


def confidence_quantile(
    confidences: Floats, costs: Floats, budget: float, max_cost: float, *, window: int = 500
) -> NDArray[np.bool_]:
    """Ask where the model's confidence is among the lowest that the budget left affords; return which tasks [n].

    The rule of eleven lines that most teams write first. share = (budget left / mean cost so far) / tasks left; ask if
    the confidence is at most the `share`-quantile of the last 500 and the budget left covers `max_cost`. It believes
    that the expert is worth it and that low confidence is where to ask, and learns nothing else.

    Args:
        confidences: Of the model in its own answers, in the order of the tasks.
        costs: Of asking the expert; a cost is known once it was paid.
        budget: The total.
        max_cost: No task costs more; also the mean cost until one was paid.
        window: How many confidences, the current one included, make the quantile.

    >>> confidence_quantile(np.array([0.9, 0.8, 0.95, 0.5]), np.ones(4), budget=2.0, max_cost=1.0)
    array([ True,  True, False, False])
    """
    n, left, spent, asks = len(confidences), float(budget), 0.0, 0
    asked = np.zeros(n, dtype=bool)
    recent: list[float] = []  # the window, sorted: its quantiles are then cheap
    values = [float(each) for each in confidences]
    for t, confidence_now in enumerate(values):
        if left < max_cost:
            break
        if len(recent) == window:
            del recent[bisect.bisect_left(recent, values[t - window])]
        bisect.insort(recent, confidence_now)
        mean_cost = spent / asks if asks else max_cost
        share = min(1.0, left / mean_cost / (n - t)) if mean_cost > 0 else 1.0
        if confidence_now <= sorted_quantile(recent, share):
            asked[t] = True
            asks += 1
            spent += float(costs[t])
            left = budget - spent
    return asked


def sorted_quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, with linear interpolation as in `numpy.quantile`.

    >>> sorted_quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    at = share * (len(values) - 1)
    below = int(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (at - below) * (values[above] - values[below])
