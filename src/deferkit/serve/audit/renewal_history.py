"""Verification of renewals: the amounts of each are compared with sums over the records before it.

This is an implementation of its own, not the code that renews budgets.
"""

import math
from collections import Counter

import msgspec

from deferkit.periods import Schedule, show_time
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MAX_SUM, MICRO
from deferkit.serve.domain.records import AnyRecord, RenewedRecord
from deferkit.serve.domain.spec import BudgetSpec


class RenewalHistory:
    """Counts totals, holds and costs record by record, and compares each renewal with them."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._budgets: dict[str, BudgetSpec] = {}
        self._totals: Counter[str] = Counter()
        self._reserved: Counter[str] = Counter()
        self._booked: Counter[str] = Counter()
        self._ends: dict[str, float] = {}

    def see(self, record: AnyRecord) -> None:
        """Take in the next record of a log."""
        match record:
            case records.CreatedRecord(spec=spec):
                self._budgets = dict(spec.budget)
                for name, budget in spec.budget.items():
                    renews = budget.every is not msgspec.UNSET
                    self._totals[name] = 0 if renews else round((budget.total or 0) * MICRO)
            case records.ChangedRecord(spec=spec):
                self._budgets = dict(spec.budget)
            case records.DecidedRecord(held=held) if held is not None:
                self._reserved.update(held)
            case records.ExtendedRecord(amount=amount):
                self._reserved.update(amount)
            case records.ObservedRecord(cost=cost) if cost is not None:
                self._booked.update(cost)
                self._reserved.subtract(record.released or {})
            case records.ExpiredRecord(released=released):
                self._reserved.subtract(released)
            case records.EffortRecord(cost=cost):
                self._booked.update(cost)
            case records.CorrectedRecord(cost=cost, was=was) if cost is not None and was is not None:
                self._booked.update(cost)
                self._booked.subtract(was)
            case records.BudgetChangedRecord(totals=totals):
                self._totals.update({name: (total or 0) - self._totals[name] for name, total in totals.items()})
            case RenewedRecord():
                self._apply_renewal(record)
            case _:
                pass

    def _apply_renewal(self, record: RenewedRecord) -> None:
        name = record.resource
        budget, end = self._budgets[name], self._ends.get(name)
        when = f"The renewal of {name} on {show_time(record.start)}"
        if record.passed and end is not None:
            self._pass_periods(record, when, budget)
            end = self._ends[name]
        free = max(0, self._totals[name] - self._reserved[name] - self._booked[name])
        if record.carried + record.lapsed != free or min(record.carried, record.lapsed) < 0:
            self.faults.append(f"{when} carries {record.carried} and lets {record.lapsed} lapse; {free} were free.")
        most = free if end is None else carried_at_most(budget)
        if record.carried > most or (record.lapsed and record.carried < min(most, free)):
            self.faults.append(f"{when} carries {record.carried} micro-units over, in place of {min(most, free)}.")
        room = MAX_SUM * MICRO - (self._totals[name] - record.lapsed)
        wanted = 0 if is_before_start(budget, record) else min(round((budget.total or 0) * MICRO), max(room, 0))
        if record.granted != wanted:
            self.faults.append(f"{when} grants {record.granted} micro-units, in place of {wanted}.")
        if end is not None and record.start != end:
            self.faults.append(f"{when} does not begin where the period before it ends, on {show_time(end)}.")
        if record.end != end_of(budget, record):
            self.faults.append(f"{when} lasts until {show_time(record.end)}, which is not its end.")
        self._totals[name] += record.granted - record.lapsed
        self._ends[name] = record.end

    def _pass_periods(self, record: RenewedRecord, when: str, budget: BudgetSpec) -> None:
        """Begin and end the periods that have no record, one by one until one changes nothing."""
        name, zone = record.resource, None if budget.zone is msgspec.UNSET else budget.zone
        schedule, wanted = Schedule.of(budget.every, zone, None), round((budget.total or 0) * MICRO)
        granted = lapsed = 0
        for left in range(record.passed, 0, -1):
            used = self._reserved[name] + self._booked[name]
            free = max(0, self._totals[name] - used)
            kept = min(free, carried_at_most(budget))
            less = int(free - kept)
            more = max(0, min(wanted, MAX_SUM * MICRO - (self._totals[name] - less)))
            times = left if more == less else 1
            self._totals[name] += more - less
            granted, lapsed = granted + times * more, lapsed + times * less
            if times > 1:
                break
        if (granted, lapsed) != (record.passed_granted, record.passed_lapsed):
            self.faults.append(
                f"{when} says that {record.passed_granted} micro-units were granted and {record.passed_lapsed} lapsed"
                f" before it, in place of {granted} and {lapsed}."
            )
        n, self._ends[name] = schedule.latest(self._ends[name], record.start, record.passed + 1)
        if n != record.passed:
            self.faults.append(f"{when} comes after another number of periods than the {record.passed} that it names.")


def carried_at_most(budget: BudgetSpec) -> float:
    """Return the largest amount that a budget may carry over, in micro-units."""
    carry = 0.0 if budget.carry is msgspec.UNSET else budget.carry
    most = math.inf if carry is None else carry * round((budget.total or 0) * MICRO)
    return most if math.isinf(most) else math.floor(most)


def is_before_start(budget: BudgetSpec, record: RenewedRecord) -> bool:
    """Whether nothing is granted: before the start that was given, and to a budget with an end."""
    if budget.every is msgspec.UNSET:
        return True
    return budget.start is not msgspec.UNSET and record.start < budget.start


def end_of(budget: BudgetSpec, record: RenewedRecord) -> float:
    """Return the end of a period that begins at the start of this one."""
    if budget.until is not msgspec.UNSET:
        return budget.until
    if budget.start is not msgspec.UNSET and record.start < budget.start:
        return budget.start
    zone = None if budget.zone is msgspec.UNSET else budget.zone
    return Schedule.of(budget.every, zone, None).containing(record.start)[1]
