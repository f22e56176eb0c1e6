"""The learner as a fold over its events: `propose` says what would happen, `apply` lets it happen."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from deferkit.errors import (
    AlreadySettled,
    BudgetExhausted,
    EventOutOfOrder,
    HorizonWarning,
    UnknownDecision,
    expected,
)
from deferkit.events import BudgetChanged, Corrected, Decided, Event, Expired, Observed, WarmStarted
from deferkit.learn import inputs
from deferkit.learn.account import OPEN, expire
from deferkit.learn.arrays import ENCODING, HORIZON_TOLD, WARM_UP
from deferkit.learn.contexts import Contexts
from deferkit.learn.encode import Encoder
from deferkit.learn.ledger import Ledger
from deferkit.learn.loop import commit_one, propose_many, record_length
from deferkit.learn.outcomes import Outcomes
from deferkit.learn.pacing import LEAST_BUDGET
from deferkit.learn.records import Records
from deferkit.learn.representation import Representation
from deferkit.learn.settings import Settings
from deferkit.types import REASONS, Amount, Decision, show

SETTLE_AFTER = 16  # rows, at least, that an encoder sees before its scales are frozen


class Learner:
    """Holds the state and changes it by events, and in no other way. A user makes a `Deferrer`, which is one."""

    settings: Settings

    def _set_up(self, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> None:
        self.settings = settings
        self._ledger = ledger
        self._representation = None if settings.embedding is None else Representation(settings, ledger)
        self._contexts = Contexts(settings.n_features, encoder, self._representation)
        if encoder is not None and ledger.next_id == 0:
            ledger.ints[ENCODING] = 1
        self._records = Records(settings.experts, settings.resources)
        self._outcomes = Outcomes(settings, ledger, self._records, self._representation)
        self._everyone = (1 << len(settings.experts)) - 1
        self._record = np.zeros((1, record_length(len(settings.experts), len(settings.budget))))
        self._record_row = self._record[0]
        self._amounts = np.zeros((2, len(settings.budget)))
        self._end = min((b.horizon or math.inf) for b in settings.budget.values())
        self._attention = min(ledger.memory, self._end)  # before this decision nothing can be in the way or over

    def propose(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
    ) -> Decided:
        """Return what `decide` would do, as an event that `apply` takes; change nothing.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> event = deferrer.propose([1.0], force="human")
        >>> event == deferrer.propose([1.0], force="human")
        True
        >>> deferrer.apply(event)
        >>> deferrer.summary().reserved
        1.0
        """
        ledger = self._ledger
        kept = self._contexts.load_finite(context)
        mask = self._mask(available)
        forced = -1 if force is None else inputs.place_of(force, self.settings.deciders, "decider")
        if forced > 0 and not mask >> (forced - 1) & 1:
            raise expected("force", "Deferrer", "an expert who is available", force)
        if cost is not None:
            known = inputs.as_known_costs(cost, self.settings.experts, self.settings.resources)
            self._outcomes.check_costs(known, missing=True)
            ledger.known[:] = known
        try:
            propose_many(ledger.floats, ledger.ints, self._contexts.x, mask, forced, self._record)
        finally:
            ledger.known[:] = math.nan
        decision = self._records.decision(ledger.next_id, self._record_row.tolist())
        if forced > 0:
            self._outcomes.check_free(decision)
        return Decided(decision, kept)

    def observe(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Take in what has become known of a decision: rewards of any decider, the cost, in any order and in parts.

        The same observation again changes nothing; a different one raises `ConflictingObservation`.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"model": 0.7, "human": 0.9})
        >>> deferrer.observe(decision.id, cost=0.4)
        >>> deferrer.summary().spent, deferrer.summary().reserved
        (0.4, 0.0)
        """
        self._outcomes.take_in(decision, *self._outcomes.examine(decision, rewards, cost))

    def correct(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Replace values that were observed before; the explicit way to contradict an observation.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.4)
        >>> deferrer.correct(decision.id, cost=0.5)
        >>> deferrer.summary().spent
        0.5
        """
        self._outcomes.correct(decision, rewards, cost)

    def expire(self, decision: int) -> None:
        """Release the reservation of a decision that will not hear back.

        A late cost is still booked, as long as the decision is remembered.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.expire(deferrer.decide([1.0], force="human").id)
        >>> deferrer.summary().reserved, deferrer.summary().expired
        (0.0, 1)
        """
        ledger = self._ledger
        slot = ledger.slot(decision)
        if ledger.status[slot] == OPEN:
            expire(ledger.floats, ledger.ints, slot)
            ledger.forget_if_done(int(decision), slot)

    def remembers(self, decision: int) -> bool:
        """Whether a decision can still be learned from: it is one of the last `memory`, or holds budget.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.remembers(deferrer.decide([1.0]).id), deferrer.remembers(7)
        (True, False)
        """
        try:
            self._ledger.slot(decision)
        except (AlreadySettled, UnknownDecision):
            return False
        return True

    def change_budget(self, total: Amount) -> None:
        """Set the total of the budget: top it up or cut it.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.change_budget(20)
        >>> deferrer.summary().left
        20.0
        """
        ledger = self._ledger
        before = ledger.view("total").copy()
        totals = np.array(inputs.as_totals(total, self.settings.resources, before.tolist()))
        used = ledger.view("spent") + ledger.view("reserved")
        if (totals < used).any():
            raise BudgetExhausted(
                f"The budget cannot be cut to {show(total)}: {show(self._records.amount(used.tolist()))}"
                " is spent or reserved."
            )
        ledger.view("total")[:] = totals
        changed = (totals != before) & np.isfinite(totals)
        if self.settings.pacing.kind in ("paper", "gradient"):
            # the same γ of another T/B; a budget that was nothing starts anew, one that becomes nothing has no price
            price, horizon = ledger.view("price"), ledger.view("horizon")
            priced = totals > LEAST_BUDGET
            gamma = np.where(before > LEAST_BUDGET, price * before / horizon, 0.5)
            price[changed] = np.where(priced, gamma * horizon / np.where(priced, totals, 1.0), 0.0)[changed]
        ledger.view("next_solve")[0] = min(ledger.view("next_solve")[0], max(ledger.next_id, ledger.ints[WARM_UP]))
        if self._representation is not None:
            self._representation.look_if_due()

    def warm_start(
        self,
        contexts: Any,
        rewards: Mapping[str, ArrayLike],
        *,
        expert: str | None = None,
        cost: Any = None,
    ) -> None:
        """Learn from labelled tasks of the past instead of a random warm-up. NaN where something is not known.

        `cost` is what `expert` cost on them. The warm-up gets shorter by the number of labels that the least known
        decider has.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.warm_start([[1.0], [0.5]], {"model": [0.6, 0.3], "human": [0.9, 0.4]}, cost=[0.5, 0.2])
        >>> deferrer.decide([1.0]).reason
        'worth it'
        """
        settings, ledger, encoder = self.settings, self._ledger, self._contexts.encoder
        name = settings.experts[0] if expert is None else expert
        place = inputs.place_of(name, settings.experts, "expert") + 1
        rows = self._contexts.rows(contexts)
        matrix = self._contexts.matrix(contexts) if rows is None else self._contexts.encode(rows)
        values, costs = self._outcomes.history(rewards, cost, len(matrix))
        if encoder is not None and ledger.ints[ENCODING] and len(matrix) < SETTLE_AFTER:
            raise expected("contexts", "warm start", f"at least {SETTLE_AFTER} rows, for the scales", len(matrix))
        if rows and encoder is not None and ledger.ints[ENCODING]:
            for row in rows:
                encoder.see(row)
            self._settle()
            matrix = self._contexts.encode(rows)
        whose = np.where(np.isnan(costs).any(axis=1), 0, place)
        if self._representation is None:
            self._outcomes.absorb(matrix, whose, values, costs)
        else:
            self._representation.learn_labelled(matrix, values, costs, whose)
        least = int(min(self._ledger.view("n_observed")[: len(settings.deciders)]))
        ledger.ints[WARM_UP] = min(ledger.ints[WARM_UP], max(settings.warm_up_steps - least, ledger.next_id))
        ledger.view("next_solve")[0] = min(ledger.view("next_solve")[0], ledger.ints[WARM_UP])
        if self._representation is not None:
            self._representation.look_if_due()
        seen = costs[whose > 0]
        if len(seen):
            largest = ledger.view("largest")
            largest[:] = np.maximum(largest, seen.max(axis=0))
            ledger.view("cost_sum")[:] += seen.sum(axis=0)
            ledger.view("cost_n")[:] += len(seen)

    def apply(self, event: Event) -> None:
        """Change the state by an event. The same events in the same order give the same state, bit for bit.

        >>> from deferkit import Budget, Deferrer, Observed
        >>> first, second = (Deferrer(n_features=1, budget=Budget(10, horizon=100)) for _ in range(2))
        >>> for event in [first.propose([1.0]), Observed(0, {"model": 0.5}, None)]:
        ...     first.apply(event)
        ...     second.apply(event)
        >>> first == second
        True
        """
        if isinstance(event, Decided):
            self._apply_decided(event)
        elif isinstance(event, Observed):
            self.observe(event.id, event.rewards, event.cost)
        elif isinstance(event, Corrected):
            self.correct(event.id, event.rewards, event.cost)
        elif isinstance(event, Expired):
            self.expire(event.id)
        elif isinstance(event, BudgetChanged):
            self.change_budget(event.total)
        elif isinstance(event, WarmStarted):
            contexts: Any = event.contexts
            self.warm_start(contexts, event.rewards, expert=event.expert, cost=event.costs)
        else:
            raise expected("event", "call of apply", "one of the events of deferkit.events", event)

    def _apply_decided(self, event: Decided) -> None:
        ledger, decision = self._ledger, event.decision
        if not isinstance(decision, Decision):
            raise expected("decision", "Decided", "a Decision", decision)
        if decision.id != ledger.next_id:
            raise EventOutOfOrder(f"The next decision is {ledger.next_id}. Got decision {decision.id}.")
        route = inputs.place_of(decision.route, self.settings.deciders, "decider")
        reason = inputs.place_of(decision.reason, REASONS, "reason")
        cost = inputs.as_amount("expected_cost", decision.expected_cost, self.settings.resources)
        held = inputs.as_amount("reserved", decision.reserved, self.settings.resources)
        self._amounts[0], self._amounts[1] = cost, held
        if route > 0:
            self._outcomes.check_free(decision)
            if (self._amounts[1] > ledger.view("max_cost")).any():
                raise expected("reserved", "decision", "at most the max_cost of its budget", decision.reserved)
        elif any(cost) or any(held):
            raise expected("reserved", "decision", "0 where the model decides", decision.reserved)
        kept = self._contexts.load_finite(event.context)
        if ledger.next_id >= self._end:
            self._tell_horizon()
        ledger.make_room(1)
        commit_one(ledger.floats, ledger.ints, self._contexts.x, route, reason, self._amounts)
        self._contexts.decided()
        if ledger.ints[ENCODING]:
            cast(Encoder, self._contexts.encoder).see(kept)
            self._contexts.unsettled.append(kept)
            if ledger.next_id >= max(int(ledger.ints[WARM_UP]), SETTLE_AFTER):
                self._settle()

    def _mask(self, available: Sequence[str] | None) -> int:
        if available is None:
            return self._everyone
        if isinstance(available, str) or not isinstance(available, Iterable):
            raise expected("available", "Deferrer", "a list of experts", available)
        return sum(1 << place for place in {inputs.place_of(e, self.settings.experts, "expert") for e in available})

    def _settle(self) -> None:
        """Freeze the encoder's scales, encode the contexts so far with them, and learn what is known of those."""
        ledger, contexts = self._ledger, self._contexts
        ledger.ints[ENCODING] = 0
        n = len(contexts.unsettled)
        if n:
            matrix = contexts.encode(contexts.unsettled)
            if self._representation is not None:
                matrix = self._representation.settle(matrix)
            ledger.view("context")[:n] = matrix.reshape(n, -1, ledger.view("context").shape[2])
            whose = np.where(np.isnan(ledger.cost[:n]).any(axis=1), 0, ledger.route[:n])
            self._outcomes.absorb(matrix, whose, ledger.reward[:n].copy(), ledger.cost[:n].copy())
            contexts.unsettled = []
        if self._representation is not None:
            self._representation.retrain_if_due()

    def _tell_horizon(self) -> None:
        if not self._ledger.ints[HORIZON_TOLD]:
            self._ledger.ints[HORIZON_TOLD] = 1
            warnings.warn(
                f"The horizon of {self._end:,} tasks is over. What is left of the budget is spent at the last price.",
                HorizonWarning,
                stacklevel=3,
            )
