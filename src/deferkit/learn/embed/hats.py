"""Additive models: ridge regression on hat functions of each feature, without folds and without a penalty to choose.

A feature has up to six knots at quantiles, and a hat function for each knot: linear between knots, constant outside. A
feature with two values has an indicator. Coefficients are averaged over ten penalties, with weights by their exact
leave-one-out errors, which one eigendecomposition gives for all penalties.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_finite, check_shapes
from deferkit.learn.embed._passes import hat_rows
from deferkit.learn.embed.threads import one_thread
from deferkit.learn.embed.training_set import Floats, Ints

Hats = dict[str, NDArray[Any]]

MAX_KNOTS = 6
MAX_COLUMNS = 480  # of a design; with more features there are fewer knots, then none
MAX_SAMPLES = 4_000  # that a model is fitted to, evenly chosen
MIN_SAMPLES = 8  # with fewer the mean is predicted
GUESSES = 2  # pseudo-samples of the mean
PENALTIES = np.logspace(-1, 3.5, 10)
MAX_LEVERAGE = 0.95  # a sample that determines its own fit has no leave-one-out error to speak of


def no_hats(n_features: int, n_targets: int) -> Hats:
    """Return the arrays of additive models that were not fitted."""
    return {
        "knots": np.zeros((n_features, MAX_KNOTS)),
        "n_knots": np.zeros(n_features, dtype=np.int64),
        "heights": np.zeros((n_targets, n_features, MAX_KNOTS)),
        "levels": np.zeros((n_targets, 3)),  # constant, least and largest prediction
    }


def place_knots(x: Floats) -> Hats:
    """Return models without heights, with knots at quantiles of these contexts; a constant feature has none.

    >>> hats = place_knots(np.array([[1.0, 0.0, 0.5], [1.0, 1.0, 0.6], [1.0, 1.0, 0.9]]))
    >>> hats["n_knots"].tolist(), hats["knots"][2, :3].tolist()
    ([0, 2, 3], [0.5, 0.6, 0.9])
    """
    hats = no_hats(x.shape[1], 0)
    most = min(MAX_KNOTS, MAX_COLUMNS // x.shape[1])
    if most < 2:
        return hats
    for j, values in enumerate(x.T):
        knots = np.unique(values)
        if len(knots) > most:
            ordered = np.sort(values)
            # quantiles that are values: nothing depends on how a library interpolates
            knots = np.unique(ordered[np.linspace(0, len(values) - 1, most).round().astype(np.int64)])
        if len(knots) >= 2:
            hats["knots"][j, : len(knots)] = knots
            hats["n_knots"][j] = len(knots)
    return hats


def hat_design(hats: Hats, x: Floats) -> tuple[Floats, Ints, Ints]:
    """Return the design matrix of contexts, and the feature and the knot of each of its columns."""
    parts, features, places = [np.zeros((len(x), 0))], [], []
    for j in np.flatnonzero(hats["n_knots"]).tolist():
        knots = hats["knots"][j, : hats["n_knots"][j]]
        used = range(1, 2) if len(knots) == 2 else range(len(knots))  # two values: the second one has an indicator
        parts.append(np.column_stack([np.interp(x[:, j], knots, np.eye(len(knots))[k]) for k in used]))
        features += [j] * len(used)
        places += used
    return np.hstack(parts), np.array(features, dtype=np.int64), np.array(places, dtype=np.int64)


def average_ridge(z: Floats, y: Floats) -> tuple[Floats, float, Floats]:
    """Return coefficients and intercept, averaged over the penalties, and the leave-one-out predictions."""
    n = len(y)
    center, level = z.mean(axis=0), float(y.mean())
    z = z - center
    wide = z.shape[1] > n
    values, vectors = np.linalg.eigh(z @ z.T if wide else z.T @ z)
    used = values > 1e-9 * max(float(values.max(initial=0.0)), 1e-12)
    values, vectors = values[used], vectors[:, used]
    roots = np.sqrt(values)
    left, right = (vectors, z.T @ vectors / roots) if wide else (z @ vectors / roots, vectors)
    projected = left.T @ (y - level)
    shrunk = values[:, None] / (values[:, None] + PENALTIES)
    leverage = np.minimum(1 / n + (left * left) @ shrunk, MAX_LEVERAGE)
    errors = (y[:, None] - level - left @ (shrunk * projected[:, None])) / (1 - leverage)
    loss = (errors**2).sum(axis=0)
    weights = np.exp(-(loss - loss.min()) / (2 * max(float(loss.min()) / n, 1e-12)))
    weights /= weights.sum()
    coefficients = right @ ((shrunk @ weights) * projected / roots)
    return coefficients, level - float(center @ coefficients), y - errors @ weights


def fit_hats(x: Floats, labels: list[tuple[Ints, Floats]], n_deciders: int) -> tuple[Hats, Floats]:
    """Return additive models of all targets, and what they predict of each task [n, targets].

    A task that a model was fitted to is predicted without it.
    """
    hats = place_knots(x) | {k: a for k, a in no_hats(x.shape[1], len(labels)).items() if k in ("heights", "levels")}
    rewards = np.concatenate([y for _, y in labels[:n_deciders]])
    guess = float(rewards.mean()) if len(rewards) else 0.0
    design, features, places = hat_design(hats, x)
    fitted = []
    for target, (rows, y) in enumerate(labels):
        chosen = np.arange(0, len(y), -(-len(y) // MAX_SAMPLES) or 1)
        if target >= n_deciders:
            guess = float(y.mean()) if len(y) else 0.0
        mean = (y.sum() + GUESSES * guess) / (len(y) + GUESSES)
        without = ((y.sum() - y[chosen]) + GUESSES * guess) / (len(y) - 1 + GUESSES)
        bounds = (float(y.min()), float(y.max())) if len(y) else (mean, mean)
        hats["levels"][target] = mean, min(mean, bounds[0]), max(mean, bounds[1])
        if len(y) >= MIN_SAMPLES and y.min() < y.max() and len(features):
            with one_thread():
                heights, level, without = average_ridge(design[rows[chosen]], y[chosen])
            hats["heights"][target, features, places] = heights
            hats["levels"][target] = level, *bounds
        fitted.append((rows[chosen], np.clip(without, *hats["levels"][target, 1:])))
    predicted = np.zeros((len(x), len(labels)))
    write_hats(hats, x, predicted, 0)
    for target, (rows, without) in enumerate(fitted):
        predicted[rows, target] = without
    return hats, predicted


def write_hats(hats: Hats, x: Floats, out: Floats, first: int) -> None:
    """Write the predictions for each row of x to the columns of `out` from `first` on."""
    hat_rows(x, hats["knots"], hats["n_knots"], hats["heights"], hats["levels"], out, first)


def check_hats(hats: Hats, n_features: int, n_targets: int) -> None:
    """Raise ValueError unless these are additive models of this shape, with increasing knots."""
    expected = no_hats(n_features, n_targets)
    check_shapes(hats, {k: a.shape for k, a in expected.items()}, {k: a.dtype.kind for k, a in expected.items()})
    check_finite(hats, ["knots", "heights", "levels"])
    n = hats["n_knots"]
    between = np.arange(1, MAX_KNOTS) < n[:, None]
    if ((n < 0) | (n > MAX_KNOTS) | (n == 1)).any() or (np.diff(hats["knots"], axis=1) <= 0.0)[between].any():
        raise ValueError("the additive models have knots that are out of order")
