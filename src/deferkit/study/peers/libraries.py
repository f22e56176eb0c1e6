"""Peers of other libraries: Vowpal Wabbit and ParetoBandit."""

import math

from deferkit.study.peers.peer import Setting
from deferkit.worlds.base import Floats

# Tuned on seed 101, T = 10,000, B = 400 and 2,500, two regimes, mean gain: step 1 89 %, 3 95 %, 5 95.7 %, 10 96.0 %,
# 30 94 %; asking at random besides, at a tenth of the budget's rate, cost 4 to 5 %, at a fiftieth 1 %.
STEP = 10.0
LEARNING_RATE = 0.5  # VW's own; 1 no better, 0.2 1 % worse


class Vw:
    """A VW regressor for each decider's reward and one for the human's cost; asks where reward − price × cost is more.

    The price λ is ours, as VW has no budget: λ ← max(0, λ + STEP/√T · (cost − B/T) / mean cost) after each task.
    The usual `--cb_explore_adf`, learning reward − λ·cost as λ moves, gained at most 91 % (SquareCB) where this
    gained 96 %. There is no exploration but the price's own, which starts at 0.
    """

    def __init__(self, setting: Setting, *, step: float = STEP, learning_rate: float = LEARNING_RATE) -> None:
        from vowpalwabbit import Workspace  # noqa: PLC0415 - an optional package

        options = f"--quiet --noconstant -l {learning_rate} --random_seed {setting.seed}"
        self._rewards = (Workspace(options), Workspace(options))
        self._cost = Workspace(options)
        self._rate = setting.budget / setting.horizon
        self._step = step / (math.sqrt(setting.horizon) * setting.mean_cost)
        self._price = 0.0

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""
        task = line(x)
        model, human = (float(reward.predict(task)) for reward in self._rewards)
        return human - self._price * float(self._cost.predict(task)) > model

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn what really happened, and move the price."""
        task = line(x)
        self._rewards[int(asked)].learn(f"{reward:.6f} {task}")
        if asked:
            self._cost.learn(f"{cost:.6f} {task}")
        self._price = max(0.0, self._price + self._step * (cost - self._rate))


def line(x: Floats) -> str:
    """Return a context in VW's text form.

    >>> import numpy as np
    >>> line(np.array([0.5, 0.0, 0.25]))
    '|x 0:0.5 2:0.25'
    """
    return "|x " + " ".join(f"{i}:{value:.6g}" for i, value in enumerate(x.tolist()) if value)


PRICES = {
    "model": 0.0,
    "human": 1.0,
}  # as its router has them: a fixed list, from the cheapest at 0 to the most expensive at 1

# Tuned on seed 101, T = 10,000, B = 400 and 2,500, two regimes, mean gain. Rate 0.05 (the package's) 74 %, 0.005 79 %,
# 0.002 78 %, 0.0005 75 %; α 0.01 to 0.5 within 1 %; forgetting 0.997 (the router's) no different.
ALPHA = 0.05
RATE = 0.005
MIN_TARGET = 1e-12  # the package takes no target of 0; without a budget the hard stop asks nobody anyway


class Pareto:
    """LinUCB for each decider, less λ × the decider's price; λ follows the smoothed cost of a request to B/T.

    The package's policy and pacer as its router calls them, but for the router's cutting of rewards to [0, 1]. The
    pacer is soft: its default also has a ceiling, which shuts out the more expensive of two deciders if λ > 0, and
    gained 46 % instead of 74 %.
    """

    def __init__(self, setting: Setting, *, alpha: float = ALPHA, rate: float = RATE) -> None:
        from pareto_bandit.budget_pacer import BudgetPacer, PacingMode  # noqa: PLC0415 - an optional package
        from pareto_bandit.policy import DisjointLinUCBPolicy  # noqa: PLC0415 - an optional package

        self._policy = DisjointLinUCBPolicy(list(PRICES), dim=setting.n_features, alpha=alpha, seed=setting.seed)
        target = max(setting.budget / setting.horizon, MIN_TARGET)
        self._pacer = BudgetPacer(target, mode=PacingMode.SOFT, lr=rate)

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""
        penalties = self._pacer.get_extra_cost_penalties(PRICES)
        chosen, _ = self._policy.select_arm(x, cost_penalties=penalties)
        return bool(chosen == "human")

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn what really happened."""
        decider = "human" if asked else "model"
        self._policy.mark_selected(decider)
        self._policy.update(decider, x, reward, advance_time=False)
        self._pacer.observe(cost)
