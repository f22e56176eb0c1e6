"""A stream of tasks, and the population that it is drawn from, where that is known."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Population(NamedTuple):
    """Every context that can come, and what is to be expected of it."""

    probabilities: Floats  # [m]
    rewards: Floats  # [m, deciders] expected
    costs: Floats  # [m, experts, resources] expected


class Stream(NamedTuple):
    """Tasks in order, with what each decider would have earned and cost."""

    contexts: Floats  # [n, d]
    rewards: Floats  # [n, deciders] realised
    costs: Floats  # [n, experts, resources] realised
    kind: NDArray[np.int64]  # [n] which context of the population it is
    population: Population

    @property
    def expected_rewards(self) -> Floats:
        """What each decider is expected to earn on each task."""
        return np.asarray(self.population.rewards[self.kind])
