"""Distance of the true coefficients from the estimates, in the metric of the confidence ellipsoid of Lemma 3.

C_t = {θ : ‖θ − θ̂_t‖_M ≤ β(t)}. The lemma says that θ* lies in C_t for all t ≥ τ, with probability 1 − δ. Looked at on
a grid of times that grows by a tenth each, from the end of the warm-up to the horizon.
"""

import time

import numpy as np

from deferkit.errors import InvalidArgument
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
    if stream.truth is None or not link_named(stream.link).exact_updates:
        raise InvalidArgument("Coverage is for linear worlds whose truth is known.")
    rewards = {name: stream.rewards[:, i] for i, name in enumerate(learner.settings.deciders)}
    # the most expensive context: its optimistic cost is not cut at 0, so that its width tells β
    probe = stream.contexts[int(stream.truth.costs[:, 0, 0].argmax())]
    routes, prices = [], []
    path: dict[str, list[float]] = {"at": [], "distance_at": [], "factor_at": []}
    before, seconds = 0, 0.0
    for t in grid(max(learner.settings.warm_up_steps, 1), stream.n_tasks):
        part = slice(before, t)
        begin = time.perf_counter()
        run = learner.run(
            stream.contexts[part],
            {name: column[part] for name, column in rewards.items()},
            stream.costs[part],
            feedback=feedback,
        )
        seconds += time.perf_counter() - begin
        routes.append(run.routes)
        prices.append(run.prices)
        distances, factors = measure(learner, stream.truth, probe)
        path["at"].append(float(t))
        path["distance_at"] += distances
        path["factor_at"] += factors
        before = t
    return PolicyRun(np.concatenate(routes), np.concatenate(prices), seconds / stream.n_tasks * 1e6), path
