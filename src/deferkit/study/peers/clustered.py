"""What UCB-ALP and HATCH have in common: a warm-up, clusters, and a policy of budget-constrained-CB over them."""

from abc import ABC, abstractmethod
from typing import Any

from deferkit.study.peers.clusters import Clusters, WarmUp
from deferkit.study.peers.global_stream import GlobalStream
from deferkit.study.peers.peer import Setting
from deferkit.worlds.task_stream import Floats


class Clustered(ABC):
    """A policy of the package that starts once its clusters are known.

    Skipping a task earns nothing in both papers, while ours earns what the model earns: rewards are therefore told as
    what they add to the model's mean in the cluster. (Without this both gained less, see the subclasses.) The count of
    asks left is set to the money left over the mean cost before each decision.
    """

    def __init__(self, setting: Setting, *, n_clusters: int) -> None:
        self._setting = setting
        self._n_clusters = n_clusters
        self._warm_up = WarmUp(setting)
        self._random = GlobalStream(seed=setting.seed)
        self._clusters: Clusters | None = None
        self._policy: Any = None  # the package annotates its float fields as int
        self._left = setting.budget
        self._t = 0

    @abstractmethod
    def _start(self, clusters: Clusters) -> object:
        """Return the package's policy over these clusters."""

    @abstractmethod
    def _learn(self, x: Floats, cluster: int, asked: bool, reward: float) -> None:
        """Teach the policy a reward, relative to the model's mean in the cluster."""

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""
        if self._policy is None:
            return self._warm_up.decide()
        self._policy.b_tau = self._left / self._setting.mean_cost
        with self._random.lent():
            return bool(self._policy.play(min(self._t, self._setting.horizon - 1), x.reshape(-1, 1)) == 1)

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn what really happened; at the end of the warm-up, all of it at once."""
        self._t += 1
        self._left -= cost
        if self._clusters is not None:
            self._teach(self._clusters, x, asked, reward)
        elif self._warm_up.observe(x, asked, reward):
            self._clusters = Clusters(self._warm_up, n_clusters=self._n_clusters, seed=self._setting.seed)
            self._policy = self._start(self._clusters)
            for seen in self._warm_up:
                self._teach(self._clusters, *seen)

    def _teach(self, clusters: Clusters, x: Floats, asked: bool, reward: float) -> None:
        cluster = clusters.of(x)
        if not asked:
            clusters.note_model(cluster, reward)
        self._learn(x, cluster, asked, reward - clusters.model_mean(cluster))
