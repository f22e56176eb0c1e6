"""Policies that need no learning, to compare with."""

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds.stream import Stream


def model_only(stream: Stream) -> NDArray[np.int64]:
    """Let the model decide every task."""
    return np.zeros(len(stream.contexts), dtype=np.int64)


def arbitrary_human(stream: Stream, budget: float, max_cost: float) -> NDArray[np.int64]:
    """Ask the first expert from the first task on, as long as another cost is sure to fit the budget."""
    spent_before = np.concatenate([[0.0], np.cumsum(stream.costs[:, 0, 0])[:-1]])
    return (spent_before <= budget - max_cost).astype(np.int64)
