"""Running means of a person: columns of a context that depend on earlier observations.

How well and how fast somebody did so far says much about the next task, but only what was observed may be used: whom
nobody asked, nobody knows. So these columns are filled in while a policy runs, from its own observations.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HISTORIES = ("observed", "leaky")
HISTORY_HELP = "What a context knows of the person: what the policy observed, or all that came before"
PRIOR_WEIGHT = 1.0  # observations that the mean of everybody counts for in the mean of one person


class Running(NamedTuple):
    """Which columns hold the running means of reward and cost of the person who would be asked."""

    person: NDArray[np.int64]  # [n]
    reward_column: int
    cost_column: int
    scale: float = 1.0  # a column holds scale · mean
    most: float = math.inf  # a mean counts as this at most, so that one very long task does not dwarf the other columns


class Means:
    """Running means of each person, drawn a little towards the mean of everybody.

    >>> means = Means()
    >>> means.of(7)
    (0.0, 0.0)
    >>> means.add(7, 1.0, 3.0)
    >>> means.of(7), means.of(8)
    ((1.0, 3.0), (1.0, 3.0))
    >>> means.add(8, 0.0, 1.0)
    >>> means.of(8)
    (0.25, 1.5)
    """

    def __init__(self) -> None:
        self._people: dict[int, tuple[int, float, float]] = {}
        self._everybody = (0, 0.0, 0.0)

    def of(self, person: int) -> tuple[float, float]:
        """Return the mean reward and cost of a person, as far as they are known."""
        n, reward, cost = self._everybody
        if n == 0:
            return 0.0, 0.0
        own, own_reward, own_cost = self._people.get(person, (0, 0.0, 0.0))
        weight = own + PRIOR_WEIGHT
        return (own_reward + PRIOR_WEIGHT * reward / n) / weight, (own_cost + PRIOR_WEIGHT * cost / n) / weight

    def add(self, person: int, reward: float, cost: float) -> None:
        """Take in what was observed of a person."""
        n, rewards, costs = self._people.get(person, (0, 0.0, 0.0))
        self._people[person] = n + 1, rewards + reward, costs + cost
        n, rewards, costs = self._everybody
        self._everybody = n + 1, rewards + reward, costs + cost


class Follower:
    """Gives the context of each task of a stream as it is known when the task comes, and takes in what follows."""

    def __init__(self, contexts: Floats, running: Running) -> None:
        self._contexts = contexts
        self._running = running
        self._means = Means()
        self._row = np.zeros(contexts.shape[1])

    def context(self, task: int) -> Floats:
        """Return the context of a task; the same array is used for the next one."""
        running = self._running
        self._row[:] = self._contexts[task]
        reward, cost = self._means.of(int(running.person[task]))
        self._row[running.reward_column] = running.scale * min(reward, running.most)
        self._row[running.cost_column] = running.scale * min(cost, running.most)
        return self._row

    def asked(self, task: int, reward: float, cost: float) -> None:
        """Take in what the person of a task, who was asked, earned and cost."""
        self._means.add(int(self._running.person[task]), reward, cost)


def leaky(contexts: Floats, running: Running, rewards: Floats, costs: Floats) -> Floats:
    """Return contexts whose columns know everything that happened before, asked or not: the paper's features.

    >>> running = Running(np.array([0, 0]), 0, 1)
    >>> leaky(np.zeros((2, 2)), running, np.array([1.0, 0.0]), np.array([3.0, 0.0]))
    array([[0., 0.],
           [1., 3.]])
    """
    filled = contexts.copy()
    n = np.arange(len(contexts))
    together = np.argsort(running.person, kind="stable")
    own = np.empty_like(n)  # how many tasks the person had before
    first = np.flatnonzero(np.diff(running.person[together], prepend=running.person[together[:1]] - 1))
    sizes = np.diff(first, append=len(n))
    own[together] = n - np.repeat(first, sizes)
    for column, values in ((running.reward_column, rewards), (running.cost_column, costs)):
        everybody = (np.cumsum(values) - values) / np.maximum(n, 1)
        sums = np.cumsum(values[together]) - values[together]
        before = np.empty(len(n))
        before[together] = sums - np.repeat(sums[first], sizes)
        means = (before + PRIOR_WEIGHT * everybody) / (own + PRIOR_WEIGHT)
        filled[:, column] = running.scale * np.minimum(means, running.most)
    return filled
