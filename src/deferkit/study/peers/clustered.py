"""Peers that cluster contexts: HATCH and clustered bandits."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from deferkit.study.peers.peer import GlobalStream, Setting
from deferkit.worlds.base import Floats

WARM_UP_SHARE = 0.05  # of the horizon; both papers take the clusters as known from history, which we do not have
MIN_WARM_UP = 50


class Seen(NamedTuple):
    """A task of the warm-up, as observed."""

    x: Floats
    asked: bool
    reward: float


class WarmUp:
    """The first tasks: the human is asked at random, at the rate that the budget allows, and everything is kept."""

    def __init__(self, setting: Setting) -> None:
        self.length = min(max(MIN_WARM_UP, int(WARM_UP_SHARE * setting.horizon)), setting.horizon)
        self._rate = setting.asks / setting.horizon
        self._rng = np.random.default_rng(setting.seed)
        self._seen: list[Seen] = []

    def decide(self) -> bool:
        """Return whether to ask the human, at random."""
        return bool(self._rng.random() < self._rate)

    def observe(self, x: Floats, asked: bool, reward: float) -> bool:
        """Keep a task; return whether the warm-up is over."""
        self._seen.append(Seen(x.copy(), asked, reward))
        return len(self._seen) >= self.length

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._seen)


class Clusters:
    """A Gaussian mixture over contexts, as the package recommends, with the model's mean reward in each cluster.

    Its covariances are diagonal (the package's notebook has full ones): a warm-up is too short for more.

    `predict` remembers the last context: the package requests the same one up to a dozen times per task.
    """

    def __init__(self, warm_up: WarmUp, *, n_clusters: int, seed: int) -> None:
        contexts = np.array([seen.x for seen in warm_up])
        self._mixture = GaussianMixture(n_clusters, covariance_type="diag", random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._mixture.fit(contexts)
        self.shares: Floats = self._mixture.weights_
        self.centres: Floats = self._mixture.means_
        self._last = b""
        self._label: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._sum = np.zeros(n_clusters)
        self._count = np.zeros(n_clusters)

    def predict(self, contexts: Floats) -> NDArray[np.int64]:
        """Return the cluster of each context; the package calls this."""
        key = contexts.tobytes()
        if key != self._last:
            self._last, self._label = key, self._mixture.predict(contexts)
        return self._label

    def of(self, x: Floats) -> int:
        """Return the cluster of one context."""
        return int(self.predict(x.reshape(1, -1))[0])

    def model_mean(self, cluster: int) -> float:
        """Return the model's mean reward in a cluster so far, 0 before any."""
        return float(self._sum[cluster] / max(self._count[cluster], 1.0))

    def note_model(self, cluster: int, reward: float) -> None:
        """Count a reward of the model."""
        self._sum[cluster] += reward
        self._count[cluster] += 1.0


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


# Tuned on seed 101, T = 3,000, B = 4 % and 25 % of T, two regimes, mean gain: α 0.1 53 %, 0.3 51 %, 1 50 %;
# 20 clusters 51 %; rewards not relative to the model's 49 %. The package's notebook has 10 clusters and α 0.1.
N_CLUSTERS = 10
ALPHA = 0.1


class Oracle:
    """One of the package's LinUCB estimators, learning task by task and answering with a number.

    The package's `fit` forgets what came before, so that HATCH must be taught its whole history each time, and its
    `predict` writes an array into an element, which numpy 2.4 refuses. `partial_fit` and the same bound from the
    estimator's own matrices do neither. The package also gives every estimator α = 1, whatever HATCH is told.
    """

    def __init__(self, n_features: int, *, alpha: float) -> None:
        from budgetcb.helper import _LinUCBnTSSingle  # noqa: PLC0415 - an optional package

        self._inner: Any = _LinUCBnTSSingle(alpha, n_features)

    def fit(self, contexts: Floats, rewards: Floats) -> None:
        """Learn from more tasks."""
        if len(contexts):
            self._inner.partial_fit(contexts, rewards)

    def predict(self, contexts: Floats) -> float:
        """Return the upper confidence bound of the one context."""
        x, inverse = contexts[0], self._inner.Ainv
        return float(x @ inverse @ self._inner.b[:, 0] + self._inner.alpha * np.sqrt(x @ inverse @ x))


class Hatch(Clustered):
    """Clusters share the asks by a linear programme over their values; within a cluster, LinUCB chooses the decider.

    The package's class with its estimators behind `Oracle`. As in the paper only an executed ask teaches the value of
    a cluster; the model's rewards, which skipping still shows here, teach the choice of decider.
    """

    def __init__(self, setting: Setting, *, n_clusters: int = N_CLUSTERS, alpha: float = ALPHA) -> None:
        super().__init__(setting, n_clusters=n_clusters)
        self._alpha = alpha

    def _start(self, clusters: Clusters) -> object:
        from budgetcb.constrained_cb import HATCH  # noqa: PLC0415 - an optional package

        policy: Any = HATCH(
            narms=2,
            gmm=clusters,
            J=self._n_clusters,
            pai=clusters.shares,
            T=self._setting.horizon,
            B=0,
            context_dic=dict(enumerate(clusters.centres)),
            alpha=self._alpha,
            dummy_arm=0,
        )
        # Every cluster's estimators of a decider are taught every task by the package: the model's can be one.
        self._model = self._oracle()
        policy._oraclesa = [[self._model, self._oracle()] for _ in range(self._n_clusters)]
        policy._oraclesj = [self._oracle() for _ in range(self._n_clusters)]
        return policy

    def _oracle(self) -> Oracle:
        return Oracle(self._setting.n_features, alpha=self._alpha)

    def _learn(self, x: Floats, cluster: int, asked: bool, reward: float) -> None:  # noqa: ARG002 - HATCH finds it
        contexts, rewards = x.reshape(1, -1), np.array([reward])
        if asked:
            self._policy.update(np.array([1]), rewards, contexts)
        else:
            self._model.fit(contexts, rewards)
