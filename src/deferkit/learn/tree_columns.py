"""Trees at work in a learner: when they are fitted, and when what was fitted takes effect.

A context has two views: the context alone, and the context with what trees predict of each reward and cost. The mixture
has members that look at either, and finds out for each target which of them foresees it better.

A fit that is due after n observations takes effect after n + k of them, whenever it was done, so that the same events
give the same decisions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.extras import needs
from deferkit.learn.consistency import LARGEST_COUNT, check_finite, check_shapes
from deferkit.learn.embed.boosting import check_trees, no_trees
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.training_set import Floats, Ints
from deferkit.learn.embed.tree_views import N_VIEWS, Labels, TreeViews
from deferkit.learn.ledger import Ledger
from deferkit.learn.settings import FIRST_FIT
from deferkit.learn.tree_fit import KnownOutcomes, TreeFit
from deferkit.types import LARGEST

LEAST_DELAY, MOST_DELAY = 32, 2_000  # observations between a fit and its effect
MOST_KEPT = 100_000  # tasks that trees are fitted to
SMALLEST_UNIT = 1e-30  # of a cost: LightGBM reads labels as 32-bit floats, and a cost over its unit must fit


def gap_after(n: int) -> int:
    """Return how many observations lie between a fit at n observations and the next one.

    >>> [gap_after(n) for n in (64, 1_000, 100_000)]
    [32, 333, 50000]
    """
    return max(LEAST_DELAY, n // 3 if n < 3_000 else n // 2)


def delay_of(n: int) -> int:
    """Return after how many observations a fit at n observations takes effect.

    >>> [delay_of(n) for n in (64, 1_000, 100_000)]
    [32, 62, 2000]
    """
    return min(max(LEAST_DELAY, n // 16), MOST_DELAY)


class TreeColumns:
    """Keeps the past, fits trees beside the decisions, and writes the views of contexts."""

    largest = LARGEST

    def __init__(self, shape: Shape, ledger: Ledger, fresh_ledger: Callable[[], Ledger]) -> None:
        needs("trees", what="The representation 'auto'")
        self.training_set = shape.training_set()
        self.trees = no_trees()
        self._views = TreeViews(shape)
        self._shape = shape
        self._ledger = ledger
        self._fresh_ledger = fresh_ledger
        self._window = min(ledger.get("window"), ledger.memory)
        self._unit = np.ones(shape.n_targets)  # of costs: the mean at the first fit
        self._learned = 0  # labelled tasks of a warm start
        self._start_at, self._effect_at = FIRST_FIT, LARGEST_COUNT
        self._fresh_from = 0  # decisions from this one on have views of now in the ledger
        self._fit: TreeFit | None = None

    # ------------------------------------------------------------ views

    def write(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts [n, d] to [n, 2 · width]: alone, and with the columns."""
        self._views.write(self.trees, x, out)

    def transform(self, x: Floats) -> Floats:
        """Return the views of contexts, one behind the other."""
        return self._views.of(self.trees, x)

    def replace_contexts(self, matrix: Floats) -> Floats:
        """Replace the contexts of the first decisions by these, and return their views."""
        self.training_set.replace(matrix)
        return self.transform(matrix)

    def refresh_views(self, decision: int, slot: int) -> None:
        """Update the views of a decision in the ledger, before something is learned from it."""
        if decision < self._fresh_from:
            row = self.training_set.row(decision)
            if row >= 0:  # what was let go of keeps the views of its time
                views = self.transform(self.training_set.x[row : row + 1])
                self._ledger.view("context")[slot] = views.reshape(N_VIEWS, -1)

    def refresh_window_if_due(self) -> None:
        """Do nothing: contexts that the price is solved for get their views of now as soon as there are new ones."""

    # ------------------------------------------------------------ the past

    def append_decided(self, x: Floats) -> None:
        """Take in contexts that were just decided, no more than `decisions_until_upkeep` of them."""
        self.drop_old_tasks()
        self.training_set.append(x)
        if self._fit is not None:
            self._fit.decided(x)

    def drop_old_tasks(self) -> None:
        """Let old tasks go, unless trees are being fitted to them."""
        if self.training_set.n >= 2 * MOST_KEPT and self._fit is None:
            self.training_set.drop_first(self.training_set.n - MOST_KEPT)

    def decisions_until_upkeep(self) -> int:
        """Return how many decisions may be made before `drop_old_tasks` has something to do."""
        room = 2 * MOST_KEPT - self.training_set.n if self._fit is None else self._ledger.memory
        return max(1, min(self._ledger.memory, room))

    def record_outcomes(self, first: int, n: int = 1) -> None:
        """Take over what the ledger knows by now of decisions in the ring that were just made."""
        ledger = self._ledger
        slots = np.arange(first, first + n) % ledger.memory
        self.training_set.label(first, ledger.reward[slots], ledger.cost[slots], ledger.route[slots])
        if self._fit is not None:
            paid = (ledger.route[slots] > 0) & ~np.isnan(ledger.cost[slots]).any(axis=1)
            known = KnownOutcomes(ledger.reward[slots], ledger.cost[slots], np.where(paid, ledger.route[slots], 0))
            self._fit.observed(self.training_set.x[self.training_set.rows(np.arange(first, first + n))], known)

    def observed(self, decision: int, slot: int, rewards: list[float], costs: list[float]) -> None:
        """Take over what has just become known of a decision, wherever it lies; NaN: nothing."""
        ledger, rows, row = self._ledger, slice(slot, slot + 1), self.training_set.row(decision)
        self.training_set.label(decision, ledger.reward[rows], ledger.cost[rows], ledger.route[rows])
        if self._fit is not None and row >= 0:
            cost_expert = 0 if np.isnan(costs[0]) else ledger.route[slot]
            known = KnownOutcomes(np.array([rewards]), np.array([costs]), np.array([cost_expert], dtype=np.int64))
            self._fit.observed(self.training_set.x[row : row + 1], known)

    def corrected(self, decision: int, slot: int, _changes: list[tuple[int, float, float]]) -> None:
        """Take over corrections of a decision; a fit under way does without them, the next one has them."""
        rows, ledger = slice(slot, slot + 1), self._ledger
        self.training_set.label(decision, ledger.reward[rows], ledger.cost[rows], ledger.route[rows])

    # ------------------------------------------------------------ fits

    def observations_until_retraining(self) -> int:
        """Return how many observations may come before a fit begins or takes effect."""
        return max(1, self._ledger.get("retrain_at") - self._ledger.get("n_seen"))

    @property
    def fitting(self) -> bool:
        """Whether a fit is under way that is not done yet."""
        return self._fit is not None and not self._fit.done

    def retrain_if_due(self) -> None:
        """Begin a fit, or let one take effect, if enough was observed; not while the encoder's scales are unsettled."""
        ledger = self._ledger
        if ledger.get("n_seen") < ledger.get("retrain_at") or ledger.get("unsettled"):
            return
        if self._fit is not None and ledger.get("n_seen") >= self._effect_at:
            self._take_effect(self._fit)
        if self._fit is None and ledger.get("n_seen") >= self._start_at:
            seen = ledger.get("n_seen")
            self._fit = self._begin(self._rows_in_window())
            self._effect_at = seen + delay_of(seen + self._learned)
            self._start_at = max(self._effect_at, seen + gap_after(seen + self._learned))
        ledger.set("retrain_at", self._effect_at if self._fit is not None else self._start_at)

    def _rows_in_window(self) -> int:
        """Return how many of the latest tasks are needed for the decisions in the window of the price.

        More than these decisions, if a warm start has brought tasks between them.
        """
        first = max(0, self._ledger.next_id - self._window)
        row = self.training_set.row(first) if first < self._ledger.next_id else self.training_set.n
        return self.training_set.n - max(row, 0)

    def _begin(self, keep: int) -> TreeFit:
        """Begin to fit trees to what is known now."""
        fit = TreeFit(self._views, self._fresh_ledger(), keep)
        fit.start(self.training_set.x, self._labels(), KnownOutcomes(*self.training_set.known()), self._shape.seed)
        return fit

    def _labels(self) -> Labels:
        """Return the rows and responses of every target, as they are now; costs in their unit."""
        found = [self.training_set.labelled(target) for target in range(self._shape.n_targets)]
        for target in range(self._shape.n_deciders, self._shape.n_targets):
            y = found[target][1]
            if self._unit[target] == 1.0 and len(y) and y.mean() > SMALLEST_UNIT:
                self._unit[target] = y.mean()
        return [(rows, y / unit) for (rows, y), unit in zip(found, self._unit, strict=True)]

    def _take_effect(self, fit: TreeFit) -> None:
        """Decide with the trees of a fit from now on."""
        ledger = self._ledger
        fit.wait()
        fit.close()
        fit.hand_over(ledger)
        self.trees = fit.trees
        self._fit, self._effect_at = None, LARGEST_COUNT
        self._fresh_from = max(0, ledger.next_id - self._window)
        decisions = np.arange(self._fresh_from, ledger.next_id)
        rows = self.training_set.rows(decisions)
        decisions, rows = decisions[rows >= 0], rows[rows >= 0] - (self.training_set.n - len(fit.latest))
        views = fit.latest[rows].reshape(len(rows), N_VIEWS, self._views.width)
        ledger.view("context")[decisions % ledger.memory] = views

    def learn_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Learn from labelled tasks of the past: from what trees say that were fitted to the others of them."""
        if self._fit is not None:
            self._take_effect(self._fit)
        self.training_set.append_labelled(x, rewards, costs, cost_expert)
        self._learned += len(x)
        seen = self._ledger.get("n_seen")
        if self.training_set.n < FIRST_FIT:
            self._ledger.core.learn_many(self.transform(x), cost_expert, rewards, costs)
            return
        fit = self._begin(max(len(x), self._rows_in_window()))
        fit.wait()
        self._ledger.core.learn_many(fit.latest[-len(x) :].copy(), cost_expert, rewards, costs)
        self._take_effect(fit)
        self._start_at = seen + gap_after(seen + self._learned)
        self._ledger.set("retrain_at", self._start_at)

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that decides, for saving; a fit that is under way is waited for."""
        fit = {} if self._fit is None else self._fit.state()
        parts = {"past": self.training_set.state(), "trees": self.trees, "fit": fit}
        arrays = {f"{part} {name}": array for part, each in parts.items() for name, array in each.items()}
        schedule = [self._start_at, self._effect_at, self._fit is not None, self._learned, self._fresh_from]
        return arrays | {"schedule": np.array(schedule), "unit": self._unit}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned, or raise ValueError."""

        def part(prefix: str) -> dict[str, NDArray[Any]]:
            return {name[len(prefix) + 1 :]: a for name, a in saved.items() if name.startswith(f"{prefix} ")}

        self.training_set.restore(part("past"))
        check_shapes(saved, {"schedule": (5,), "unit": self._unit.shape}, {"schedule": "i", "unit": "f"})
        check_finite(saved, ["unit"])
        check_trees(part("trees"), self._views.n_features, self._views.n_columns)
        schedule = saved["schedule"].tolist()
        if not all(0 <= each <= LARGEST_COUNT for each in schedule) or schedule[4] > self._ledger.next_id:
            raise ValueError("the schedule of the trees is out of range")
        if self.training_set.decided != self._ledger.next_id or not (saved["unit"] > 0.0).all():
            raise ValueError("the past of the trees is not that of the decisions")
        self._start_at, self._effect_at, fitting, self._learned, self._fresh_from = schedule
        due = self._effect_at if fitting else self._start_at
        if self._ledger.get("retrain_at") != due or fitting != (self._effect_at < LARGEST_COUNT):
            raise ValueError("the schedule of the trees contradicts itself")
        self.trees = {name: array.copy() for name, array in part("trees").items()}
        self._unit = saved["unit"].copy()
        self._fit = None
        if fitting:
            fresh = self._fresh_ledger()
            self._fit = TreeFit(self._views, fresh, self._window)
            self._fit.restore(part("fit"), fresh.sizes())
            if not self._rows_in_window() <= len(self._fit.latest) <= self.training_set.n:
                raise ValueError("a fit under way lacks views of the latest tasks, or has more than there are tasks")
