"""People who solved knapsacks: what each was given, how good the answer was, how long it took."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds.knapsack_instances import Instances, Ints

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

    def shuffled(self, rng: np.random.Generator) -> Ints:
        """Return the rows with the people in another order, and the answers of each in the same.

        >>> knapsacks = Instances(np.ones((4, 1), int), np.ones((4, 1), int), np.ones(4, int))
        >>> people = People(np.array([0, 0, 1, 1]), knapsacks, np.ones(4), np.ones(4), True)
        >>> people.shuffled(np.random.default_rng(3))
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
