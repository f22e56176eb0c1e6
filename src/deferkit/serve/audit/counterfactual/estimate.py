"""Off-policy estimates: logged decisions, propensities, imputation and doubly robust values."""

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.links import link_named
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO, Micros
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.spec import PolicySpec
from deferkit.types import MODEL, Coefficients, Decision, worth_of

Made: TypeAlias = Decision | records.DecidedRecord


def propensities(
    made: Made, deciders: Sequence[str], floor: float, available: Collection[str] | None = None
) -> list[float]:
    """Return the probability of each decider at one decision; they add up to 1.

    A decision has the probability of the route that was taken. With one expert the rest is the other's. With several,
    what an explore floor gives is the same for all that were not the best choice, and the best is found from the
    logged estimates; an expert who could not be afforded is taken for one who could.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=1, budget=Budget(9, horizon=100, max_cost=1), warm_up=0, explore_floor=0.2)
    >>> [round(p, 9) for p in propensities(deferrer.decide([1.0]), ("model", "human"), 0.2)]
    [0.9, 0.1]
    """
    taken, propensity = made.route, made.propensity
    others = [n for n in deciders if n != taken and (available is None or n == MODEL or n in available)]
    share = dict.fromkeys(deciders, 0.0)
    share[taken] = propensity
    left = 1.0 - propensity
    if left > 0.0 and len(others) > 1 and made.reason == "explored":
        best = best_of(made)
        if best != taken:  # then this route had but its part of the floor
            share[best] = min(left, 1.0 - floor + propensity)
            left -= share[best]
            others.remove(best)
    for name in others:
        share[name] = left / len(others)
    return [share[name] for name in deciders]


def best_of(made: Made) -> str:
    """Return the decider that is worth most by the estimates of a decision."""
    decision = made.decision if isinstance(made, records.DecidedRecord) else made
    return max(decision.estimates, key=lambda decider: worth_of(decision, decider))


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

    def report_shares(self) -> Floats:
        """Return the share of known rewards [route, decider]; 0 for a route that was never taken."""
        shares = np.zeros((self.rewards.shape[1],) * 2)
        for route in range(len(shares)):
            taken = self.routes == route
            if taken.any():
                shares[route] = (~np.isnan(self.rewards[taken])).mean(axis=0)
        return shares

    def expiry(self) -> Floats:
        """Return the share of a route's ended decisions that expired [K]."""
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

    def see(self, record: records.AnyRecord) -> None:
        """Add the next record."""
        match record:
            case records.CreatedRecord():
                self._begin(record.spec)
            case records.DecidedRecord():
                self._routes.append(self.deciders.index(record.route))
                self._propensities.extend(propensities(record, self.deciders, self.floor, record.available))
                self._rewards.extend([NAN] * len(self.deciders))
                self._costs.extend([NAN] * len(self.resources))
                self._expired.append(0)
            case records.ObservedRecord():
                self._add_outcome(record)
            case records.CorrectedRecord():
                self._set(record.id, record.rewards, record.cost)
            case records.ExpiredRecord():
                self._expired[record.id] = 1
            case _:
                pass

    def _begin(self, spec: PolicySpec) -> None:
        self.deciders, self.resources, self.floor = spec.deciders, spec.resources, spec.explore_floor
        self._delays = [array("q") for _ in self.deciders]

    def _add_outcome(self, record: records.ObservedRecord) -> None:
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


ROUNDING = 1e-12  # a probability below it is rounding
RARE_WEIGHT = 2.0  # a weight above it: the reward is observed with a probability below one half
NOTEWORTHY = 0.01  # a share that has to be mentioned
LARGE_SHIFT = 0.1  # a change of a probability that is more than a change of the floor's parts


class Value(NamedTuple):
    """A mean reward of a task, or a difference of two."""

    mean: float
    se: float  # standard error


class Estimate(NamedTuple):
    """The estimated value of another policy."""

    difference: Value  # from what was done
    reward: Value
    unsupported: float  # the share of choices that rest on the estimates alone
    explored: int | None  # tasks that tell of choices which are made more often; None if none are needed


class DoublyRobust:
    """Doubly robust estimates from logged rewards, propensities, and imputed rewards of d coefficients each."""

    def __init__(self, facts: LoggedOutcomes, d: int) -> None:
        self.routes = facts.routes
        self.propensities = facts.propensities
        self.rewards = known_rewards(facts)
        self.known = ~np.isnan(self.rewards)
        self.reported = np.zeros((self.rewards.shape[1],) * 2)  # share of known rewards, by route and decider
        for route in range(len(self.reported)):
            taken = self.routes == route
            if taken.any():
                self.reported[route] = self.known[taken].mean(axis=0)
        self.observation_probability = np.minimum(self.propensities @ self.reported, 1.0)  # o
        # a choice is evaluated by its own reward, unless that is known more often on other routes: the model's reward,
        # where only experts report it
        own = np.diag(self.reported) >= self.reported.max(axis=0)
        self.own_rewards_suffice = bool(own[self.routes].all())
        self.imputed = np.zeros_like(self.rewards)  # q
        self._expiry_share = facts.expiry()
        # the residuals are in-sample, and so too small: corrected by the degrees of freedom
        n_known = self.known.sum(axis=0)
        self._overfit_correction = n_known / np.maximum(n_known - d, 1)

    def impute(self, first: int, estimated: Floats) -> None:
        """Impute rewards of some tasks by estimates; for the share of expired reviews, that of the model."""
        mixed = estimated * (1 - self._expiry_share) + estimated[:, :1] * self._expiry_share
        self.imputed[first : first + len(estimated)] = mixed

    @property
    def misfit(self) -> Floats:
        """Residuals: known less imputed rewards [n, K]; 0 where the reward is not known."""
        return np.where(self.known, self.rewards - self.imputed, 0.0)

    @property
    def noise(self) -> Floats:
        """The variance of a reward around its imputed value, by decider [K]."""
        variance: Floats = (
            (self.misfit**2).sum(axis=0) / np.maximum(self.known.sum(axis=0), 1) * self._overfit_correction
        )
        return variance

    def without_rewards(self, weights: Floats) -> NDArray[np.intp]:
        """Return the deciders with a weight [n, K] but without any known reward."""
        return np.flatnonzero((weights != 0.0).any(axis=0) & ~self.known.any(axis=0))

    def logged_value(self, model_variance: float = 0.0) -> Value:
        """Return the mean logged reward; missing values are imputed from the rows that have one."""
        n = max(len(self.routes), 1)
        if not self.own_rewards_suffice:
            variance = self.variance(self.propensities) + self.sampling_variance(self.propensities)
            return Value(self.sum(self.propensities) / n, math.sqrt(variance / n**2 + model_variance))
        weight, misfit, imputed = self._own()
        return Value(float((imputed + weight * misfit).sum() / n), math.sqrt(self._missing_variance()) / n)

    def _own(self) -> tuple[Floats, Floats, Floats]:
        """Return weight, residual and imputed reward of the logged choices [n]."""
        rows = np.arange(len(self.routes))
        share = self.reported[self.routes, self.routes]
        weight = np.divide(1.0, share, out=np.zeros_like(share), where=share > ROUNDING)
        return weight, self.misfit[rows, self.routes], self.imputed[rows, self.routes]

    def _missing_variance(self) -> float:
        """Return the variance of the sum of logged rewards that is due to missing ones."""
        weight, misfit, _ = self._own()
        return float((misfit**2 * weight * (weight - 1.0).clip(0.0)).sum())

    def sampling_variance(self, propensities: Floats) -> float:
        """Return the variance of a sum of rewards due to drawing the decider with these propensities."""
        mean = (propensities * self.imputed).sum(axis=1)
        return float(((propensities * self.imputed**2).sum(axis=1) - mean**2).clip(0.0).sum())

    @property
    def weight(self) -> Floats:
        """Inverse probability weights 1/o [n, K]; 0 where o is 0."""
        return np.divide(
            1.0,
            self.observation_probability,
            out=np.zeros_like(self.observation_probability),
            where=self.observation_probability > ROUNDING,
        )

    def sum(self, weights: Floats) -> float:
        """Return the sum of ŷ over tasks and deciders, weighted [n, K]."""
        return float((weights * (self.imputed + self.weight * self.misfit)).sum())

    def variance(self, weights: Floats) -> float:
        """Return the variance of that sum: measured, or, where that is larger, as expected from the noise."""
        spread = weights**2 * (self.weight - 1.0).clip(0.0)
        measured = (spread * self.weight * self.misfit**2 * self._overfit_correction).sum()
        return float(max(measured, (spread * self.noise).sum()))

    def estimate_unsupported(self, first: int, weights: Floats) -> Floats:
        """Return the weights [n, K] of deciders without overlap (o = 0) at tasks from `first` on; 0 for others."""
        return np.where(self.observation_probability[first : first + len(weights)] > ROUNDING, 0.0, weights)

    def estimate(self, propensities: Floats, floor: float, model_variances: tuple[float, float]) -> Estimate:
        """Return the estimated value of a policy with other propensities.

        `model_variances` are those of the parts that rest on estimates alone, in the difference and in the reward.
        """
        n = max(len(propensities), 1)
        more = propensities - self.propensities
        difference = self.sum(more) / n
        floor_variance = ((more * self.imputed).sum(axis=1) ** 2).sum() * floor / max(1.0 - floor, ROUNDING)
        variance = self.variance(more) + floor_variance
        reward_variance = variance + self._missing_variance()
        if not self.own_rewards_suffice:
            reward_variance = self.variance(propensities) + self.sampling_variance(propensities)
        return Estimate(
            difference=Value(difference, math.sqrt(variance / n**2 + model_variances[0])),
            reward=Value(self.logged_value().mean + difference, math.sqrt(reward_variance / n**2 + model_variances[1])),
            unsupported=float(self.estimate_unsupported(0, more).clip(0.0).sum() / n),
            explored=self._count_explored(more),
        )

    def _count_explored(self, more: Floats) -> int | None:
        rare = (more > LARGE_SHIFT) & (self.weight > RARE_WEIGHT)
        return int((rare & self.known).sum()) if rare.any(axis=1).sum() > NOTEWORTHY * len(rare) else None


class ModelVariance:
    """The variance of the estimates behind choices that rest on them alone.

    The error of a sum of estimates is that of the sum of their gradients: contexts for the identity link.
    """

    def __init__(self, coefficients: list[Coefficients], link: str, views: Sequence[int] | None = None) -> None:
        self.coefficients = coefficients
        self.views = views or [0] * len(coefficients)  # the part of a vector that each decider reads
        self.link = link
        self.gradients = [np.zeros(len(each.theta)) for each in coefficients]
        self.squares = np.zeros(len(coefficients))

    def add(self, weights: Floats, vectors: Floats, imputed: Floats) -> None:
        """Add some tasks: the weight of each decider [n, K], contexts, imputed rewards."""
        for k in range(len(self.coefficients)):
            slope = imputed[:, k] * (1.0 - imputed[:, k]) if link_named(self.link).is_probability else 1.0
            first, width = self.views[k] * len(self.gradients[k]), len(self.gradients[k])
            self.gradients[k] += (weights[:, k] * slope) @ vectors[:, first : first + width]
            self.squares[k] += (weights[:, k] ** 2).sum()

    def variance(self, n: int, noise: Floats) -> float:
        """Return the variance of the mean over n tasks; `noise` is that of a reward, by decider."""
        total = 0.0
        for k, each in enumerate(self.coefficients):
            scale = 1.0 if link_named(self.link).is_probability else float(noise[k])
            total += scale * float(self.gradients[k] @ each.inverse @ self.gradients[k]) + noise[k] * self.squares[k]
        return float(total / max(n, 1) ** 2)


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

    def of(self, page: Sequence[records.DecidedRecord]) -> tuple[list[ImputedOutcome], Floats, Floats]:
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

    def _micros(self, task: records.DecidedRecord, expert: str, costs: list[float]) -> Micros:
        if task.announced is not None:
            told = task.costs[expert]
            costs = [told] if isinstance(told, float) else list(told.values())
        return {name: round(cost * MICRO) for name, cost in zip(self.resources, costs, strict=True)}


def feedback_of(decision_log: DecisionLog, facts: LoggedOutcomes) -> Feedback:
    """Return the usual feedback: delays, reported rewards, share expired."""
    shares, taken = facts.report_shares(), np.bincount(facts.routes, minlength=len(decision_log.deciders))
    always = (~np.isnan(facts.rewards)).mean(axis=0) if len(decision_log) else np.zeros(len(decision_log.deciders))
    reported = {}
    for route, name in enumerate(decision_log.deciders):
        share = shares[route] if taken[route] else always
        usual = [each for k, each in enumerate(decision_log.deciders) if share[k] >= USUALLY]
        reported[name] = tuple(usual if taken[route] or name in usual else [*usual, name])
    by_name = zip(decision_log.deciders, facts.delays, strict=True)
    return Feedback(dict(by_name), reported, dict(zip(decision_log.deciders, facts.expiry().tolist(), strict=True)))
