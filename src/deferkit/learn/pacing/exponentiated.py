"""The exponentiated gradient of Agrawal & Devanur, and the variant that the paper prints."""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from deferkit.learn.pacing.strategy import LEAST_BUDGET, Budgets, Floats, Strategy

LARGEST_STEP = 0.999  # ε = √(2/T) is above 1 for a horizon of 1


class Gradient(Strategy):
    """The dual holds log α of each resource beside the prices."""

    name = "gradient"
    description = "the exponentiated gradient of Agrawal & Devanur"
    first_weight: ClassVar[float] = 1.0

    def memory_size(self, n_resources: int) -> int:
        """Return the number of resources."""
        return n_resources

    def constants(self, parameters: Mapping[str, float], budgets: Budgets) -> list[float]:
        """Return log(1 + ε) and log(1 − ε) of each resource."""
        del parameters
        epsilon = np.sqrt(2.0 / budgets.horizon)
        return [*np.log1p(epsilon), *np.log1p(-np.minimum(epsilon, LARGEST_STEP))]

    def start(self, dual: Floats, budgets: Budgets, warm_up: int) -> None:
        """Start at γ = ½, or at equal shares if there are several resources."""
        del warm_up
        n, bounded = len(budgets.total), budgets.bounded
        share = 0.5 if n == 1 else 1.0 / (1.0 + n)
        dual[:n][bounded] = share * budgets.horizon[bounded] / budgets.total[bounded]
        dual[n:] = math.log(self.first_weight)

    def budget_changed(self, dual: Floats, before: Budgets, after: Budgets, next_id: int, warm_up: int) -> None:
        """Keep γ; a budget that was 0 starts at γ = ½, and one that becomes 0 has no price."""
        del next_id, warm_up
        price = dual[: len(after.total)]
        changed = (after.total != before.total) & np.isfinite(after.total)
        priced = after.total > LEAST_BUDGET
        gamma = np.where(before.total > LEAST_BUDGET, price * before.total / before.horizon, 0.5)
        fresh = np.where(priced, gamma * after.horizon / np.where(priced, after.total, 1.0), 0.0)
        price[changed] = fresh[changed]


class Paper(Gradient):
    """As printed: g = γ·(c − B/T), and α = ½ at the start, although γ = ½ implies α = 1."""

    name = "paper"
    description = "the exponentiated gradient exactly as Algorithm 1 prints it"
    first_weight = 0.5
