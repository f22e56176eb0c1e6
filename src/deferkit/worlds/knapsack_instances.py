"""Knapsacks and the people who solve them: instances and features."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds import _knapsacks

Ints = NDArray[np.int64]

MAX_CHOSEN = 4  # items that RatioMax4 takes


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
        return _knapsacks.optimum(as_int64(self.weights), as_int64(self.values), as_int64(np.maximum(room, 0)))

    def ratio_max(self, most: int = MAX_CHOSEN) -> Ints:
        """Return the choice of RatioMax4: at most four items, by value/weight, of those that still fit (Algorithm 3).

        As printed it never takes the chosen item out of its list and may start with one that does not fit; both are
        mended here. Of equal ratios the first comes first.

        >>> Instances(np.array([[5, 4, 3]]), np.array([[50, 39, 30]]), np.array([8])).ratio_max()
        array([80])
        """
        return _knapsacks.greedy(as_int64(self.weights), as_int64(self.values), as_int64(self.capacities), most)

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


def as_int64(numbers: Ints) -> Ints:
    """Return whole numbers as the extension module takes them."""
    return np.ascontiguousarray(numbers, dtype=np.int64)


Floats = NDArray[np.float64]

LIMIT_S = 180.0  # the time that people had for a knapsack


class People(NamedTuple):
    """Answers in the order in which each person gave them, person after person."""

    person: Ints  # [n] 0, 1, … without gaps
    instances: Instances  # [n]
    performance: Floats  # [n] V / V_max of the person
    seconds: Floats  # [n]
    simulated: bool

    @property
    def model(self) -> Floats:
        """V / V_max of RatioMax4."""
        return self.instances.ratio_max() / self.instances.optimum()

    @property
    def costs(self) -> Floats:
        """The time of each answer, in units of the mean."""
        return np.asarray(self.seconds / self.seconds.mean())

    def shuffle_people(self, rng: np.random.Generator) -> Ints:
        """Return the rows with the people in another order, and the answers of each in the same.

        >>> knapsacks = Instances(np.ones((4, 1), int), np.ones((4, 1), int), np.ones(4, int))
        >>> people = People(np.array([0, 0, 1, 1]), knapsacks, np.ones(4), np.ones(4), True)
        >>> people.shuffle_people(np.random.default_rng(3))
        array([2, 3, 0, 1])
        """
        place = rng.permutation(int(self.person.max()) + 1)
        return np.argsort(place[self.person], kind="stable")


def reward(performance: Floats) -> Floats:
    """Return 0.1 / (1.1 − V/V_max): the last per cent count for most.

    >>> reward(np.array([0.0, 0.9, 1.0])).round(3)
    array([0.091, 0.5  , 1.   ])
    """
    return 0.1 / (1.1 - performance)


def features(instances: Instances) -> Floats:
    """Return weights and values over the capacity, the capacity, and summary statistics.

    Items stand from the best value/weight to the worst, as the paper does not give their order: a column then means
    something ("the weight of the best item", which RatioMax4 takes first), while items in no order are
    interchangeable and their 36 columns tell a linear learner no more than their means do.

    >>> knapsacks = Instances(np.array([[4, 2]]), np.array([[2, 4]]), np.array([4]))
    >>> features(knapsacks)[0, :6]
    array([0.5, 1. , 1. , 0.5, 4. , 0.5])
    """
    knapsacks = instances.by_ratio()
    capacity = knapsacks.capacities[:, None].astype(np.float64)
    weights, values = knapsacks.weights / capacity, knapsacks.values / capacity
    ratios = knapsacks.values / knapsacks.weights
    columns = [weights, values, capacity]
    columns += [
        statistic(numbers, axis=1)[:, None]
        for numbers in (weights, values, ratios)
        for statistic in (np.min, np.mean, np.max, np.std)
    ]
    return np.hstack([*columns, _correlation(weights, values)[:, None]])


def _correlation(one: Floats, other: Floats) -> Floats:
    """Return the correlation in each row; 0 where one of the two does not vary."""
    one, other = (numbers - numbers.mean(axis=1, keepdims=True) for numbers in (one, other))
    spread = np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1))
    products = (one * other).sum(axis=1)
    return np.where(spread > 1e-12, products / np.maximum(spread, 1e-12), 0.0)
