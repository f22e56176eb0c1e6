"""What other choices would have brought: doubly robust where the log explored, by the estimates alone elsewhere.

For a task t and a decider k let p(k) be how likely the log's policy was to choose k, q(k) what is believed that it
brings, y(k) what it brought where that is known, and o(k) = Σ_j p(j)·(how often y(k) is known when j was chosen). Then

    ŷ(k) = q(k) + [y(k) is known]·(y(k) − q(k)) / o(k)

is y(k) on average over the log's own coin tosses, whatever q is. A policy that chooses k with probability p'(k), which
does not depend on the toss for this task, brings Σ p'(k)·ŷ(k); the difference from what was done is
Σ (p'(k) − p(k))·ŷ(k).
Where o(k) = 0, because k could not have been chosen, q(k) is all there is.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.links import link_named
from deferkit.serve.audit.counterfactual.logged_decisions import Facts, known_rewards
from deferkit.types import Coefficients

Floats = NDArray[np.float64]
LEAST = 1e-12  # a probability below it is rounding
RARE = 2.0  # a weight above it: more would not be known than would
NOTEWORTHY = 0.01  # a share that has to be mentioned
MARKED = 0.1  # a change of a probability that is more than a change of the floor's parts


class Value(NamedTuple):
    """A mean reward of a task, or a difference of two."""

    mean: float
    se: float  # standard error


class Outlook(NamedTuple):
    """What another policy would have brought."""

    difference: Value  # from what was done
    reward: Value
    unsupported: float  # the share of choices that rest on the estimates alone
    explored: int | None  # tasks that tell of choices which are made more often; None if none are needed


class Known:
    """What a log knows of what each decider brings, and what is believed of it by estimates of d coefficients."""

    def __init__(self, facts: Facts, d: int) -> None:
        self.routes = facts.routes
        self.chances = facts.chances
        self.brought = known_rewards(facts)
        self.known = ~np.isnan(self.brought)
        self.reported = np.zeros((self.brought.shape[1],) * 2)  # how often it is known, by route and decider
        for route in range(len(self.reported)):
            taken = self.routes == route
            if taken.any():
                self.reported[route] = self.known[taken].mean(axis=0)
        self.seen = np.minimum(self.chances @ self.reported, 1.0)  # o
        # a choice is judged by itself, unless more is known of others: the model where only an expert judges it
        own = np.diag(self.reported) >= self.reported.max(axis=0)
        self.at_first_hand = bool(own[self.routes].all())
        self.believed = np.zeros_like(self.brought)  # q
        self._lost = facts.expiry()
        # the estimates have seen what they are compared with, and misfit it by less than what they have not seen
        n_known = self.known.sum(axis=0)
        self._unseen = n_known / np.maximum(n_known - d, 1)

    def believe(self, first: int, estimated: Floats) -> None:
        """Take in estimates of the rewards of some tasks; an expert who does not answer brings what the model does."""
        mixed = estimated * (1 - self._lost) + estimated[:, :1] * self._lost
        self.believed[first : first + len(estimated)] = mixed

    @property
    def misfit(self) -> Floats:
        """What is known less what was believed [n, K]; 0 where nothing is known."""
        return np.where(self.known, self.brought - self.believed, 0.0)

    @property
    def noise(self) -> Floats:
        """The variance of a reward around what is believed, by decider [K]."""
        variance: Floats = (self.misfit**2).sum(axis=0) / np.maximum(self.known.sum(axis=0), 1) * self._unseen
        return variance

    def strangers(self, weights: Floats) -> NDArray[np.intp]:
        """Return those who matter, by these weights [n, K], and of whom no reward is known."""
        return np.flatnonzero((weights != 0.0).any(axis=0) & ~self.known.any(axis=0))

    def done(self, doubt: float = 0.0) -> Value:
        """Return what was brought by what was done; where that is not known, it is like where it is."""
        n = max(len(self.routes), 1)
        if not self.at_first_hand:
            variance = self.variance(self.chances) + self.coins(self.chances)
            return Value(self.sum(self.chances) / n, math.sqrt(variance / n**2 + doubt))
        weight, misfit, believed = self._own()
        return Value(float((believed + weight * misfit).sum() / n), math.sqrt(self._unsure()) / n)

    def _own(self) -> tuple[Floats, Floats, Floats]:
        """Return weight, misfit and belief of the choices that were made [n]."""
        rows = np.arange(len(self.routes))
        share = self.reported[self.routes, self.routes]
        weight = np.divide(1.0, share, out=np.zeros_like(share), where=share > LEAST)
        return weight, self.misfit[rows, self.routes], self.believed[rows, self.routes]

    def _unsure(self) -> float:
        """Return the variance of the sum of what was brought, because some of it is not known."""
        weight, misfit, _ = self._own()
        return float((misfit**2 * weight * (weight - 1.0).clip(0.0)).sum())

    def coins(self, chances: Floats) -> float:
        """Return the variance of a sum of rewards because who is chosen is drawn with these chances."""
        mean = (chances * self.believed).sum(axis=1)
        return float(((chances * self.believed**2).sum(axis=1) - mean**2).clip(0.0).sum())

    @property
    def weight(self) -> Floats:
        """1/o [n, K], 0 where it does not exist."""
        return np.divide(1.0, self.seen, out=np.zeros_like(self.seen), where=self.seen > LEAST)

    def sum(self, weights: Floats) -> float:
        """Return the sum of ŷ over tasks and deciders, weighted [n, K]."""
        return float((weights * (self.believed + self.weight * self.misfit)).sum())

    def variance(self, weights: Floats) -> float:
        """Return the variance of that sum: as measured, or, where few were explored, as the noise lets expect."""
        spread = weights**2 * (self.weight - 1.0).clip(0.0)
        measured = (spread * self.weight * self.misfit**2 * self._unseen).sum()
        return float(max(measured, (spread * self.noise).sum()))

    def unsupported(self, first: int, weights: Floats) -> Floats:
        """Return the weights [n, K] of those of whom nothing can be known at tasks from `first` on; 0 for others."""
        return np.where(self.seen[first : first + len(weights)] > LEAST, 0.0, weights)

    def outlook(self, chances: Floats, floor: float, doubts: tuple[float, float]) -> Outlook:
        """Return what other chances would have brought.

        `doubts` are the variances of what rests on estimates alone, in the difference and in the reward.
        """
        n = max(len(chances), 1)
        more = chances - self.chances
        difference = self.sum(more) / n
        tossed = ((more * self.believed).sum(axis=1) ** 2).sum() * floor / max(1.0 - floor, LEAST)
        variance = self.variance(more) + tossed
        whole = variance + self._unsure()
        if not self.at_first_hand:
            whole = self.variance(chances) + self.coins(chances)
        return Outlook(
            difference=Value(difference, math.sqrt(variance / n**2 + doubts[0])),
            reward=Value(self.done().mean + difference, math.sqrt(whole / n**2 + doubts[1])),
            unsupported=float(self.unsupported(0, more).clip(0.0).sum() / n),
            explored=self._explored(more),
        )

    def _explored(self, more: Floats) -> int | None:
        rare = (more > MARKED) & (self.weight > RARE)
        return int((rare & self.known).sum()) if rare.any(axis=1).sum() > NOTEWORTHY * len(rare) else None


class Doubt:
    """Adds up how unsure the estimates are of the choices that rest on them alone.

    The error of a sum of estimates is that of the sum of their gradients: contexts for the identity link.
    """

    def __init__(self, coefficients: list[Coefficients], link: str) -> None:
        self.coefficients = coefficients
        self.link = link
        self.gradients = [np.zeros(len(each.theta)) for each in coefficients]
        self.squares = np.zeros(len(coefficients))

    def add(self, weights: Floats, vectors: Floats, believed: Floats) -> None:
        """Take in some tasks: the weight of each decider [n, K], contexts, beliefs."""
        for k in range(len(self.coefficients)):
            slope = believed[:, k] * (1.0 - believed[:, k]) if link_named(self.link).is_probability else 1.0
            self.gradients[k] += (weights[:, k] * slope) @ vectors
            self.squares[k] += (weights[:, k] ** 2).sum()

    def variance(self, n: int, noise: Floats) -> float:
        """Return the variance of the mean over n tasks; `noise` is that of a reward, by decider."""
        total = 0.0
        for k, each in enumerate(self.coefficients):
            scale = 1.0 if link_named(self.link).is_probability else float(noise[k])
            total += scale * float(self.gradients[k] @ each.inverse @ self.gradients[k]) + noise[k] * self.squares[k]
        return float(total / max(n, 1) ** 2)
