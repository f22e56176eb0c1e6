"""OPT, the best static policy that keeps the budget in expectation (Definition 3.1), and its prices λ*.

One expert and one resource: tasks by reward gained for a unit of cost, best first, until the budget is used (exact).
Several: the prices that minimise the dual λ·B/T + E[max(0, max_k gain_k − λ·cost_k)], by cutting planes; each plane is
a policy, and their best mixture is the optimum of the linear programme over all contexts and experts.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from deferkit.worlds.stream import Floats, Population, Stream

PLANES = 200
TOLERANCE = 1e-9


class Optimum(NamedTuple):
    """The best static policy."""

    choice: Floats  # [m, deciders] probability of each decider in each context
    price: Floats  # [R] what the last unit of each budget brings
    value: float  # expected reward of a task

    def reward_on(self, stream: Stream) -> float:
        """Return what the policy is expected to earn on just these tasks."""
        chosen = self.choice[stream.kind]
        return float((chosen * stream.expected_rewards).sum())


def optimum(population: Population, rates: Sequence[float]) -> Optimum:
    """Return the optimum for a budget of `rates` for each task, one rate for each resource.

    >>> population = Population(np.array([0.5, 0.5]), np.array([[0.0, 1.0], [0.0, 0.4]]), np.ones((2, 1, 1)))
    >>> best = optimum(population, [0.75])
    >>> best.choice[:, 1], best.price, best.value
    (array([1. , 0.5]), array([0.4]), 0.6)
    """
    if population.costs.shape[1:] == (1, 1):
        return by_ratio(population, rates[0])
    return by_price(population, np.asarray(rates, dtype=float))


def by_ratio(population: Population, rate: float) -> Optimum:
    """Return the optimum for one expert and one resource, exactly."""
    p, cost = population.probabilities, population.costs[:, 0, 0]
    gain = population.rewards[:, 1] - population.rewards[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(gain > 0, gain / cost, -np.inf)
    order = np.argsort(-ratio, kind="stable")
    order = order[: int((gain > 0).sum())]
    used = np.cumsum(p[order] * cost[order])
    defer = np.zeros(len(gain))
    full = int(np.searchsorted(used, rate, side="right"))
    defer[order[:full]] = 1.0
    price = 0.0
    if full < len(order):
        before = used[full - 1] if full else 0.0
        defer[order[full]] = (rate - before) / (used[full] - before)
        price = float(ratio[order[full]])
    value = float((p * (population.rewards[:, 0] + defer * gain)).sum())
    return Optimum(np.stack([1.0 - defer, defer], axis=1), np.array([price]), value)


def by_price(population: Population, rates: Floats) -> Optimum:
    """Return the optimum for several experts and resources."""
    p = population.probabilities
    gains = population.rewards[:, 1:] - population.rewards[:, :1]
    finite = np.isfinite(rates)
    policies: list[NDArray[np.int64]] = []
    earned: list[float] = []
    used: list[Floats] = []
    price = np.zeros(len(rates))
    best = math.inf
    mixture: Floats = np.ones(1)
    for _ in range(PLANES):
        values = gains - population.costs @ price
        policy = np.where(values.max(axis=1) > 0, values.argmax(axis=1) + 1, 0)
        asked = policy > 0
        who = np.maximum(policy - 1, 0)
        every = np.arange(len(p))
        gain = float((p * np.where(asked, gains[every, who], 0.0)).sum())
        use = (np.where(asked, p, 0.0)[:, None] * population.costs[every, who]).sum(axis=0)
        dual = gain + float(price[finite] @ (rates[finite] - use[finite]))
        best = min(best, dual)
        policies.append(policy)
        earned.append(gain)
        used.append(use)
        # the best mixture of the policies so far keeps the budget; its prices propose the next policy
        found = linprog(
            -np.array([*earned, 0.0]),
            A_ub=np.array([*used, np.zeros(len(rates))]).T[finite],
            b_ub=rates[finite],
            A_eq=np.ones((1, len(earned) + 1)),
            b_eq=[1.0],
        )
        mixture = found.x
        if best + found.fun < TOLERANCE * max(1.0, abs(best)):
            break
        price = np.zeros(len(rates))
        price[finite] = np.maximum(-found.ineqlin.marginals, 0.0)
    choice = np.zeros((len(p), population.rewards.shape[1]))
    choice[:, 0] += mixture[-1]
    for weight, policy in zip(mixture, policies, strict=False):
        choice[np.arange(len(p)), policy] += weight
    value = float((p[:, None] * choice * population.rewards).sum())
    return Optimum(choice, price, value)
