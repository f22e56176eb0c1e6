"""Decisions: proposing and committing them, holds of reviews and changes of the budget."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import AlreadySettled, BudgetExhausted, EventOutOfOrder, HorizonWarning, SpendingWarning, expected
from deferkit.events import BudgetChanged, Decided
from deferkit.learn import context
from deferkit.learn import context as inputs
from deferkit.learn.components import Components
from deferkit.learn.core import CONSTANTS
from deferkit.learn.encode import FREEZE_AFTER, Encoder
from deferkit.learn.ledger import OPEN
from deferkit.learn.pacing import Budgets
from deferkit.learn.reports import SpendingCheck
from deferkit.periods import as_seconds, show_time
from deferkit.types import REASONS, Amount, Decision, is_number, is_whole, show

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
        self._plain = self._contexts.encoder is None and not self._representation.trains

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
        if self._representation.trains:
            self._contexts.mark_decided()
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
            representation.drop_old_tasks()
            first = len(decisions)
            n = min(representation.decisions_until_upkeep(), len(matrix) - first)
            n = self.begin_chunk(times, first, n, stacklevel=5)
            given = matrix[first : first + n]
            ledger.move_open_decisions(len(given))
            decisions += self._core.decide_many(self._representation.transform(given), times[first : first + n])
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
        """Return the next decision as an event for `apply`; the state does not change."""
        ledger, time = self._ledger, self._renewals.as_time(at)
        kept = self._contexts.load_event(context)
        mask, forced, known = self._check_options(cost, available, force)
        if time is not None:
            self._renewals.check_none_due(time)
            self._core.set_time(time)
        if known is None:
            decision = self._core.propose(mask, forced)
        else:
            usual = ledger.view("known_cost").copy()
            ledger.view("known_cost")[:] = known
            decision = self._core.propose(mask, forced)
            ledger.view("known_cost")[:] = usual
        if forced > 0:
            self._check_free(decision)
        costs = ledger.view("known_cost") if known is None else known
        asked = self._deciders.index(decision.route)
        return Decided(decision, kept, time, asked > 0 and not np.isnan(costs[asked - 1]).any().item())

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
        self._outcomes.check_announced(known)
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
        if not isinstance(event.announced, bool):
            raise expected("announced", "Decided", "True or False", event.announced)
        if route > 0:
            self._check_free(decision)
            if (np.array(held) > ledger.view("cap")[route - 1]).any():
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
        self._core.commit_decided(route, reason, cost, held, route > 0 and event.announced)
        self._contexts.mark_decided()
        if self._contexts.encoder is not None and ledger.get("unsettled"):
            self._contexts.encoder.see(kept)
            self._contexts.rows_before_freeze.append(kept)
            if ledger.next_id >= max(ledger.get("warm_up"), FREEZE_AFTER):
                self.freeze_encoder(self._contexts.encoder)

    def longest_step(self) -> int:
        """Return the multiplications of the next decision beyond its usual ones.

        The context that fills the rank tables, and the one after which the encoder's scales are frozen, make the
        learner learn the outcomes so far again.
        """
        ledger, following = self._ledger, self._core.next_id + 1
        fills = following == RANKED_CONTEXTS and ledger.get("n_ranked") and ledger.get("n_views") == 2
        freezes = ledger.get("unsettled") and following >= max(ledger.get("warm_up"), FREEZE_AFTER)
        relearning = ledger.relearning_step() if fills or freezes else 0
        return relearning + self._representation.deciding_step(freezes=bool(freezes))

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
        self.freeze_encoder(encoder, rows)

    def freeze_encoder(self, encoder: Encoder, rows: Sequence[dict[str, Any]] = ()) -> None:
        """Freeze the encoder's scales, encode the contexts so far again, and learn their outcomes."""
        ledger, contexts = self._ledger, self._contexts
        ledger.set("unsettled", 0)
        if self._settings.has_ranks:
            encoder.cut_scales([*contexts.rows_before_freeze, *rows])
        n = len(contexts.rows_before_freeze)
        if n:
            matrix = self._representation.replace_contexts(contexts.encode(contexts.rows_before_freeze))
            self._core.replace_first_contexts(matrix)
            if self._settings.has_ranks:  # learned with the ranks that each context had when it came
                self._core.relearn()
            else:
                cost_expert = np.where(np.isnan(ledger.cost[:n]).any(axis=1), 0, ledger.route[:n])
                ledger.grow_sample_store(n)
                self._core.learn_many(matrix, cost_expert, ledger.reward[:n].copy(), ledger.cost[:n].copy())
            contexts.rows_before_freeze = []
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
        is_due = (self._ledger.next_id if at is None else at) >= self._spending.due
        line = self._find_stalled(at)
        if line:
            said = f"Less than a quarter of the planned spending is used: {line}"
            warnings.warn(said, SpendingWarning, stacklevel=stacklevel)
        elif is_due and (unpriced := self._spending.check_unpriced()):
            warnings.warn(f"{unpriced[0].upper()}{unpriced[1:]}", SpendingWarning, stacklevel=stacklevel)


def open_row(components: Components, decision: int) -> int:
    """Return the row of a decision that holds budget; raise `AlreadySettled` if it holds none."""
    slot = components.ledger.slot(decision)
    if components.ledger.status.item(slot) != OPEN:
        raise AlreadySettled(
            f"Decision {decision} holds no budget: its cost is known, it expired or the model decided."
        )
    return slot


def grantable(components: Components, decision: int, amount: Amount) -> Amount:
    """Return the part of an amount that can be added to a hold: at most what is left, `max_cost` and `limit`."""
    ledger = components.ledger
    slot = open_row(components, decision)
    asked = np.array(context.as_amount("amount", amount, components.settings.resources))
    caps = np.fmin(ledger.view("cap")[ledger.route.item(slot) - 1], ledger.view("limit"))
    with np.errstate(invalid="ignore"):
        room = np.fmin(ledger.budget_left(), caps - ledger.view("held")[slot])
    return components.reader.amount(np.maximum(np.minimum(asked, room), 0.0).tolist())


def extend(components: Components, decision: int, amount: Amount) -> None:
    """Add an amount to the hold of a pending review; raise if there is not so much left."""
    ledger = components.ledger
    slot = open_row(components, decision)
    added = np.array(context.as_amount("amount", amount, components.settings.resources))
    if (added > ledger.budget_left()).any():
        left = show(components.reader.amount(ledger.budget_left().tolist()))
        raise BudgetExhausted(f"Extending decision {decision} needs {show(amount)} of budget; {left} is free.")
    ledger.view("held")[slot] += added
    ledger.view("reserved")[:] += added


def stop(components: Components, decision: int, cost: Amount, rewards: Mapping[str, float] | None) -> None:
    """Book and learn what a review cost until it was stopped."""
    ledger, outcomes = components.ledger, components.outcomes
    if ledger.route.item(ledger.slot(decision)) == 0:
        raise expected("decision", "call of stop", "one for which an expert was asked", decision)
    if cost is None:
        raise expected("cost", "call of stop", "what the review cost until then", cost)
    slot, new_rewards, new_cost = outcomes.new_values(decision, rewards, cost)
    outcomes.book_and_learn(decision, slot, new_rewards, new_cost)
    if new_cost is not None:
        ledger.set("n_stopped", ledger.get("n_stopped") + 1)


# what each argument is an argument of: the timing of a budget
TIMINGS: dict[str, int] = {
    "horizon": CONSTANTS["horizon"],
    "until": CONSTANTS["until"],
    "allowance": CONSTANTS["renews"],
}
KINDS = {"horizon": "a horizon", "until": "`until`", "allowance": "`every`"}
PACED_BY_TASKS_LEFT = ("resolve", "adaptive")


def by_resource(components: Components, name: str, given: object) -> dict[int, object]:
    """Return values by the number of their resource; a single value is that of the only resource.

    Raises:
        InvalidArgument: If a resource is unknown, or its budget has no such setting.
    """
    resources, timing = components.settings.resources, components.ledger.view("timing")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(resources) > 1:
            raise expected(name, "budget", f"given by resource ({', '.join(resources)})", given)
        given = {resources[0]: given}
    found = {context.index_of(each, resources, "resource"): value for each, value in given.items()}
    for r, value in found.items():
        if timing[r] != TIMINGS[name] or math.isinf(components.ledger.view("total")[r]):
            raise expected(name, "budget", f"left out for {resources[r]}, whose budget has not {KINDS[name]}", value)
    return found


def topped_up(components: Components, total: Amount | None, add: Amount | None) -> Amount:
    """Return the new total: as given, or what there is now and an addition to it."""
    settings, reader = components.settings, components.reader
    now = components.ledger.view("total").tolist()
    if add is None:
        return reader.amount(now) if total is None else total
    if total is not None:
        raise expected("add", "budget", "left out where the total is given", add)
    more = add if isinstance(add, Mapping) else {settings.resources[0]: add} if len(now) == 1 else None
    if more is None:
        raise expected("add", "budget", f"given by resource ({', '.join(settings.resources)})", add)
    for name, amount in more.items():
        r = context.index_of(name, settings.resources, "resource")
        if not is_number(amount) or not math.isfinite(amount):
            raise expected("add", "budget", "a finite number", amount)
        now[r] += amount
    return reader.amount(now)


def change_budget(components: Components, event: BudgetChanged) -> None:
    """Change the budget, and let the pacing react; `Deferrer.change_budget` describes arguments and errors."""
    settings, ledger = components.settings, components.ledger
    before = Budgets(ledger.view("total").copy(), ledger.view("horizon").copy())
    totals = np.array(context.as_totals(event.total, settings.resources, before.total.tolist()))
    used = ledger.view("spent") + ledger.view("reserved")
    if (totals < used).any():
        taken = show(components.reader.amount(used.tolist()))
        raise BudgetExhausted(f"The budget cannot be cut to {show(event.total)}: {taken} is spent or reserved.")
    horizons = _horizons(components, event.horizon)
    ends = _ends(components, event.until)
    allowances = by_resource(components, "allowance", event.allowance)
    for allowance in allowances.values():
        if not is_number(allowance) or not 0 <= allowance < math.inf:  # type: ignore[operator]
            raise expected("allowance", "budget", "a finite number of at least 0", allowance)
    ledger.view("total")[:] = totals
    for name, changes in (("horizon", horizons), ("period_end", ends), ("allowance", allowances)):
        for r, value in changes.items():
            ledger.view(name)[r] = value
    if horizons or ends:
        ledger.set("horizon_told", 0)
    after = Budgets(totals, ledger.view("horizon").copy())
    settings.strategy.budget_changed(ledger.dual, before, after, ledger.next_id, ledger.get("warm_up"))
    ledger.core.cover()
    components.renewals.find_next()
    components.representation.refresh_window_if_due()


def _horizons(components: Components, given: object) -> dict[int, int]:
    found = by_resource(components, "horizon", given)
    if found and components.settings.pacing.kind not in PACED_BY_TASKS_LEFT:
        kinds = " or ".join(map(repr, PACED_BY_TASKS_LEFT))
        raise expected("horizon", "budget", f"changed with the pacing {kinds} only", components.settings.pacing.kind)
    for horizon in found.values():
        if not is_whole(horizon, 1):
            raise expected("horizon", "budget", "a whole number of at least 1", horizon)
    return {r: int(horizon) for r, horizon in found.items()}  # type: ignore[call-overload]


def _ends(components: Components, given: object) -> dict[int, float]:
    ledger = components.ledger
    found = {r: as_seconds("until", "budget", end) for r, end in by_resource(components, "until", given).items()}
    for end in found.values():
        if ledger.next_id == 0:
            raise expected("until", "budget", "changed after the first task; make another Budget", show_time(end))
        if end <= ledger.view("clock").item():
            latest = show_time(ledger.view("clock").item())
            raise expected("until", "budget", f"after the latest task, which came on {latest}", show_time(end))
    return found
