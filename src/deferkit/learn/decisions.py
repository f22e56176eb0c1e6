"""Decisions: proposed, committed, and what a proposal of the past must be to be applied."""

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import BudgetExhausted, EventOutOfOrder, HorizonWarning, expected
from deferkit.events import Decided
from deferkit.learn import inputs
from deferkit.learn.encode import Encoder
from deferkit.learn.parts import Parts
from deferkit.types import REASONS, Decision, show

Floats = NDArray[np.float64]

SETTLE_AFTER = 16  # rows, at least, that an encoder sees before its scales are frozen


class Decisions:
    """Decides tasks one at a time: `propose` changes nothing, `apply` and `commit` do."""

    def __init__(self, parts: Parts) -> None:
        self._settings = parts.settings
        self._ledger = parts.ledger
        self._core = parts.ledger.core
        self._contexts = parts.contexts
        self._outcomes = parts.outcomes
        self._representation = parts.representation
        self.horizon = min((budget.horizon or math.inf) for budget in self._settings.budget.values())
        # before this decision nothing can be in the way of the next one, and the horizon is not over
        self._first_checked = min(self._ledger.memory, self.horizon)
        self._plain = self._contexts.encoder is None and self._representation is None

    def decide(self, context: Any) -> Decision:
        """Propose and commit. Most of the time that this takes is spent in two calls of the compiled core."""
        core = self._core
        if not (self._plain and core.load(context)):
            if self._ledger.get("unsettled"):
                event = self.propose(context)
                self.apply(event)
                return event.decision
            self._contexts.load(context)
        decision: Decision = core.propose(core.everyone, -1)
        if core.next_id >= self._first_checked:
            self._make_way()
        core.commit()
        if self._representation is not None:
            self._contexts.decided()
        return decision

    def decide_many(self, matrix: Floats) -> list[Decision]:
        """Decide tasks one after the other, in chunks between which the ledger makes room."""
        ledger, representation = self._ledger, self._representation
        decisions: list[Decision] = []
        while len(decisions) < len(matrix):
            n = ledger.memory
            if representation is not None:
                representation.make_room()
                n = representation.free_steps()
            given = matrix[len(decisions) : len(decisions) + n]
            ledger.make_room(len(given))
            decisions += self._core.decide_many(self._contexts.represent(given))
            if representation is not None:
                representation.enter(given)
                representation.look_if_due()
        if ledger.next_id > self.horizon:
            self.tell_horizon()
        return decisions

    def propose(
        self, context: Any, cost: Any = None, available: Sequence[str] | None = None, force: str | None = None
    ) -> Decided:
        """Return what would be decided, as an event that `apply` takes; change nothing."""
        settings, ledger = self._settings, self._ledger
        kept = self._contexts.load_event(context)
        mask = self._mask(available)
        forced = -1 if force is None else inputs.place_of(force, settings.deciders, "decider")
        if forced > 0 and not mask >> (forced - 1) & 1:
            raise expected("force", "Deferrer", "an expert who is available", force)
        if cost is None:
            decision = self._core.propose(mask, forced)
        else:
            known = inputs.as_known_costs(cost, settings.experts, settings.resources)
            self._outcomes.check_costs(known, missing=True)
            ledger.view("known_cost")[:] = known
            decision = self._core.propose(mask, forced)
            ledger.view("known_cost")[:] = math.nan
        if forced > 0:
            self._check_free(decision)
        return Decided(decision, kept)

    def apply(self, event: Decided) -> None:
        """Commit a decision that was proposed before, here or elsewhere."""
        ledger, decision = self._ledger, event.decision
        if not isinstance(decision, Decision):
            raise expected("decision", "Decided", "a Decision", decision)
        if decision.id != ledger.next_id:
            raise EventOutOfOrder(f"The next decision is {ledger.next_id}. Got decision {decision.id}.")
        route = inputs.place_of(decision.route, self._settings.deciders, "decider")
        reason = inputs.place_of(decision.reason, REASONS, "reason")
        cost = inputs.as_amount("expected_cost", decision.expected_cost, self._settings.resources)
        held = inputs.as_amount("reserved", decision.reserved, self._settings.resources)
        if route > 0:
            self._check_free(decision)
            if (np.array(held) > ledger.view("max_cost")).any():
                raise expected("reserved", "decision", "at most the max_cost of its budget", decision.reserved)
        elif any(cost) or any(held):
            raise expected("reserved", "decision", "0 where the model decides", decision.reserved)
        kept = self._contexts.load_event(event.context)
        self._make_way()
        self._core.commit_decided(route, reason, cost, held)
        self._contexts.decided()
        if self._contexts.encoder is not None and ledger.get("unsettled"):
            self._contexts.encoder.see(kept)
            self._contexts.unsettled.append(kept)
            if ledger.next_id >= max(ledger.get("warm_up"), SETTLE_AFTER):
                self.settle()

    def _make_way(self) -> None:
        """Make room for the next decision, and announce the end of the horizon."""
        self._ledger.make_room(1)
        if self._core.next_id >= self.horizon:
            self.tell_horizon()

    def _mask(self, available: Sequence[str] | None) -> int:
        if available is None:
            return self._core.everyone
        if isinstance(available, str) or not isinstance(available, Iterable):
            raise expected("available", "Deferrer", "a list of experts", available)
        return sum(1 << place for place in {inputs.place_of(e, self._settings.experts, "expert") for e in available})

    def _check_free(self, decision: Decision) -> None:
        """Raise if what a decision reserves is not free."""
        held = np.array(inputs.as_amount("reserved", decision.reserved, self._settings.resources))
        left = self._ledger.left()
        if (held > left).any() or (self._ledger.view("total") <= 0).any():
            free = show(self._outcomes.records.amount(left.tolist()))
            raise BudgetExhausted(f"Asking {decision.route} needs {show(decision.reserved)} of budget; {free} is free.")

    def see_rows(self, encoder: Encoder, rows: list[dict[str, Any]]) -> None:
        """Settle the encoder's scales on these rows, and those seen before."""
        for row in rows:
            encoder.see(row)
        self.settle()

    def settle(self) -> None:
        """Freeze the encoder's scales, encode the contexts so far with them, and learn what is known of those."""
        ledger, contexts = self._ledger, self._contexts
        ledger.set("unsettled", 0)
        n = len(contexts.unsettled)
        if n:
            matrix = contexts.encode(contexts.unsettled)
            if self._representation is not None:
                matrix = self._representation.settle(matrix)
            ledger.view("context")[:n] = matrix.reshape(n, -1, ledger.view("context").shape[2])
            whose = np.where(np.isnan(ledger.cost[:n]).any(axis=1), 0, ledger.route[:n])
            self._outcomes.learn(matrix, whose, ledger.reward[:n].copy(), ledger.cost[:n].copy())
            contexts.unsettled = []
        if self._representation is not None:
            self._representation.retrain_if_due()

    def tell_horizon(self) -> None:
        """Warn once that the horizon is over."""
        if not self._ledger.get("horizon_told"):
            self._ledger.set("horizon_told", 1)
            warnings.warn(
                f"The horizon of {self.horizon:,} tasks is over. What is left of the budget is spent at the last"
                " price.",
                HorizonWarning,
                stacklevel=5,
            )
