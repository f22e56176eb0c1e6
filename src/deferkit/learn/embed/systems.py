"""The linear systems on top of a representation, rebuilt from the past when the representation has changed.

For a sample with predictor η = zᵀθ, weight W = μ'(η) and working response η + (y − μ(η))/W,

    P = ridge·I + P_old + Σ W·zzᵀ,     P·θ = b_old + Σ W·z·(working response),

once for the identity link, where W = 1 and the working response is y, and until nothing moves for another (Newton).
P_old and b_old are what is left of tasks that are no longer kept, as the views of their time saw them.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from deferkit.learn.embed.embedding import Embedder, Shape
from deferkit.learn.embed.past import Floats, Ints, Past
from deferkit.learn.glm import LEAST_WEIGHT
from deferkit.learn.ledger import Ledger

NEWTON_STEPS = 25
CLOSE = 1e-5  # a squared Newton decrement, for each sample, whose step leaves nothing to do
HALVINGS = 30
LEAST_RAISE = 1e-14  # of the diagonal
BLOCK = 1_024  # samples that fit the cache
STATE = (
    *("theta", "precision", "inverse", "moment", "rounding"),
    *("n_stashed", "drifted", "n_absorbed", "n_observed", "misfit"),
)


class Old(NamedTuple):
    """What is left of tasks that are no longer kept, for each estimate."""

    precision: Floats  # [G, width, width]
    moment: Floats  # [G, width]
    squares: Floats  # [G] Σy²
    n: Floats  # [G]

    @classmethod
    def nothing(cls, targets: int, width: int) -> "Old":
        """Return what is left of no tasks."""
        shapes = (targets, width, width), (targets, width), (targets,), (targets,)
        return cls(*(np.zeros(shape) for shape in shapes))


def mean_and_slope(logistic: bool, eta: Floats) -> tuple[Floats, Floats]:
    """Return μ(η) and μ'(η)."""
    if not logistic:
        return eta, np.ones_like(eta)
    mean = 0.5 * (1.0 + np.tanh(0.5 * eta))
    return mean, np.maximum(mean * (1.0 - mean), LEAST_WEIGHT)


def normal_equations(z: Floats, y: Floats, theta: Floats, logistic: bool) -> tuple[Floats, Floats]:
    """Return Σ W·zzᵀ and Σ W·z·(working response) at these coefficients."""
    if not logistic:
        return z.T @ z, z.T @ y
    precision, right = np.zeros((len(theta), len(theta))), np.zeros(len(theta))
    for start in range(0, len(y), BLOCK):
        part = z[start : start + BLOCK]
        mean, weight = mean_and_slope(True, part @ theta)
        scaled = part * np.sqrt(weight)[:, None]
        precision += scaled.T @ scaled
        right += (y[start : start + BLOCK] - mean) @ part
    return precision, precision @ theta + right


def scaled_errors(z: Floats, y: Floats, theta: Floats, logistic: bool) -> float:
    """Return the sum of squared errors, each over the variance that the link gives it."""
    mean, slope = mean_and_slope(logistic, z @ theta)
    return float(((y - mean) ** 2 / slope).sum())


def log_posterior(z: Floats, y: Floats, theta: Floats, prior: Floats, moment: Floats) -> float:
    """Return the penalised log-likelihood of a logistic model."""
    eta = z @ theta
    return float(y @ eta - np.logaddexp(0.0, eta).sum() - 0.5 * theta @ prior @ theta + moment @ theta)


def solve(
    z: Floats, y: Floats, theta: Floats, prior: Floats, moment: Floats, logistic: bool
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return coefficients, precision, its inverse and the moment of one estimate, starting from these coefficients.

    >>> z, y = np.array([[1.0], [2.0]]), np.array([1.0, 3.0])
    >>> theta, precision, *_ = solve(z, y, np.zeros(1), np.eye(1), np.zeros(1), logistic=False)
    >>> theta, precision
    (array([1.16666667]), array([[6.]]))
    """
    best = -np.inf
    for iteration in range(NEWTON_STEPS):
        more, right = normal_equations(z, y, theta, logistic)
        precision, right = prior + more, moment + right
        factor = cholesky(precision)
        step = dpotrs(factor, right, lower=1)[0] - theta
        if not logistic or step @ precision @ step < CLOSE * max(len(y), 1):
            theta = theta + step  # Newton's steps get smaller by squares: the next one would be of its square
            break
        if iteration == 0:
            best, nothing = log_posterior(z, y, theta, prior, moment), -len(y) * np.log(2.0)
            if not best >= nothing:  # the last coefficients are worse than none
                theta, best = np.zeros_like(theta), nothing
                continue
        value = log_posterior(z, y, theta + step, prior, moment)
        for _ in range(HALVINGS):
            if value >= best:
                break
            step = 0.5 * step
            value = log_posterior(z, y, theta + step, prior, moment)
        theta, best = theta + step, value
    inverse = np.tril(dpotri(factor, lower=1)[0])
    return theta, precision, inverse + np.tril(inverse, -1).T, right


def cholesky(precision: Floats) -> Floats:
    """Return the lower Cholesky factor; where the ridge drowns beside a huge context, the diagonal is raised first."""
    raised = LEAST_RAISE
    factor, failed = dpotrf(precision, lower=1)
    while failed:
        factor, failed = dpotrf(precision + np.diag(raised * np.diag(precision)), lower=1)
        raised *= 10.0
    return np.asarray(factor)


class Fit(NamedTuple):
    """What is found for one estimate."""

    theta: Floats
    precision: Floats | None
    inverse: Floats
    moment: Floats | None
    n: float
    misfit: float


class Systems:
    """Rebuilds the estimates of a learner from the past."""

    def __init__(self, ledger: Ledger, shape: Shape, views: list[int], width: int, *, ridge: float) -> None:
        self._ledger = ledger
        self._shape = shape
        self._views = views
        self._ridge = ridge * np.eye(width)
        self.old = Old.nothing(shape.n_targets, width)

    def _logistic(self, target: int) -> bool:
        return self._shape.link == "logistic" and target < self._shape.n_deciders

    def retire(self, embedder: Embedder, past: Past, n: int, discount: float) -> None:
        """Keep what the first n tasks taught, as they are seen now, with all that is older weighing less."""
        for part in self.old:
            np.multiply(part, discount, out=part)
        for target in range(self._shape.n_targets) if n > 0 else ():
            rows, y = past.labelled(target)
            y, rows = y[rows < n], rows[rows < n]
            theta = self._ledger.view("theta")[target]
            z = embedder.embed(past, rows, self._views[target])
            more, right = normal_equations(z, y, theta, self._logistic(target))
            self.old.precision[target] += more
            self.old.moment[target] += right
            self.old.squares[target] += y @ y
            self.old.n[target] += len(y)

    def rebuild(self, embedder: Embedder, past: Past) -> None:
        """Fit every estimate to what the views of now show of the past; nothing is written before all are found."""
        state = {name: self._ledger.view(name) for name in STATE}
        labels = [past.labelled(target) for target in range(self._shape.n_targets)]
        fits = []
        for target, (rows, y) in enumerate(labels):
            z = embedder.embed(past, rows, self._views[target])
            given = embedder.system(target)
            fits.append(self._fit(state, target, z, y) if given is None else self._take(target, given, z, y))
        for target, fit in enumerate(fits):
            for name, value in (("theta", fit.theta), ("inverse", fit.inverse)):
                state[name][target] = value
            if fit.precision is not None:
                state["precision"][target], state["moment"][target] = fit.precision, fit.moment
            for name in ("rounding", "n_stashed", "drifted"):
                state[name][target] = 0
            for name in ("n_absorbed", "n_observed"):
                state[name][target] = round(fit.n)
            state["misfit"][target] = fit.misfit
        self._share([None if fit.precision is None else rows for fit, (rows, _) in zip(fits, labels, strict=True)])

    def _fit(self, state: dict[str, Any], target: int, z: Floats, y: Floats) -> Fit:
        logistic, n = self._logistic(target), len(y) + self.old.n[target]
        prior, moment = self._ridge + self.old.precision[target], self.old.moment[target]
        theta, precision, inverse, right = solve(z, y, state["theta"][target].copy(), prior, moment, logistic)
        if not logistic:
            # the penalised sum of squares is Σy² − θᵀΣzy
            misfit = max(0.0, float(y @ y) + self.old.squares[target] - float(theta @ right))
        elif state["n_observed"][target]:
            # errors of predictions that were made before, for as many samples as there are now
            misfit = state["misfit"][target] * n / state["n_observed"][target]
        else:
            misfit = scaled_errors(z, y, theta, logistic)
        return Fit(theta, precision, inverse, right, n, misfit)

    def _take(self, target: int, given: tuple[Floats, Floats], z: Floats, y: Floats) -> Fit:
        """Take a system as it is given, and see how well it does."""
        theta, inverse = given
        return Fit(theta, None, inverse, None, len(y), scaled_errors(z, y, theta, self._logistic(target)))

    def learn(self, target: int, z: Floats, y: float) -> None:
        """Learn a sample of a task that is no longer kept, as the view of its time saw it."""
        theta = self._ledger.view("theta")[target]
        more, right = normal_equations(z[None], np.array([y]), theta, self._logistic(target))
        self.old.precision[target] += more
        self.old.moment[target] += right
        self.old.squares[target] += y * y
        self.old.n[target] += 1

    def correct(self, target: int, z: Floats, before: float, after: float) -> None:
        """Correct a sample of a task that is no longer kept."""
        self.old.moment[target] += (after - before) * z
        self.old.squares[target] += after * after - before * before

    def _share(self, rows: list[Ints | None]) -> None:
        """Let the costs of an expert share the design of its rewards where both have the same view and samples."""
        shape, follows, views = self._shape, self._ledger.view("follows"), self._views
        for expert in range(shape.n_experts):
            first, own = shape.n_deciders + expert * shape.n_resources, rows[expert + 1]
            costs = range(first, first + shape.n_resources)
            alike = all(views[cost] == views[expert + 1] and same(own, rows[cost]) for cost in costs)
            follows[expert] = shape.link == "identity" and alike and not self.old.n.any()


def same(one: Ints | None, other: Ints | None) -> bool:
    """Whether two estimates are fitted to the same samples."""
    return one is not None and other is not None and np.array_equal(one, other)
