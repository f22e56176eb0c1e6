"""Algorithm 1 as printed, in plain numpy, written from the paper and knowing nothing of the package."""

import math

import numpy as np

from tests.conftest import Floats, Tasks


def algorithm_1(
    tasks: Tasks,
    warm_up_routes: list[int],
    *,
    budget: float,
    horizon: int,
    noise: float,
    delta: float,
    margin: float,
    ridge: float,
    full: bool,
) -> tuple[list[int], list[float]]:
    """Return the routes and γ·T/B at each step, with the random actions of the warm-up given."""
    d = tasks.contexts.shape[1]
    precisions = [ridge * np.eye(d), ridge * np.eye(d)]
    sums = [np.zeros(d), np.zeros(d)]  # Σ y·x of the two rewards
    cost_sum = np.zeros(d)
    gamma, alpha, epsilon = 0.5, 0.5, math.sqrt(2 / horizon)
    spent = 0.0
    routes, prices = [], []
    for t, x in enumerate(tasks.contexts, start=1):
        prices.append(horizon / budget * gamma)
        inverses = [np.linalg.inv(m) for m in precisions]
        beta = noise * math.sqrt(2 * d * math.log((1 + 2 * t * d) / delta))
        spread = [math.sqrt(x @ inverse @ x) for inverse in inverses]
        reward = [
            x @ (inverse @ s + beta * inverse @ x / w) for inverse, s, w in zip(inverses, sums, spread, strict=True)
        ]
        cost_model = x @ (-beta * inverses[0] @ x / spread[0])
        cost_human = x @ (inverses[1] @ cost_sum - beta * inverses[1] @ x / spread[1])
        if spent > budget - margin:
            route = 0
        elif t <= len(warm_up_routes):
            route = warm_up_routes[t - 1]
        else:
            price = horizon / budget * gamma
            route = int(reward[1] - price * cost_human > reward[0] - price * cost_model)
        cost = float(tasks.costs[t - 1, 0, 0]) if route else 0.0
        spent += cost
        for arm in {route, 0} if full else {route}:
            precisions[arm] += np.outer(x, x)
            sums[arm] += tasks.rewards[t - 1, arm] * x
        if route:
            cost_sum += cost * x
        if t > len(warm_up_routes):
            g = gamma * (cost - budget / horizon)
            alpha *= (1 + epsilon) ** g if g >= 0 else (1 - epsilon) ** -g
            gamma = alpha / (1 + alpha)
        routes.append(route)
    return routes, prices


def simplex_weights(costs: Floats, rates: Floats, horizon: int) -> Floats:
    """The multiplicative weights of Agrawal & Devanur on the simplex with a dummy coordinate: θ after each step.

    Coordinate j pays g_j = c_j − B/T with weight (1 + ε)^g or (1 − ε)^−g; the dummy pays nothing and keeps weight 1.
    """
    epsilon = math.sqrt(2 / horizon)
    weights = np.ones(costs.shape[1] + 1)
    thetas = []
    for cost in costs:
        g = np.append((cost - rates) * rates[0] / rates, 0.0)
        weights = weights * np.where(g >= 0, (1 + epsilon) ** g, (1 - epsilon) ** -g)
        thetas.append(weights[:-1] / weights.sum())
    return np.array(thetas)
