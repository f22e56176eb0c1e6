"""Decisions one at a time: proposed, checked and committed; the freezing of the encoder's scales."""

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import BudgetExhausted, EventOutOfOrder, HorizonWarning, SpendingWarning, expected
from deferkit.events import Decided
from deferkit.learn import inputs
from deferkit.learn.components import Components
from deferkit.learn.core import CONSTANTS
from deferkit.learn.encode import FREEZE_AFTER, Encoder
from deferkit.learn.spending import SpendingCheck
from deferkit.periods import show_time
from deferkit.types import REASONS, Decision, show

Floats = NDArray[np.float64]

UNTIL: int = CONSTANTS["until"]
RANKED_CONTEXTS: int = CONSTANTS["ranked_contexts"]


class Decisions:
    """Decides tasks one at a time: `propose` changes nothing, `apply` and `commit` do."""

    def __init__(self, components: Components) -> None:
        self._settings = components.settings
        self._deciders = components.settings.deciders
        self._resources = components.settings.resources
        self._ledger = components.ledger
        self._core = components.ledger.core
        self._contexts = components.contexts
        self._outcomes = components.outcomes
        self._representation = components.representation
        self._renewals = components.renewals
        self.is_timed = components.renewals.is_timed
        self._spending = SpendingCheck(components.settings, components.ledger, components.reader.spending)
        self.horizon, self._first_checked = math.inf, math.inf
        self.find_horizon()
        self._plain = self._contexts.encoder is None and self._representation is None

    def find_horizon(self) -> None:
        """Note when the first horizon is over, and when the spending is checked; after a change of a budget."""
        self.horizon = self._ledger.view("horizon").min().item()
        self._spending.find_next()
        self._find_first_checked()

    def _find_first_checked(self) -> None:
        """Note the first decision before which something is due: the ring is full, the horizon over, or a check due."""
        self._first_checked = 0 if self.is_timed else min(self._ledger.memory, self.horizon, self._spending.due)

    def decide(self, context: Any, at: object = None) -> Decision:
        """Propose and commit: `Deferrer.decide` without options, on the fast path."""
        core = self._core
        time = self._renewals.as_time(at) if at is not None or self.is_timed else None
        if not (self._plain and core.try_load(context)):
            if self._ledger.get("unsettled"):
                return self.decide_with(context, at=at)
            self._contexts.load(context)
        if time is not None:
            self._renewals.apply_due(time)
            core.set_time(time)
        decision: Decision = core.propose(core.all_experts, -1)
        if core.next_id >= self._first_checked:
            self._prepare_for_next()
            self.warn_if_stalled(time, stacklevel=4)
        core.commit()
        if self._representation is not None:
            self._contexts.decided()
        return decision

    def decide_with(
        self,
        context: Any,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
        at: object = None,
    ) -> Decision:
        """Propose and apply, with any option. Renewals that are due take place before the decision."""
        time = self._renewals.as_time(at)
        if time is not None and self._renewals.is_due(time):
            self._check_options(cost, available, force)
            self._contexts.load_event(context)  # raises, if at all, before anything changes
            self._renewals.apply_due(time)
        event = self.propose(context, cost, available, force, at)
        if self._ledger.next_id >= self._first_checked:
            self.warn_if_stalled(time, stacklevel=4)
        self.apply(event)
        return event.decision

    def decide_many(self, matrix: Floats, at: Any = None) -> list[Decision]:
        """Decide tasks in order, in chunks between which open decisions are moved out of the ring."""
        times = self.times_of(at, len(matrix))
        ledger, representation = self._ledger, self._representation
        decisions: list[Decision] = []
        while len(decisions) < len(matrix):
            n = ledger.memory
            if representation is not None:
                representation.drop_old_tasks()
                n = representation.decisions_until_upkeep()
            first = len(decisions)
            n = self.begin_chunk(times, first, min(n, len(matrix) - first), stacklevel=5)
            given = matrix[first : first + n]
            ledger.move_open_decisions(len(given))
            decisions += self._core.decide_many(self._contexts.represent(given), times[first : first + n])
            if representation is not None:
                representation.append_decided(given)
                representation.refresh_window_if_due()
        self.warn_if_over()
        return decisions

    def times_of(self, at: Any, n: int) -> Floats:
        """Return the times of n tasks; none where tasks have no time."""
        if at is None or not self.is_timed:
            self._renewals.as_time(at)  # raises unless both are so
            return np.zeros(0)
        return inputs.as_times(at, n)

    def begin_chunk(self, times: Floats, first: int, n: int, stacklevel: int) -> int:
        """Do what is due before task `first`: renewals, and the check of the spending.

        Returns:
            How many of the next n tasks can be decided before something is due again.
        """
        at = times.item(first) if len(times) else None
        if at is not None:
            self._renewals.apply_due(at)
            n = self._renewals.tasks_before_renewal(times[first : first + n])
        self.warn_if_stalled(at, stacklevel)
        return self._spending.tasks_before(times[first : first + n], n)

    def propose(
        self,
        context: Any,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
        at: object = None,
    ) -> Decided:
        """Return what would be decided, as an event for `apply`; the state does not change."""
        ledger, time = self._ledger, self._renewals.as_time(at)
        kept = self._contexts.load_event(context)
        mask, forced, known = self._check_options(cost, available, force)
        if time is not None:
            self._renewals.check_none_due(time)
            self._core.set_time(time)
        if known is None:
            decision = self._core.propose(mask, forced)
        else:
            ledger.view("known_cost")[:] = known
            decision = self._core.propose(mask, forced)
            ledger.view("known_cost")[:] = math.nan
        if forced > 0:
            self._check_free(decision)
        return Decided(decision, kept, time)

    def _check_options(
        self, cost: Any, available: Sequence[str] | None, force: str | None
    ) -> tuple[int, int, Floats | None]:
        """Return the experts that are available as bits, the route that is prescribed or −1, and known costs."""
        settings = self._settings
        mask = self._mask(available)
        forced = -1 if force is None else inputs.index_of(force, settings.deciders, "decider")
        if forced > 0 and not mask >> (forced - 1) & 1:
            raise expected("force", "Deferrer", "an expert who is available", force)
        if cost is None:
            return mask, forced, None
        known = inputs.as_known_costs(cost, settings.experts, settings.resources)
        self._outcomes.check_costs(known, missing=True)
        return mask, forced, known

    def check(self, event: Decided) -> tuple[int, int, list[float], list[float]]:
        """Return route, reason, expected cost and hold of a decision; raise if it cannot be committed."""
        ledger, decision = self._ledger, event.decision
        if not isinstance(decision, Decision):
            raise expected("decision", "Decided", "a Decision", decision)
        if decision.id != ledger.next_id:
            raise EventOutOfOrder(f"The next decision is {ledger.next_id}. Got decision {decision.id}.")
        route = inputs.index_of(decision.route, self._deciders, "decider")
        reason = inputs.index_of(decision.reason, REASONS, "reason")
        cost = inputs.as_amount("expected_cost", decision.expected_cost, self._resources)
        held = inputs.as_amount("reserved", decision.reserved, self._resources)
        if route > 0:
            self._check_free(decision)
            if (np.array(held) > ledger.view("max_cost")).any():
                raise expected("reserved", "decision", "at most the max_cost of its budget", decision.reserved)
        elif any(cost) or any(held):
            raise expected("reserved", "decision", "0 where the model decides", decision.reserved)
        return route, reason, cost, held

    def apply(self, event: Decided, warn: bool = True) -> None:
        """Commit a decision that this learner or an equal one proposed; raise if it cannot be."""
        ledger, decision = self._ledger, event.decision
        route, reason, cost, held = self.check(event)
        time = self._renewals.as_time(event.at)
        kept = self._contexts.load_event(event.context)
        if time is not None:
            self._renewals.check_none_due(time)
            self._core.set_time(time)
        if decision.id >= self._first_checked:
            self._prepare_for_next(warn)
            self._find_stalled(time)  # only `decide` and the like warn: an event may be applied years later
        self._core.commit_decided(route, reason, cost, held)
        self._contexts.decided()
        if self._contexts.encoder is not None and ledger.get("unsettled"):
            self._contexts.encoder.see(kept)
            self._contexts.rows_before_freeze.append(kept)
            if ledger.next_id >= max(ledger.get("warm_up"), FREEZE_AFTER):
                self.freeze_encoder()

    def longest_step(self) -> int:
        """Return the multiplications of the next decision beyond its usual ones.

        The context that fills the rank tables, and the one after which the encoder's scales are frozen, make the
        learner learn the outcomes so far again.
        """
        ledger, following = self._ledger, self._core.next_id + 1
        fills = following == RANKED_CONTEXTS and ledger.get("n_ranked") and ledger.get("n_views") == 2
        freezes = ledger.get("unsettled") and following >= max(ledger.get("warm_up"), FREEZE_AFTER)
        return ledger.relearning_step() if fills or freezes else 0

    def _prepare_for_next(self, warn: bool = True) -> None:
        """Free the row of the next decision, and note, or warn, that the horizon is over."""
        self._ledger.move_open_decisions(1)
        self.warn_if_over(1, warn)

    def _mask(self, available: Sequence[str] | None) -> int:
        if available is None:
            return self._core.all_experts
        if isinstance(available, str) or not isinstance(available, Iterable):
            raise expected("available", "Deferrer", "a list of experts", available)
        return sum(1 << index for index in {inputs.index_of(e, self._settings.experts, "expert") for e in available})

    def _check_free(self, decision: Decision) -> None:
        held = np.array(inputs.as_amount("reserved", decision.reserved, self._settings.resources))
        left = self._ledger.budget_left()
        if (held > left).any() or (self._ledger.view("total") <= 0).any():
            free = show(self._outcomes.reader.amount(left.tolist()))
            raise BudgetExhausted(f"Asking {decision.route} needs {show(decision.reserved)} of budget; {free} is free.")

    def freeze_encoder_on(self, encoder: Encoder, rows: list[dict[str, Any]]) -> None:
        """Update the encoder's scales with these rows, then freeze them."""
        for row in rows:
            encoder.see(row)
        self.freeze_encoder()

    def freeze_encoder(self) -> None:
        """Freeze the encoder's scales, encode the contexts so far again, and learn their outcomes."""
        ledger, contexts = self._ledger, self._contexts
        ledger.set("unsettled", 0)
        n = len(contexts.rows_before_freeze)
        if n:
            matrix = contexts.encode(contexts.rows_before_freeze)
            if self._representation is not None:
                matrix = self._representation.replace_contexts(matrix)
            self._core.replace_first_contexts(matrix)
            if self._settings.has_ranks:  # learned with the ranks that each context had when it came
                self._core.relearn()
            else:
                cost_expert = np.where(np.isnan(ledger.cost[:n]).any(axis=1), 0, ledger.route[:n])
                self._outcomes.learn(matrix, cost_expert, ledger.reward[:n].copy(), ledger.cost[:n].copy())
            contexts.rows_before_freeze = []
        if self._representation is not None:
            self._representation.retrain_if_due()

    def warn_if_over(self, coming: int = 0, warn: bool = True) -> None:
        """Note and warn once that the horizon or end of a budget is over, with so many decisions about to come."""
        ledger, over = self._ledger, None
        if ledger.get("horizon_told"):
            return
        if ledger.next_id + coming > self.horizon:
            over = f"The horizon of {int(self.horizon):,} tasks is over."
        elif self.is_timed:
            time = max(ledger.view("task_time").item(), ledger.view("clock").item())
            ends = ledger.view("period_end")[ledger.view("timing") == UNTIL]
            if (ends <= time).any():
                over = f"The budget ended on {show_time(ends[ends <= time][0].item())}."
        if over is not None:
            ledger.set("horizon_told", 1)
            if warn:
                said = f"{over} What is left of the budget is spent at the last price."
                warnings.warn(said, HorizonWarning, stacklevel=5)

    def _find_stalled(self, at: float | None) -> str:
        """Check the spending before a decision at a time, if that is due; return a line if hardly anything is spent."""
        if (self._ledger.next_id if at is None else at) < self._spending.due:
            return ""
        line = self._spending.check(at)
        self._find_first_checked()
        return line

    def warn_if_stalled(self, at: float | None, stacklevel: int) -> None:
        """Warn once that hardly anything is spent, before a decision at a time."""
        line = self._find_stalled(at)
        if line:
            said = f"Less than a quarter of the planned spending is used: {line}"
            warnings.warn(said, SpendingWarning, stacklevel=stacklevel)
