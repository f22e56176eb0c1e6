"""The embedder of a `TreeEmbedding`: trees of several folds, with out-of-fold predictions of the training set."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_shapes, count_of
from deferkit.learn.embed.boosting import Boosting, Trees, check_trees, join, no_trees, walk
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.training_set import Floats, Ints, TrainingSet
from deferkit.learn.embed.trees import TreeEmbedding
from deferkit.learn.links import link_named


class Forest:
    """Predictions of every reward and cost by trees of several folds."""

    def __init__(self, settings: TreeEmbedding, shape: Shape) -> None:
        self.settings = settings
        self.shape = shape
        self.fitted = 0  # refits so far
        self.arrays = no_trees()
        self.out_of_fold: Floats = np.zeros((0, shape.n_targets))  # predictions at the last fit
        self._boosting = Boosting(
            int(settings.trees),
            int(settings.leaves),
            float(settings.learning_rate),
            int(settings.least_in_leaf),
            shape.seed,
        )

    def transform(self, x: Floats, out: Floats) -> None:
        """Write contexts and the mean predictions of the trees of all folds."""
        d = self.shape.n_features
        out[:, :d] = x
        out[:, d:] = 0.0
        walk(self.arrays, x, out, d)

    def embed(self, training_set: TrainingSet, rows: Ints, _view: int) -> Floats:
        """Return observed tasks with their out-of-fold predictions."""
        d = self.shape.n_features
        out = np.zeros((len(rows), d + self.shape.n_targets))
        out[:, :d] = training_set.x[rows]
        known = rows < len(self.out_of_fold)
        out[known, d:] = self.out_of_fold[rows[known]]
        later = np.flatnonzero(~known)  # no tree was fitted to tasks that came after the fit
        if len(later):
            fresh = np.zeros((len(later), out.shape[1]))
            self.transform(training_set.x[rows[later]], fresh)
            out[later] = fresh
        return out

    def system(self, _target: int) -> None:
        """Return None: every system is fitted to the training set."""
        return

    def retrain(self, training_set: TrainingSet, _epochs: int) -> None:
        """Refit the trees of every fold; a task is in the same fold for all targets."""
        n_folds, d = self.settings.folds, self.shape.n_features
        folds = np.random.default_rng([self.shape.seed, self.fitted]).permutation(training_set.n) % n_folds
        self.fitted += 1
        parts: list[tuple[int, int, Trees]] = []
        for target in range(self.shape.n_targets):
            rows, y = training_set.select_labelled(target)
            if len(y) < 2 * n_folds * self.settings.least_in_leaf or y.min() == y.max():
                continue  # nothing to split: the column stays 0
            binary = link_named(self.shape.link).is_probability and target < self.shape.n_deciders
            unit = 1.0 if target < self.shape.n_deciders else float(y.mean())
            shown = [folds[rows] != fold for fold in range(n_folds)]
            if any(y[seen].min() == y[seen].max() for seen in shown if seen.any()) or not all(map(np.any, shown)):
                continue
            for fold, seen in enumerate(shown):
                trees = self._boosting.fit(training_set.x[rows[seen]], y[seen] / unit, binary=binary)
                parts.append((target, fold, trees))
        self.arrays = join(parts, n_folds)
        self.out_of_fold = np.zeros((training_set.n, self.shape.n_targets))
        for fold in range(n_folds):
            mine, theirs = np.flatnonzero(folds == fold), np.flatnonzero(self.arrays["fold"] == fold)
            out = np.zeros((len(mine), d + self.shape.n_targets))
            walk(self.arrays, training_set.x[mine], out, d, theirs, float(n_folds))
            self.out_of_fold[mine] = out[:, d:]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name."""
        return self.arrays | {"past_columns": self.out_of_fold, "fitted": np.array([self.fitted])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`."""
        check_trees(saved, self.shape.n_features, self.shape.n_targets)
        check_shapes(saved, {"past_columns": (len(saved["past_columns"]), self.shape.n_targets)})
        self.arrays = {name: saved[name].copy() for name in self.arrays}
        self.out_of_fold = saved["past_columns"].copy()
        self.fitted = count_of(saved["fitted"])
