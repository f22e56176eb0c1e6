"""Off-policy evaluation: doubly robust where the log explored, model-based (by the estimates alone) elsewhere.

For a task t and a decider k let p(k) be the propensity of k in the log, q(k) its estimated (imputed) reward, y(k) its
observed reward where that is known, and o(k) = Σ_j p(j)·(how often y(k) is known when j was chosen) the probability
that y(k) is observed. Then

    ŷ(k) = q(k) + [y(k) is known]·(y(k) − q(k)) / o(k)

is an unbiased estimate of y(k) over the randomisation of the log, whatever q is. The value of a policy that chooses k
with probability p'(k), which does not depend on the draw for this task, is Σ p'(k)·ŷ(k); its difference from the logged
value is Σ (p'(k) − p(k))·ŷ(k).
Where o(k) = 0, because k could not have been chosen (no overlap), only q(k) is left.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.links import link_named
from deferkit.serve.audit.counterfactual.logged_decisions import LoggedOutcomes, known_rewards
from deferkit.types import Coefficients

Floats = NDArray[np.float64]
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
        """Return the deciders with a weight [n, K] of whom no reward is known."""
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
        """Return the variance of a sum of rewards that comes from drawing the decider with these propensities."""
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

    def unsupported(self, first: int, weights: Floats) -> Floats:
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
            unsupported=float(self.unsupported(0, more).clip(0.0).sum() / n),
            explored=self._explored(more),
        )

    def _explored(self, more: Floats) -> int | None:
        rare = (more > LARGE_SHIFT) & (self.weight > RARE_WEIGHT)
        return int((rare & self.known).sum()) if rare.any(axis=1).sum() > NOTEWORTHY * len(rare) else None


class ModelVariance:
    """The variance of the estimates behind choices that rest on them alone.

    The error of a sum of estimates is that of the sum of their gradients: contexts for the identity link.
    """

    def __init__(self, coefficients: list[Coefficients], link: str) -> None:
        self.coefficients = coefficients
        self.link = link
        self.gradients = [np.zeros(len(each.theta)) for each in coefficients]
        self.squares = np.zeros(len(coefficients))

    def add(self, weights: Floats, vectors: Floats, imputed: Floats) -> None:
        """Add some tasks: the weight of each decider [n, K], contexts, imputed rewards."""
        for k in range(len(self.coefficients)):
            slope = imputed[:, k] * (1.0 - imputed[:, k]) if link_named(self.link).is_probability else 1.0
            self.gradients[k] += (weights[:, k] * slope) @ vectors
            self.squares[k] += (weights[:, k] ** 2).sum()

    def variance(self, n: int, noise: Floats) -> float:
        """Return the variance of the mean over n tasks; `noise` is that of a reward, by decider."""
        total = 0.0
        for k, each in enumerate(self.coefficients):
            scale = 1.0 if link_named(self.link).is_probability else float(noise[k])
            total += scale * float(self.gradients[k] @ each.inverse @ self.gradients[k]) + noise[k] * self.squares[k]
        return float(total / max(n, 1) ** 2)
