"""Simulated people: answers and times."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from deferkit.worlds.base import Floats, Running, TaskStream, leaky, unit_ball

CLASSES = (
    *("airplane", "bear", "bicycle", "bird", "boat", "bottle", "car", "cat"),
    *("chair", "clock", "dog", "elephant", "keyboard", "knife", "oven", "truck"),
)
"""The 16 categories of both data sets of pictures."""

MAX_MEAN = 5.0  # of a person's time; with the heaviest tail, the first few trials of a person can mean far more


class Answers(NamedTuple):
    """All tasks of a data set; those of a person are together, in the order in which they came."""

    contexts: Floats  # [n, d]; the last two columns are the person's running reward and cost, 0 so far
    rewards: Floats  # [n, 2] of the model and of the person: 1 if right
    costs: Floats  # [n] time, with mean 1
    person: NDArray[np.int64]  # [n] ascending from 0
    remark: str

    @classmethod
    def of(
        cls, features: Floats, rewards: Floats, times: Floats, person: NDArray[np.int64], remark: str = ""
    ) -> "Answers":
        """Return answers with features scaled into the unit ball, two columns for the person, and costs of mean 1.

        >>> person = np.array([1, 0, 1])
        >>> answers = Answers.of(np.array([[0.0], [1.0], [2.0]]), np.eye(3)[:, :2], np.array([1.0, 2.0, 3.0]), person)
        >>> answers.contexts.shape, answers.costs, answers.person
        ((3, 4), array([1. , 0.5, 1.5]), array([0, 1, 1]))
        """
        together = np.argsort(person, kind="stable")
        contexts = unit_ball(np.column_stack([features, np.zeros((len(features), 2))]))
        _, numbered = np.unique(person[together], return_inverse=True)
        return cls(contexts[together], rewards[together], (times / times.mean())[together], numbered, remark)

    def stream(self, people: Sequence[int] | NDArray[np.int64], history: str) -> TaskStream:
        """Return the tasks of these people, one person after another.

        `history` says what the last two columns know of a person: what a policy "observed" itself, or, "leaky", all
        that came before, asked or not, as in the paper.

        >>> answers = Answers.of(np.ones((3, 1)), np.eye(3)[:, :2], np.ones(3), np.array([0, 1, 1]))
        >>> answers.stream([1, 0], "observed").rewards.tolist()
        [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
        """
        ends = np.searchsorted(self.person, np.arange(self.person[-1] + 2))
        rows = np.concatenate([np.arange(ends[each], ends[each + 1]) for each in people])
        contexts, rewards, costs = self.contexts[rows], self.rewards[rows], self.costs[rows]
        d = contexts.shape[1]
        running: Running | None = Running(self.person[rows], d - 2, d - 1, 1 / math.sqrt(d), MAX_MEAN)
        if history == "leaky" and running is not None:
            contexts, running = leaky(contexts, running, rewards[:, 1], costs), None
        return TaskStream(contexts, rewards, costs[:, None, None], link="logistic", running=running, remark=self.remark)


MEAN_S, MEDIAN_S, VARIATION = 4.92, 2.40, 4.695
"""Of the times that were recorded for ImageNet16H; VARIATION is standard deviation / mean."""

# A log-normal body, and a break for one trial in 76. Given the two spreads, the other three numbers follow from the
# three figures above: P(t ≤ median) = ½, E t and E t², with breaks that no body reaches.
BODY_MEDIAN_S, BODY_SPREAD = 2.3761, 0.6
BREAK_RATE, BREAK_MEDIAN_S, BREAK_SPREAD = 0.013156, 123.47, 0.7

# What the body depends on, so that there is something to learn, in units of its own noise.
PERSON, DIFFICULTY, WRONG = 0.5, 0.3, 0.4
SEED = 16


def quantiles(n: int, median: float, spread: float) -> Floats:
    """Return n evenly spaced quantiles of a log-normal: its moments without the luck of a draw.

    >>> quantiles(3, 2.0, 0.5).round(2)
    array([1.23, 2.  , 3.24])
    """
    return np.asarray(median * np.exp(spread * ndtri((np.arange(n) + 0.5) / n)))


def stand_in(person: NDArray[np.int64], difficulty: Floats, wrong: NDArray[np.bool_]) -> Floats:
    """Return seconds for each trial: slower people, harder pictures and wrong answers take longer; breaks anybody.

    `difficulty` has mean 0 and standard deviation 1. The draw is fixed: the times are part of the data set.

    >>> times = stand_in(np.arange(29_000) // 200, np.zeros(29_000), np.zeros(29_000, dtype=bool))
    >>> round(float(times.mean()), 1), round(float(np.median(times)), 1), round(float(times.std() / times.mean()), 1)
    (4.9, 2.4, 4.7)
    """
    rng = np.random.default_rng(SEED)
    n = len(person)
    slow = PERSON * rng.standard_normal(int(person.max()) + 1)[person] + DIFFICULTY * difficulty + WRONG * wrong
    times = np.empty(n)
    times[np.argsort(slow + rng.standard_normal(n))] = quantiles(n, BODY_MEDIAN_S, BODY_SPREAD)
    breaks = round(BREAK_RATE * n)
    times[rng.permutation(n)[:breaks]] += quantiles(breaks, BREAK_MEDIAN_S, BREAK_SPREAD)
    return times
