"""An embedding at work: retrained on schedule, with linear systems on top that are fitted anew."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import MAX_COUNT, NEVER, check_finite, check_shapes, join_parts, part_of
from deferkit.learn.embed.boosting import one_thread
from deferkit.learn.embed.embedding import Embedding, Shape
from deferkit.learn.embed.representation import Host, RepresentationKind, TrainedRepresentation
from deferkit.learn.embed.systems import LinearSystems, RetiredTasks
from deferkit.learn.embed.training_set import Floats, Ints

UNKNOWN_STEP = 100_000_000  # multiplications of a retraining that does not say how many it takes
WARM_EPOCHS = 20  # epochs of a warm start; in a stream, the same tasks would have been trained on many times


class Retrained(RepresentationKind):
    """The kind of an embedding.

    Args:
        embedding: Its settings.
    """

    trains = True
    replaces = True

    def __init__(self, embedding: Embedding) -> None:
        self.embedding = embedding
        self.name, self.frozen = embedding.kind, embedding.frozen
        self.feature = getattr(embedding, "feature", "networks")  # the systems on top need as much

    def views(self, shape: Shape) -> list[int]:
        """Return the view that each target reads."""
        return self.embedding.views(shape)

    def width(self, shape: Shape) -> int:
        """Return the length of a view."""
        return self.embedding.width(shape)

    def column_names(self, shape: Shape) -> tuple[str, ...]:
        """Return the names of the columns of a view."""
        return tuple(f"{self.name} {j + 1}" for j in range(self.width(shape)))

    def first_fit(self, shape: Shape) -> int:  # noqa: ARG002
        """Return the number of observations before it is first trained."""
        return self.embedding.next_at(0)

    def max_kept(self, window: int) -> int:
        """Return the maximum number of tasks that a retraining uses: at least those that the price is solved for."""
        return NEVER if self.embedding.memory is None else max(self.embedding.memory, window)

    def count_numbers(self, shape: Shape, window: int) -> int:
        """Return the maximum number of numbers of the embedder, the training set and the sums of dropped tasks."""
        kept, width, resources = self.max_kept(window), self.width(shape), shape.n_resources
        # the training set has up to twice as many tasks, and room for twice as many rows
        rows = 4 * kept * (shape.n_features + shape.n_deciders + resources + 2)
        own: Callable[[Shape], int] = getattr(self.embedding, "count_numbers", lambda _: 0)
        return own(shape) + rows + kept * width + shape.n_targets * (width**2 + width + 2)

    def retraining_step(self, shape: Shape, n: int) -> int:
        """Return the multiplications of a retraining on n tasks, and of the linear systems on top."""
        width = self.width(shape)
        own: Callable[[Shape, int], int] = getattr(self.embedding, "training_step", lambda *_: UNKNOWN_STEP)
        return own(shape, n) + shape.n_targets * (n * width**2 + width**3)

    def make(self, host: Host) -> "RetrainedEmbedding":
        """Return the representation of a new learner, untrained."""
        return RetrainedEmbedding(host, self)


class RetrainedEmbedding(TrainedRepresentation):
    """Keeps the training set, retrains the embedder on schedule, and refits the estimates after each retraining.

    A retraining happens within the observation that makes it due, so that it is part of the fold over events: the same
    events give the same networks or trees, at the same time.
    """

    largest = 1e9  # networks are trained in single precision

    def __init__(self, host: Host, kind: Retrained) -> None:
        super().__init__(host, kind)
        self.embedding, ledger, shape = kind.embedding, host.ledger, host.shape
        self.views = kind.views(shape)
        self.embedder = self.embedding.make(shape)
        self.systems = LinearSystems(ledger, shape, self.views, self.width, ridge=host.ridge)
        self._window = ledger.get("window")  # rounded up to whole lanes, as in the solver of the price
        self._pacing = host.strategy
        self._kind, self._shape = kind, shape
        self._limit = kind.max_kept(min(self._window, ledger.memory))
        self._window_is_fresh = True  # whether the views in the window of the price are current
        if self.embedding.frozen and ledger.next_id == 0:
            self.systems.rebuild(self.embedder, self.training_set)

    def write(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts [n, d] to [n, views · width]."""
        self.embedder.transform(x, out)

    def append_outcomes(self, decision: int, slot: int, rewards: list[float], costs: list[float]) -> None:
        """Copy the outcome of a decision from its row in the ledger; NaN in `rewards` and `costs` is not new."""
        if self._label(decision, slot) >= 0:
            return
        ledger = self._ledger
        first = len(rewards) + (int(ledger.route[slot]) - 1) * len(costs)
        new_values = [*enumerate(rewards), *enumerate(costs, start=first)]
        for target, value in new_values:
            if not math.isnan(value):
                self.systems.learn(target, ledger.view("context")[slot, self.views[target]], value)

    def replace_outcomes(self, decision: int, slot: int, changes: list[tuple[int, float, float]]) -> None:
        """Copy corrected outcomes of a decision; `changes` are (target, before, after)."""
        if self._label(decision, slot) >= 0:
            return
        ledger = self._ledger
        for target, before, after in changes:
            self.systems.correct(target, ledger.view("context")[slot, self.views[target]], before, after)

    def retrain_if_due(self) -> None:
        """Retrain if that is due; not before the encoder's scales are frozen."""
        ledger = self._ledger
        if ledger.get("n_seen") >= ledger.get("retrain_at") and not ledger.get("unsettled"):
            self.retrain()

    def retrain(self, epochs: int = 1) -> None:
        """Retrain on the training set and refit the estimates."""
        ledger, training_set = self._ledger, self.training_set
        with one_thread():
            if self._limit < NEVER:
                self._retire(max(0, training_set.n - self._limit), self.embedding.discount)
            self.embedder.retrain(training_set, epochs)
            self.version += 1
            self.systems.rebuild(self.embedder, training_set)
        ledger.set("retrain_at", self.embedding.next_at(ledger.get("n_seen")))
        self._fresh_from, self._window_is_fresh = ledger.next_id, self._window == 0
        self.refresh_window_if_due()

    def drop_old_tasks(self) -> None:
        """Drop the oldest tasks if memory is bounded; for many decisions without feedback, hence without retraining."""
        if self.training_set.n >= 2 * self._limit:
            with one_thread():
                self._retire(self._limit, 1.0)

    def _retire(self, n: int, discount: float) -> None:
        """Drop the first n tasks; what was learned from them stays in the linear systems."""
        self.systems.retire(self.embedder, self.training_set, n, discount)
        self.training_set.drop_first(n)

    def decisions_until_upkeep(self) -> int:
        """Return the number of decisions before `drop_old_tasks` or `refresh_window_if_due` must be called."""
        steps = min(self._ledger.memory, 2 * self._limit - self.training_set.n)
        if not self._window_is_fresh:
            steps = min(steps, math.ceil(self._next_solve()) - self._ledger.next_id - 1)
        return max(1, steps)

    def refresh_window_if_due(self) -> None:
        """Recompute the views in the window of the price, if it is solved at the next decision."""
        if not self._window_is_fresh and self._next_solve() <= self._ledger.next_id + 1:
            with one_thread():
                self._refresh_window()

    def _next_solve(self) -> float:
        """Return the number of the decision at which the price is solved next."""
        return self._pacing.next_solve(self._ledger.dual, len(self._ledger.price))

    def _refresh_window(self) -> None:
        ledger = self._ledger
        stale_to = self._fresh_from
        self._window_is_fresh = True
        self._fresh_from = min(stale_to, max(0, ledger.next_id - min(self._window, ledger.memory)))
        # later decisions have current views, with the bits that they were decided with
        decisions = np.arange(self._fresh_from, stale_to)
        rows = self.training_set.rows(decisions)
        decisions, rows = decisions[rows >= 0], rows[rows >= 0]
        context = ledger.view("context")
        for view in range(self.n_views):
            context[decisions % ledger.memory, view] = self.embedder.embed(self.training_set, rows, view)

    def learn_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Learn from labelled tasks of a warm start."""
        self.training_set.append_labelled(x, rewards, costs, cost_expert)
        known = rewards[~np.isnan(rewards)]
        self._ledger.view("reward_power")[:] += known @ known, len(known)
        self.retrain(WARM_EPOCHS)

    def deciding_step(self, *, freezes: bool) -> int:
        """Return the multiplications beyond the usual ones: of dropped tasks, of the window of the price, or both."""
        ledger, shape, step = self._ledger, self._shape, 0
        if self.training_set.n >= 2 * self._limit:
            step += shape.n_targets * self._limit * self.width**2
        if not self._window_is_fresh and self._next_solve() <= ledger.next_id + 2:
            step += min(self._window, self.training_set.n) * self.n_views * self.width * shape.n_features
        if freezes and ledger.get("n_seen") >= ledger.get("retrain_at"):
            step += self._kind.retraining_step(shape, self.training_set.n)
        return step

    def observing_step(self, *, switches: bool) -> int:  # noqa: ARG002
        """Return the multiplications beyond the usual ones: of a retraining, if that is due."""
        if self.observations_until_retraining() > 1 or self._ledger.get("unsettled"):
            return 0
        return self._kind.retraining_step(self._shape, self.training_set.n)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name."""
        parts = {
            "past": self.training_set.state(),
            "embedder": self.embedder.state(),
            "old": self.systems.retired._asdict(),
        }
        return join_parts(parts) | {"fresh_from": np.array([self._fresh_from, self._window_is_fresh])}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""
        self.training_set.restore(part_of(saved, "past"))
        self.embedder.restore(part_of(saved, "embedder"))
        self.version += 1
        old = part_of(saved, "old")
        check_shapes(old, {name: array.shape for name, array in self.systems.retired._asdict().items()})
        check_finite(old, list(old))
        if not ((old["n"] >= 0) & (old["n"] <= MAX_COUNT)).all():
            raise ValueError("the number of tasks that are no longer kept is out of range")
        self.systems.retired = RetiredTasks(**{name: array.copy() for name, array in old.items()})
        self._fresh_from, self._window_is_fresh = int(saved["fresh_from"][0]), bool(saved["fresh_from"][1])
        if self.training_set.decided != self._ledger.next_id or not 0 <= self._fresh_from <= self._ledger.next_id:
            raise ValueError("the training set of a representation does not match the decisions")
