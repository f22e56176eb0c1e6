"""The two views of the representation "auto": the context alone, and the context with tree columns.

For each target there is a column for each size of trees, which the linear layer weights: large trees find more in large
samples, small ones have less variance.
"""

from collections import Counter

import numpy as np

from deferkit.learn.embed._passes import log_odds_rows
from deferkit.learn.embed.boosting import Boosting, Trees, join, walk
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.training_set import Floats, Ints
from deferkit.learn.links import link_named

N_VIEWS = 2
LEAVES = (15, 4)  # leaves of a tree, for each size
ROUNDS, LEARNING_RATE = 60, 0.1
LEAST_IN_LEAF, LARGEST_LEAST = 5, 20  # bounds of the least number of tasks in a leaf, a twentieth of all
LEAVES_NEEDED = 4  # a target must have samples for so many leaves
LOG_ODDS_UNIT = 0.1  # factor of log-odds, so that a column is about as large as a feature

Labels = list[tuple[Ints, Floats]]  # rows and responses of each target


class TreeViews:
    """Writes the views of contexts, for a learner of a given shape."""

    def __init__(self, shape: Shape) -> None:
        self.n_features = shape.n_features
        self.n_columns = len(LEAVES) * shape.n_targets
        self.width = shape.n_features + self.n_columns
        probable = np.arange(self.n_columns) % shape.n_targets < shape.n_deciders
        self._log_odds = np.flatnonzero(probable & link_named(shape.link).is_probability)

    def write(self, trees: Trees, x: Floats, out: Floats) -> None:
        """Write the views [n, 2 · width] of contexts [n, d]; probabilities are written as log-odds."""
        d, first = self.n_features, self.width + self.n_features
        out[:, :d] = x
        out[:, self.width : first] = x
        out[:, first:] = 0.0
        if len(trees["root"]):
            walk(trees, x, out, first)
            fitted = np.bincount(trees["column"], minlength=self.n_columns) > 0
            log_odds_rows(out, self._log_odds[fitted[self._log_odds]] + first, LOG_ODDS_UNIT)

    def of(self, trees: Trees, x: Floats) -> Floats:
        """Return the views of contexts [n, d] as [n, 2 · width]."""
        out = np.zeros((len(x), N_VIEWS * self.width))
        self.write(trees, x, out)
        return out


def width_of(shape: Shape) -> int:
    """Return the length of a view."""
    return TreeViews(shape).width


def fit_trees(x: Floats, labels: Labels, seed: int) -> list[tuple[int, Trees]]:
    """Return (column, trees) for every target with enough samples and different responses."""
    found = []
    for target, (rows, y) in enumerate(labels):
        least = min(LARGEST_LEAST, max(LEAST_IN_LEAF, len(y) // 20))
        if len(y) >= LEAVES_NEEDED * least and y.min() < y.max():
            for size, leaves in enumerate(LEAVES):
                trees = Boosting(ROUNDS, leaves, LEARNING_RATE, least, seed).fit(x[rows], y)
                found.append((size * len(labels) + target, trees))
    return found


def average(folds: list[list[tuple[int, Trees]]]) -> Trees:
    """Return trees whose predictions are the mean over the folds, in each column over the folds that have trees."""
    having = Counter(column for parts in folds for column, _ in parts)
    return join(
        (column, fold, trees | {"value": trees["value"] / having[column]})
        for fold, parts in enumerate(folds)
        for column, trees in parts
    )
