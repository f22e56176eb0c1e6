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
        factor, failed = dpotrf(precision, lower=1)
        if failed:
            raise FloatingPointError("a precision is not positive: a context or the ridge is out of all proportion")
        step = dpotrs(factor, right, lower=1)[0] - theta
        if not logistic or step @ precision @ step < CLOSE * max(len(y), 1):
            theta = theta + step  # Newton's steps get smaller by squares: the next one would be of its square
            break
        if iteration == 0:
            best, nothing = log_posterior(z, y, theta, prior, moment), -len(y) * np.log(2.0)
            if not best >= nothing:  # the last coefficients are worse than none
                theta, best = 0.0 * theta, nothing
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
        """Fit every estimate to what the views of now show of the past."""
        done: dict[int, tuple[Ints, int]] = {}
        state = {name: self._ledger.view(name) for name in STATE}
        for target in range(self._shape.n_targets):
            given = embedder.system(target)
            if given is None:
                rows, y = past.labelled(target)
                self._fit(state, target, embedder.embed(past, rows, self._views[target]), y)
                done[target] = rows, self._views[target]
            else:
                state["theta"][target], state["inverse"][target] = given
        self._share(done)

    def _fit(self, state: dict[str, Any], target: int, z: Floats, y: Floats) -> None:
        logistic = self._logistic(target)
        prior, moment = self._ridge + self.old.precision[target], self.old.moment[target]
        found = solve(z, y, state["theta"][target].copy(), prior, moment, logistic)
        for name, value in zip(("theta", "precision", "inverse", "moment"), found, strict=True):
            state[name][target] = value
        for name in ("rounding", "n_stashed", "drifted"):
            state[name][target] = 0
        for name in ("n_absorbed", "n_observed"):
            state[name][target] = round(len(y) + self.old.n[target])
        if not logistic:
            # the penalised sum of squares is Σy² − θᵀΣzy
            squares = float(y @ y) + self.old.squares[target]
            state["misfit"][target] = max(0.0, squares - float(found[0] @ found[3]))

    def _share(self, done: dict[int, tuple[Ints, int]]) -> None:
        """Let the costs of an expert share the design of its rewards where both have the same view and samples."""
        shape, follows = self._shape, self._ledger.view("follows")
        for expert in range(shape.n_experts):
            first = shape.n_deciders + expert * shape.n_resources
            costs = range(first, first + shape.n_resources)
            follows[expert] = (
                shape.link == "identity"
                and expert + 1 in done
                and all(same(done[expert + 1], done[cost]) for cost in costs)
                and not self.old.n.any()
            )


def same(one: tuple[Ints, int], other: tuple[Ints, int]) -> bool:
    """Whether two estimates have the same samples and the same view."""
    return one[1] == other[1] and np.array_equal(one[0], other[0])
