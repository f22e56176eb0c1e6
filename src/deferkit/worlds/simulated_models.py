"""Simulated models, for what public classifiers do not show: several experts, junk contexts, and one change at most."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from deferkit.worlds.base_world import BaseWorld
from deferkit.worlds.option import check_choices, option
from deferkit.worlds.task_stream import Floats, TaskStream

ACCURACIES = (0.84, 0.86, 0.885, 0.91, 0.93)  # of five experts
N_TASKS = 810
HARDEST_ERROR, ERROR_POWER = 0.5, 2.57  # the model errs in ½·(1 − u)^2.57 of the tasks with rank u: 14 % of all
HARDER = 0.8  # how much more often an expert errs in the model's hardest task than in its easiest, over the mean

JUNK = ("none", "scattered", "first")
N_JUNK_TASKS, N_JUNK, N_NUMBERS = 1_500, 60, 5
LARGE, LARGEST_JUNK = 1e6, 1e50
SHAPES = ("linear", "u-shape", "interaction", "uneven noise")
REWARDS = ("binary", "graded")
FALL = 2.0  # of the model's log-odds

SLOPES = (1.2, -0.9, 0.6, 0.0, 0.0)  # of the model's log-odds


@dataclass(frozen=True, kw_only=True)
class SeveralExperts(BaseWorld):
    """Five experts, right in 84 to 93 % of the tasks, cost 1 each; a model with a confidence, right in 86 %.

    As with the readers of a medical study: who is best is not known, and reviews are few.

    >>> stream = SeveralExperts().draw(seed=0)
    >>> stream.rewards.shape, stream.costs.shape
    ((810, 6), (810, 5, 1))
    """

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed; which expert is how good differs between seeds."""
        self.check_seed(seed)
        rng = np.random.default_rng(np.random.SeedSequence([int(seed), 5]))
        rank = rng.random(N_TASKS)
        model = 1.0 - HARDEST_ERROR * (1.0 - rank) ** ERROR_POWER
        errors = 1.0 - rng.permutation(np.array(ACCURACIES))
        # tasks that are hard for the model are somewhat harder for people too
        experts = 1.0 - errors * (1.0 + HARDER * (0.5 - rank))[:, None]
        chances = np.column_stack([model, experts])
        confidence = 0.5 + 0.5 * rank**0.7
        margin = np.clip(2 * confidence - 1 + 0.05 * rng.standard_normal(N_TASKS), 0.0, 1.0)
        return TaskStream(
            contexts=np.column_stack([np.ones(N_TASKS), confidence, margin]),
            rewards=(rng.random(chances.shape) < chances).astype(float),
            costs=np.ones((N_TASKS, len(ACCURACIES), 1)),
            link="logistic",
            remark="simulated people",
            confidence=confidence,
            first_use=True,
        )


@dataclass(frozen=True, kw_only=True)
class JunkContexts(BaseWorld):
    """A logistic stream with junk among the contexts, such as a broken sensor or an attacker sends.

    Junk tasks are right whoever decides, also where `junk` is "none" and their contexts are like the others: a loss
    is what the junk does to the other tasks.

    >>> [float(np.abs(JunkContexts(junk=each).draw(seed=0).contexts).max()) > 1e5 for each in JUNK]
    [False, True, True]
    """

    junk: str = option(
        "none", "Junk: none, 60 contexts of 1e50 anywhere, or the first context of 1e6", choices=JUNK, shown="{} junk"
    )

    def __post_init__(self) -> None:
        check_choices(self)

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed; the same tasks whatever the junk."""
        self.check_seed(seed)
        rng = np.random.default_rng(np.random.SeedSequence([int(seed), 6]))
        numbers = rng.standard_normal((N_JUNK_TASKS, N_NUMBERS))
        model = expit(0.8 + numbers @ np.array(SLOPES))
        expert = expit(2.6 + 0.4 * numbers[:, 3])
        rewards = (rng.random((N_JUNK_TASKS, 2)) < np.column_stack([model, expert])).astype(float)
        spots = np.sort(rng.choice(np.arange(1, N_JUNK_TASKS), N_JUNK - 1, replace=False))
        signs: Floats = rng.choice([-1.0, 1.0], (N_JUNK, N_NUMBERS))
        rewards[0] = 1.0
        rewards[spots] = 1.0
        if self.junk == "first":
            numbers[0] = LARGE * signs[0]
        elif self.junk == "scattered":
            numbers[[0, *spots]] = LARGEST_JUNK * signs
        return TaskStream(
            contexts=np.column_stack([np.ones(N_JUNK_TASKS), numbers]),
            rewards=rewards,
            costs=np.ones((N_JUNK_TASKS, 1, 1)),
            link="logistic",
            remark="simulated",
            first_use=True,
        )


@dataclass(frozen=True, kw_only=True)
class OneChange(BaseWorld):
    """A model that stays as good as it is, or falls once in the middle; for alarms of drift, false and true ones.

    All shapes but "linear" are what a linear learner cannot represent.

    >>> stream = OneChange(horizon=100, change=True).draw(seed=0)
    >>> stream.contexts.shape, stream.rewards.shape
    ((100, 5), (100, 2))
    """

    horizon: int = option(20_000, "Number of tasks", shown="T = {:,}")
    shape: str = option("linear", "How the model's reward depends on the context", choices=SHAPES)
    rewards: str = option("binary", "Rewards: 0 or 1, or any number between", choices=REWARDS)
    change: bool = option(False, "Whether the model gets worse in the middle")

    def __post_init__(self) -> None:
        check_choices(self)

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed."""
        self.check_seed(seed)
        rng = np.random.default_rng(np.random.SeedSequence([int(seed), 7]))
        numbers = rng.standard_normal((self.horizon, 4))
        odds = 1.5 + 0.8 * numbers[:, 0] - 0.5 * numbers[:, 1]
        if self.shape == "u-shape":
            odds = numbers[:, 0] ** 2 - 0.5 * numbers[:, 1]
        elif self.shape == "interaction":
            odds += 1.5 * numbers[:, 2] * numbers[:, 3]
        if self.change:
            odds = odds - FALL * (np.arange(self.horizon) >= self.horizon // 2)
        chances = np.column_stack([expit(odds), np.full(self.horizon, 0.85)])
        if self.rewards == "binary":
            rewards = (rng.random(chances.shape) < chances).astype(float)
        else:
            noise = 0.1 * rng.standard_normal(chances.shape)
            if self.shape == "uneven noise":
                noise *= (0.2 + np.abs(numbers[:, 2]))[:, None]
            rewards = np.clip(chances + noise, 0.0, 1.0)
        return TaskStream(
            contexts=np.column_stack([np.ones(self.horizon), numbers]),
            rewards=rewards,
            costs=np.ones((self.horizon, 1, 1)),
            link="logistic" if self.rewards == "binary" else "identity",
            remark="simulated",
            first_use=True,
        )
