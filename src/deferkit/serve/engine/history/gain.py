"""Gain of experts over the model, with its standard error, updated by late and corrected outcomes."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from deferkit.types import MODEL


class Moments:
    """Count, sum and sum of squares of numbers, which can be removed again."""

    def __init__(self) -> None:
        self.n = 0
        self.total = 0.0
        self.squares = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Add a number; with `times=-1`, remove it."""
        self.n += times
        self.total += times * value
        self.squares += times * value * value

    @property
    def variance(self) -> float | None:
        """The sample variance; None of fewer than two."""
        if self.n < 2:
            return None
        return max(0.0, self.squares - self.total * self.total / self.n) / (self.n - 1)


class AnsweredTask(NamedTuple):
    """A task that an expert has answered: who, what was expected, and what is known by now."""

    expert: str
    estimates: Mapping[str, float]  # of the rewards of all deciders, when the task was decided
    rewards: Mapping[str, float]  # those that were observed

    @property
    def difference(self) -> float:
        """What the expert earned above the model; estimates stand in for rewards that are not known."""
        return self._reward(self.expert) - self._reward(MODEL)

    @property
    def imputed(self) -> list[str]:
        """The deciders of the difference whose reward is not known."""
        return [name for name in (self.expert, MODEL) if name not in self.rewards]

    def _reward(self, decider: str) -> float:
        return self.rewards[decider] if decider in self.rewards else self.estimates[decider]


class Gain:
    """The sum over answered tasks of what the expert earned above the model.

    Where a reward is not known, the estimate of when the task was decided stands in for it. The error is that of the
    sum as a measure of what such tasks bring on average: n·s² of the differences, and for the imputed rewards of each
    decider the mean error of its estimates, as found wherever estimate and reward are both known. Those are other
    tasks, often unlike the ones that experts get, so that with imputed rewards the error is rather too small.

    >>> gain = Gain()
    >>> for reward in (1.0, 0.0, 1.0, 1.0):
    ...     gain.add(AnsweredTask("human", {}, {"human": 1.0, "model": 1 - reward}))
    >>> gain.value, gain.error, gain.observed  # 4 differences of variance 1/4
    (3.0, 1.0, True)
    """

    def __init__(self) -> None:
        self._differences = Moments()
        self._imputed: Counter[str] = Counter()
        self._residuals: dict[str, Moments] = {}

    def add(self, task: AnsweredTask, times: int = 1) -> None:
        """Add a task; with `times=-1`, remove it, because more is known of it now."""
        self._differences.add(task.difference, times)
        for decider in task.imputed:
            self._imputed[decider] += times

    def add_residual(self, decider: str, estimate: float, reward: float, times: int = 1) -> None:
        """Add the residual of an observed reward from its estimate; with `times=-1`, remove it."""
        self._residuals.setdefault(decider, Moments()).add(reward - estimate, times)

    @property
    def value(self) -> float:
        """The gain so far."""
        return self._differences.total

    @property
    def observed(self) -> bool:
        """Whether no reward in it is imputed."""
        return not any(self._imputed.values())

    @property
    def error(self) -> float | None:
        """Its standard error; None if too little is known to tell."""
        variance = self._differences.variance
        if variance is None:
            return None
        total = self._differences.n * variance
        for decider, count in self._imputed.items():
            residuals = self._residuals.get(decider)
            spread = None if residuals is None else residuals.variance
            if count and (residuals is None or spread is None):
                return None
            if count and residuals is not None and spread is not None:
                bias = residuals.total / residuals.n
                total += count * count * (bias * bias + spread / residuals.n)
        return math.sqrt(total)
