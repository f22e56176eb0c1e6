"""The history of a policy, folded from its log: gain, calibration, series, figures."""

import math
import time
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from deferkit.serve.api.reports import CalibrationBin
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO, Account, Micros
from deferkit.serve.domain.books import Books, BudgetPeriod, Periods, book_record, open_accounts
from deferkit.serve.domain.records import AnyRecord, DecidedRecord
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.reports.budgets import recent_from
from deferkit.types import MODEL


class Moments:
    """Count, sum and sum of squares of numbers, which can be removed again."""

    def __init__(self) -> None:
        self.n = 0
        self.total = 0.0
        self.squares = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Add a number; with `times=-1`, remove it."""
        self.n += times
        self.total += times * value
        self.squares += times * value * value

    @property
    def variance(self) -> float | None:
        """The sample variance; None of fewer than two."""
        if self.n < 2:
            return None
        return max(0.0, self.squares - self.total * self.total / self.n) / (self.n - 1)


class AnsweredTask(NamedTuple):
    """A task that an expert answered, with its estimates and known rewards."""

    expert: str
    estimates: Mapping[str, float]  # of the rewards of all deciders, when the task was decided
    rewards: Mapping[str, float]  # those that were observed

    @property
    def difference(self) -> float:
        """The gain of the expert over the model; missing rewards are imputed by estimates."""
        return self._reward(self.expert) - self._reward(MODEL)

    @property
    def imputed(self) -> list[str]:
        """The deciders of the difference whose reward is not known."""
        return [name for name in (self.expert, MODEL) if name not in self.rewards]

    def _reward(self, decider: str) -> float:
        return self.rewards[decider] if decider in self.rewards else self.estimates[decider]


class Gain:
    """The sum over answered tasks of what the expert earned above the model.

    Where a reward is not known, it is imputed by the estimate at decision time. The error is that of the
    sum as a measure of what such tasks bring on average: n·s² of the differences, and for the imputed rewards of each
    decider the mean error of its estimates, as found wherever estimate and reward are both known. Those are other
    tasks, often unlike the ones that experts get, so that with imputed rewards the error is rather too small.

    >>> gain = Gain()
    >>> for reward in (1.0, 0.0, 1.0, 1.0):
    ...     gain.add(AnsweredTask("human", {}, {"human": 1.0, "model": 1 - reward}))
    >>> gain.value, gain.error, gain.observed  # 4 differences of variance 1/4
    (3.0, 1.0, True)
    """

    def __init__(self) -> None:
        self._differences = Moments()
        self._imputed: Counter[str] = Counter()
        self._residuals: dict[str, Moments] = {}

    def add(self, task: AnsweredTask, times: int = 1) -> None:
        """Add a task; with `times=-1`, remove it, because more is known of it now."""
        self._differences.add(task.difference, times)
        for decider in task.imputed:
            self._imputed[decider] += times

    def add_residual(self, decider: str, estimate: float, reward: float, times: int = 1) -> None:
        """Add the residual of an observed reward from its estimate; with `times=-1`, remove it."""
        self._residuals.setdefault(decider, Moments()).add(reward - estimate, times)

    @property
    def value(self) -> float:
        """The gain so far."""
        return self._differences.total

    @property
    def observed(self) -> bool:
        """Whether no reward in it is imputed."""
        return not any(self._imputed.values())

    @property
    def error(self) -> float | None:
        """The standard error; None if there are too few observations."""
        variance = self._differences.variance
        if variance is None:
            return None
        total = self._differences.n * variance
        for decider, count in self._imputed.items():
            residuals = self._residuals.get(decider)
            spread = None if residuals is None else residuals.variance
            if count and (residuals is None or spread is None):
                return None
            if count and residuals is not None and spread is not None:
                bias = residuals.total / residuals.n
                total += count * count * (bias * bias + spread / residuals.n)
        return math.sqrt(total)


BINS = 10
MAX_PAIRS = 5000  # of each target, the latest: older estimates were made by a learner that knew less


class Calibration:
    """The latest pairs of prediction and observation of one target.

    Args:
        kept: How many.
    """

    def __init__(self, kept: int = MAX_PAIRS) -> None:
        self._kept = kept
        self._pairs: OrderedDict[int, tuple[float, float]] = OrderedDict()  # by decision, the first to be known first

    def add(self, decision: int, predicted: float, observed: float) -> None:
        """Add the observation of a decision, or replace it."""
        self._pairs[decision] = (predicted, observed)
        if len(self._pairs) > self._kept:
            self._pairs.popitem(last=False)

    def bins(self) -> list[CalibrationBin]:
        """Return the pairs in bins of equal count, by prediction.

        >>> calibration = Calibration()
        >>> for n in range(20):
        ...     calibration.add(n, n // 2, n)
        >>> calibration.bins()[9]
        CalibrationBin(predicted=9.0, observed=18.5, error=0.5, count=2)
        """
        pairs = sorted(self._pairs.values())
        edges = [round(i * len(pairs) / BINS) for i in range(BINS + 1)]
        return [bin_of(pairs[a:b]) for a, b in pairwise(edges) if b > a]


def bin_of(pairs: Iterable[tuple[float, float]]) -> CalibrationBin:
    """Return the means of some pairs."""
    predicted, observed = zip(*pairs, strict=True)
    n = len(observed)
    mean = math.fsum(observed) / n
    squares = math.fsum((value - mean) ** 2 for value in observed)
    error = math.sqrt(squares / (n - 1) / n) if n > 1 else None
    return CalibrationBin(predicted=math.fsum(predicted) / n, observed=mean, error=error, count=n)


Row = TypeVar("Row")
MAX_BUCKETS = 2000  # buckets


class Series(Generic[Row]):
    """The figures at the end of each bucket in which something happened.

    Args:
        most: How many buckets there may be.

    >>> series = Series(most=3)
    >>> for second in range(6):
    ...     series.set(second * MICRO, second)
    >>> series.width, series.starts, series.rows
    (2000000, [0, 2000000, 4000000], [1, 3, 5])
    """

    def __init__(self, most: int = MAX_BUCKETS) -> None:
        self.most = most
        self.width = MICRO  # microseconds
        self.starts: list[int] = []  # of the buckets: multiples of the width
        self.rows: list[Row] = []

    def set(self, at: int, row: Row) -> None:
        """Set the figures at a time; those of an earlier time in the same bucket are replaced."""
        start = max(at - at % self.width, self.starts[-1] if self.starts else 0)  # clocks of owners differ
        if self.starts and start == self.starts[-1]:
            self.rows[-1] = row
            return
        self.starts.append(start)
        self.rows.append(row)
        while len(self.starts) > self.most:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        merged: dict[int, Row] = {}
        for start, row in zip(self.starts, self.rows, strict=True):
            merged[start - start % self.width] = row
        self.starts, self.rows = list(merged), list(merged.values())

    def spread(self, buckets: int) -> tuple[int, list[int], list[Row]]:
        """Resample to at most `buckets` contiguous buckets: return their width, starts, and figures at their ends.

        Args:
            buckets: How many at most, at least 1.
        """
        if not self.starts:
            return self.width, [], []
        width = self.width
        while (first := self.starts[0] - self.starts[0] % width) + width * buckets <= self.starts[-1]:
            width += self.width
        starts = list(range(first, self.starts[-1] + 1, width))
        return width, starts, [self.rows[bisect_right(self.starts, start + width - 1) - 1] for start in starts]

    def before(self, reached: Callable[[Row], bool]) -> tuple[int, Row] | None:
        """Bisect: return start and figures of the last bucket for which `reached` is false; None if there is none."""
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            if reached(self.rows[middle]):
                high = middle
            else:
                low = middle + 1
        return (self.starts[low - 1], self.rows[low - 1]) if low else None


Value = TypeVar("Value")
MAX_AGE_S = 0.5
MIN_NEW_RECORDS = 50  # since the value was cached: with fewer, callers see their own changes at once


class Recent(Generic[Value]):
    """Caches the last value while it is recent and the log grows fast.

    >>> recent = Recent()
    >>> recent.store(100, "a")
    >>> recent.get(100), recent.get(101), recent.get(100 + MIN_NEW_RECORDS)
    (None, None, 'a')
    """

    def __init__(self) -> None:
        self._kept: tuple[float, int, Value] | None = None

    def store(self, records: int, value: Value) -> None:
        """Cache a value that was computed when the log had `records` records."""
        self._kept = time.monotonic(), records, value

    def get(self, records: int) -> Value | None:
        """Return the cached value if it is recent and the log has grown by `MIN_NEW_RECORDS`; else None."""
        if self._kept is None:
            return None
        at, before, value = self._kept
        return value if records - before >= MIN_NEW_RECORDS and time.monotonic() - at < MAX_AGE_S else None


class PeriodTasks:
    """A counter of a period's tasks that all its `Figures` share, so that earlier ones get the final count too."""

    __slots__ = ("decisions",)

    def __init__(self, decisions: int) -> None:
        self.decisions = decisions  # of the policy, up to the last one of the period


class PlanPoint(NamedTuple):
    """The inputs of the plan of a budget at a time."""

    decisions: int
    account: Account
    period: BudgetPeriod | None  # None: it has a horizon, or no task has come
    tasks: PeriodTasks | None


def planned_spending(budget: BudgetSpec, point: PlanPoint, left: float) -> float:
    """Return the planned spending by a time: even over the horizon, or over the tasks of the period.

    Args:
        budget: The budget, which has a limit.
        point: Where it stood at that time.
        left: Tasks that are still expected in the period; 0 for one that has ended, whose tasks are known.

    >>> period = BudgetPeriod(number=2, start=0, end=9, granted=8 * MICRO, carried=0, held=0, posted_before=5 * MICRO,
    ...     decisions_before=100)
    >>> point = PlanPoint(110, Account(13 * MICRO, posted=6 * MICRO), period, PeriodTasks(120))
    >>> planned_spending(BudgetSpec(total=8, every="7d", max_cost=1), point, left=20.0)  # 10 of 40 tasks
    7.0
    """
    decisions, account, period, tasks = point
    total = account.total or 0
    if budget.horizon is not None:
        return total / MICRO * min(1.0, decisions / budget.horizon)
    if period is None or tasks is None:
        return account.posted / MICRO
    expected = tasks.decisions - period.decisions_before + left
    share = min(1.0, (decisions - period.decisions_before) / expected) if expected > 0 else 0.0
    return (period.posted_before + share * (total - period.posted_before)) / MICRO


MAX_REMEMBERED = 10_000  # decisions in memory; outcomes of earlier ones are looked up in the log


class Figures(NamedTuple):
    """The figures of a policy at a time; all counts are cumulative."""

    decisions: int
    routes: dict[str, int]
    reasons: dict[str, int]
    accounts: dict[str, Account]
    periods: Periods
    period_tasks: dict[str, PeriodTasks]  # of those periods; counted on until they end
    price: dict[str, float] | None
    gain: float
    gain_error: float | None
    observed: bool  # the gain rests on observed rewards alone


class TaskFacts:
    """A decision with its estimates and its outcome so far."""

    __slots__ = ("costs", "estimates", "expired", "paid", "rewards", "route")

    def __init__(self, decided: DecidedRecord) -> None:
        self.route = decided.route
        self.estimates = decided.estimates
        self.costs = decided.costs.get(decided.route)  # expected of the expert who was asked
        self.rewards: dict[str, float] = {}
        self.paid: Micros | None = None
        self.expired = False  # or stopped before an answer came, so that the model's was used

    def answered_task(self) -> AnsweredTask | None:
        """Return the task if an expert has answered it, for the gain; else None."""
        if self.route == MODEL or self.expired or (self.paid is None and self.route not in self.rewards):
            return None
        return AnsweredTask(self.route, self.estimates, self.rewards)


class LogFold:
    """Folds the log of one policy.

    Args:
        history_of: Returns the records of a task that came before a place in the log, for tasks of long ago.
        remembered: How many of the latest decisions are kept in memory.
    """

    def __init__(self, history_of: Callable[[str, int], list[AnyRecord]], remembered: int = MAX_REMEMBERED) -> None:
        self._history_of = history_of
        self._remembered = remembered
        self._tasks: OrderedDict[int, TaskFacts] = OrderedDict()  # by decision, the oldest first
        self.seq = 0  # records so far
        self.spec: PolicySpec | None = None
        self.accounts: dict[str, Account] = {}
        self.periods: Periods = {}
        self.period_tasks: dict[str, PeriodTasks] = {}
        self.decisions = 0
        self.routes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.price: float | dict[str, float] | None = None  # of the last decision
        self.gain = Gain()
        self.calibrations: dict[str, Calibration] = {}  # by target
        self.series: Series[Figures] = Series()
        self._open_bucket_at: int | None = None  # a time in the current bucket, whose figures are not final

    def apply(self, at: int, record: AnyRecord) -> None:
        """Apply the next record of the log."""
        if self._open_bucket_at is not None and at - at % self.series.width > self._open_bucket_at:
            self.close()  # a bucket begins, so that the figures of the one before are final
            self._open_bucket_at = at
        if isinstance(record, DecidedRecord):
            self._apply_decision(at, record)
        else:
            self._apply_other(record)
        self.seq += 1

    def _apply_other(self, record: AnyRecord) -> None:
        self.accounts, self.periods = Books(self.accounts, self.periods).after(record)
        match record:
            case records.ObservedRecord() | records.CorrectedRecord():
                if is_without_answer(record):
                    self._apply_expiry(record.task, record.id)
                self._apply_outcome(record.task, record.id, record.rewards, record.cost)
            case records.ExpiredRecord():
                self._apply_expiry(record.task, record.id)
            case records.CreatedRecord():
                self.spec, self.accounts = record.spec, open_accounts(record.spec)
            case records.ChangedRecord() | records.UpgradedRecord():
                self.spec = record.spec
            case records.RenewedRecord(resource=name):
                self.period_tasks = {**self.period_tasks, name: PeriodTasks(self.decisions)}
            case _:
                pass

    def figures(self) -> Figures:
        """Return the current figures."""
        return Figures(
            decisions=self.decisions,
            routes=dict(self.routes),
            reasons=dict(self.reasons),
            accounts=self.accounts,
            periods=self.periods,
            period_tasks=self.period_tasks,
            price=None if self.price is None else self._by_resource(self.price),
            gain=self.gain.value,
            gain_error=self.gain.error,
            observed=self.gain.observed,
        )

    def close(self) -> None:
        """Write the current figures to the current bucket of the series."""
        if self._open_bucket_at is not None:
            self.series.set(self._open_bucket_at, self.figures())

    def _apply_decision(self, at: int, record: DecidedRecord) -> None:
        if self._open_bucket_at is None:  # time begins with the first decision
            self._open_bucket_at = at
        if record.held is not None:
            self.accounts = book_record(self.accounts, record)
        self.decisions += 1
        for tasks in self.period_tasks.values():
            tasks.decisions = self.decisions
        self.routes[record.route] += 1
        self.reasons[record.reason] += 1
        self.price = record.price
        self._tasks[record.id] = TaskFacts(record)
        if len(self._tasks) > self._remembered:
            self._tasks.popitem(last=False)

    def _apply_outcome(self, task: str, number: int, rewards: Mapping[str, float], cost: Micros | None) -> None:
        facts = self._facts(task, number)
        if facts is None:
            return
        before = facts.answered_task()
        if before is not None:
            self.gain.add(before, -1)
        for decider, reward in rewards.items():
            if decider in facts.rewards:
                self.gain.add_residual(decider, facts.estimates[decider], facts.rewards[decider], -1)
            self.gain.add_residual(decider, facts.estimates[decider], reward)
            self._calibration(decider).add(number, facts.estimates[decider], reward)
        facts.rewards = {**facts.rewards, **rewards}
        if cost is not None and facts.route != MODEL:
            facts.paid = cost
            expected = self._by_resource(facts.costs)
            for resource, micro in cost.items():
                target = f"cost of {facts.route}" + (f" in {resource}" if len(self.accounts) > 1 else "")
                self._calibration(target).add(number, expected[resource], micro / MICRO)
        after = facts.answered_task()
        if after is not None:
            self.gain.add(after)

    def _apply_expiry(self, task: str, number: int) -> None:
        facts = self._facts(task, number)
        if facts is not None and facts.answered_task() is None:
            facts.expired = True

    def _facts(self, task: str, number: int) -> TaskFacts | None:
        """Return the facts of a decision: from memory, or rebuilt from the log for an older one."""
        if (found := self._tasks.get(number)) is not None:
            return found
        earlier = self._history_of(task, self.seq)
        decided = next((each for each in earlier if isinstance(each, DecidedRecord)), None)
        if decided is None:
            return None
        facts = TaskFacts(decided)
        for each in earlier:
            if isinstance(each, records.ObservedRecord | records.CorrectedRecord):
                facts.expired = facts.expired or (is_without_answer(each) and facts.answered_task() is None)
                facts.rewards.update(each.rewards)
                facts.paid = each.cost if each.cost is not None and facts.route != MODEL else facts.paid
            elif isinstance(each, records.ExpiredRecord):
                facts.expired = facts.expired or facts.answered_task() is None
        return facts

    def _calibration(self, target: str) -> Calibration:
        return self.calibrations.setdefault(target, Calibration())

    def _by_resource(self, amount: Any) -> dict[str, float]:
        return dict(amount) if isinstance(amount, Mapping) else dict.fromkeys(self.accounts, amount)


def is_without_answer(record: AnyRecord) -> bool:
    """Whether a record is of a review that was stopped before any reviewer had answered."""
    if not isinstance(record, records.ObservedRecord):
        return False
    return record.stopped and not record.reviewers and not record.confirms  # which comes after an answer as well


class LogFigures(NamedTuple):
    """Figures of a policy at the end of the part of its log that was read."""

    figures: Figures
    recent: tuple[float, Figures]  # where recent spending begins: seconds, and the figures then
    buckets: tuple[tuple[int, float], ...] = ()  # of the series: decisions at the end, and seconds at the start

    def time_of(self, decision: int) -> float | None:
        """Return the approximate time of a decision, in seconds since 1970; None if it is unknown.

        >>> LogFigures(None, None, ((3, 10.0), (7, 20.0))).time_of(3)
        20.0
        """
        place = bisect_right(self.buckets, decision, key=itemgetter(0))
        return self.buckets[place][1] if place < len(self.buckets) else None


def log_figures_of(fold: LogFold) -> LogFigures | None:
    """Return the figures of a fold; None before the first decision."""
    if not fold.decisions:
        return None
    figures = fold.figures()
    fold.close()
    begin = recent_from(figures.decisions)
    found = fold.series.before(lambda row: row.decisions > begin)
    if found is None:  # all in one bucket, or from the start on
        nothing = {name: Account(account.total) for name, account in figures.accounts.items()}
        found = fold.series.starts[0], figures._replace(decisions=0, accounts=nothing)
    else:
        found = found[0] + fold.series.width, found[1]  # the figures are those of the end of a bucket
    series = zip(fold.series.rows, fold.series.starts, strict=True)
    buckets = tuple((row.decisions, start / MICRO) for row, start in series)
    return LogFigures(figures, (found[0] / MICRO, found[1]), buckets)
