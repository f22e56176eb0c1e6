"""The views of the representation "auto": the context alone, and the context with tree columns.

For each target there is a column for each size of trees, which the linear layer weights: large trees find more in large
samples, small ones have less variance. A stack has a column of an additive model beside them, and a view of the columns
alone. The ridge pulls its coefficients to the mean of a target's columns.
"""

from collections import Counter

import numpy as np

from deferkit.learn.embed._passes import log_odds_rows, stack_rows
from deferkit.learn.embed.boosting import Boosting, Trees, join, walk
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.hats import Hats, write_hats
from deferkit.learn.embed.training_set import Floats, Ints
from deferkit.learn.ledger import Ledger
from deferkit.learn.links import link_named

LEAVES = (15, 4)  # leaves of a tree, for each size
ROUNDS, LEARNING_RATE = 60, 0.1
MIN_IN_LEAF, MAX_LEAST = 5, 20  # bounds of the least number of tasks in a leaf, a twentieth of all
LEAVES_NEEDED = 4  # a target must have samples for so many leaves
LOG_ODDS_UNIT = 0.1  # factor of log-odds, so that a column is about as large as a feature
PRIOR_WEIGHTS = (0.0, 0.5, 0.5)  # of a target's columns in a stack: large trees, small trees, additive model
LOG_ODDS_STEP, COLUMN_UNIT = 0.05, 0.1  # factors of columns of a stack: the prior weighs about 40 or 20 samples

Labels = list[tuple[Ints, Floats]]  # rows and responses of each target


class TreeViews:
    """Writes the views of contexts, for a learner of a given shape."""

    def __init__(self, shape: Shape) -> None:
        self.n_features, self.n_targets, self.n_deciders = shape.n_features, shape.n_targets, shape.n_deciders
        self.stacked = shape.stacked
        self.n_tree_columns = len(LEAVES) * shape.n_targets
        self.n_columns = self.n_tree_columns + shape.stacked * shape.n_targets
        self.n_views = len(view_names(shape))
        self.width = shape.n_features + self.n_columns
        probable = np.arange(self.n_columns) % shape.n_targets < shape.n_deciders
        self._log_odds = np.flatnonzero(probable & link_named(shape.link).is_probability)
        self._n_probabilities = shape.n_deciders if link_named(shape.link).is_probability else 0  # of the targets

    def write(
        self, trees: Trees, x: Floats, out: Floats, hats: Hats | None = None, known: Floats | None = None
    ) -> None:
        """Write the views [n, views · width] of contexts [n, d]; probabilities are written as log-odds.

        Args:
            trees: Of the columns.
            x: The contexts.
            out: The array to write to.
            hats: Additive models, where there is a stack and they are fitted.
            known: [n, targets] Predictions to take instead of theirs.
        """
        d, first = self.n_features, (self.n_views - 1) * self.width + self.n_features
        out[:, :d] = x
        out[:, first - d : first] = x
        out[:, first:] = 0.0
        if self.stacked and hats is None:  # all views are the same before the first fit
            out[:, self.width : 2 * self.width] = out[:, first - d :]
        if hats is not None:
            self._write_stack(trees, x, out, hats, known)
        elif len(trees["root"]):
            walk(trees, x, out, first)
            fitted = np.bincount(trees["column"], minlength=self.n_columns) > 0
            log_odds_rows(out, self._log_odds[fitted[self._log_odds]] + first, LOG_ODDS_UNIT)

    def _write_stack(self, trees: Trees, x: Floats, out: Floats, hats: Hats, known: Floats | None) -> None:
        """Write the columns of a stack; where a target has no trees, their columns are those of its additive model."""
        walk(trees, x, out, (self.n_views - 1) * self.width + self.n_features)
        if known is None:
            write_hats(hats, x, out, self.n_views * self.width - self.n_targets)
        else:
            out[:, -self.n_targets :] = known
        has_trees = np.zeros(self.n_columns, dtype=np.int64)
        has_trees[-self.n_targets :] = 1
        sizes = self.n_features, self.n_targets, self._n_probabilities
        stack_rows(out, trees["column"], has_trees, *sizes, LOG_ODDS_STEP, COLUMN_UNIT)

    def of(self, trees: Trees, x: Floats, hats: Hats | None = None, known: Floats | None = None) -> Floats:
        """Return the views of contexts [n, d] as [n, views · width]."""
        out = np.zeros((len(x), self.n_views * self.width))
        self.write(trees, x, out, hats, known)
        return out

    def estimates_with_columns(self, ledger: Ledger) -> Ints:
        """Return the estimates of a ledger that read columns: not those of the context alone, nor of ranks."""
        views = ledger.view("view")
        return np.flatnonzero((views > 0) & (views < self.n_views))

    def prior(self, unit: Floats) -> Floats:
        """Return the coefficients [targets, width] that make a target the mean of its columns, by `PRIOR_WEIGHTS`.

        Args:
            unit: [targets] The unit that the responses were divided by.
        """
        theta = np.zeros((self.n_targets, self.width))
        for target in range(self.n_targets):
            size = LOG_ODDS_STEP if target < self._n_probabilities else COLUMN_UNIT
            weights = np.array(PRIOR_WEIGHTS) * (unit[target] / size)
            theta[target, self.n_features + target :: self.n_targets] = weights
        return theta


def view_names(shape: Shape) -> tuple[str, ...]:
    """Return the names of the views: the context, the columns alone where there is a stack, and both."""
    return ("linear", "stack", "trees") if shape.stacked else ("linear", "trees")


def fit_trees(x: Floats, labels: Labels, seed: int) -> list[tuple[int, Trees]]:
    """Return (column, trees) for every target with enough samples and different responses."""
    found = []
    for target, (rows, y) in enumerate(labels):
        least = min(MAX_LEAST, max(MIN_IN_LEAF, len(y) // 20))
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
