"""An embedding at work in a learner: what it is trained on, when, and what that does to the estimates."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import LARGEST_COUNT, check_finite, check_shapes
from deferkit.learn.embed.systems import LinearSystems, RetiredTasks
from deferkit.learn.embed.threads import one_thread
from deferkit.learn.embed.training_set import Floats
from deferkit.learn.ledger import Ledger
from deferkit.learn.settings import Settings

WARM_EPOCHS = 20  # what a warm start is learned with: in a stream, the same tasks would have been gone through often


class RetrainedEmbedding:
    """Keeps the past, retrains when that is due, and keeps contexts and estimates in step with it.

    All estimates are those of the latest embedding, rebuilt from the past each time it has changed.

    Retraining is due after so many observations. It happens within the observation that makes it due, so that it is
    part of the fold over events: the same events give the same networks or trees, at the same time.
    """

    fitting = False  # retraining is done within an observation
    largest = 1e9  # of a context's numbers: networks are trained in single precision

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
        self._window = ledger.get("window")  # whole lanes of contexts: the price is solved for no fewer
        self._pacing = settings.pacing.strategy
        # the latest contexts are looked at again for the price, so that at least those are kept
        memory = self.embedding.memory
        self._limit = None if memory is None else max(memory, min(self._window, ledger.memory))
        self._fresh_from = 0  # decisions from this one on have views of now in the ledger
        self._window_is_fresh = True  # so have those that the price is solved for
        if self.embedding.frozen and ledger.next_id == 0:
            self.systems.rebuild(self.embedder, self.training_set)

    def write(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts, one behind the other."""
        self.embedder.transform(x, out)

    def transform(self, x: Floats) -> Floats:
        """Return the views of contexts, one behind the other."""
        out = np.zeros((len(x), (max(self.views) + 1) * self.width))
        self.write(x, out)
        return out

    def observations_until_retraining(self) -> int:
        """Return how many observations may come before the next retraining."""
        return max(1, self._ledger.get("retrain_at") - self._ledger.get("n_seen"))

    def refresh_views(self, decision: int, slot: int) -> None:
        """Update the views of a decision in the ledger, before something is learned from it."""
        if decision < self._fresh_from:
            row = self.training_set.row(decision)
            if row >= 0:  # what was let go of keeps the views of its time
                views = self.transform(self.training_set.x[row : row + 1])
                self._ledger.view("context")[slot] = views.reshape(-1, self.width)

    def record_outcomes(self, first: int, n: int = 1) -> None:
        """Take over what the ledger knows by now of decisions in the ring, one after the other."""
        ledger = self._ledger
        slots = np.arange(first, first + n) % ledger.memory
        self.training_set.label(first, ledger.reward[slots], ledger.cost[slots], ledger.route[slots])

    def observed(self, decision: int, slot: int, rewards: list[float], costs: list[float]) -> None:
        """Take over what has just become known of a decision, wherever it lies; NaN: nothing."""
        ledger = self._ledger
        if self.training_set.row(decision) >= 0:
            rows = slice(slot, slot + 1)
            self.training_set.label(decision, ledger.reward[rows], ledger.cost[rows], ledger.route[rows])
            return
        first = len(rewards) + (int(ledger.route[slot]) - 1) * len(costs)
        news = [*enumerate(rewards), *enumerate(costs, start=first)]
        for target, value in news:
            if not math.isnan(value):
                self.systems.learn(target, ledger.view("context")[slot, self.views[target]], value)

    def corrected(self, decision: int, slot: int, changes: list[tuple[int, float, float]]) -> None:
        """Take over corrections (estimate, before, after) of a decision."""
        ledger = self._ledger
        if self.training_set.row(decision) >= 0:
            rows = slice(slot, slot + 1)
            self.training_set.label(decision, ledger.reward[rows], ledger.cost[rows], ledger.route[rows])
            return
        for target, before, after in changes:
            self.systems.correct(target, ledger.view("context")[slot, self.views[target]], before, after)

    def retrain_if_due(self) -> None:
        """Retrain if enough was observed, but not while the encoder's scales are unsettled."""
        ledger = self._ledger
        if ledger.get("n_seen") >= ledger.get("retrain_at") and not ledger.get("unsettled"):
            self.retrain()

    def retrain(self, epochs: int = 1) -> None:
        """Retrain on the past and rebuild the estimates."""
        ledger, training_set = self._ledger, self.training_set
        with one_thread():
            if self._limit is not None:
                self._retire(max(0, training_set.n - self._limit), self.embedding.discount)
            self.embedder.retrain(training_set, epochs)
            self.systems.rebuild(self.embedder, training_set)
        ledger.set("retrain_at", self.embedding.next_at(ledger.get("n_seen")))
        self._fresh_from, self._window_is_fresh = ledger.next_id, self._window == 0
        self.refresh_window_if_due()

    def drop_old_tasks(self) -> None:
        """Let old tasks go, where memory is bounded, although nothing is retrained: many decisions, no feedback."""
        if self._limit is not None and self.training_set.n >= 2 * self._limit:
            with one_thread():
                self._retire(self._limit, 1.0)

    def _retire(self, n: int, discount: float) -> None:
        """Let the first n tasks go; what they taught stays."""
        self.systems.retire(self.embedder, self.training_set, n, discount)
        self.training_set.drop_first(n)

    def append_decided(self, x: Floats) -> None:
        """Take in contexts that were just decided, no more than `decisions_until_upkeep` of them."""
        self.drop_old_tasks()
        self.training_set.append(x)

    def decisions_until_upkeep(self) -> int:
        """Return how many decisions may come before `drop_old_tasks` or `refresh_window_if_due` must be called."""
        steps = self._ledger.memory
        if self._limit is not None:
            steps = min(steps, 2 * self._limit - self.training_set.n)
        if not self._window_is_fresh:
            steps = min(steps, math.ceil(self._next_solve()) - self._ledger.next_id - 1)
        return max(1, steps)

    def refresh_window_if_due(self) -> None:
        """Give the latest contexts the views of now, if the price is solved for them within the next decision."""
        if not self._window_is_fresh and self._next_solve() <= self._ledger.next_id + 1:
            with one_thread():
                self._refresh_window()

    def _next_solve(self) -> float:
        """Return the number of the decision that next solves the price over past contexts."""
        return self._pacing.next_solve(self._ledger.dual, len(self._ledger.price))

    def _refresh_window(self) -> None:
        ledger = self._ledger
        stale_to = self._fresh_from
        self._window_is_fresh = True
        self._fresh_from = min(stale_to, max(0, ledger.next_id - min(self._window, ledger.memory)))
        # what was decided since has its views already, to the last bit as it was decided with
        decisions = np.arange(self._fresh_from, stale_to)
        rows = self.training_set.rows(decisions)
        decisions, rows = decisions[rows >= 0], rows[rows >= 0]
        context = ledger.view("context")
        for view in range(max(self.views) + 1):
            context[decisions % ledger.memory, view] = self.embedder.embed(self.training_set, rows, view)

    def replace_contexts(self, matrix: Floats) -> Floats:
        """Replace the contexts of the first decisions by these, and return their views."""
        self.training_set.replace(matrix)
        return self.transform(matrix)

    def learn_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: NDArray[np.int64]) -> None:
        """Learn from labelled tasks of the past."""
        self.training_set.append_labelled(x, rewards, costs, cost_expert)
        known = rewards[~np.isnan(rewards)]
        self._ledger.view("reward_power")[:] += known @ known, len(known)
        self.retrain(WARM_EPOCHS)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that decides, for saving."""
        parts = {
            "past": self.training_set.state(),
            "embedder": self.embedder.state(),
            "old": self.systems.retired._asdict(),
        }
        arrays = {f"{part} {name}": array for part, each in parts.items() for name, array in each.items()}
        return arrays | {"fresh_from": np.array([self._fresh_from, self._window_is_fresh])}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""

        def part(prefix: str) -> dict[str, NDArray[Any]]:
            return {name[len(prefix) + 1 :]: a for name, a in saved.items() if name.startswith(f"{prefix} ")}

        self.training_set.restore(part("past"))
        self.embedder.restore(part("embedder"))
        old = part("old")
        check_shapes(old, {name: array.shape for name, array in self.systems.retired._asdict().items()})
        check_finite(old, list(old))
        if not ((old["n"] >= 0) & (old["n"] <= LARGEST_COUNT)).all():
            raise ValueError("the number of tasks that are no longer kept is out of range")
        self.systems.retired = RetiredTasks(**{name: array.copy() for name, array in old.items()})
        self._fresh_from, self._window_is_fresh = int(saved["fresh_from"][0]), bool(saved["fresh_from"][1])
        if self.training_set.decided != self._ledger.next_id or not 0 <= self._fresh_from <= self._ledger.next_id:
            raise ValueError("the past of a representation is not that of the decisions")
