"""The linear systems on top of a representation, refitted to the training set after each retraining.

For a sample with predictor η = zᵀθ, weight W = μ'(η) and working response η + (y − μ(η))/W,

    P = ridge·I + P_old + Σ W·zzᵀ,     P·θ = b_old + Σ W·z·(working response),

once for the identity link, where W = 1 and the working response is y, and until nothing moves for another (Newton).
P_old and b_old are the discounted sums of tasks that are no longer kept, with their views of that time.
"""

from typing import Any, NamedTuple

import numpy as np

from deferkit.learn.core import fit, mean_and_weight
from deferkit.learn.core.layout import N_LANES, whole_lanes
from deferkit.learn.embed.embedding import Embedder, Shape
from deferkit.learn.embed.training_set import Floats, Ints, TrainingSet
from deferkit.learn.ledger import Ledger
from deferkit.learn.links import Link, link_named

TOLERANCE = 1e-5  # squared Newton decrement, for each sample, of the last step
MIN_JITTER = 1e-14  # relative, added to the diagonal if a factorisation fails
STATE = (
    *("theta", "precision", "inverse", "moment", "rounding"),
    *("n_stashed", "drifted", "n_absorbed", "n_observed", "squared_error"),
)


class RetiredTasks(NamedTuple):
    """Discounted sums over tasks that are no longer kept, for each of G targets.

    Attributes:
        precision: [G, width, width] Σ W·zzᵀ.
        moment: [G, width] Σ W·z·(working response).
        squares: [G] Σ y².
        n: [G] The number of samples.
    """

    precision: Floats
    moment: Floats
    squares: Floats
    n: Floats

    @classmethod
    def zeros(cls, targets: int, width: int) -> "RetiredTasks":
        """Return zeros: no task was dropped yet."""
        shapes = (targets, width, width), (targets, width), (targets,), (targets,)
        return cls(*(np.zeros(shape) for shape in shapes))


def normal_equations(z: Floats, y: Floats, theta: Floats, link: Link) -> tuple[Floats, Floats]:
    """Return Σ W·zzᵀ and Σ W·z·(working response) at these coefficients."""
    if link.exact_updates:
        return z.T @ z, z.T @ y
    mean, weight = mean_and_weight(link.code, z @ theta)
    scaled = z * np.sqrt(weight)[:, None]
    precision = scaled.T @ scaled
    return precision, precision @ theta + (y - mean) @ z


def scaled_errors(z: Floats, y: Floats, theta: Floats, link: Link) -> float:
    """Return the sum of squared errors, each over the variance that the link gives it."""
    mean, weight = mean_and_weight(link.code, z @ theta)
    return float(((y - mean) ** 2 / weight).sum())


def solve(
    z: Floats, y: Floats, theta: Floats, prior: Floats, moment: Floats, link: Link
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return coefficients, precision, its inverse and the moment of one target.

    Args:
        z: [n, width] The views of the samples.
        y: [n] The responses.
        theta: [width] The coefficients to start from.
        prior: [width, width] The precision of the prior.
        moment: [width] The moment of the prior.
        link: The link function.

    >>> z, y = np.array([[1.0], [2.0]]), np.array([1.0, 3.0])
    >>> theta, precision, *_ = solve(z, y, np.zeros(1), np.eye(1), np.zeros(1), link_named("identity"))
    >>> theta, precision
    (array([1.16666667]), array([[6.]]))
    """
    if not link.exact_updates:
        return solve_by_newton(z, y, theta, prior, moment, link)
    from scipy.linalg.lapack import dpotri, dpotrs  # noqa: PLC0415 - an extra

    more, right = normal_equations(z, y, theta, link)
    precision, right = prior + more, moment + right
    factor = cholesky(precision)
    # the difference to the last coefficients is solved for, which loses fewer digits
    found = theta + (dpotrs(factor, right, lower=1)[0] - theta)
    inverse = np.tril(dpotri(factor, lower=1)[0])
    return found, precision, inverse + np.tril(inverse, -1).T, right


def solve_by_newton(
    z: Floats, y: Floats, theta: Floats, prior: Floats, moment: Floats, link: Link
) -> tuple[Floats, Floats, Floats, Floats]:
    """Solve for a link that needs iterations; arguments and result of `solve`."""
    n, d = z.shape
    w = whole_lanes(d)
    samples, precision = np.zeros((n, w + N_LANES)), np.zeros((w, w))
    samples[:, :d], samples[:, w], precision[:d, :d] = z, y, prior
    right, found = np.zeros(w), np.zeros(w)
    right[:d], found[:d] = moment, theta
    information, inverse = fit(link.code, d, samples, precision, right, found, TOLERANCE)
    information, inverse, found = information[:d, :d], inverse[:d, :d], found[:d]
    return found, information, inverse, information @ found


def cholesky(precision: Floats) -> Floats:
    """Return the lower Cholesky factor; the diagonal is raised if the ridge vanishes beside huge contexts."""
    from scipy.linalg.lapack import dpotrf  # noqa: PLC0415 - an extra

    jitter = MIN_JITTER
    factor, failed = dpotrf(precision, lower=1)
    if failed and not np.isfinite(precision).all():  # no jitter would help
        raise ValueError("The precision of an estimate is not finite: its views or responses are too large.")
    while failed:
        factor, failed = dpotrf(precision + np.diag(jitter * np.diag(precision)), lower=1)
        jitter *= 10.0
    return np.asarray(factor)


class FittedSystem(NamedTuple):
    """The fitted system of one target; a frozen embedding has no precision and no moment."""

    theta: Floats
    precision: Floats | None
    inverse: Floats
    moment: Floats | None
    n: float
    squared_error: float


class LinearSystems:
    """Refits the estimates of a learner to the training set.

    Args:
        ledger: Of the learner.
        shape: Sizes, link and seed of the learner.
        views: The view that each target reads.
        width: The length of a view.
        ridge: The ridge penalty λ.
    """

    def __init__(self, ledger: Ledger, shape: Shape, views: list[int], width: int, *, ridge: float) -> None:
        self._ledger = ledger
        self._shape = shape
        self._views = views
        self._ridge = ridge * np.eye(width)
        self.retired = RetiredTasks.zeros(shape.n_targets, width)

    def _link(self, target: int) -> Link:
        return link_named(self._shape.link if target < self._shape.n_deciders else "identity")

    def retire(self, embedder: Embedder, training_set: TrainingSet, n: int, discount: float) -> None:
        """Add the first n tasks, with their current views, to the sums of dropped tasks, which are discounted first."""
        for part in self.retired:
            np.multiply(part, discount, out=part)
        for target in range(self._shape.n_targets) if n > 0 else ():
            rows, y = training_set.select_labelled(target)
            y, rows = y[rows < n], rows[rows < n]
            theta = self._ledger.view("theta")[target]
            z = embedder.embed(training_set, rows, self._views[target])
            more, right = normal_equations(z, y, theta, self._link(target))
            self.retired.precision[target] += more
            self.retired.moment[target] += right
            self.retired.squares[target] += y @ y
            self.retired.n[target] += len(y)

    def rebuild(self, embedder: Embedder, training_set: TrainingSet) -> None:
        """Fit every target to the current views of the training set; nothing is written before all are fitted."""
        state = {name: self._ledger.view(name) for name in STATE}
        labels = [training_set.select_labelled(target) for target in range(self._shape.n_targets)]
        fits = []
        for target, (rows, y) in enumerate(labels):
            z = embedder.embed(training_set, rows, self._views[target])
            given = embedder.system(target)
            fits.append(self._fit(state, target, z, y) if given is None else self._given_system(target, given, z, y))
        for target, found in enumerate(fits):
            for name, value in (("theta", found.theta), ("inverse", found.inverse)):
                state[name][target] = value
            if found.precision is not None:
                state["precision"][target], state["moment"][target] = found.precision, found.moment
            for name in ("rounding", "n_stashed", "drifted"):
                state[name][target] = 0
            for name in ("n_absorbed", "n_observed"):
                state[name][target] = round(found.n)
            state["squared_error"][target] = found.squared_error
        self._share([None if fit.precision is None else rows for fit, (rows, _) in zip(fits, labels, strict=True)])

    def _fit(self, state: dict[str, Any], target: int, z: Floats, y: Floats) -> FittedSystem:
        link, n = self._link(target), len(y) + self.retired.n[target]
        prior, moment = self._ridge + self.retired.precision[target], self.retired.moment[target]
        theta, precision, inverse, right = solve(z, y, state["theta"][target].copy(), prior, moment, link)
        if link.exact_updates:
            # the penalised sum of squares is Σy² − θᵀΣzy
            squared_error = max(0.0, float(y @ y) + self.retired.squares[target] - float(theta @ right))
        elif state["n_observed"][target]:
            # the mean squared error of earlier predictions, times the number of samples now
            squared_error = state["squared_error"][target] * n / state["n_observed"][target]
        else:
            squared_error = scaled_errors(z, y, theta, link)
        return FittedSystem(theta, precision, inverse, right, n, squared_error)

    def _given_system(self, target: int, given: tuple[Floats, Floats], z: Floats, y: Floats) -> FittedSystem:
        """Return a system that the embedder gives, with its squared error."""
        theta, inverse = given
        return FittedSystem(theta, None, inverse, None, len(y), scaled_errors(z, y, theta, self._link(target)))

    def learn(self, target: int, z: Floats, y: float) -> None:
        """Add a sample of a task that is no longer kept, with its old view, to the sums of dropped tasks."""
        theta = self._ledger.view("theta")[target]
        more, right = normal_equations(z[None], np.array([y]), theta, self._link(target))
        self.retired.precision[target] += more
        self.retired.moment[target] += right
        self.retired.squares[target] += y * y
        self.retired.n[target] += 1

    def correct(self, target: int, z: Floats, before: float, after: float) -> None:
        """Correct a sample of a task that is no longer kept, in the sums of dropped tasks."""
        self.retired.moment[target] += (after - before) * z
        self.retired.squares[target] += after * after - before * before

    def _share(self, rows: list[Ints | None]) -> None:
        """Let the costs of an expert share the design of its reward if both have the same view and samples."""
        shape, shares_design, views = self._shape, self._ledger.view("shares_design"), self._views
        for expert in range(shape.n_experts):
            first, own = shape.n_deciders + expert * shape.n_resources, rows[expert + 1]
            costs = range(first, first + shape.n_resources)
            shared = all(views[cost] == views[expert + 1] and same(own, rows[cost]) for cost in costs)
            shares_design[expert] = link_named(shape.link).exact_updates and shared and not self.retired.n.any()


def same(one: Ints | None, other: Ints | None) -> bool:
    """Whether two targets are fitted to the same samples."""
    return one is not None and other is not None and np.array_equal(one, other)
