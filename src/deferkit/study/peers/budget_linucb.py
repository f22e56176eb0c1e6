"""LinUCB with an adaptive share of asks, by budget-constrained-CB 0.0.0."""

from typing import Any

from deferkit.study.peers.global_stream import GlobalStream
from deferkit.study.peers.peer import Setting
from deferkit.worlds.task_stream import Floats

# Tuned on seed 101, T = 10,000, B = 400 and 2,500, two regimes, mean gain: α 0.05 47.4 %, 0.1 47.1 %, 0.3 46.0 %,
# 1 45.1 %.
ALPHA = 0.05


class BudgetLinUcb:
    """LinUCB for each decider; where the human looks best, he is asked with probability asks left / tasks left.

    The package's class. Its count of asks left is set to the money left over the mean cost before each decision.
    """

    def __init__(self, setting: Setting, *, alpha: float = ALPHA) -> None:
        from budgetcb.constrained_cb import LinUCB  # noqa: PLC0415 - an optional package

        self._setting = setting
        # Any: the package annotates its float fields as int.
        self._policy: Any = LinUCB(ndims=setting.n_features, alpha=alpha, narms=2, T=setting.horizon, B=0, dummy_arm=0)
        self._random = GlobalStream(seed=setting.seed)
        self._left = setting.budget
        self._t = 0

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human."""
        policy = self._policy
        policy.b_tau = self._left / self._setting.mean_cost
        columns = policy.ba
        # play() writes a [1, 1] array into an element, which numpy 2.4 refuses; flat vectors make it a number.
        policy.ba = {arm: column[:, 0] for arm, column in columns.items()}
        with self._random.lent():
            asks = bool(policy.play(min(self._t, self._setting.horizon - 1), x) == 1)
        policy.ba = columns
        return asks

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Learn what really happened."""
        self._t += 1
        self._left -= cost
        self._policy.update(int(asked), reward, x.reshape(-1, 1), self._t)
