"""The context clusters that UCB-ALP and HATCH need beforehand, from warm-up tasks."""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from deferkit.study.peers.peer import Setting
from deferkit.worlds.task_stream import Floats

WARM_UP_SHARE = 0.05  # of the horizon; both papers take the clusters as known from history, which we do not have
FEWEST = 50


class Seen(NamedTuple):
    """A task of the warm-up, as observed."""

    x: Floats
    asked: bool
    reward: float


class WarmUp:
    """The first tasks: the human is asked at random, at the rate that the budget allows, and everything is kept."""

    def __init__(self, setting: Setting) -> None:
        self.length = min(max(FEWEST, int(WARM_UP_SHARE * setting.horizon)), setting.horizon)
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

    `predict` remembers the last context: the package asks for the same one up to a dozen times a task.
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
