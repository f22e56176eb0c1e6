"""One fit of trees in a background thread.

A fit starts from a copy of the training set. It divides the tasks into folds, predicts each fold by trees fitted to the
others, and lets a ledger of its own learn all tasks again from these out-of-fold predictions, so that overfitted
predictions get no trust. Decisions and observations that come in the meantime are queued and learned in the same order.
The result depends on these events alone, not on the speed of the thread.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_finite, check_shapes, check_sizes
from deferkit.learn.embed.boosting import check_trees, join, no_trees
from deferkit.learn.embed.hats import Hats, check_hats, fit_hats
from deferkit.learn.embed.training_set import Floats, Ints
from deferkit.learn.embed.tree_views import Labels, TreeViews, average, fit_trees
from deferkit.learn.ledger import ROWS, Ledger

FOLDS = 3
MEMBER_STATE = (
    *("theta", "moment", "inverse", "precision", "rounding", "stash"),
    *("n_stashed", "n_absorbed", "drifted", "member_samples"),
)

_free_cores = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


class KnownOutcomes(NamedTuple):
    """The outcomes of n tasks, with NaN for unknown values.

    Attributes:
        rewards: [n, deciders] Rewards.
        costs: [n, resources] Costs.
        cost_expert: [n] The expert whose costs these are, counted from 1; 0 for none.
    """

    rewards: Floats
    costs: Floats
    cost_expert: Ints

    def at(self, rows: Ints) -> "KnownOutcomes":
        """Return the outcomes of these rows."""
        return KnownOutcomes(self.rewards[rows], self.costs[rows], self.cost_expert[rows])


class TreeFit:
    """A fit in the background.

    Args:
        views: Writes the views of contexts.
        ledger: The ledger of a new learner, which the fit learns with.
        keep: How many of the latest tasks keep their views, for the window of the price.
    """

    def __init__(self, views: TreeViews, ledger: Ledger, keep: int) -> None:
        self.trees = no_trees()
        self.hats: Hats | None = None
        self.ledger = ledger
        self.latest: Floats = np.zeros((0, views.n_views * views.width))  # views of the latest tasks
        self._views = views
        self._keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="deferkit-trees")
        self._last: Future[None] | None = None
        self._failed: BaseException | None = None

    def start(self, x: Floats, labels: Labels, known: KnownOutcomes, seed: int) -> None:
        """Start to fit trees to these tasks, whose rows must not change."""
        self._enqueue(self._fit, x, labels, known, seed)

    def decided(self, x: Floats) -> None:
        """Queue contexts that were decided since the start."""
        self._enqueue(self._append_views, x.copy())

    def observed(self, x: Floats, known: KnownOutcomes) -> None:
        """Queue outcomes that became known since the start."""
        self._enqueue(self._learn, x.copy(), known)

    def wait(self) -> None:
        """Wait until the queue is empty; raise the error of the thread, if there was one."""
        if self._last is not None:
            self._last.result()
        if self._failed is not None:
            raise self._failed

    @property
    def done(self) -> bool:
        """Whether the queue is empty."""
        return self._last is None or self._last.done()

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False)

    def _enqueue(self, what: Callable[..., None], *given: Any) -> None:
        self._last = self._thread.submit(self._run_unless_failed, what, *given)

    def _run_unless_failed(self, what: Callable[..., None], *given: Any) -> None:
        if self._failed is None:
            try:
                what(*given)
            except BaseException as error:
                self._failed = error

    def _fit(self, x: Floats, labels: Labels, known: KnownOutcomes, seed: int) -> None:
        fold_of = np.random.default_rng([seed, len(x)]).permutation(len(x)) % FOLDS
        views = np.zeros((len(x), self.latest.shape[1]))
        folds = []
        with _free_cores:
            known_hats: Floats | None = None
            if self._views.stacked:
                self.hats, known_hats = fit_hats(x, labels, self._views.n_deciders)
            for fold in range(FOLDS):
                others = [(rows[fold_of[rows] != fold], y[fold_of[rows] != fold]) for rows, y in labels]
                folds.append(fit_trees(x, others, seed))
                mine = np.flatnonzero(fold_of == fold)
                others_trees = join((column, fold, trees) for column, trees in folds[-1])
                out_of_fold = None if known_hats is None else known_hats[mine]
                views[mine] = self._views.of(others_trees, x[mine], self.hats, out_of_fold)
            self.trees = average(folds)
            self._learn_views(views, known)
        self.latest = views[max(0, len(x) - self._keep) :].copy()

    def _append_views(self, x: Floats) -> None:
        self.latest = np.concatenate([self.latest, self._views.of(self.trees, x, self.hats)])

    def _learn(self, x: Floats, known: KnownOutcomes) -> None:
        self._learn_views(self._views.of(self.trees, x, self.hats), known)

    def _learn_views(self, views: Floats, known: KnownOutcomes) -> None:
        known_rows = np.flatnonzero(~np.isnan(known.rewards).all(axis=1) | (known.cost_expert > 0))
        self.ledger.core.learn_many(
            np.ascontiguousarray(views[known_rows]), known.cost_expert[known_rows], *known.at(known_rows)[:2]
        )

    def hand_over(self, ledger: Ledger) -> None:
        """Copy the learned estimates to the members of a ledger that read the tree columns."""
        for expert in np.flatnonzero(ledger.view("shares_design") == 0).tolist():
            self.ledger.core.split_cost_design(expert)
        with_columns = self._views.estimates_with_columns(ledger)
        for name in MEMBER_STATE:
            ledger.arrays[name][with_columns] = self.ledger.arrays[name][with_columns]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name; waits for the thread."""
        self.wait()
        saved = {f"trees {name}": array for name, array in self.trees.items()}
        saved |= {f"hats {name}": array for name, array in (self.hats or {}).items()}
        saved |= {f"ledger {name}": array for name, array in self.ledger.state().items()}
        return saved | {"latest": self.latest}

    def restore(self, saved: dict[str, NDArray[Any]], sizes: dict[str, int]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""
        trees = {name[6:]: array for name, array in saved.items() if name.startswith("trees ")}
        arrays = {name[7:]: array for name, array in saved.items() if name.startswith("ledger ")}
        check_trees(trees, self._views.n_features, self._views.n_tree_columns)
        hats = {name[5:]: array for name, array in saved.items() if name.startswith("hats ")}
        if self._views.stacked:
            check_hats(hats, self._views.n_features, self._views.n_targets)
            self.hats = {name: array.copy() for name, array in hats.items()}
        check_shapes(saved, {"latest": (len(saved["latest"]), self.latest.shape[1])})
        check_finite(saved, ["latest"])
        check_sizes(arrays, sizes)
        if any(arrays[name].any() for name in ROWS if name not in ("reward", "cost")):
            raise ValueError("a fit under way holds decisions")
        self.ledger.restore(self.ledger.counters(), arrays)
        self.trees = {name: array.copy() for name, array in trees.items()}
        self.latest = saved["latest"].copy()
