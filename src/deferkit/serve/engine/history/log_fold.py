"""Fold of a policy's log into figures over time: accounts, routes, price, gain and calibration."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from deferkit.serve.domain import log_records
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.bookkeeping import booked, opened
from deferkit.serve.domain.budget_period import Books, Periods
from deferkit.serve.domain.log_records import AnyRecord, DecidedRecord
from deferkit.serve.domain.money import MICRO, Micros
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.engine.history.calibration import Calibration
from deferkit.serve.engine.history.gain import AnsweredTask, Gain
from deferkit.serve.engine.history.series import Series
from deferkit.serve.engine.history.spending_plan import PeriodTasks
from deferkit.types import MODEL

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

    def answered(self) -> AnsweredTask | None:
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
            case log_records.ObservedRecord() | log_records.CorrectedRecord():
                if is_without_answer(record):
                    self._apply_expiry(record.task, record.id)
                self._apply_outcome(record.task, record.id, record.rewards, record.cost)
            case log_records.ExpiredRecord():
                self._apply_expiry(record.task, record.id)
            case log_records.CreatedRecord():
                self.spec, self.accounts = record.spec, opened(record.spec)
            case log_records.ChangedRecord() | log_records.UpgradedRecord():
                self.spec = record.spec
            case log_records.RenewedRecord(resource=name):
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
            self.series.put(self._open_bucket_at, self.figures())

    def _apply_decision(self, at: int, record: DecidedRecord) -> None:
        if self._open_bucket_at is None:  # time begins with the first decision
            self._open_bucket_at = at
        if record.held is not None:
            self.accounts = booked(self.accounts, record)
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
        before = facts.answered()
        if before is not None:
            self.gain.add(before, -1)
        for decider, reward in rewards.items():
            if decider in facts.rewards:
                self.gain.add_residual(decider, facts.estimates[decider], facts.rewards[decider], -1)
            self.gain.add_residual(decider, facts.estimates[decider], reward)
            self._calibration(decider).put(number, facts.estimates[decider], reward)
        facts.rewards = {**facts.rewards, **rewards}
        if cost is not None and facts.route != MODEL:
            facts.paid = cost
            expected = self._by_resource(facts.costs)
            for resource, micro in cost.items():
                target = f"cost of {facts.route}" + (f" in {resource}" if len(self.accounts) > 1 else "")
                self._calibration(target).put(number, expected[resource], micro / MICRO)
        after = facts.answered()
        if after is not None:
            self.gain.add(after)

    def _apply_expiry(self, task: str, number: int) -> None:
        facts = self._facts(task, number)
        if facts is not None and facts.answered() is None:
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
            if isinstance(each, log_records.ObservedRecord | log_records.CorrectedRecord):
                facts.expired = facts.expired or (is_without_answer(each) and facts.answered() is None)
                facts.rewards.update(each.rewards)
                facts.paid = each.cost if each.cost is not None and facts.route != MODEL else facts.paid
            elif isinstance(each, log_records.ExpiredRecord):
                facts.expired = facts.expired or facts.answered() is None
        return facts

    def _calibration(self, target: str) -> Calibration:
        return self.calibrations.setdefault(target, Calibration())

    def _by_resource(self, amount: Any) -> dict[str, float]:
        return dict(amount) if isinstance(amount, Mapping) else dict.fromkeys(self.accounts, amount)


def is_without_answer(record: AnyRecord) -> bool:
    """Whether a record is of a review that was stopped before any reviewer had answered."""
    if not isinstance(record, log_records.ObservedRecord):
        return False
    return record.stopped and not record.reviewers and not record.confirms  # which comes after an answer as well
