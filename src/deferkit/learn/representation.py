"""Representations between a context and the estimates: none, trees in the mixture, or an embedding."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import MAX_COUNT, check_finite, check_shapes
from deferkit.learn.core import CONSTANTS
from deferkit.learn.embed.boosting import one_thread
from deferkit.learn.embed.systems import LinearSystems, RetiredTasks
from deferkit.learn.embed.training_set import Floats
from deferkit.learn.embed.tree_columns import TreeColumns
from deferkit.learn.encode import Encoder
from deferkit.learn.initial_state import new_ledger, write_prior
from deferkit.learn.ledger import Ledger
from deferkit.learn.settings import Settings

WARM_EPOCHS = 20  # epochs of a warm start; in a stream, the same tasks would have been trained on many times


class RetrainedEmbedding:
    """Keeps the training set, retrains the embedder on schedule, and refits the estimates after each retraining.

    A retraining happens within the observation that makes it due, so that it is part of the fold over events: the same
    events give the same networks or trees, at the same time.
    """

    fitting = False  # never in the background
    largest = 1e9  # absolute value of a feature; networks are trained in single precision

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        assert settings.embedding is not None
        self.embedding = settings.embedding
        shape = settings.shape
        self.training_set = shape.training_set()
        self.embedder = self.embedding.make(shape)
        self.views = self.embedding.views(shape)
        self.width = self.embedding.width(shape)
        self.systems = LinearSystems(ledger, shape, self.views, self.width, ridge=settings.ridge_used)
        self._ledger = ledger
        self._window = ledger.get("window")  # rounded up to whole lanes, as in the solver of the price
        self._pacing = settings.strategy
        # the price is solved for the latest contexts, so that at least those are kept
        memory = self.embedding.memory
        self._limit = None if memory is None else max(memory, min(self._window, ledger.memory))
        self._fresh_from = 0  # from this decision on, views in the ledger are current
        self._window_is_fresh = True  # whether the views in the window of the price are current
        self.version = 0  # of the views: another one after each retraining
        if self.embedding.frozen and ledger.next_id == 0:
            self.systems.rebuild(self.embedder, self.training_set)

    def write(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts [n, d] to [n, views · width]."""
        self.embedder.transform(x, out)

    def transform(self, x: Floats) -> Floats:
        """Return the views of contexts [n, d] as [n, views · width]."""
        out = np.zeros((len(x), (max(self.views) + 1) * self.width))
        self.write(x, out)
        return out

    def observations_until_retraining(self) -> int:
        """Return the number of observations that may come before the next retraining."""
        return max(1, self._ledger.get("retrain_at") - self._ledger.get("n_seen"))

    def refresh_views(self, decision: int, slot: int) -> None:
        """Recompute the views of a decision in the ledger, before its outcome is learned."""
        if decision < self._fresh_from:
            row = self.training_set.row(decision)
            if row >= 0:  # a task that was dropped keeps its old views
                views = self.transform(self.training_set.x[row : row + 1])
                self._ledger.view("context")[slot] = views.reshape(-1, self.width)

    def record_outcomes(self, first: int, n: int = 1) -> None:
        """Copy the outcomes of n consecutive decisions from the ring of the ledger."""
        ledger = self._ledger
        slots = np.arange(first, first + n) % ledger.memory
        self.training_set.label(first, ledger.reward[slots], ledger.cost[slots], ledger.route[slots])

    def append_outcomes(self, decision: int, slot: int, rewards: list[float], costs: list[float]) -> None:
        """Copy the outcome of a decision from its row in the ledger; NaN in `rewards` and `costs` is not new."""
        ledger = self._ledger
        if self.training_set.row(decision) >= 0:
            rows = slice(slot, slot + 1)
            self.training_set.label(decision, ledger.reward[rows], ledger.cost[rows], ledger.route[rows])
            return
        first = len(rewards) + (int(ledger.route[slot]) - 1) * len(costs)
        new_values = [*enumerate(rewards), *enumerate(costs, start=first)]
        for target, value in new_values:
            if not math.isnan(value):
                self.systems.learn(target, ledger.view("context")[slot, self.views[target]], value)

    def replace_outcomes(self, decision: int, slot: int, changes: list[tuple[int, float, float]]) -> None:
        """Copy corrected outcomes of a decision; `changes` are (target, before, after)."""
        ledger = self._ledger
        if self.training_set.row(decision) >= 0:
            rows = slice(slot, slot + 1)
            self.training_set.label(decision, ledger.reward[rows], ledger.cost[rows], ledger.route[rows])
            return
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
            if self._limit is not None:
                self._retire(max(0, training_set.n - self._limit), self.embedding.discount)
            self.embedder.retrain(training_set, epochs)
            self.version += 1
            self.systems.rebuild(self.embedder, training_set)
        ledger.set("retrain_at", self.embedding.next_at(ledger.get("n_seen")))
        self._fresh_from, self._window_is_fresh = ledger.next_id, self._window == 0
        self.refresh_window_if_due()

    def drop_old_tasks(self) -> None:
        """Drop the oldest tasks if memory is bounded; for many decisions without feedback, hence without retraining."""
        if self._limit is not None and self.training_set.n >= 2 * self._limit:
            with one_thread():
                self._retire(self._limit, 1.0)

    def _retire(self, n: int, discount: float) -> None:
        """Drop the first n tasks; what was learned from them stays in the linear systems."""
        self.systems.retire(self.embedder, self.training_set, n, discount)
        self.training_set.drop_first(n)

    def append_decided(self, x: Floats) -> None:
        """Append contexts that were just decided, at most `decisions_until_upkeep()` of them."""
        self.drop_old_tasks()
        self.training_set.append(x)

    def decisions_until_upkeep(self) -> int:
        """Return the number of decisions before `drop_old_tasks` or `refresh_window_if_due` must be called."""
        steps = self._ledger.memory
        if self._limit is not None:
            steps = min(steps, 2 * self._limit - self.training_set.n)
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
        for view in range(max(self.views) + 1):
            context[decisions % ledger.memory, view] = self.embedder.embed(self.training_set, rows, view)

    def replace_contexts(self, matrix: Floats) -> Floats:
        """Replace the contexts of the first decisions, and return their views."""
        self.training_set.replace(matrix)
        return self.transform(matrix)

    def learn_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: NDArray[np.int64]) -> None:
        """Learn from labelled tasks of a warm start."""
        self.training_set.append_labelled(x, rewards, costs, cost_expert)
        known = rewards[~np.isnan(rewards)]
        self._ledger.view("reward_power")[:] += known @ known, len(known)
        self.retrain(WARM_EPOCHS)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name."""
        parts = {
            "past": self.training_set.state(),
            "embedder": self.embedder.state(),
            "old": self.systems.retired._asdict(),
        }
        arrays = {f"{part} {name}": array for part, each in parts.items() for name, array in each.items()}
        return arrays | {"fresh_from": np.array([self._fresh_from, self._window_is_fresh])}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""

        def part(prefix: str) -> dict[str, NDArray[Any]]:
            return {name[len(prefix) + 1 :]: a for name, a in saved.items() if name.startswith(f"{prefix} ")}

        self.training_set.restore(part("past"))
        self.embedder.restore(part("embedder"))
        self.version += 1
        old = part("old")
        check_shapes(old, {name: array.shape for name, array in self.systems.retired._asdict().items()})
        check_finite(old, list(old))
        if not ((old["n"] >= 0) & (old["n"] <= MAX_COUNT)).all():
            raise ValueError("the number of tasks that are no longer kept is out of range")
        self.systems.retired = RetiredTasks(**{name: array.copy() for name, array in old.items()})
        self._fresh_from, self._window_is_fresh = int(saved["fresh_from"][0]), bool(saved["fresh_from"][1])
        if self.training_set.decided != self._ledger.next_id or not 0 <= self._fresh_from <= self._ledger.next_id:
            raise ValueError("the training set of a representation does not match the decisions")


Representation = TreeColumns | RetrainedEmbedding


def representation_of(settings: Settings, ledger: Ledger, encoder: Encoder | None) -> Representation | None:
    """Return the representation that the settings name; None if estimates read the contexts themselves.

    Args:
        settings: Of the learner.
        ledger: Of the learner.
        encoder: Of the learner, if it has one.
    """

    def fresh_ledger(link: str) -> Ledger:
        made = replace(small, link=link)
        fresh = new_ledger(made)
        write_prior(made, fresh, encoder)
        return fresh

    if settings.embedding is not None:
        return RetrainedEmbedding(settings, ledger)
    if settings.representation == "auto":
        # the ledger that a fit learns with holds no decisions, so that the smallest memory is enough; the members that
        # read ranks do not depend on trees, and come last
        small = replace(settings, memory=max(1, settings.pacing.window), without=(*settings.without, "ranks"))
        shape = settings.shape
        if ledger.get("link_state") == CONSTANTS["link_switched"]:
            shape = shape._replace(link="identity")
        return TreeColumns(shape, ledger, fresh_ledger)
    return None
