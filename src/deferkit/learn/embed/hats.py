"""Additive models: ridge regression on hat functions and on lines, without folds and without a penalty to choose.

A feature has up to six knots at quantiles, and a hat function for each knot: linear between knots, constant outside. A
feature with two values has an indicator. Coefficients are averaged over ten penalties, of hat functions and of lines,
with weights by their exact leave-one-out errors, which one eigendecomposition gives for all penalties. The average is
a sum of piecewise linear functions too.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_finite, check_shapes
from deferkit.learn.embed._passes import hat_rows
from deferkit.learn.embed.boosting import one_thread
from deferkit.learn.embed.training_set import Floats, Ints

Hats = dict[str, NDArray[Any]]

MAX_KNOTS = 6
MAX_COLUMNS = 480  # of a design; with more features there are fewer knots, then none
MAX_SAMPLES = 4_000  # that a model is fitted to, evenly chosen
MIN_SAMPLES = 8  # with fewer the mean is predicted
GUESSES = 2  # pseudo-samples of the mean
PENALTIES = np.logspace(-1, 3.5, 10)


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


def bases_of(hats: Hats, x: Floats) -> list[tuple[Ints, Floats]]:
    """Return two bases, hat functions and lines: the feature of each function and its values at the knots.

    A feature with two values has an indicator in both. Lines have the standard deviation 1 on these contexts.
    """
    found: list[list[tuple[int, Floats]]] = [[], []]
    for j in np.flatnonzero(hats["n_knots"]).tolist():
        n = hats["n_knots"][j]
        line = np.zeros(MAX_KNOTS)
        line[:n] = hats["knots"][j, :n] - hats["knots"][j, 0]
        size = float(np.std(x[:, j])) if n > 2 else line[1]
        line /= size if size > 0.0 else 1.0
        found[0] += [(j, each) for each in np.eye(MAX_KNOTS)[:n]] if n > 2 else [(j, line)]
        found[1].append((j, line))
    return [(np.array([j for j, _ in basis]), np.array([values for _, values in basis])) for basis in found]


def design_of(hats: Hats, x: Floats, basis: tuple[Ints, Floats]) -> Floats:
    """Return the functions of a basis at contexts [n, functions]: linear between knots, constant outside."""
    n = hats["n_knots"]
    each = [np.interp(x[:, j], hats["knots"][j, : n[j]], values[: n[j]]) for j, values in zip(*basis, strict=True)]
    return np.column_stack(each)


def ridge_path(z: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return, for each penalty, the coefficients, the intercept and the exact leave-one-out errors."""
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
    leverage = 1 / n + (left * left) @ shrunk
    # the last rounding must not make the error of a sample that determines its own fit negative
    errors = (y[:, None] - level - left @ (shrunk * projected[:, None])) / np.maximum(1 - leverage, 1e-9)
    coefficients = right @ (shrunk * (projected / roots)[:, None])
    return coefficients, level - center @ coefficients, errors


def average_ridge(designs: list[Floats], y: Floats) -> tuple[list[Floats], float, Floats]:
    """Return coefficients and intercept, averaged over designs and penalties, and leave-one-out predictions."""
    paths = [ridge_path(z, y) for z in designs]
    errors = np.hstack([path[2] for path in paths])
    loss = (errors**2).sum(axis=0)
    weights = np.exp(-(loss - loss.min()) / (2 * max(float(loss.min()) / len(y), 1e-12)))
    weights /= weights.sum()
    shares = np.split(weights, len(designs))
    level = sum(float(path[1] @ share) for path, share in zip(paths, shares, strict=True))
    coefficients = [path[0] @ share for path, share in zip(paths, shares, strict=True)]
    return coefficients, level, y - errors @ weights


def fit_hats(x: Floats, labels: list[tuple[Ints, Floats]], n_deciders: int) -> tuple[Hats, Floats]:
    """Return additive models of all targets, and what they predict of each task [n, targets].

    A task that a model was fitted to is predicted without it.
    """
    hats = place_knots(x) | {k: a for k, a in no_hats(x.shape[1], len(labels)).items() if k in ("heights", "levels")}
    rewards = np.concatenate([y for _, y in labels[:n_deciders]])
    guess = float(rewards.mean()) if len(rewards) else 0.0
    fitted = []
    for target, (rows, y) in enumerate(labels):
        chosen = np.arange(0, len(y), -(-len(y) // MAX_SAMPLES) or 1)
        if target >= n_deciders:
            guess = float(y.mean()) if len(y) else 0.0
        mean = (y.sum() + GUESSES * guess) / (len(y) + GUESSES)
        without = ((y.sum() - y[chosen]) + GUESSES * guess) / (len(y) - 1 + GUESSES)
        bounds = (float(y.min()), float(y.max())) if len(y) else (mean, mean)
        hats["levels"][target] = mean, min(mean, bounds[0]), max(mean, bounds[1])
        if len(y) >= MIN_SAMPLES and y.min() < y.max() and hats["n_knots"].any():
            seen = x[rows[chosen]]
            bases = bases_of(hats, seen)
            with one_thread():
                found, level, without = average_ridge([design_of(hats, seen, basis) for basis in bases], y[chosen])
            for (features, values), coefficients in zip(bases, found, strict=True):
                np.add.at(hats["heights"][target], features, coefficients[:, None] * values)
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
