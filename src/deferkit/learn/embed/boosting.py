"""Boosted trees: fitting them with LightGBM, and evaluating them as plain arrays."""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_finite, check_shapes
from deferkit.learn.embed._passes import tree_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Trees = dict[str, NDArray[Any]]

LEAF = -1
INTS = ("feature", "left", "right", "root", "column", "fold")
NODES = ("feature", "threshold", "left", "right", "value")


class Boosting(NamedTuple):
    """The hyperparameters of LightGBM."""

    trees: int
    leaves: int
    learning_rate: float
    least_in_leaf: int
    seed: int = 0

    def fit(self, x: Floats, y: Floats, *, binary: bool = False) -> Trees:
        """Return the trees that LightGBM fits; to the log-odds of a 0/1 response if `binary`."""
        import lightgbm  # noqa: PLC0415 - an extra

        settings = {
            "objective": "binary" if binary else "l2",
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.least_in_leaf,
            "max_bin": 63,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            "seed": self.seed % (1 << 31),
        }
        data = lightgbm.Dataset(x, y, free_raw_data=True)
        # kept as it was trained: otherwise LightGBM writes and parses its text once more
        booster = lightgbm.train(settings, data, num_boost_round=self.trees, keep_training_booster=True)
        return from_text(booster.model_to_string())


def no_trees() -> Trees:
    """Return the arrays of an empty set of trees."""
    return {name: np.zeros(0, dtype=np.int64 if name in INTS else np.float64) for name in (*NODES, *INTS)}


def join(parts: Iterable[tuple[int, int, Trees]], folds: int = 1) -> Trees:
    """Return the trees of all parts (column, fold, trees) as one set, with their values divided by `folds`."""
    joined: dict[str, list[NDArray[Any]]] = {name: [] for name in no_trees()}
    nodes = 0
    for column, fold, part in parts:
        n = len(part["root"])
        moved = {
            "feature": part["feature"],
            "threshold": part["threshold"],
            "left": part["left"] + nodes,
            "right": part["right"] + nodes,
            "value": part["value"] / folds,
            "root": part["root"] + nodes,
            "column": np.full(n, column),
            "fold": np.full(n, fold),
        }
        for name, array in moved.items():
            joined[name].append(array)
        nodes += len(part["feature"])
    return {name: np.concatenate(pieces) for name, pieces in joined.items()} if nodes else no_trees()


def walk(trees: Trees, x: Floats, out: Floats, first: int, chosen: Ints | None = None, times: float = 1.0) -> None:
    """Add the predictions of trees for each row of x to the columns of `out` from `first` on."""
    root, column, value = trees["root"], trees["column"], trees["value"]
    if chosen is not None:
        root, column = root[chosen], column[chosen]
    value = value if times == 1.0 else value * times  # not copied for each decision
    nodes = (trees["feature"], trees["threshold"], trees["left"], trees["right"], value)
    tree_rows(np.ascontiguousarray(x), *nodes, root, column + first, out)


def check_trees(trees: Trees, n_features: int, n_columns: int) -> None:
    """Raise ValueError unless every walk from a root stays within the nodes and ends at a leaf."""
    nodes, roots = trees["feature"].shape, trees["root"].shape
    shapes = {name: nodes if name in NODES else roots for name in no_trees()}
    check_shapes(trees, shapes, {name: "i" if name in INTS else "f" for name in shapes})
    check_finite(trees, ["value"])
    inner = np.flatnonzero(trees["feature"] >= 0)
    ends = np.full(len(inner), len(trees["feature"]))
    # children come after their parent, so that there are no cycles
    for name, found, least, end in (
        ("feature", trees["feature"], LEAF, n_features),
        ("left", trees["left"][inner], inner + 1, ends),
        ("right", trees["right"][inner], inner + 1, ends),
        ("root", trees["root"], 0, len(trees["feature"])),
        ("column", trees["column"], 0, n_columns),
    ):
        if len(nodes) != 1 or len(roots) != 1 or ((found < least) | (found >= end)).any():
            raise ValueError(f"the trees have a {name} that is out of range")


def from_text(text: str) -> dict[str, NDArray[Any]]:
    r"""Parse the text of a LightGBM model: the nodes of all trees, and the root of each.

    Inner nodes come first, then leaves; in the text a negative child is the leaf −child − 1.

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


class OneThread:
    """Limits a library to one thread in `with` blocks: the first to enter sets the limit, the last to leave resets it.

    The limit is that of the process, so that two learners in two threads must not reset each other's.
    """

    def __init__(self, limit: Callable[[], Callable[[], None]]) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._inside = 0
        self._reset: Callable[[], None] = lambda: None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return a context manager within which the limit holds."""
        with self._lock:
            if self._inside == 0:
                self._reset = self._limit()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._reset()


@functools.cache
def controller() -> Any:
    """Return the controller of the loaded libraries, which takes milliseconds to make."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - an extra

    return ThreadpoolController()


def limit_blas() -> Callable[[], None]:
    """Limit BLAS to one thread; return a function that restores the limit."""
    limiter: Any = controller().limit(limits=1, user_api="blas")
    reset: Callable[[], None] = limiter.restore_original_limits
    return reset


one_thread = OneThread(limit_blas)
