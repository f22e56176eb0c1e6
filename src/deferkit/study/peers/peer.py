"""The base class of peers, and the global stream of random numbers that some of them use."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import UnaffordableReviewWarning, expected
from deferkit.learn.core import revealed
from deferkit.learn.deferrer import Deferrer
from deferkit.types import Budget
from deferkit.worlds.base import Floats, TaskStream


@contextmanager
def small_budgets() -> Iterator[None]:
    """Make learners without a warning: a study goes down to budgets of less than one review, and has remarks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnaffordableReviewWarning)
        yield


class Setting(NamedTuple):
    """The setting of a stream, which a policy made for that stream gets in advance."""

    n_features: int
    budget: float
    horizon: int
    mean_cost: float  # of asking the human; an advantage: unit-cost methods need it to turn a budget into asks
    seed: int
    max_cost: float  # no task costs more
    link: str = "identity"  # that suits the rewards
    reward_range: tuple[float, float] = (-math.inf, math.inf)

    @property
    def asks(self) -> float:
        """How often the human can be asked for this budget, at the mean cost."""
        return self.budget / self.mean_cost

    def deferrer(self, **given: Any) -> Deferrer:
        """Return a learner for this stream.

        Args:
            given: Further arguments of a `Deferrer`, or others for those of the stream.

        >>> setting = Setting(n_features=2, budget=5.0, horizon=100, mean_cost=0.5, seed=0, max_cost=1.0)
        >>> setting.deferrer(pacing="adaptive").settings.budget["cost"].total
        5.0
        """
        told: dict[str, Any] = {
            "n_features": self.n_features,
            "budget": Budget(self.budget, horizon=self.horizon, max_cost=self.max_cost),
            "link": self.link,
            "reward_range": self.reward_range,
            "seed": self.seed,
        }
        with small_budgets():
            return Deferrer(**(told | given))


class Peer(Protocol):
    """Another method, made for one stream."""

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn what really happened.

        Args:
            x: The context of the task that was decided last; it must not be changed.
            asked: Whether the human was asked; False, too, if the budget did not allow it.
            reward: Of whoever decided; NaN if the feedback does not reveal it.
            cost: Of the human; 0 if nobody was asked.
        """


Make = Callable[[Setting], Peer]


def run_peer(peer: Peer, stream: TaskStream, setting: Setting, feedback: str) -> tuple[NDArray[np.int64], float]:
    """Run a fresh peer over a stream; return its routes and the microseconds a step took.

    The hard stop is everyone's: the human is asked only while another `max_cost` fits the budget. A peer that wants
    the human after that gets the model, and observes the model. Only the peer's own two calls are timed.

    Args:
        peer: Made for this setting.
        stream: Tasks with one expert and one resource.
        setting: What the peer was told.
        feedback: Which rewards become known; of two, a peer is told that of whoever decided.

    Raises:
        InvalidArgument: The peer answered something else than yes or no.

    >>> class Always:
    ...     def decide(self, x): return True
    ...     def observe(self, x, asked, reward, cost): print(asked, reward, cost)
    >>> setting = Setting(n_features=1, budget=1.5, horizon=3, mean_cost=0.5, seed=0, max_cost=1.0)
    >>> stream = TaskStream(np.ones((3, 1)), np.array([[0.0, 1.0]] * 3), np.full((3, 1, 1), 0.5))
    >>> routes, _ = run_peer(Always(), stream, setting, "bandit")
    True 1.0 0.5
    True 1.0 0.5
    False 0.0 0.0
    """
    routes = np.zeros(stream.n_tasks, dtype=np.int64)
    told = [0 in revealed(feedback, 0), 1 in revealed(feedback, 1)]
    spent = 0.0
    seconds = 0.0
    for t, x in enumerate(stream.contexts):
        begin = time.perf_counter()
        wanted = peer.decide(x)
        seconds += time.perf_counter() - begin
        if not isinstance(wanted, bool | np.bool_):
            raise expected("decide", type(peer).__name__, "True or False", wanted)
        asked = bool(wanted) and spent <= setting.budget - setting.max_cost
        reward = float(stream.rewards[t, int(asked)]) if told[asked] else math.nan
        cost = float(stream.costs[t, 0, 0]) if asked else 0.0
        spent += cost
        routes[t] = asked
        begin = time.perf_counter()
        peer.observe(x, asked, reward, cost)
        seconds += time.perf_counter() - begin
    return routes, seconds / len(routes) * 1e6


class GlobalStream:
    """Numpy's global random stream, lent to a package and given back untouched.

    >>> stream, before = GlobalStream(seed=0), np.random.get_state()[1].copy()
    >>> with stream.lent():
    ...     drawn = np.random.uniform()
    >>> bool((np.random.get_state()[1] == before).all())
    True
    """

    def __init__(self, *, seed: int) -> None:
        self._state = np.random.RandomState(seed).get_state()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let the global stream be this one for a while."""
        outer = np.random.get_state()  # noqa: NPY002 - the package draws from it, so that it must be swapped
        np.random.set_state(self._state)  # noqa: NPY002
        try:
            yield
        finally:
            self._state = np.random.get_state()  # noqa: NPY002
            np.random.set_state(outer)  # noqa: NPY002
