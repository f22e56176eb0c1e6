"""Columns that trees and additive models predict, refitted in a background thread."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.extras import needs
from deferkit.learn.consistency import MAX_COUNT, check_finite, check_shapes, check_sizes, join_parts, part_of
from deferkit.learn.embed.boosting import check_trees, join, no_trees
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.hats import Hats, check_hats, fit_hats
from deferkit.learn.embed.representation import Host, RepresentationKind, TrainedRepresentation
from deferkit.learn.embed.training_set import Floats, Ints
from deferkit.learn.embed.tree_views import Labels, TreeViews, average, fit_trees, view_names
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

    def append_decided(self, x: Floats) -> None:
        """Queue contexts that were decided since the start."""
        self._enqueue(self._append_views, x.copy())

    def append_outcomes(self, x: Floats, known: KnownOutcomes) -> None:
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
        parts = {"trees": self.trees, "hats": self.hats or {}, "ledger": self.ledger.state()}
        return join_parts(parts) | {"latest": self.latest}

    def restore(self, saved: dict[str, NDArray[Any]], sizes: dict[str, int]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""
        trees, hats, arrays = (part_of(saved, part) for part in ("trees", "hats", "ledger"))
        check_trees(trees, self._views.n_features, self._views.n_tree_columns)
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


FIRST_FIT = 64  # observations before the first fit of trees
FIRST_STACK = 16  # the same of trees and additive models
MIN_DELAY, MAX_DELAY = 32, 2_000  # observations between the start of a fit and its effect
MIN_STACK_DELAY = 8  # the same where there is a stack
FIT_STEP = 1_000_000_000  # multiplications: a fit that must be waited for takes about a second
MAX_KEPT = 100_000  # tasks in the training set after old ones were dropped
MIN_UNIT = 1e-30  # of a cost: LightGBM reads labels as 32-bit floats, and a cost over its unit must fit


def gap_after(n: int, least: int = MIN_DELAY) -> int:
    """Return the number of observations between a fit at n observations and the next one.

    Args:
        n: Observations.
        least: Bound of the result.

    >>> [gap_after(n) for n in (64, 1_000, 100_000)]
    [32, 333, 50000]
    """
    return max(least, n // 3 if n < 3_000 else n // 2)


def delay_of(n: int, least: int = MIN_DELAY) -> int:
    """Return the number of observations after which a fit at n observations takes effect.

    Args:
        n: Observations.
        least: Bound of the result.

    >>> [delay_of(n) for n in (64, 1_000, 100_000)]
    [32, 62, 2000]
    """
    return min(max(least, n // 16), MAX_DELAY)


class TreeMixture(RepresentationKind):
    """The kind "auto": linear estimates beside trees, weighted by their prediction errors."""

    name = "auto"
    feature = "trees"
    trains = True

    def view_names(self, shape: Shape) -> tuple[str, ...]:
        """Return the names of the views."""
        return view_names(shape)

    def width(self, shape: Shape) -> int:
        """Return the length of a view; the last one has all columns."""
        return TreeViews(shape).width

    def column_names(self, shape: Shape) -> tuple[str, ...]:
        """Return the names of the columns of the last view."""
        columns = range(self.width(shape) - shape.n_features)
        return (*super().column_names(shape), *(f"trees {j + 1}" for j in columns))

    def has_prior(self, shape: Shape) -> bool:
        """Return whether coefficients are pulled to the mean of a target's columns."""
        return shape.stacked

    def first_fit(self, shape: Shape) -> int:
        """Return the number of observations before the first fit."""
        return FIRST_STACK if shape.stacked else FIRST_FIT

    def count_numbers(self, shape: Shape, window: int) -> int:  # noqa: ARG002
        """Return the maximum number of numbers in the training set."""
        return 2 * MAX_KEPT * shape.n_features

    def make(self, host: Host) -> "TreeColumns":
        """Return the representation of a new learner, without trees."""
        needs("trees", what="The representation 'auto'")
        return TreeColumns(host, self)


class TreeColumns(TrainedRepresentation):
    """Keeps the training set, fits trees to it in the background, and writes the views of contexts."""

    def __init__(self, host: Host, kind: TreeMixture) -> None:
        super().__init__(host, kind)
        ledger, self._shape = host.ledger, host.shape
        self._views = TreeViews(self._shape)
        self.trees = no_trees()
        self.hats: Hats | None = None  # additive models, where there is a stack
        self._first = kind.first_fit(self._shape)
        self._fresh_ledger = host.fresh_ledger
        self._window = min(ledger.get("window"), ledger.memory)
        self._unit = np.ones(self._shape.n_targets)  # of a cost: its mean at the first fit
        self._n_warm_start = 0  # labelled tasks of a warm start
        self._start_at, self._effect_at = self._first, MAX_COUNT
        self._fit: TreeFit | None = None
        if self._shape.stacked:
            self._write_prior(ledger)

    def write(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts [n, d] to [n, views · width]: without and with tree columns."""
        self._views.write(self.trees, x, out, self.hats)

    def vectors(self, x: Floats) -> Floats:
        """Return the last view of contexts [n, d], which has all columns."""
        return self.transform(x)[:, -self.width :]

    # ------------------------------------------------------------ the training set

    def append_decided(self, x: Floats) -> None:
        """Append contexts that were just decided, at most `decisions_until_upkeep()` of them."""
        super().append_decided(x)
        if self._fit is not None:
            self._fit.append_decided(x)

    def drop_old_tasks(self) -> None:
        """Drop the oldest tasks if there are too many, unless trees are being fitted to them."""
        if self.training_set.n >= 2 * MAX_KEPT and self._fit is None:
            self.training_set.drop_first(self.training_set.n - MAX_KEPT)

    def decisions_until_upkeep(self) -> int:
        """Return the number of decisions that may come before `drop_old_tasks` must be called."""
        room = 2 * MAX_KEPT - self.training_set.n if self._fit is None else self._ledger.memory
        return max(1, min(self._ledger.memory, room))

    def record_outcomes(self, first: int, n: int) -> None:
        """Copy the outcomes of n decisions, which were just made, from the ring of the ledger."""
        super().record_outcomes(first, n)
        if self._fit is not None:
            ledger = self._ledger
            slots = np.arange(first, first + n) % ledger.memory
            paid = (ledger.route[slots] > 0) & ~np.isnan(ledger.cost[slots]).any(axis=1)
            known = KnownOutcomes(ledger.reward[slots], ledger.cost[slots], np.where(paid, ledger.route[slots], 0))
            self._fit.append_outcomes(self.training_set.x[self.training_set.rows(np.arange(first, first + n))], known)

    def append_outcomes(self, decision: int, slot: int, rewards: list[float], costs: list[float]) -> None:
        """Copy the outcome of a decision from its row in the ledger; NaN in `rewards` and `costs` is not new."""
        row = self._label(decision, slot)
        if self._fit is not None and row >= 0:
            cost_expert = 0 if np.isnan(costs[0]) else self._ledger.route[slot]
            known = KnownOutcomes(np.array([rewards]), np.array([costs]), np.array([cost_expert], dtype=np.int64))
            self._fit.append_outcomes(self.training_set.x[row : row + 1], known)

    # ------------------------------------------------------------ fits

    @property
    def fitting(self) -> bool:  # type: ignore[override]
        """Whether a fit is running in the background."""
        return self._fit is not None and not self._fit.done

    def retrain_if_due(self) -> None:
        """Start a fit or let one take effect if that is due; not before the encoder's scales are frozen."""
        ledger = self._ledger
        if ledger.get("n_seen") < ledger.get("retrain_at") or ledger.get("unsettled"):
            return
        if self._fit is not None and ledger.get("n_seen") >= self._effect_at:
            self._take_effect(self._fit)
        if self._fit is None and ledger.get("n_seen") >= self._start_at:
            seen = ledger.get("n_seen")
            self._fit = self._begin(self._rows_in_window())
            n, least = seen + self._n_warm_start, MIN_STACK_DELAY if self._shape.stacked else MIN_DELAY
            self._effect_at = seen + delay_of(n, least)
            self._start_at = max(self._effect_at, seen + gap_after(n, least))
        ledger.set("retrain_at", self._effect_at if self._fit is not None else self._start_at)

    def _rows_in_window(self) -> int:
        """Return the number of latest tasks that include all decisions in the window of the price.

        More than the window, if a warm start has added tasks between them.
        """
        first = max(0, self._ledger.next_id - self._window)
        row = self.training_set.row(first) if first < self._ledger.next_id else self.training_set.n
        return self.training_set.n - max(row, 0)

    def _begin(self, keep: int) -> TreeFit:
        """Start to fit trees to the current training set."""
        labels = self._labels()
        fit = TreeFit(self._views, self._made_ledger(), keep)
        fit.start(self.training_set.x, labels, KnownOutcomes(*self.training_set.copy_outcomes()), self._shape.seed)
        return fit

    def _made_ledger(self) -> Ledger:
        """Return the ledger that a fit learns with; the prior of the stack follows from the units of costs."""
        made = self._fresh_ledger(self._shape.link)
        if self._shape.stacked:
            for ledger in (made, self._ledger):
                self._write_prior(ledger)
            made.core.initialise()
        return made

    def _write_prior(self, ledger: Ledger) -> None:
        """Let the ridge pull the members that read columns to the mean of a target's columns, with either link."""
        d, prior = self._views.n_features, self._views.prior(self._unit)
        for estimate in self._views.estimates_with_columns(ledger).tolist():
            for name in ("prior_theta", "identity_prior"):
                ledger.view(name)[estimate, d : self.width] = prior[estimate % self._shape.n_targets, d:]

    def _labels(self) -> Labels:
        """Return the rows and responses of every target; costs are divided by their unit."""
        found = [self.training_set.select_labelled(target) for target in range(self._shape.n_targets)]
        for target in range(self._shape.n_deciders, self._shape.n_targets):
            y = found[target][1]
            if self._unit[target] == 1.0 and len(y) and y.mean() > MIN_UNIT:
                self._unit[target] = y.mean()
        return [(rows, y / unit) for (rows, y), unit in zip(found, self._unit, strict=True)]

    def _take_effect(self, fit: TreeFit) -> None:
        """Use the trees and estimates of a fit from now on."""
        ledger = self._ledger
        fit.wait()
        fit.close()
        fit.hand_over(ledger)
        self.trees, self.hats = fit.trees, fit.hats
        self.version += 1
        self._fit, self._effect_at = None, MAX_COUNT
        self._fresh_from = max(0, ledger.next_id - self._window)
        decisions = np.arange(self._fresh_from, ledger.next_id)
        rows = self.training_set.rows(decisions)
        decisions, rows = decisions[rows >= 0], rows[rows >= 0] - (self.training_set.n - len(fit.latest))
        views = fit.latest[rows].reshape(len(rows), self._views.n_views, self._views.width)
        ledger.view("context")[decisions % ledger.memory, : self._views.n_views] = views

    def link_switched(self) -> None:
        """Drop the trees, whose predictions were written as log-odds, and fit new ones in the background.

        All outcomes are learned again without tree columns.
        """
        ledger = self._ledger
        if self._fit is not None:
            self._fit.wait()
            self._fit.close()
        self._fit, self._effect_at = None, MAX_COUNT
        self._shape = self._shape._replace(link="identity")
        self._views = TreeViews(self._shape)
        self.trees, self.hats = no_trees(), None
        self.version += 1
        known = np.arange(max(0, ledger.next_id - ledger.memory), ledger.next_id) % ledger.memory
        contexts = ledger.view("context")
        for view in range(1, self._views.n_views):
            contexts[known, view] = contexts[known, 0]
        if self._shape.stacked:
            self._write_prior(ledger)  # before the outcomes are learned again: columns have other units now
        ledger.core.relearn()
        self._start_at = max(self._first, ledger.get("n_seen"))
        ledger.set("retrain_at", self._start_at)
        self.retrain_if_due()

    def learn_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Learn from labelled tasks of a warm start, with out-of-fold predictions of trees fitted to them."""
        if self._fit is not None:
            self._take_effect(self._fit)
        self.training_set.append_labelled(x, rewards, costs, cost_expert)
        self._n_warm_start += len(x)
        seen = self._ledger.get("n_seen")
        if self.training_set.n < self._first:
            self._ledger.core.learn_many(self.transform(x), cost_expert, rewards, costs)
            return
        fit = self._begin(max(len(x), self._rows_in_window()))
        fit.wait()
        self._ledger.core.learn_many(fit.latest[-len(x) :].copy(), cost_expert, rewards, costs)
        self._take_effect(fit)
        least = MIN_STACK_DELAY if self._shape.stacked else MIN_DELAY
        self._start_at = seen + gap_after(seen + self._n_warm_start, least)
        self._ledger.set("retrain_at", self._start_at)

    def observing_step(self, *, switches: bool) -> int:
        """Return the multiplications beyond the usual ones: a switch learns everything twice, and waits for a fit."""
        return self._ledger.relearning_step() + FIT_STEP * self.fitting if switches else 0

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name; waits for a running fit."""
        fit = {} if self._fit is None else self._fit.state()
        parts = {"past": self.training_set.state(), "trees": self.trees, "hats": self.hats or {}, "fit": fit}
        schedule = [self._start_at, self._effect_at, self._fit is not None, self._n_warm_start, self._fresh_from]
        return join_parts(parts) | {"schedule": np.array(schedule), "unit": self._unit}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""
        self.training_set.restore(part_of(saved, "past"))
        check_shapes(saved, {"schedule": (5,), "unit": self._unit.shape}, {"schedule": "i", "unit": "f"})
        check_finite(saved, ["unit"])
        check_trees(part_of(saved, "trees"), self._views.n_features, self._views.n_tree_columns)
        schedule = saved["schedule"].tolist()
        if not all(0 <= each <= MAX_COUNT for each in schedule) or schedule[4] > self._ledger.next_id:
            raise ValueError("the schedule of the trees is out of range")
        if self.training_set.decided != self._ledger.next_id or not (saved["unit"] > 0.0).all():
            raise ValueError("the training set of the trees does not match the decisions")
        self._start_at, self._effect_at, fitting, self._n_warm_start, self._fresh_from = schedule
        due = self._effect_at if fitting else self._start_at
        if self._ledger.get("retrain_at") != due or fitting != (self._effect_at < MAX_COUNT):
            raise ValueError("the schedule of the trees contradicts itself")
        self.trees = {name: array.copy() for name, array in part_of(saved, "trees").items()}
        self.hats = {name: array.copy() for name, array in part_of(saved, "hats").items()} or None
        if self.hats is not None or (self._shape.stacked and len(self.trees["root"])):
            check_hats(part_of(saved, "hats"), self._views.n_features, self._views.n_targets)
        self.version += 1
        self._unit = saved["unit"].copy()
        self._fit = None
        if self._shape.stacked:
            self._write_prior(self._ledger)
        if fitting:
            fresh = self._made_ledger()
            self._fit = TreeFit(self._views, fresh, self._window)
            self._fit.restore(part_of(saved, "fit"), fresh.sizes())
            if not self._rows_in_window() <= len(self._fit.latest) <= self.training_set.n:
                raise ValueError("a running fit is missing views of the latest tasks, or has more than there are tasks")
