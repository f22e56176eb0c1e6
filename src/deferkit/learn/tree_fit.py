"""Fitting trees beside the decisions: everything that takes long, in a thread of its own.

A fit starts from what is known at a moment. It divides the tasks into folds, fits trees to all folds but one, lets them
predict that one, and lets a learner of its own learn all of it again, so that estimates trust the columns no more than
they deserve. Whatever is decided and observed in the meantime is handed on and learned in the same order. What comes
out depends on these events alone, not on how fast the thread was.
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
from deferkit.learn.embed.training_set import Floats, Ints
from deferkit.learn.embed.tree_views import N_VIEWS, Labels, TreeViews, average, fit_trees
from deferkit.learn.ledger import ROWS, Ledger

FOLDS = 3
MEMBER_STATE = (
    *("theta", "moment", "inverse", "precision", "rounding", "stash"),
    *("n_stashed", "n_absorbed", "drifted", "member_samples"),
)

_free_cores = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


class KnownOutcomes(NamedTuple):
    """What is known of tasks: rewards, costs, and who cost that (0 for nobody); NaN: nothing."""

    rewards: Floats
    costs: Floats
    cost_expert: Ints

    def at(self, rows: Ints) -> "KnownOutcomes":
        """Return what is known of these tasks."""
        return KnownOutcomes(self.rewards[rows], self.costs[rows], self.cost_expert[rows])


class TreeFit:
    """A fit that is under way.

    Arguments:
        views: writes views of contexts.
        ledger: of a learner that has seen nothing.
        keep: how many of the latest tasks' views are kept, to be looked at again.
    """

    def __init__(self, views: TreeViews, ledger: Ledger, keep: int) -> None:
        self.trees = no_trees()
        self.ledger = ledger
        self.latest: Floats = np.zeros((0, N_VIEWS * views.width))  # views of the latest tasks
        self._views = views
        self._keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="deferkit-trees")
        self._last: Future[None] | None = None
        self._failed: BaseException | None = None

    def start(self, x: Floats, labels: Labels, known: KnownOutcomes, seed: int) -> None:
        """Begin to fit trees to these tasks, of which rows will not change."""
        self._later(self._fit, x, labels, known, seed)

    def decided(self, x: Floats) -> None:
        """Take in contexts that were decided since."""
        self._later(self._look, x.copy())

    def observed(self, x: Floats, known: KnownOutcomes) -> None:
        """Take in what became known since."""
        self._later(self._learn, x.copy(), known)

    def wait(self) -> None:
        """Wait until all is done, or raise what went wrong."""
        if self._last is not None:
            self._last.result()
        if self._failed is not None:
            raise self._failed

    @property
    def done(self) -> bool:
        """Whether nothing is left to wait for."""
        return self._last is None or self._last.done()

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False)

    def _later(self, what: Callable[..., None], *given: Any) -> None:
        self._last = self._thread.submit(self._try, what, *given)

    def _try(self, what: Callable[..., None], *given: Any) -> None:
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
            for fold in range(FOLDS):
                others = [(rows[fold_of[rows] != fold], y[fold_of[rows] != fold]) for rows, y in labels]
                folds.append(fit_trees(x, others, seed))
                mine = np.flatnonzero(fold_of == fold)
                views[mine] = self._views.of(join((column, fold, trees) for column, trees in folds[-1]), x[mine])
            self.trees = average(folds)
            self._learn_views(views, known)
        self.latest = views[max(0, len(x) - self._keep) :].copy()

    def _look(self, x: Floats) -> None:
        self.latest = np.concatenate([self.latest, self._views.of(self.trees, x)])

    def _learn(self, x: Floats, known: KnownOutcomes) -> None:
        self._learn_views(self._views.of(self.trees, x), known)

    def _learn_views(self, views: Floats, known: KnownOutcomes) -> None:
        told = np.flatnonzero(~np.isnan(known.rewards).all(axis=1) | (known.cost_expert > 0))
        self.ledger.core.learn_many(np.ascontiguousarray(views[told]), known.cost_expert[told], *known.at(told)[:2])

    def hand_over(self, ledger: Ledger) -> None:
        """Give what was learned to the members of a ledger that look at the columns."""
        for expert in np.flatnonzero(ledger.view("shares_design") == 0).tolist():
            self.ledger.core.split_cost_design(expert)
        seeing = np.flatnonzero(ledger.view("view") == N_VIEWS - 1)
        for name in MEMBER_STATE:
            ledger.arrays[name][seeing] = self.ledger.arrays[name][seeing]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that there is by now, for saving."""
        self.wait()
        saved = {f"trees {name}": array for name, array in self.trees.items()}
        saved |= {f"ledger {name}": array for name, array in self.ledger.state().items()}
        return saved | {"latest": self.latest}

    def restore(self, saved: dict[str, NDArray[Any]], sizes: dict[str, int]) -> None:
        """Restore what `state` returned, or raise ValueError."""
        trees = {name[6:]: array for name, array in saved.items() if name.startswith("trees ")}
        arrays = {name[7:]: array for name, array in saved.items() if name.startswith("ledger ")}
        check_trees(trees, self._views.n_features, self._views.n_columns)
        check_shapes(saved, {"latest": (len(saved["latest"]), self.latest.shape[1])})
        check_finite(saved, ["latest"])
        check_sizes(arrays, sizes)
        if any(arrays[name].any() for name in ROWS if name not in ("reward", "cost")):
            raise ValueError("a fit under way holds decisions")
        self.ledger.restore(self.ledger.counters(), arrays)
        self.trees = {name: array.copy() for name, array in trees.items()}
        self.latest = saved["latest"].copy()
