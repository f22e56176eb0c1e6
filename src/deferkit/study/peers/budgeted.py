"""Peers that have a budget: AUPD, budgeted LinUCB and UCB-ALP."""

import math
from typing import Any

import numpy as np

from deferkit.learn.deferrer import Deferrer
from deferkit.learn.exploration import INTERVAL, Exploration
from deferkit.learn.links import link_named
from deferkit.study.peers.clustered import Clustered, Clusters
from deferkit.study.peers.peer import GlobalStream, Setting
from deferkit.types import MODEL, Decision
from deferkit.worlds.base import Floats

HUMAN = "human"


class Aupd:
    """A virtual queue of what was spent too much; its length over b·√T is the price.

    >>> peer = Aupd(Setting(n_features=1, budget=25.0, horizon=100, mean_cost=0.5, seed=0, max_cost=1.0))
    >>> peer.weight, peer.price
    (2.5, 0.0)
    """

    def __init__(self, setting: Setting) -> None:
        self._unit = setting.max_cost
        self._rate = setting.budget / setting.horizon / self._unit  # b
        self.weight = self._rate * math.sqrt(setting.horizon)  # V
        self.queue = 0.0  # Q
        self._oracle = Deferrer(
            n_features=setting.n_features,
            link=setting.link,
            reward_range=link_named(setting.link).domain,
            exploration=Exploration(rule=INTERVAL),
            warm_up=0,
            seed=setting.seed,
        )

    @property
    def price(self) -> float:
        """Q/V: the reward that one unit of cost, as large as the largest possible one, must bring."""
        return self.queue / self.weight if self.weight > 0 else math.inf

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human: whether r̂ − (Q/V)·č is more than the model's r̂."""
        seen: Decision = self._oracle.propose(x).decision
        model, human = (seen.estimates[who] + seen.widths[who] for who in (MODEL, HUMAN))
        cost = max(0.0, float(seen.costs[HUMAN]) - float(seen.cost_widths[HUMAN])) / self._unit  # type: ignore[arg-type]
        return human - self.price * cost > model if self.weight > 0 else False

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Teach the oracle what really happened, and move the queue."""
        decision = self._oracle.decide(x, force=HUMAN if asked else MODEL)
        self._oracle.observe(decision.id, {decision.route: reward}, cost if asked else None)
        self.queue = max(0.0, self.queue + cost / self._unit - self._rate)


# Tuned on seed 101, T = 10,000, B = 400 and 2,500, two regimes, mean gain: α 0.05 47.4 %, 0.1 47.1 %, 0.3 46.0 %,
# 1 45.1 %.
ALPHA = 0.05


class BudgetLinUcb:
    """LinUCB for each decider; where the human looks best, he is asked with probability asks left / tasks left.

    The package's class. Its count of asks left is set to the money left over the mean cost before each decision.
    """

    def __init__(self, setting: Setting, *, alpha: float = ALPHA) -> None:
        from budgetcb.constrained_cb import LinUCB  # noqa: PLC0415 - an optional package

        self._setting = setting
        # Any: the package annotates its float fields as int.
        self._policy: Any = LinUCB(ndims=setting.n_features, alpha=alpha, narms=2, T=setting.horizon, B=0, dummy_arm=0)
        self._random = GlobalStream(seed=setting.seed)
        self._left = setting.budget
        self._t = 0

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""
        policy = self._policy
        policy.b_tau = self._left / self._setting.mean_cost
        columns = policy.ba
        # play() writes a [1, 1] array into an element, which numpy 2.4 refuses; flat vectors make it a number.
        policy.ba = {arm: column[:, 0] for arm, column in columns.items()}
        with self._random.lent():
            asks = bool(policy.play(min(self._t, self._setting.horizon - 1), x) == 1)
        policy.ba = columns
        return asks

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn what really happened."""
        self._t += 1
        self._left -= cost
        self._policy.update(int(asked), reward, x.reshape(-1, 1), self._t)


# Tuned on seed 101, T = 3,000, B = 4 % and 25 % of T, two regimes, mean gain: width 1 (the paper's, for rewards in
# [0, 1]) 39 %, 0.1 44 %; 20 clusters 39 %. The package's notebook has 10 clusters.
N_CLUSTERS = 10
WIDTH = 0.1


class UcbAlp(Clustered):
    """A mean and a width for each cluster of contexts; a linear programme shares the asks among the clusters.

    The package's class, mended from outside. Its running mean is `(mean + reward) / count` and its width
    `sqrt(log(t)) / 2 * count`, which grows with the count, so that the decider with more tasks wins for good: as
    released, and told plain rewards, it never asked after the warm-up (seed 101, four settings: gain 1 %). Both are
    overwritten after each update by the paper's, mean + width · sqrt(log(t) / (2 count)).
    The model's arm is worth a known 0, as skipping is in the paper.
    """

    def __init__(self, setting: Setting, *, n_clusters: int = N_CLUSTERS, width: float = WIDTH) -> None:
        super().__init__(setting, n_clusters=n_clusters)
        self._width = width
        self._sums = np.zeros(n_clusters)

    def _start(self, clusters: Clusters) -> object:
        from budgetcb.constrained_cb import UcbAlp as PublishedUcbAlp  # noqa: PLC0415 - an optional package

        policy = PublishedUcbAlp(narms=2, T=self._setting.horizon, B=0, pai=clusters.shares, gmm=clusters, dummy_arm=0)
        policy.mu_hat[:, 0] = 0.0
        return policy

    def _learn(self, x: Floats, cluster: int, asked: bool, reward: float) -> None:
        if not asked:
            return
        policy = self._policy
        policy.update(1, reward, x.reshape(-1, 1), self._t)
        self._sums[cluster] += reward
        count = policy.C[cluster, 1]
        policy.mu_bar[cluster, 1] = self._sums[cluster] / count
        width = self._width * math.sqrt(math.log(self._t + 1) / (2.0 * count))
        policy.mu_hat[cluster, 1] = policy.mu_bar[cluster, 1] + width
        policy.mu_star[cluster] = policy.mu_hat[cluster].max()
