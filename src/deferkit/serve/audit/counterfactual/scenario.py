"""Scenarios: another budget for a policy, and running the log under it."""

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.learn.links import AUTO_LINK
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.audit.counterfactual.estimate import (
    DoublyRobust,
    Feedback,
    ImputedOutcome,
    ModelVariance,
    OutcomeImputer,
    propensities,
)
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO, Account, Micros, to_micro
from deferkit.serve.domain.books import first_of, renewal_after
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.decide import propose
from deferkit.types import MODEL

WRITTEN = re.compile(r"(?P<number>[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?|[0-9]*\.?[0-9]+)\s*(?P<unit>x|%)?")
FORMS = "a total like 500, a part of what it was like 2x or 50%, or inf; by resource: minutes=500,euros=2x"


class Scenario(NamedTuple):
    """Another budget: the totals at the end of the log, in micro-units; None has no end.

    Of a budget that renews it is the allowance of a period; periods and ends are those of the log.
    """

    text: str
    totals: dict[str, int | None]
    logged: dict[str, int | None]  # those of the log
    learning: PolicySpec | None = None  # a policy whose settings the learner has; None: that of the log

    def total(self, resource: str, logged: int | None) -> int | None:
        """Return the total at a moment at which the log's was this: top-ups and cuts are in proportion.

        Where there is no proportion, because the log's budget was nothing or had no end, it is there from the start.

        >>> scenario = Scenario("2x", {"cost": 20_000_000}, {"cost": 10_000_000})
        >>> scenario.total("cost", 4_000_000)
        8000000
        """
        wanted, last = self.totals[resource], self.logged[resource]
        if wanted is None or not last or logged is None:
            return wanted
        return round(logged * wanted / last)

    def spec(self, spec: PolicySpec, *, decisions: int, max_logged_cost: Mapping[str, float]) -> PolicySpec:
        """Return the policy with this budget from its start; horizon and cap are those of the log."""
        budget = {}
        for name, each in spec.budget.items():
            total = self.total(name, None if each.total is None else to_micro("total", each.total))
            if total is None:
                budget[name] = BudgetSpec(max_cost=each.max_cost)
                continue
            cap = each.max_cost or max_logged_cost[name]
            if not cap:
                raise InvalidArgument(f"No cost in {name} is known, so a budget of it cannot be evaluated.")
            horizon = each.horizon if each.is_timed else each.horizon or max(1, decisions)
            budget[name] = msgspec.structs.replace(each, total=total / MICRO, horizon=horizon, max_cost=cap)
        return msgspec.structs.replace(spec, budget=budget)

    def after_change(self, resource: str, before: BudgetSpec, logged: BudgetSpec) -> BudgetSpec:
        """Return a budget after the horizon, the end or the allowance of the log's was changed to that of `logged`."""
        if before.total is None or logged.total is None:
            return before
        changed = msgspec.structs.replace(before, horizon=logged.horizon, until=logged.until)
        if logged.every is msgspec.UNSET:
            return changed
        allowance = self.total(resource, to_micro("total", logged.total))
        return changed if allowance is None else msgspec.structs.replace(changed, total=allowance / MICRO)

    def top_up(self, resource: str, logged: int) -> int:
        """Return a top-up or a cut of a period, in proportion to that of the log."""
        wanted, last = self.totals[resource], self.logged[resource]
        return round(logged * wanted / last) if wanted is not None and last else logged


def logged_budgets(spec: PolicySpec, accounts: Mapping[str, Account]) -> dict[str, int | None]:
    """Return the logged budgets in micro-units: totals, or allowances of budgets that renew.

    Args:
        spec: The policy, at the end of its log.
        accounts: Its accounts.

    Raises:
        InvalidArgument: If its reviews can be stopped.
    """
    for name, budget in spec.budget.items():
        if budget.can_be_stopped:
            raise InvalidArgument(
                "Another budget cannot be evaluated where reviews can be stopped (hold or limit of"
                f" {name}): it would have stopped other reviews, whose costs are not in the log."
            )
    return {
        name: account.total if (each := spec.budget[name]).every is msgspec.UNSET else to_micro("total", each.total)
        for name, account in accounts.items()
    }


def scenario_of(text: str, logged: Mapping[str, int | None]) -> Scenario:
    """Read another budget, given the `logged_budgets` at the end of the log.

    >>> scenario_of("50%", {"cost": 10_000_000}).totals
    {'cost': 5000000}
    >>> scenario_of("lots", {"cost": 10_000_000})
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: A budget is a total like 500, a part of what it was like 2x or 50%, or inf; by \
resource: minutes=500,euros=2x. Got 'lots'.
    """
    totals = dict(logged)
    given: set[str] = set()
    for part in re.split(r",(?=[^0-9])", text):  # a comma before a digit groups thousands
        name, equals, value = (each.strip() for each in part.rpartition("="))
        same_for_all = value.endswith(("x", "%")) or value == "inf" or not value.strip("0.")
        if not equals and not same_for_all and len(logged) > 1:
            raise InvalidArgument(f"A budget is given by resource, as in {next(iter(logged))}=500. Got {text!r}.")
        names = [name] if equals else list(logged)
        if names[0] not in logged:
            raise InvalidArgument(f"There is no resource {name!r}. There is {', '.join(logged)}.")
        if given & set(names):
            raise InvalidArgument(f"The budget of {names[0]} is given twice. Got {text!r}.")
        given.update(names)
        totals.update({each: total_of(text, value, each, logged[each]) for each in names})
    return Scenario(text, totals, dict(logged))


def total_of(text: str, value: str, resource: str, logged: int | None) -> int | None:
    """Return the total that was written, in micro-units."""
    if value == "inf":
        return None
    found = WRITTEN.fullmatch(value)
    if found is None:
        raise InvalidArgument(f"A budget is {FORMS}. Got {text!r}.")
    number = float(found["number"].replace(",", ""))
    if found["unit"] is None:
        return to_micro("budget", number)
    if logged is None:
        raise InvalidArgument(f"The budget of {resource} has no end, and no part of it either. Got {text!r}.")
    micro = logged * (number if found["unit"] == "x" else number / 100)
    return to_micro("budget", round(micro) / MICRO) if math.isfinite(micro) else None


class PendingFeedback(NamedTuple):
    """A decision whose imputed outcome is pending, ordered by its due number."""

    due: int
    id: int
    task: str
    route: str
    imputed: ImputedOutcome


class Alternative:
    """The policy with another budget."""

    def __init__(self, spec: PolicySpec, scenario: Scenario, feedback: Feedback) -> None:
        self.scenario = scenario
        self._logged_totals: dict[str, int] = {}  # of the log's accounts that renew
        self.policy = Policy(spec)
        self.feedback = feedback
        self._owned = OwnedPolicy(0, "", self.policy, 0, 0)
        self._same = bytearray()
        self.routes = bytearray()  # by decision, as an index of the deciders
        self._holds: dict[int, Micros] = {}
        self._pending: list[PendingFeedback] = []
        self._rng = np.random.default_rng(spec.seed)

    def decide(self, logged: records.DecidedRecord, imputed: ImputedOutcome, at: int = 0) -> list[float]:
        """Decide the next task, at a time in microseconds; return the propensity of each decider."""
        self._deliver_feedback(logged.id)
        available = [] if logged.reason == "unavailable" else logged.available
        body = TaskBody(
            task=logged.task,
            context=logged.context,
            cost=logged.announced,
            available=available,
            force=logged.route if logged.reason == "forced" else None,
        )
        try:
            event, micros = propose(self._owned, body, at)
        except Problem:  # a forced route that the budget does not allow
            event, micros = propose(self._owned, msgspec.structs.replace(body, force=MODEL), at)
        decision = event.decision
        kept = decision._replace(budget_left=records.without_infinity(decision.budget_left))._asdict()  # type: ignore[arg-type]
        record = records.DecidedRecord(task=logged.task, context=event.context, held=micros, **kept)  # type: ignore[arg-type]
        self.policy.apply(record, at)
        if micros is not None:
            self._holds[decision.id] = micros
        self.routes.append(self.policy.spec.deciders.index(decision.route))
        same = decision.route == logged.route
        self._same.append(same)
        if not same:
            due = decision.id + self.feedback.delays[decision.route]
            heapq.heappush(self._pending, PendingFeedback(due, decision.id, logged.task, decision.route, imputed))
        return propensities(decision, self.policy.spec.deciders, self.policy.spec.explore_floor, available)

    def see(self, record: records.AnyRecord) -> None:
        """Apply a record that is not a decision, if it happens in the alternative too."""
        policy = self.policy
        match record:
            case records.BudgetChangedRecord():
                self._change(record)
            case records.RenewedRecord():
                self._renew(record)
            case records.ChangedRecord():
                budget = {
                    name: self.scenario.after_change(name, each, record.spec.budget[name])
                    for name, each in policy.spec.budget.items()
                }
                policy.apply(records.ChangedRecord(spec=msgspec.structs.replace(record.spec, budget=budget)))
            case records.ObservedRecord() if self._same[record.id]:
                learned = record.learned and policy.learner.remembers(record.id)
                told = policy.clamp_cost(record.cost) if learned and record.cost and record.told is not None else None
                released = self._holds.pop(record.id, None) if record.released is not None else None
                policy.apply(msgspec.structs.replace(record, learned=learned, told=told, released=released))
            case records.ExpiredRecord() if self._same[record.id]:
                policy.apply(msgspec.structs.replace(record, released=self._holds.pop(record.id, {})))
            case records.CorrectedRecord() if self._same[record.id]:
                if not policy.learner.remembers(record.id):
                    record = msgspec.structs.replace(record, learned={}, told=None)
                policy.apply(record)
            case records.EffortRecord() if self._same[record.id]:
                policy.apply(record)
            case _:
                pass

    def _renew(self, record: records.RenewedRecord) -> None:
        """Begin the logged period with the free amount and the allowance of this budget.

        Feedback that is due is delivered first: it belongs to the period before.
        """
        name = record.resource
        self._logged_totals[name] = self._logged_totals.get(name, 0) + record.granted - record.lapsed
        self._logged_totals[name] += record.passed_granted - record.passed_lapsed
        self._deliver_feedback(record.decisions)
        if self.policy.accounts[name].total is not None:
            budget, account = self.policy.spec.budget[name], self.policy.accounts[name]
            own = (
                renewal_after(name, budget, account, record.passed, record.start)
                if name in self.policy.periods
                else first_of(name, budget, account, record.start)
            )
            self.policy.apply(
                msgspec.structs.replace(own, start=record.start, end=record.end, decisions=record.decisions)
            )

    def _change(self, record: records.BudgetChangedRecord) -> None:
        """Top up or cut in proportion, but never below the spent and reserved amounts."""
        totals: dict[str, int | None] = {}
        for name, logged in record.totals.items():
            account, total = self.policy.accounts[name], self.scenario.total(name, logged)
            if self.policy.spec.budget[name].every is not msgspec.UNSET and logged is not None:
                more = self.scenario.top_up(name, logged - self._logged_totals.get(name, 0))
                self._logged_totals[name], total = logged, (account.total or 0) + more
            if account.total is not None and total is not None:
                totals[name] = max(total, account.reserved + account.posted)
        if totals:
            self.policy.apply(records.BudgetChangedRecord(request=record.request, totals=totals))

    def _deliver_feedback(self, number: int) -> None:
        """Deliver the imputed outcomes that are due before decision `number`."""
        while self._pending and self._pending[0].due < number:
            each = heapq.heappop(self._pending)
            policy, held = self.policy, self._holds.pop(each.id, None)
            if held is not None and self._rng.random() < self.feedback.expiry[each.route]:
                policy.apply(records.ExpiredRecord(task=each.task, id=each.id, why="", released=held))
                continue
            cost = None if held is None else each.imputed.costs[each.route]
            rewards = {name: each.imputed.rewards[name] for name in self.feedback.reported[each.route]}
            if policy.learner.settings.link == AUTO_LINK and policy.learner.link == "logistic":
                # an imputed mean would switch the link, which 0/1 rewards do not: draw one of them
                rewards = {name: float(self._rng.random() < mean) for name, mean in rewards.items()}
            learned = policy.learner.remembers(each.id)
            if not rewards and cost is None:
                continue
            policy.apply(
                records.ObservedRecord(
                    task=each.task,
                    id=each.id,
                    learned=learned,
                    rewards=rewards,
                    cost=cost,
                    told=policy.clamp_cost(cost) if cost is not None and learned else None,
                    released=held,
                )
            )


Floats = NDArray[np.float64]
TimedRecord = tuple[int, records.AnyRecord]  # when, in microseconds, and what
PAGE = 1000  # decisions of a piece


class LogChunk(NamedTuple):
    """A chunk of the log, with the logged and imputed outcomes of the tasks that are decided in it."""

    log: list[TimedRecord]
    first: int  # the number of the first decision in it
    told: list[ImputedOutcome]
    estimated: Floats  # [n, K]
    vectors: Floats  # [n, d]

    def model_variance(self, model_variance: ModelVariance, known: DoublyRobust, weights: Floats) -> None:
        """Add the variance of the part that rests on estimates alone."""
        model_variance.add(known.estimate_unsupported(self.first, weights), self.vectors, self.estimated)


def chunks(log: Iterable[TimedRecord], imputer: OutcomeImputer) -> Iterator[LogChunk]:
    """Yield a log in chunks that fit memory."""
    kept: list[TimedRecord] = []
    decided: list[records.DecidedRecord] = []
    for at, record in log:
        kept.append((at, record))
        if isinstance(record, records.DecidedRecord):
            decided.append(record)
        if len(decided) == PAGE:
            yield LogChunk(kept, decided[0].id, *imputer.of(decided))
            kept, decided = [], []
    if decided:
        yield LogChunk(kept, decided[0].id, *imputer.of(decided))
    else:
        yield LogChunk(kept, 0, [], np.zeros((0, len(imputer.deciders))), np.zeros((0, 0)))


class ScenarioRun:
    """One alternative and its propensities so far."""

    def __init__(
        self, other: Alternative, known: DoublyRobust, model_variances: tuple[ModelVariance, ModelVariance]
    ) -> None:
        self.other = other
        self.known = known
        self.model_variances = model_variances  # of the difference, of the reward
        self.propensities = np.zeros_like(known.propensities)

    def replay(self, chunk: LogChunk) -> None:
        """Replay a chunk of the log."""
        tasks = iter(chunk.told)
        chosen: list[list[float]] = []
        for at, record in chunk.log:
            if isinstance(record, records.DecidedRecord):
                chosen.append(self.other.decide(record, next(tasks), at))
            else:
                self.other.see(record)
        if chosen:
            rows = slice(chunk.first, chunk.first + len(chosen))
            self.propensities[rows] = chosen
            more = self.propensities[rows] - self.known.propensities[rows]
            chunk.model_variance(self.model_variances[0], self.known, more)
            chunk.model_variance(
                self.model_variances[1], self.known, more if self.known.own_rewards_suffice else self.propensities[rows]
            )
