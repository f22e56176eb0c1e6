"""Imputation of the outcomes of choices that the log did not make, by the estimates at the end of the log."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve.audit.counterfactual.logged_decisions import DecisionLog, LoggedOutcomes
from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import MICRO, Micros
from deferkit.serve.domain.policy import Policy

Floats = NDArray[np.float64]
USUALLY = 0.5  # a reward is expected to be reported if it was more often than not


class ImputedOutcome(NamedTuple):
    """Rewards and costs of a task: logged where they are known, else estimated."""

    rewards: Mapping[str, float]  # by decider
    costs: Mapping[str, Micros]  # by expert


class Feedback(NamedTuple):
    """The usual feedback of a decision, by the route that it took."""

    delays: Mapping[str, int]  # decisions that are made meanwhile
    reported: Mapping[str, tuple[str, ...]]  # the deciders whose reward becomes known
    expiry: Mapping[str, float]  # how often nobody answers


class OutcomeImputer:
    """Imputes outcomes from the estimates at the end of the log; logged ones take precedence."""

    def __init__(self, policy: Policy, facts: LoggedOutcomes) -> None:
        self.learner = policy.learner
        self.deciders, self.resources = policy.spec.deciders, policy.spec.resources
        self.facts = facts
        self.bounds = self.learner.settings.reward_bounds
        self.caps = [high for _, high in self.learner.settings.cost_bounds]

    def of(self, page: Sequence[log_records.DecidedRecord]) -> tuple[list[ImputedOutcome], Floats, Floats]:
        """Return the outcomes of some consecutive tasks, their estimated rewards [n, K] and context vectors."""
        contexts = [each.context for each in page]
        scores = self.learner.score(contexts)
        estimated = np.column_stack([scores.estimates[name] for name in self.deciders]).clip(*self.bounds)
        first = page[0].id
        known = self.facts.rewards[first : first + len(page)]
        rewards = np.where(np.isnan(known), estimated, known)
        costs = {name: np.clip(scores.costs[name], 0.0, self.caps) for name in self.deciders[1:]}
        outcomes = []
        for i, each in enumerate(page):
            paid = {name: self._micros(each, name, costs[name][i].tolist()) for name in self.deciders[1:]}
            outcomes.append(ImputedOutcome(dict(zip(self.deciders, rewards[i].tolist(), strict=True)), paid))
        return outcomes, estimated, self.learner.vectors(contexts)

    def _micros(self, task: log_records.DecidedRecord, expert: str, costs: list[float]) -> Micros:
        if task.announced is not None:
            told = task.costs[expert]
            costs = [told] if isinstance(told, float) else list(told.values())
        return {name: round(cost * MICRO) for name, cost in zip(self.resources, costs, strict=True)}


def feedback_of(decision_log: DecisionLog, facts: LoggedOutcomes) -> Feedback:
    """Return the usual feedback: delays, reported rewards, share expired."""
    shares, taken = facts.reported(), np.bincount(facts.routes, minlength=len(decision_log.deciders))
    always = (~np.isnan(facts.rewards)).mean(axis=0) if len(decision_log) else np.zeros(len(decision_log.deciders))
    reported = {}
    for route, name in enumerate(decision_log.deciders):
        share = shares[route] if taken[route] else always
        usual = [each for k, each in enumerate(decision_log.deciders) if share[k] >= USUALLY]
        reported[name] = tuple(usual if taken[route] or name in usual else [*usual, name])
    by_name = zip(decision_log.deciders, facts.delays, strict=True)
    return Feedback(dict(by_name), reported, dict(zip(decision_log.deciders, facts.expiry().tolist(), strict=True)))
