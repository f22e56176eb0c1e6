"""A policy with another budget that replays a log, record by record, in place of the policy that wrote it.

Where it takes the logged route it gets the logged outcome, at the same point of the log. Elsewhere the outcome is not
known: it gets one imputed from the estimates at the end of the log, after the usual delay.
"""

import heapq
from typing import NamedTuple

import msgspec
import numpy as np

from deferkit.learn.links import AUTO_LINK
from deferkit.serve.audit.counterfactual.imputation import Feedback, ImputedOutcome
from deferkit.serve.audit.counterfactual.propensities import propensities
from deferkit.serve.audit.counterfactual.scenario import Scenario
from deferkit.serve.domain import log_records
from deferkit.serve.domain.budget_period import next_of
from deferkit.serve.domain.money import Micros
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.request_bodies import TaskBody
from deferkit.serve.engine.commands.decide import propose
from deferkit.types import MODEL


class PendingFeedback(NamedTuple):
    """A decision whose imputed outcome is still to be delivered; ordered by when it is due."""

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

    def decide(self, logged: log_records.DecidedRecord, imputed: ImputedOutcome, at: int = 0) -> list[float]:
        """Decide the next task, at a time in microseconds; return how likely each decider was."""
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
        kept = decision._replace(budget_left=log_records.without_infinity(decision.budget_left))._asdict()  # type: ignore[arg-type]
        record = log_records.DecidedRecord(task=logged.task, context=event.context, held=micros, **kept)  # type: ignore[arg-type]
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

    def see(self, record: log_records.AnyRecord) -> None:
        """Apply a record that is no decision, if it would have happened in the alternative too."""
        policy = self.policy
        match record:
            case log_records.BudgetChangedRecord():
                self._change(record)
            case log_records.RenewedRecord():
                self._renew(record)
            case log_records.ChangedRecord():
                budget = {
                    name: self.scenario.after_change(name, each, record.spec.budget[name])
                    for name, each in policy.spec.budget.items()
                }
                policy.apply(log_records.ChangedRecord(spec=msgspec.structs.replace(record.spec, budget=budget)))
            case log_records.ObservedRecord() if self._same[record.id]:
                learned = record.learned and policy.learner.remembers(record.id)
                told = policy.clamp_cost(record.cost) if learned and record.cost and record.told is not None else None
                released = self._holds.pop(record.id, None) if record.released is not None else None
                policy.apply(msgspec.structs.replace(record, learned=learned, told=told, released=released))
            case log_records.ExpiredRecord() if self._same[record.id]:
                policy.apply(msgspec.structs.replace(record, released=self._holds.pop(record.id, {})))
            case log_records.CorrectedRecord() if self._same[record.id]:
                if not policy.learner.remembers(record.id):
                    record = msgspec.structs.replace(record, learned={}, told=None)
                policy.apply(record)
            case log_records.EffortRecord() if self._same[record.id]:
                policy.apply(record)
            case _:
                pass

    def _renew(self, record: log_records.RenewedRecord) -> None:
        """Begin the period that began in the log, with what is free of this budget, and its allowance.

        Feedback that is due is delivered first: it belongs to the period before.
        """
        name = record.resource
        self._logged_totals[name] = self._logged_totals.get(name, 0) + record.granted - record.lapsed
        self._deliver_feedback(record.decisions)
        if self.policy.accounts[name].total is not None:
            own = next_of(name, self.policy.spec.budget[name], self.policy.books, record.start, begin=True)
            assert own is not None
            self.policy.apply(
                msgspec.structs.replace(own, start=record.start, end=record.end, decisions=record.decisions)
            )

    def _change(self, record: log_records.BudgetChangedRecord) -> None:
        """Top up or cut in proportion, but never below what is spent and reserved by now."""
        totals: dict[str, int | None] = {}
        for name, logged in record.totals.items():
            account, total = self.policy.accounts[name], self.scenario.total(name, logged)
            if self.policy.spec.budget[name].every is not msgspec.UNSET and logged is not None:
                more = self.scenario.top_up(name, logged - self._logged_totals.get(name, 0))
                self._logged_totals[name], total = logged, (account.total or 0) + more
            if account.total is not None and total is not None:
                totals[name] = max(total, account.reserved + account.posted)
        if totals:
            self.policy.apply(log_records.BudgetChangedRecord(request=record.request, totals=totals))

    def _deliver_feedback(self, number: int) -> None:
        """Deliver the imputed outcomes that are due before decision `number`."""
        while self._pending and self._pending[0].due < number:
            each = heapq.heappop(self._pending)
            policy, held = self.policy, self._holds.pop(each.id, None)
            if held is not None and self._rng.random() < self.feedback.expiry[each.route]:
                policy.apply(log_records.ExpiredRecord(task=each.task, id=each.id, why="", released=held))
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
                log_records.ObservedRecord(
                    task=each.task,
                    id=each.id,
                    learned=learned,
                    rewards=rewards,
                    cost=cost,
                    told=policy.clamp_cost(cost) if cost is not None and learned else None,
                    released=held,
                )
            )
