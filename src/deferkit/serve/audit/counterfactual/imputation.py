"""What is believed, at the end of a log, of tasks in it: what to tell a policy of choices that were not made."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve.audit.counterfactual.logged_decisions import Facts, Past
from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import MICRO, Micros
from deferkit.serve.domain.policy import Policy

Floats = NDArray[np.float64]
USUALLY = 0.5  # a reward is expected to be reported if it was more often than not


class Belief(NamedTuple):
    """What is known or believed of a task."""

    rewards: Mapping[str, float]  # by decider
    costs: Mapping[str, Micros]  # by expert


class Feedback(NamedTuple):
    """What is usually heard of a decision, by the route that it took."""

    delays: Mapping[str, int]  # decisions that are made meanwhile
    reported: Mapping[str, tuple[str, ...]]  # the deciders whose reward becomes known
    expiry: Mapping[str, float]  # how often nobody answers


class Beliefs:
    """What the policy believes of tasks at the end of its log; what is known of them goes before."""

    def __init__(self, policy: Policy, facts: Facts) -> None:
        self.learner = policy.learner
        self.deciders, self.resources = policy.spec.deciders, policy.spec.resources
        self.facts = facts
        self.bounds = self.learner.settings.reward_bounds
        self.caps = [high for _, high in self.learner.settings.cost_bounds]

    def of(self, page: Sequence[log_records.Decided]) -> tuple[list[Belief], Floats, Floats]:
        """Return what to tell of some tasks that follow each other, their estimated rewards [n, K] and vectors."""
        contexts = [each.context for each in page]
        scores = self.learner.score(contexts)
        estimated = np.column_stack([scores.estimates[name] for name in self.deciders]).clip(*self.bounds)
        first = page[0].id
        known = self.facts.rewards[first : first + len(page)]
        rewards = np.where(np.isnan(known), estimated, known)
        costs = {name: np.clip(scores.costs[name], 0.0, self.caps) for name in self.deciders[1:]}
        beliefs = []
        for i, each in enumerate(page):
            paid = {name: self._micros(each, name, costs[name][i].tolist()) for name in self.deciders[1:]}
            beliefs.append(Belief(dict(zip(self.deciders, rewards[i].tolist(), strict=True)), paid))
        return beliefs, estimated, self.learner.vectors(contexts)

    def _micros(self, task: log_records.Decided, expert: str, costs: list[float]) -> Micros:
        if task.announced is not None:
            told = task.costs[expert]
            costs = [told] if isinstance(told, float) else list(told.values())
        return {name: round(cost * MICRO) for name, cost in zip(self.resources, costs, strict=True)}


def feedback_of(past: Past, facts: Facts) -> Feedback:
    """Return what is usually heard of decisions."""
    shares, taken = facts.reported(), np.bincount(facts.routes, minlength=len(past.deciders))
    always = (~np.isnan(facts.rewards)).mean(axis=0) if len(past) else np.zeros(len(past.deciders))
    reported = {}
    for route, name in enumerate(past.deciders):
        share = shares[route] if taken[route] else always
        heard = [each for k, each in enumerate(past.deciders) if share[k] >= USUALLY]
        reported[name] = tuple(heard if taken[route] or name in heard else [*heard, name])
    by_name = zip(past.deciders, facts.delays, strict=True)
    return Feedback(dict(by_name), reported, dict(zip(past.deciders, facts.expiry().tolist(), strict=True)))
