"""Tasks and pasts that tests of representations share."""

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.training_set import TrainingSet
from tests.conftest import Tasks

Floats = NDArray[np.float64]


SHAPE = Shape(4, 1, 1, "identity", (0.0, 1.0), 0)


def crossed(n: int, d: int, seed: int = 0) -> Tasks:
    """Return tasks whose rewards depend on a product of two features, which no linear learner can see."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    sign = x[:, 0] * x[:, 1] > 0
    means = np.column_stack([np.where(sign, 0.8, 0.2), np.where(sign, 0.2, 0.8)])
    rewards = np.clip(means + 0.1 * rng.standard_normal((n, 2)), 0, 1)
    return Tasks(x, rewards, rng.uniform(0.5, 1.0, (n, 1, 1)))


def past_of(shape: Shape, n: int, seed: int = 0) -> TrainingSet:
    """Return a past in which the model is always known and the human on every third task."""
    rng = np.random.default_rng(seed)
    past = TrainingSet(n_features=shape.n_features, n_deciders=2, n_resources=1)
    rewards = rng.random((n, 2))
    if shape.link == "logistic":
        rewards = np.round(rewards)
    rewards[np.arange(n) % 3 > 0, 1] = np.nan
    costs = np.where(np.isnan(rewards[:, 1:]), np.nan, 1.0 + rng.random((n, 1)))
    past.append(rng.uniform(-0.5, 0.5, (n, shape.n_features)))
    past.label(0, rewards, costs, np.where(np.isnan(costs[:, 0]), 0, 1))
    return past
