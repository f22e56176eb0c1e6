"""A policy of its own: ridge regressions of both rewards, and a price that follows the spending."""

import math

import numpy as np
from numpy.typing import NDArray

from deferkit.study.peers import Setting

Floats = NDArray[np.float64]
RATE = 0.05  # how fast the price moves


class Uncertain:
    """Asks the human where the regressions, with a bonus for what was rarely seen, expect more than the price."""

    def __init__(self, setting: Setting) -> None:
        d = setting.n_features
        self._plan = min(1.0, setting.budget / setting.horizon / setting.mean_cost)  # asks for a task
        self._precision = np.array([np.eye(d), np.eye(d)])
        self._moment = np.zeros((2, d))
        self._price = np.zeros(1)

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""
        gains = [self._optimistic(decider, x) for decider in (0, 1)]
        return bool(gains[1] - gains[0] > self._price[0])

    def _optimistic(self, decider: int, x: Floats) -> float:
        solved = np.linalg.solve(self._precision[decider], np.column_stack([self._moment[decider], x]))
        return float(x @ solved[:, 0] + 0.3 * decider * math.sqrt(x @ solved[:, 1]))

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn the reward of whoever decided, and move the price."""
        self._price[0] = max(0.0, self._price[0] + RATE * (float(asked) - self._plan))
        if not math.isnan(reward):
            self._precision[int(asked)] += np.outer(x, x)
            self._moment[int(asked)] += reward * x

    def state(self) -> dict[str, Floats]:
        """Return all that was learned."""
        return {"precision": self._precision, "moment": self._moment, "price": self._price}

    def restore(self, saved: dict[str, Floats]) -> None:
        """Restore from `state()`."""
        self._precision, self._moment, self._price = saved["precision"], saved["moment"], saved["price"]
