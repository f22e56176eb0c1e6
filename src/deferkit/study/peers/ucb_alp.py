"""UCB-ALP (Wu et al., NeurIPS 2015), by budget-constrained-CB 0.0.0."""

import math

import numpy as np

from deferkit.study.peers.clustered import Clustered
from deferkit.study.peers.clusters import Clusters
from deferkit.study.peers.peer import Setting
from deferkit.worlds.task_stream import Floats

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
