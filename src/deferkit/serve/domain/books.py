"""The books of a policy: accounts after each record, and budget periods."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from deferkit.periods import SHORTEST, Schedule
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MAX_SUM, MICRO, Account, Micros, to_micro
from deferkit.serve.domain.records import AnyRecord, BudgetChangedRecord, ChangedRecord, RenewedRecord
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec

MAX_RECORDED = 100  # periods without a call, one after the other, that have a record each
MAX_PASSED = 1_000_000  # periods that one record passes over: 40 ms to count them
MIN_DAY = 82_800.0  # seconds: where clocks are put forward


def open_accounts(spec: PolicySpec) -> dict[str, Account]:
    """Return the opening accounts of a policy. Budgets that renew start empty: each period is granted its allowance."""
    return {
        name: Account(None if each.total is None else to_micro("total", each.total) if is_at_once(each) else 0)
        for name, each in spec.budget.items()
    }


def is_at_once(budget: BudgetSpec) -> bool:
    """Whether a budget has all of its total from the start."""
    return budget.every is msgspec.UNSET


def book_record(accounts: Mapping[str, Account], record: AnyRecord) -> dict[str, Account]:  # noqa: PLR0911  one for each kind
    """Return the accounts after a record.

    Args:
        accounts: Those before it, by resource.
        record: What happened.

    >>> from deferkit.serve.domain.records import EffortRecord
    >>> effort = EffortRecord(task="t", id=0, seat=0, epoch=1, reviewer="ann", cost={"minutes": 3})
    >>> book_record({"minutes": Account(10)}, effort)["minutes"].posted
    3
    """
    match record:
        case records.DecidedRecord(held=held) if held is not None:
            return {name: each.reserve(held[name]) if name in held else each for name, each in accounts.items()}
        case records.ExtendedRecord(amount=more):
            return {name: each.reserve(more[name]) if name in more else each for name, each in accounts.items()}
        case records.ObservedRecord(cost=cost) if cost is not None:
            return settle_accounts(accounts, record.released or {}, cost)
        case records.ExpiredRecord():
            return settle_accounts(accounts, record.released, {})
        case records.EffortRecord():
            return settle_accounts(accounts, {}, record.cost)
        case records.CorrectedRecord(cost=cost, was=was) if cost is not None and was is not None:
            return {
                name: each.reverse(was[name], cost[name]) if name in cost else each for name, each in accounts.items()
            }
        case records.BudgetChangedRecord(totals=totals):
            return {name: each.with_total(totals[name]) if name in totals else each for name, each in accounts.items()}
        case records.RenewedRecord(resource=name):
            return {**accounts, name: before_period(accounts[name], record).begin_period(record.granted, record.lapsed)}
        case _:
            return dict(accounts)


def before_period(account: Account, record: RenewedRecord) -> Account:
    """Return the account of a resource when a period begins, after those that have no record."""
    return account.pass_periods(record.passed_granted, record.passed_lapsed) if record.passed else account


def settle_accounts(accounts: Mapping[str, Account], released: Micros, cost: Micros) -> dict[str, Account]:
    """Return the accounts after a reservation was released and a cost posted."""
    return {name: each.settle(released.get(name, 0), cost.get(name, 0)) for name, each in accounts.items()}


class BudgetPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """The current period of a resource. Times are seconds since 1970."""

    number: int  # counted from 1
    start: float
    end: float
    granted: int
    carried: int  # from the period before
    held: int  # by reviews that were pending when it began
    posted_before: int  # of the account, when it began
    decisions_before: int = 0  # of the policy
    changed: int = 0  # by top-ups and cuts in it

    def of(self, account: Account) -> Account:
        """Return the account of this period: total and posted costs without those of earlier periods.

        >>> period = BudgetPeriod(number=2, start=0, end=9, granted=7, carried=2, held=1, posted_before=20)
        >>> period.of(Account(30, reserved=1, posted=24))
        Account(total=10, reserved=1, posted=4, suspense=0)
        """
        total = None if account.total is None else account.total - self.posted_before
        return account._replace(total=total, posted=account.posted - self.posted_before)


Periods = dict[str, BudgetPeriod]


class Books(NamedTuple):
    """The accounts of a policy and the current period of each that has begun one, by resource."""

    accounts: dict[str, Account]
    periods: Periods

    def after(self, record: AnyRecord) -> "Books":
        """Return the books after a record."""
        accounts = book_record(self.accounts, record)
        return Books(accounts, periods_after(self, accounts, record))

    def current(self) -> dict[str, Account]:
        """Return the accounts, those with periods reduced to the current period."""
        return {name: self.periods[name].of(a) if name in self.periods else a for name, a in self.accounts.items()}


def periods_after(before: Books, accounts: Mapping[str, Account], record: AnyRecord) -> Periods:
    """Return the periods after a record, given the books before it and the accounts after it."""
    if isinstance(record, RenewedRecord):
        account = before_period(before.accounts[record.resource], record)
        last = before.periods.get(record.resource)
        begun = BudgetPeriod(
            number=1 + record.passed + (0 if last is None else last.number),
            start=record.start,
            end=record.end,
            granted=record.granted,
            carried=record.carried,
            held=account.reserved,
            posted_before=account.posted,
            decisions_before=record.decisions,
        )
        return {**before.periods, record.resource: begun}
    if isinstance(record, ChangedRecord):
        ends = {name: record.spec.budget[name].until for name in before.periods}
        return {
            name: period if (end := ends[name]) is msgspec.UNSET else msgspec.structs.replace(period, end=end)
            for name, period in before.periods.items()
        }
    if isinstance(record, BudgetChangedRecord):
        more = {name: (accounts[name].total or 0) - (before.accounts[name].total or 0) for name in before.periods}
        return {
            name: msgspec.structs.replace(period, changed=period.changed + more[name])
            for name, period in before.periods.items()
        }
    return before.periods


def due_renewals(
    spec: PolicySpec, books: Books, at: float, *, decisions: int, begin: bool, most: float = math.inf
) -> list[RenewedRecord]:
    """Return the renewals that are due, in the order in which they take place.

    Args:
        spec: The policy.
        books: Its accounts and periods.
        at: The time, in seconds since 1970.
        decisions: How many tasks were decided.
        begin: Whether a task has come, which begins the first period of a budget that has none.
        most: The maximum number of renewals. All by default.
    """
    found: list[RenewedRecord] = []
    while len(found) < most:
        upcoming = [
            record
            for name, budget in spec.budget.items()
            if budget.is_timed and (record := next_of(name, budget, books, at, begin=begin)) is not None
        ]
        if not upcoming:
            break
        first = min(upcoming, key=lambda record: record.start)
        found.append(msgspec.structs.replace(first, decisions=decisions))
        books = books.after(found[-1])
    return found


def next_of(name: str, budget: BudgetSpec, books: Books, at: float, *, begin: bool) -> RenewedRecord | None:
    """Return the next period of a resource, if it is due."""
    last, account = books.periods.get(name), books.accounts[name]
    if last is not None and (budget.every is msgspec.UNSET or at < last.end):
        return None
    if last is None:
        return first_of(name, budget, account, at) if begin else None
    schedule, start, n = schedule_of(budget), last.end, 0
    if at - start > MAX_RECORDED * (schedule.length or MIN_DAY):
        n, start = schedule.latest(start, at, MAX_PASSED)
    return renewal_after(name, budget, account, n if n > MAX_RECORDED else 0, start if n > MAX_RECORDED else last.end)


def renewal_after(name: str, budget: BudgetSpec, account: Account, passed: int, start: float) -> RenewedRecord:
    """Return the next period of a resource, after a number of periods without a call that have no record."""
    allowance = to_micro("total", budget.total)
    carry = 0.0 if budget.carry is msgspec.UNSET else math.inf if budget.carry is None else budget.carry
    idle = idle_periods(account, allowance, carry, passed)
    carried = carried_of(idle.account.free or 0, allowance, carry)
    return RenewedRecord(
        resource=name,
        start=start,
        end=schedule_of(budget).following(start),
        granted=grantable(allowance, carried + idle.account.reserved + idle.account.posted),
        carried=carried,
        lapsed=(idle.account.free or 0) - carried,
        passed=passed,
        passed_granted=idle.granted,
        passed_lapsed=idle.lapsed,
    )


class IdlePeriods(NamedTuple):
    """Periods of a resource without a call, one after the other."""

    account: Account  # after them
    granted: int  # in all of them
    lapsed: int


def idle_periods(account: Account, allowance: int, carry: float, n: int) -> IdlePeriods:
    """Begin and end so many periods without a call: first debts are paid, then what is free grows, then it stays.

    >>> idle_periods(Account(5, posted=5, suspense=4), 3, carry=1.0, n=1_000_000)
    IdlePeriods(account=Account(total=15, reserved=0, posted=9, suspense=0), granted=3000000, lapsed=2999990)
    """
    granted = lapsed = 0
    while n > 0:
        before, free = account, account.free or 0
        carried = carried_of(free, allowance, carry)
        more, less = grantable(allowance, carried + account.reserved + account.posted), free - carried
        account = account.begin_period(more, less)
        # how often the same happens again: for good, or until debts are paid, no more is carried or sums are full
        if account == before:
            times = n
        else:
            room = grantable(MAX_SUM * MICRO, account.reserved + account.posted + (account.free or 0))
            most = account.suspense if before.suspense else carried_of(MAX_SUM * MICRO, allowance, carry) - free
            regular = more == allowance and not less and (account.suspense > 0) == (before.suspense > 0)
            times = 1 + max(0, min(most, room) // allowance - 2 if regular and allowance else 0)
        times = min(times, n)
        if account != before and times > 1:
            account = account.pass_periods((times - 1) * more, (times - 1) * less)
        granted, lapsed, n = granted + times * more, lapsed + times * less, n - times
    return IdlePeriods(account, granted, lapsed)


def carried_of(free: int, allowance: int, carry: float) -> int:
    """Return the part of a free amount that the next period gets."""
    if math.isinf(carry) or carry * allowance >= free:  # no product of infinity and an allowance of 0
        return free
    return math.floor(carry * allowance)


def first_of(name: str, budget: BudgetSpec, account: Account, at: float) -> RenewedRecord:
    """Return the first period: that of the first task, or the time before the start that was given."""
    free = account.free or 0
    if budget.until is not msgspec.UNSET:
        # the end has passed: the period is created all the same, so that the end can be moved
        start = at if at < budget.until else budget.until - SHORTEST
        return RenewedRecord(resource=name, start=start, end=budget.until, granted=0, carried=free, lapsed=0)
    schedule = schedule_of(budget)
    if schedule.start is not None and at < schedule.start:
        return RenewedRecord(resource=name, start=at, end=schedule.start, granted=0, carried=free, lapsed=0)
    start, end = schedule.containing(at)
    granted = grantable(to_micro("total", budget.total), free)
    return RenewedRecord(resource=name, start=start, end=end, granted=granted, carried=free, lapsed=0)


def schedule_of(budget: BudgetSpec) -> Schedule:
    """Return the periods of a budget that renews."""
    zone = None if budget.zone is msgspec.UNSET else budget.zone
    return Schedule.of(budget.every, zone, None if budget.start is msgspec.UNSET else budget.start)


def grantable(allowance: int, there: int) -> int:
    """Return the part of an allowance that can be granted: sums must stay within `MAX_SUM`.

    >>> grantable(5, 10), grantable(5, MAX_SUM * MICRO - 2)
    (5, 2)
    """
    return max(0, min(allowance, MAX_SUM * MICRO - there))
