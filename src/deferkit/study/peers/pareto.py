"""ParetoBandit's LinUCB policy under its BudgetPacer (paretobandit 0.1.1)."""

from deferkit.study.peers.peer import Setting
from deferkit.worlds.task_stream import Floats

PRICES = {
    "model": 0.0,
    "human": 1.0,
}  # as its router has them: a fixed list, from the cheapest at 0 to the dearest at 1

# Tuned on seed 101, T = 10,000, B = 400 and 2,500, two regimes, mean gain. Rate 0.05 (the package's) 74 %, 0.005 79 %,
# 0.002 78 %, 0.0005 75 %; α 0.01 to 0.5 within 1 %; forgetting 0.997 (the router's) no different.
ALPHA = 0.05
RATE = 0.005
LEAST_TARGET = 1e-12  # the package takes no target of 0; without a budget the hard stop asks nobody anyway


class Pareto:
    """LinUCB for each decider, less λ × the decider's price; λ follows the smoothed cost of a request to B/T.

    The package's policy and pacer as its router calls them, but for the router's cutting of rewards to [0, 1]. The
    pacer is soft: its default also has a ceiling, which shuts out the dearest of two deciders whenever λ > 0, and
    gained 46 % instead of 74 %.
    """

    def __init__(self, setting: Setting, *, alpha: float = ALPHA, rate: float = RATE) -> None:
        from pareto_bandit.budget_pacer import BudgetPacer, PacingMode  # noqa: PLC0415 - an optional package
        from pareto_bandit.policy import DisjointLinUCBPolicy  # noqa: PLC0415 - an optional package

        self._policy = DisjointLinUCBPolicy(list(PRICES), dim=setting.n_features, alpha=alpha, seed=setting.seed)
        target = max(setting.budget / setting.horizon, LEAST_TARGET)
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
