"""Runs of a learner that are looked at along the way: its confidence ellipsoids, and its drift alarms.

The ellipsoid of Lemma 3 is measured by the distance of the true coefficients from the estimates, in its metric.

C_t = {θ : ‖θ − θ̂_t‖_M ≤ β(t)}. The lemma says that θ* lies in C_t for all t ≥ τ, with probability 1 − δ. Looked at on
a grid of times that grows by a tenth each, from the end of the warm-up to the horizon.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from deferkit.errors import InvalidArgument, LinkWarning
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.links import link_named
from deferkit.study.policy_registry import PolicyRun
from deferkit.worlds.base import Floats, TaskStream, Truth

GROWTH = 1.1


def grid(start: int, n: int) -> list[int]:
    """Return times from `start` to n, each a tenth later than the one before.

    >>> grid(10, 14)
    [10, 11, 13, 14]
    """
    times = [start]
    while times[-1] < n:
        times.append(min(n, int(np.ceil(times[-1] * GROWTH))))
    return times


def distance(theta: Floats, inverse: Floats, true: Floats) -> float:
    """Return ‖θ* − θ̂‖_M.

    >>> distance(np.array([1.0]), np.array([[0.25]]), np.array([2.0]))
    2.0
    """
    off = true - theta
    return float(np.sqrt(off @ np.linalg.solve(inverse, off)))


def measure(learner: Deferrer, truth: Truth, probe: Floats) -> tuple[list[float], list[float]]:
    """Return, for each reward and cost, the distance and β: a width is β·√(xᵀM⁻¹x), so any context tells it."""
    beliefs = list(learner.coefficients().values())
    trues = [*truth.thetas, *truth.weights.reshape(-1, len(probe))]
    scores = learner.score(probe[None])
    widths = [w[0] for w in scores.widths.values()] + [w[0, 0] for w in scores.cost_widths.values()]
    distances = [distance(b.theta, b.inverse, true) for b, true in zip(beliefs, trues, strict=True)]
    factors = [w / np.sqrt(probe @ b.inverse @ probe) for b, w in zip(beliefs, widths, strict=True)]
    return distances, factors


def run_and_measure(learner: Deferrer, stream: TaskStream, feedback: str) -> tuple[PolicyRun, dict[str, list[float]]]:
    """Run a learner with one resource over a linear stream, and look at its ellipsoids along the way."""
    truth = stream.truth
    if truth is None or not link_named(stream.link).exact_updates:
        raise InvalidArgument("Coverage is for linear worlds whose truth is known.")
    # the most expensive context: its optimistic cost is not cut at 0, so that its width tells β
    probe = stream.contexts[int(truth.costs[:, 0, 0].argmax())]
    path: dict[str, list[float]] = {"at": [], "distance_at": [], "factor_at": []}

    def look(_: int, end: int) -> None:
        distances, factors = measure(learner, truth, probe)
        path["at"].append(float(end))
        path["distance_at"] += distances
        path["factor_at"] += factors

    times = grid(max(learner.settings.warm_up_steps, 1), stream.n_tasks)
    return run_in_parts(learner, stream, feedback, times, look), path


def run_in_parts(
    learner: Deferrer, stream: TaskStream, feedback: str, ends: Sequence[int], look: Callable[[int, int], None]
) -> PolicyRun:
    """Run a learner over a stream.

    Args:
        learner: A fresh learner.
        stream: The tasks.
        feedback: Which rewards are observed.
        ends: The ends of the parts.
        look: Is called with the start and the end of each part after it; its time does not count.
    """
    routes, prices, seconds = [], [], 0.0
    for start, end in pairwise([0, *ends]):
        part = slice(start, end)
        rewards = {name: stream.rewards[part, i] for i, name in enumerate(learner.settings.deciders)}
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkWarning)  # graded rewards switch an automatic link at the first task
            run = learner.run(stream.contexts[part], rewards, stream.costs[part], feedback=feedback)
        seconds += time.perf_counter() - begin
        routes.append(run.routes)
        prices.append(run.prices)
        look(start, end)
    return PolicyRun(np.concatenate(routes), np.concatenate(prices), seconds / stream.n_tasks * 1e6)


STEP = 50  # tasks between two looks at the alarms: no target raises two within so few


def run_and_watch(learner: Deferrer, stream: TaskStream, feedback: str) -> tuple[PolicyRun, dict[str, list[float]]]:
    """Run a learner over a stream; return how many alarms each target had, and when those of the model came."""
    alarms: dict[str, int] = {}
    alarm_at: list[float] = []

    def look(start: int, _: int) -> None:
        if learner.summary().drifts > sum(alarms.values()):
            for drift in learner.drifts():
                if drift.decision >= start:
                    alarms[drift.target] = alarms.get(drift.target, 0) + 1
                    if drift.target == "model":
                        alarm_at.append(float(drift.decision))

    ends = [*range(STEP, stream.n_tasks, STEP), stream.n_tasks]
    run = run_in_parts(learner, stream, feedback, ends, look)
    targets = [*learner.settings.deciders, *(f"cost of {expert}" for expert in learner.settings.experts)]
    counts = {"alarms": [float(alarms.get(target, 0)) for target in targets], "alarm_at": alarm_at}
    return run, counts
