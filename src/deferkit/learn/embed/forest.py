"""The trees themselves: fitted by LightGBM, kept and walked as plain arrays."""

from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_shapes, count_of
from deferkit.learn.embed._passes import tree_rows
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.past import Floats, Ints, Past
from deferkit.learn.embed.trees import TreeEmbedding
from deferkit.learn.links import link_named

LEAF = -1
INTS = ("feature", "left", "right", "root", "column", "fold")
NODES = ("feature", "threshold", "left", "right", "value")


class Forest:
    """Predictions of every reward and cost, from trees of several folds."""

    def __init__(self, settings: TreeEmbedding, shape: Shape) -> None:
        self.settings = settings
        self.shape = shape
        self.fitted = 0  # refits so far
        self._none()
        self.past_columns: Floats = np.zeros((0, shape.n_targets))  # out-of-fold predictions of the past, as it was

    def _none(self) -> None:
        """Have no trees."""
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.zeros(0, dtype=np.int64 if name in INTS else np.float64) for name in (*NODES, *INTS)
        }

    def transform(self, x: Floats, out: Floats) -> None:
        """Write contexts and what the trees of all folds say of them, on average."""
        d = self.shape.n_features
        out[:, :d] = x
        out[:, d:] = 0.0
        self._walk(x, out, np.arange(len(self.arrays["root"])))

    def _walk(self, x: Floats, out: Floats, trees: Ints, times: float = 1.0) -> None:
        """Add what these trees say, to the columns behind the context."""
        a = self.arrays
        columns = a["column"][trees] + self.shape.n_features
        nodes = (a["feature"], a["threshold"], a["left"], a["right"], a["value"] * times)
        tree_rows(np.ascontiguousarray(x), *nodes, a["root"][trees], columns, out)

    def embed(self, past: Past, rows: Ints, _view: int) -> Floats:
        """Return tasks of the past with the predictions of trees that have not seen them."""
        d = self.shape.n_features
        out = np.zeros((len(rows), d + self.shape.n_targets))
        out[:, :d] = past.x[rows]
        known = rows < len(self.past_columns)
        out[known, d:] = self.past_columns[rows[known]]
        later = np.flatnonzero(~known)  # what came after the fit was not seen by any tree
        if len(later):
            fresh = np.zeros((len(later), out.shape[1]))
            self.transform(past.x[rows[later]], fresh)
            out[later] = fresh
        return out

    def system(self, _target: int) -> None:
        """Return nothing: every system is fitted to the past."""
        return

    def retrain(self, past: Past, _epochs: int) -> None:
        """Fit the trees of every fold anew; a task is always in the same fold, whichever outcome it teaches."""
        folds = np.random.default_rng([self.shape.seed, self.fitted]).permutation(past.n) % self.settings.folds
        self.fitted += 1
        self._none()
        parts: list[dict[str, NDArray[Any]]] = []
        columns = np.zeros((past.n, self.shape.n_targets))
        for target in range(self.shape.n_targets):
            rows, y = past.labelled(target)
            if len(y) < 2 * self.settings.folds * self.settings.least_in_leaf or y.min() == y.max():
                continue  # nothing to split yet: the column stays 0
            binary = link_named(self.shape.link).is_probability and target < self.shape.n_deciders
            unit = 1.0 if target < self.shape.n_deciders else float(y.mean())
            shown = [folds[rows] != fold for fold in range(self.settings.folds)]
            if any(y[seen].min() == y[seen].max() for seen in shown if seen.any()) or not all(map(np.any, shown)):
                continue
            for fold, seen in enumerate(shown):
                parts.append(self._fit(past.x[rows[seen]], y[seen] / unit, binary) | {"at": np.array([target, fold])})
        self._join(parts)
        self.past_columns = columns
        for fold in range(self.settings.folds):
            mine = np.flatnonzero(folds == fold)
            out = np.zeros((len(mine), self.shape.n_features + self.shape.n_targets))
            self._walk(past.x[mine], out, np.flatnonzero(self.arrays["fold"] == fold), float(self.settings.folds))
            columns[mine] = out[:, self.shape.n_features :]

    def _fit(self, x: Floats, y: Floats, binary: bool) -> dict[str, NDArray[Any]]:
        """Return the trees that LightGBM fits, as arrays."""
        settings = {
            "objective": "binary" if binary else "l2",
            "num_leaves": int(self.settings.leaves),
            "learning_rate": float(self.settings.learning_rate),
            "min_data_in_leaf": int(self.settings.least_in_leaf),
            "max_bin": 63,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            "seed": self.shape.seed % (1 << 31),
        }
        data = lightgbm.Dataset(x, y, free_raw_data=True)
        booster = lightgbm.train(settings, data, num_boost_round=int(self.settings.trees))
        return from_text(booster.model_to_string())

    def _join(self, parts: list[dict[str, NDArray[Any]]]) -> None:
        """Put the trees of all targets and folds one behind the other; each fold counts for its share."""
        joined: dict[str, list[NDArray[Any]]] = {name: [] for name in self.arrays}
        nodes = 0
        for part in parts:
            target, fold = part["at"]
            n = len(part["root"])
            moved = {
                "feature": part["feature"],
                "threshold": part["threshold"],
                "left": part["left"] + nodes,
                "right": part["right"] + nodes,
                "value": part["value"] / self.settings.folds,
                "root": part["root"] + nodes,
                "column": np.full(n, target),
                "fold": np.full(n, fold),
            }
            for name, array in moved.items():
                joined[name].append(array)
            nodes += len(part["feature"])
        if parts:
            self.arrays = {name: np.concatenate(pieces) for name, pieces in joined.items()}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the trees and what they said of the past."""
        return self.arrays | {"past_columns": self.past_columns, "fitted": np.array([self.fitted])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore what `state` returned."""
        self._check(saved)
        self.arrays = {name: saved[name].copy() for name in self.arrays}
        self.past_columns = saved["past_columns"].copy()
        self.fitted = count_of(saved["fitted"])

    def _check(self, saved: dict[str, NDArray[Any]]) -> None:
        """Raise ValueError unless every walk from a root stays within the nodes, and ends."""
        nodes, trees = saved["feature"].shape, saved["root"].shape
        shapes = {name: nodes if name in NODES else trees for name in self.arrays}
        check_shapes(saved, shapes, {name: "i" if name in INTS else "f" for name in self.arrays})
        check_shapes(saved, {"past_columns": (len(saved["past_columns"]), self.shape.n_targets)})
        inner = np.flatnonzero(saved["feature"] >= 0)
        ends = np.full(len(inner), len(saved["feature"]))
        # children come after their parent, so that no walk goes round in a circle
        for name, found, least, end in (
            ("feature", saved["feature"], LEAF, self.shape.n_features),
            ("left", saved["left"][inner], inner + 1, ends),
            ("right", saved["right"][inner], inner + 1, ends),
            ("root", saved["root"], 0, len(saved["feature"])),
            ("column", saved["column"], 0, self.shape.n_targets),
        ):
            if len(nodes) != 1 or len(trees) != 1 or ((found < least) | (found >= end)).any():
                raise ValueError(f"the trees have a {name} that is out of range")


def from_text(text: str) -> dict[str, NDArray[Any]]:
    r"""Return the trees of a LightGBM model, which it writes as text, as one set of nodes and where each tree begins.

    Inner nodes come first, then leaves; a child that is negative is the leaf −child − 1.

    >>> tree = "split_feature=2\nthreshold=0.5\nleft_child=-1\nright_child=-2\nleaf_value=0.1 0.9"
    >>> trees = from_text("Tree=0\n" + tree)
    >>> [trees[name].tolist() for name in ("feature", "left", "right", "value", "root")]
    [[2, -1, -1], [1, 0, 0], [2, 0, 0], [0.0, 0.1, 0.9], [0]]
    """
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in (*NODES, "root")}
    nodes = 0
    for block in text.split("\nend of trees", maxsplit=1)[0].split("Tree=")[1:]:
        lines = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        value = np.array(lines["leaf_value"].split(), dtype=np.float64)
        inner = len(value) - 1
        names = ("split_feature", "threshold", "left_child", "right_child")
        feature, threshold, left, right = (np.array(lines.get(n, "").split(), dtype=np.float64) for n in names)
        children = [np.where(side < 0, inner - side - 1, side).astype(np.int64) for side in (left, right)]
        none = np.zeros(len(value), dtype=np.int64)
        found["feature"].append(np.concatenate([feature.astype(np.int64), np.full(len(value), LEAF)]))
        found["threshold"].append(np.concatenate([threshold, np.zeros(len(value))]))
        found["left"].append(np.concatenate([children[0] + nodes, none]))
        found["right"].append(np.concatenate([children[1] + nodes, none]))
        found["value"].append(np.concatenate([np.zeros(inner), value]))
        found["root"].append(np.array([nodes]))
        nodes += inner + len(value)
    return {name: np.concatenate(pieces) for name, pieces in found.items()}
