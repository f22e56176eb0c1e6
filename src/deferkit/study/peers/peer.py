"""What a peer is: another method behind two verbs, and the loop that runs one over a stream."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds.task_stream import Floats


class Setting(NamedTuple):
    """What a peer is told beforehand."""

    n_features: int
    budget: float
    horizon: int
    mean_cost: float  # of asking the human; an advantage: unit-cost methods need it to turn a budget into asks
    seed: int
    max_cost: float  # no task costs more
    link: str = "identity"  # that suits the rewards

    @property
    def asks(self) -> float:
        """How often the human can be asked for this budget, at the mean cost."""
        return self.budget / self.mean_cost


class Peer(Protocol):
    """Another method, made for one stream."""

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn what really happened; the cost is 0 if the human was not asked."""


Make = Callable[[Setting], Peer]


def run_peer(
    make: Make, contexts: Floats, rewards: Floats, costs: Floats, setting: Setting
) -> tuple[NDArray[np.int64], float]:
    """Run a fresh peer over a stream with bandit feedback; return its routes and the microseconds a step took.

    The hard stop is everyone's: the human is asked only while another `max_cost` fits the budget. A peer that wants
    the human after that gets the model, and observes the model. Only the peer's own two calls are timed.

    >>> class Always:
    ...     def decide(self, x): return True
    ...     def observe(self, x, asked, reward, cost): print(asked, reward, cost)
    >>> setting = Setting(n_features=1, budget=1.5, horizon=3, mean_cost=0.5, seed=0, max_cost=1.0)
    >>> rewards, costs = np.array([[0.0, 1.0]] * 3), np.full(3, 0.5)
    >>> routes, _ = run_peer(lambda setting: Always(), np.ones((3, 1)), rewards, costs, setting)
    True 1.0 0.5
    True 1.0 0.5
    False 0.0 0.0
    """
    peer = make(setting)
    routes = np.zeros(len(contexts), dtype=np.int64)
    spent = 0.0
    seconds = 0.0
    for t, x in enumerate(contexts):
        begin = time.perf_counter()
        wanted = peer.decide(x)
        seconds += time.perf_counter() - begin
        asked = wanted and spent <= setting.budget - setting.max_cost
        reward = float(rewards[t, int(asked)])
        cost = float(costs[t]) if asked else 0.0
        spent += cost
        routes[t] = asked
        begin = time.perf_counter()
        peer.observe(x, asked, reward, cost)
        seconds += time.perf_counter() - begin
    return routes, seconds / len(routes) * 1e6
