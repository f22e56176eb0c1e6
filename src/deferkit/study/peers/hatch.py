"""HATCH (Yang et al., WWW 2020), by budget-constrained-CB 0.0.0."""

from typing import Any

import numpy as np

from deferkit.study.peers.clustered import Clustered
from deferkit.study.peers.clusters import Clusters
from deferkit.study.peers.peer import Setting
from deferkit.worlds.task_stream import Floats

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
