"""What is known of a knapsack before anybody solves it, as columns of numbers."""

import numpy as np

from deferkit.worlds.knapsack_instances import Instances
from deferkit.worlds.knapsack_people import Floats


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
