"""Logged decisions by number: route, propensities, rewards, costs."""

from array import array
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve.audit.counterfactual.propensities import propensities
from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.policy_spec import PolicySpec

Floats = NDArray[np.float64]
NAN = float("nan")


class LoggedOutcomes(NamedTuple):
    """The log as arrays; deciders and resources are in the order of the policy."""

    routes: NDArray[np.int8]  # [n] who was chosen
    propensities: Floats  # [n, K] how likely each decider was
    rewards: Floats  # [n, K] of each decider; NaN where it is not known
    costs: Floats  # [n, R] that were booked; NaN where none was
    expired: NDArray[np.bool_]  # [n] asked, but nobody answered in time: the model's answer was used
    delays: list[int]  # [K] the median number of decisions until something was known of one

    def reported(self) -> Floats:
        """Return how often the reward of a decider is known [route, decider]; 0 for a route that was never taken."""
        shares = np.zeros((self.rewards.shape[1],) * 2)
        for route in range(len(shares)):
            taken = self.routes == route
            if taken.any():
                shares[route] = (~np.isnan(self.rewards[taken])).mean(axis=0)
        return shares

    def expiry(self) -> Floats:
        """Return the share of a route's decisions that expired [K], of those that came to an end."""
        shares = np.zeros(self.rewards.shape[1])
        for route in range(1, len(shares)):
            taken = self.routes == route
            ended = self.expired | ~np.isnan(self.costs).any(axis=1) | ~np.isnan(self.rewards[:, route])
            if (taken & ended).any():
                shares[route] = self.expired[taken & ended].mean()
        return shares


class DecisionLog:
    """Collects a few numbers of each decision from the records of a log."""

    def __init__(self) -> None:
        self.deciders: tuple[str, ...] = ()
        self.resources: tuple[str, ...] = ()
        self.floor = 0.0
        self._routes = array("b")
        self._propensities = array("d")
        self._rewards = array("d")
        self._costs = array("d")
        self._expired = array("b")
        self._delays: list[array[int]] = []

    def __len__(self) -> int:
        return len(self._routes)

    def see(self, record: log_records.AnyRecord) -> None:
        """Add the next record."""
        match record:
            case log_records.CreatedRecord():
                self._begin(record.spec)
            case log_records.DecidedRecord():
                self._routes.append(self.deciders.index(record.route))
                self._propensities.extend(propensities(record, self.deciders, self.floor, record.available))
                self._rewards.extend([NAN] * len(self.deciders))
                self._costs.extend([NAN] * len(self.resources))
                self._expired.append(0)
            case log_records.ObservedRecord():
                self._observed(record)
            case log_records.CorrectedRecord():
                self._set(record.id, record.rewards, record.cost)
            case log_records.ExpiredRecord():
                self._expired[record.id] = 1
            case _:
                pass

    def _begin(self, spec: PolicySpec) -> None:
        self.deciders, self.resources, self.floor = spec.deciders, spec.resources, spec.explore_floor
        self._delays = [array("q") for _ in self.deciders]

    def _observed(self, record: log_records.ObservedRecord) -> None:
        route = self._routes[record.id]
        if record.cost is not None or self.deciders[route] in record.rewards:
            self._delays[route].append(len(self) - 1 - record.id)
        self._set(record.id, record.rewards, record.cost)

    def _set(self, number: int, rewards: dict[str, float], cost: dict[str, int] | None) -> None:
        for name, value in rewards.items():
            self._rewards[number * len(self.deciders) + self.deciders.index(name)] = value
        for name, micro in (cost or {}).items():
            self._costs[number * len(self.resources) + self.resources.index(name)] = micro / MICRO

    def facts(self) -> LoggedOutcomes:
        """Return all of it as arrays."""
        k, r = len(self.deciders), len(self.resources)
        return LoggedOutcomes(
            routes=np.array(self._routes, dtype=np.int8),
            propensities=np.array(self._propensities).reshape(-1, k),
            rewards=np.array(self._rewards).reshape(-1, k),
            costs=np.array(self._costs).reshape(-1, r),
            expired=np.array(self._expired, dtype=bool),
            delays=[int(median(each)) if each else 0 for each in self._delays],
        )


def known_rewards(facts: LoggedOutcomes) -> Floats:
    """Return the reward of choosing a decider [n, K], NaN where it is not known.

    It is the decider's reward; of an expert whose review expired, it is the model's.
    """
    brought = facts.rewards.copy()
    lost = np.flatnonzero(facts.expired & (facts.routes > 0))
    brought[lost, facts.routes[lost]] = facts.rewards[lost, 0]
    return brought
