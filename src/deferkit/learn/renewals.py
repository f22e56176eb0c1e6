"""Renewals of budgets: which periods begin up to a time, and what each does to the total.

The learner has no clock: time comes with the tasks. A period begins when the first task at or after its start comes; if
several have passed since the task before, each of them begins in turn.
"""

import math

from deferkit.errors import BudgetExhausted, EventOutOfOrder, InvalidArgument, expected
from deferkit.events import Renewed
from deferkit.learn import context
from deferkit.learn.core import CONSTANTS
from deferkit.learn.ledger import Ledger
from deferkit.learn.settings import Settings
from deferkit.periods import as_seconds, show_time
from deferkit.types import Budget

HORIZON: int = CONSTANTS["horizon"]
RENEWS: int = CONSTANTS["renews"]
ROUNDING = 1e-9  # relative: a total that is less than what is used by a rounding error is not refused


class Renewals:
    """Finds the renewals that are due, and applies them.

    Args:
        settings: Of the learner.
        ledger: Of the learner.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self.is_timed = settings.is_timed
        self._next_due = -math.inf  # no renewal is due before this time
        if self.is_timed:
            self.find_next()

    def find_next(self) -> None:
        """Note when the next renewal is due; after anything has changed a period."""
        due = [math.inf]
        for r, timing in enumerate(self._ledger.view("timing").tolist()):
            end = self._ledger.view("period_end").item(r)
            if timing != HORIZON:
                due.append(-math.inf if math.isnan(end) else end if timing == RENEWS else math.inf)
        self._next_due = min(due)

    def as_time(self, at: object) -> float | None:
        """Return the time of a task as seconds; None where tasks have none. Raise if it is missing or not needed."""
        if at is None:
            if self.is_timed:
                raise expected("at", "Deferrer", "the time of the task, because a budget has `until` or `every`", None)
            return None
        if not self.is_timed:
            raise expected("at", "Deferrer", "left out where no budget has `until` or `every`", at)
        return as_seconds("at", "Deferrer", at)

    def tasks_before_renewal(self, times: context.Floats) -> int:
        """Return the number of these tasks that come before the next renewal."""
        late = times >= self._next_due
        return int(late.argmax()) if late.any() else len(times)

    def is_due(self, at: float) -> bool:
        """Whether a renewal is due at a time."""
        return at >= self._next_due

    def list_due(self, at: float) -> list[Renewed]:
        """Return the renewals that are due at a time, in the order in which they take place; nothing changes."""
        if not self.is_due(at):
            return []
        budgets = list(self._settings.budget.values())
        found = [self._due_of(r, budget, at) for r, budget in enumerate(budgets) if budget.is_timed]
        return sorted((event for events in found for event in events), key=lambda event: event.start)

    def _due_of(self, r: int, budget: Budget, at: float) -> list[Renewed]:
        ledger, name, events = self._ledger, self._settings.resources[r], []
        allowance, end = ledger.view("allowance").item(r), ledger.view("period_end").item(r)
        total, spent, reserved = (ledger.view(each).item(r) for each in ("total", "spent", "reserved"))
        if math.isnan(end):
            first = self._first(name, budget, at, total)
            events.append(first)
            end, total = first.end, first.total
        while at >= end and budget.every is not None:
            start, end = end, budget.schedule.following(end)
            carried = min(max(total - spent - reserved, 0.0), budget.carry * allowance if budget.carry else 0.0)
            total = spent + reserved + carried + allowance
            events.append(Renewed(name, start, end, total))
        return events

    def _first(self, name: str, budget: Budget, at: float, total: float) -> Renewed:
        """Return the first period: that of the first task, or the time before the start that was given."""
        if budget.until is not None:
            end = as_seconds("until", "Budget", budget.until)
            if at >= end:
                raise InvalidArgument(
                    f"The budget of {name} ended on {show_time(end)}, before the first task, which came on"
                    f" {show_time(at)}."
                )
            return Renewed(name, at, end, total)
        start = budget.schedule.start
        if start is not None and at < start:
            return Renewed(name, at, start, 0.0)
        return Renewed(name, *budget.schedule.containing(at), total)

    def apply(self, event: Renewed) -> None:
        """Begin a period; raise if another one comes first."""
        ledger = self._ledger
        r = context.index_of(event.resource, self._settings.resources, "resource")
        budget = self._settings.budget[event.resource]
        end = ledger.view("period_end").item(r)
        if not budget.is_timed or (budget.until is not None and not math.isnan(end)):
            raise expected("resource", "Renewed", "one that renews", event.resource)
        start, following = (as_seconds("time", "Renewed", each) for each in (event.start, event.end))
        if not math.isnan(end) and start != end:
            raise EventOutOfOrder(
                f"The next period of {event.resource} begins on {show_time(end)}. Got one from {show_time(start)} on."
            )
        if start >= following:
            raise expected("end", "Renewed", "after the start", event.end)
        [total] = context.as_amount("total", event.total, ("total",))
        used = ledger.view("spent").item(r) + ledger.view("reserved").item(r)
        if total < used * (1.0 - ROUNDING):
            raise BudgetExhausted(f"A total of {total:.4g} is less than the {used:.4g} that is spent or reserved.")
        is_open = budget.schedule.start is None or start >= budget.schedule.start if budget.every is not None else True
        ledger.view("total")[r] = total
        ledger.core.begin_period(r, start, following, is_open)
        self.find_next()

    def apply_due(self, at: float) -> None:
        """Apply the renewals that are due at a time."""
        for event in self.list_due(at):
            self.apply(event)

    def check_none_due(self, at: float) -> None:
        """Raise if a renewal is due at a time: it comes before the decision."""
        if self.is_due(at):
            first = self.list_due(at)[0]
            raise EventOutOfOrder(
                f"A period of {first.resource} began on {show_time(first.start)}: apply the events of"
                " `renewals(at)` first."
            )
