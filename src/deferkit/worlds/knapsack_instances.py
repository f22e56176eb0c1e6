"""Knapsack problems in whole numbers: the best value there is, and the value that RatioMax4 finds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds import _knapsacks

Ints = NDArray[np.int64]

MOST_CHOSEN = 4  # items that RatioMax4 takes


class Instances(NamedTuple):
    """Knapsacks with equally many items each."""

    weights: Ints  # [n, items] at least 1
    values: Ints  # [n, items] at least 1
    capacities: Ints  # [n]

    @property
    def n(self) -> int:
        """The number of knapsacks."""
        return len(self.capacities)

    def optimum(self) -> Ints:
        """Return the largest value that fits into each knapsack.

        >>> Instances(np.array([[5, 4, 3]]), np.array([[50, 39, 30]]), np.array([7])).optimum()
        array([69])
        """
        # More room than all items need is not used, so the table need not have it either.
        room = np.minimum(self.capacities, self.weights.sum(axis=1))
        return _knapsacks.optimum(whole(self.weights), whole(self.values), whole(np.maximum(room, 0)))

    def ratio_max(self, most: int = MOST_CHOSEN) -> Ints:
        """Return what RatioMax4 finds: at most four items, by value/weight, of those that still fit (Algorithm 3).

        As printed it never takes the chosen item out of its list and may start with one that does not fit; both are
        mended here. Of equal ratios the first comes first.

        >>> Instances(np.array([[5, 4, 3]]), np.array([[50, 39, 30]]), np.array([8])).ratio_max()
        array([80])
        """
        return _knapsacks.greedy(whole(self.weights), whole(self.values), whole(self.capacities), most)

    def by_ratio(self) -> "Instances":
        """Return the same knapsacks with items from the best value/weight to the worst.

        >>> Instances(np.array([[5, 1]]), np.array([[5, 2]]), np.array([6])).by_ratio().weights
        array([[1, 5]])
        """
        order = np.argsort(-self.values / self.weights, axis=1, kind="stable")
        return Instances(
            np.take_along_axis(self.weights, order, axis=1),
            np.take_along_axis(self.values, order, axis=1),
            self.capacities,
        )

    def rows(self, which: Ints) -> "Instances":
        """Return some of the knapsacks.

        >>> Instances(np.ones((2, 3), int), np.ones((2, 3), int), np.array([4, 5])).rows(np.array([1])).capacities
        array([5])
        """
        return Instances(self.weights[which], self.values[which], self.capacities[which])


def whole(numbers: Ints) -> Ints:
    """Return whole numbers as the extension module takes them."""
    return np.ascontiguousarray(numbers, dtype=np.int64)
