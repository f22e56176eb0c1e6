"""What a model and people answered, task by task, and the streams that come of it: people one after another."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds.running import Running, leaky
from deferkit.worlds.scaled import unit_ball
from deferkit.worlds.task_stream import Floats, TaskStream

CLASSES = (
    *("airplane", "bear", "bicycle", "bird", "boat", "bottle", "car", "cat"),
    *("chair", "clock", "dog", "elephant", "keyboard", "knife", "oven", "truck"),
)
"""The 16 categories of both data sets of pictures."""

LARGEST_MEAN = 5.0  # of a person's time; with the heaviest tail, the first few trials of a person can mean far more


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
        running: Running | None = Running(self.person[rows], d - 2, d - 1, 1 / math.sqrt(d), LARGEST_MEAN)
        if history == "leaky" and running is not None:
            contexts, running = leaky(contexts, running, rewards[:, 1], costs), None
        return TaskStream(contexts, rewards, costs[:, None, None], link="logistic", running=running, remark=self.remark)
