"""OPT: the optimum in hindsight, also by period."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from deferkit.types import Budget
from deferkit.worlds.base import Floats, Population, TaskStream

CLOSE = 4_000  # contexts in the first linear programme; twice as many in each one that follows
TOLERANCE = 1e-9


class Optimum(NamedTuple):
    """The best policy for a population."""

    choice: Floats  # [m, deciders] probability of each decider in each context
    price: Floats  # [R] what the last unit of each budget brings
    value: float  # expected reward of a task


class Steps(NamedTuple):
    """The steps of all contexts' paths, best first."""

    path: NDArray[np.int64]  # [m, experts] the deciders on the path of a context, then 0
    context: NDArray[np.int64]  # [s]
    slope: Floats  # [s] reward gained for a unit of cost, descending
    used: Floats  # [s] expected cost of a task, if this step and all before it are taken


class Frontier:
    """The optima of a population for all budgets; sorted once, asked many times.

    >>> population = Population(np.array([0.5, 0.5]), np.array([[0.0, 1.0], [0.0, 0.4]]), np.ones((2, 1, 1)))
    >>> best = Frontier(population).at([0.75])
    >>> best.choice[:, 1], best.price, best.value
    (array([1. , 0.5]), array([0.4]), 0.6)
    """

    def __init__(self, population: Population) -> None:
        self.population = population
        self._steps = steps(population) if population.costs.shape[2] == 1 else None

    def at(self, rates: Sequence[float]) -> Optimum:
        """Return the optimum for a budget of `rates` for each task, one rate for each resource."""
        if self._steps is None:
            return by_programme(self.population, np.asarray(rates, dtype=float))
        return by_steps(self.population, self._steps, rates[0])


def steps(population: Population) -> Steps:
    """Return the steps of one resource."""
    m, experts = population.costs.shape[:2]
    gains = population.rewards[:, 1:] - population.rewards[:, :1]
    costs = population.costs[:, :, 0]
    every = np.arange(m)
    gain, cost = np.zeros(m), np.zeros(m)
    path = np.zeros((m, experts), dtype=np.int64)
    found: list[tuple[NDArray[np.int64], Floats, Floats]] = []
    for level in range(experts):
        more, extra = gains - gain[:, None], costs - cost[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.where((more > 0) & (extra >= 0), more / extra, -np.inf)
        # of several for nothing, the one that gains most
        free = np.where(np.isposinf(slopes), more, -np.inf)
        best = np.where(np.isposinf(slopes).any(axis=1), free.argmax(axis=1), slopes.argmax(axis=1))
        slope = slopes[every, best]
        on = np.flatnonzero(slope > 0)
        path[on, level] = best[on] + 1
        found.append((on, slope[on], population.probabilities[on] * extra[on, best[on]]))
        gain[on], cost[on] = gains[on, best[on]], costs[on, best[on]]
    context, slope, use = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(-slope, kind="stable")
    return Steps(path, context[order], slope[order], np.cumsum(use[order]))


def by_steps(population: Population, taken: Steps, rate: float) -> Optimum:
    """Return the optimum for one resource: as many steps as the budget allows, the last one in part."""
    p, rewards = population.probabilities, population.rewards
    full = int(np.searchsorted(taken.used, rate, side="right"))
    level = np.bincount(taken.context[:full], minlength=len(p))
    every = np.arange(len(p))
    choice = np.zeros(rewards.shape)
    choice[every, np.where(level > 0, taken.path[every, level - 1], 0)] = 1.0
    price = 0.0
    if full < len(taken.used):
        before = taken.used[full - 1] if full else 0.0
        part = (rate - before) / (taken.used[full] - before)
        at = taken.context[full]
        choice[at] *= 1.0 - part
        choice[at, taken.path[at, level[at]]] += part
        price = float(taken.slope[full])
    return Optimum(choice, np.array([price]), float(p @ (choice * rewards).sum(axis=1)))


def by_programme(population: Population, rates: Floats) -> Optimum:
    """Return the optimum for several resources: the linear programme, over the contexts that it is close for.

    At the prices so far, most contexts have a clear best decider. They keep it; the programme is solved for the others
    and what the rest leaves of the budget, which gives better prices. Done when no policy can be better at those.
    """
    p, rewards = population.probabilities, population.rewards
    finite = np.isfinite(rates)
    close = min(CLOSE, len(p))
    # equal shares of the probability, one context from each, give the first prices
    thin = np.searchsorted(np.cumsum(p), (np.arange(close) + 0.5) / close * p.sum())
    sample = Population(np.full(close, 1 / close), rewards[thin], population.costs[thin])
    price = programme(sample, rates, finite)[1]
    values = worths(population, price)
    bound = dual(p, values, price, rates)
    while True:
        choice: Floats = np.eye(values.shape[1])[values.argmax(axis=1)]
        top = np.partition(values, -2, axis=1)
        near = np.argpartition(top[:, -1] - top[:, -2], close - 1)[:close]
        choice[near] = 0.0
        left = rates - compute_use(population, choice)
        if (left >= 0).all():
            choice[near], other = programme(Population(*(part[near] for part in population)), left, finite)
            value = float(p @ (choice * rewards).sum(axis=1))
            other_values = worths(population, other)
            if dual(p, other_values, other, rates) < bound:
                price, values = other, other_values
                bound = dual(p, values, price, rates)
            if bound - value <= TOLERANCE * max(1.0, abs(value)) or close == len(p):
                return Optimum(choice, price, value)
        close = min(2 * close, len(p))


def worths(population: Population, price: Floats) -> Floats:
    """Return the value of each decider in each context: its reward less the price of its cost."""
    experts = population.rewards[:, 1:] - population.costs @ price
    return np.concatenate([population.rewards[:, :1], experts], axis=1)


def dual(p: Floats, values: Floats, price: Floats, rates: Floats) -> float:
    """Return the dual value: an upper bound on the reward of every policy that keeps the budget."""
    return float(p @ values.max(axis=1) + price @ np.where(np.isfinite(rates), rates, 0.0))


def compute_use(population: Population, choice: Floats) -> Floats:
    """Return the expected use of each resource per task by a policy."""
    return np.asarray(np.einsum("m,mk,mkr->r", population.probabilities, choice[:, 1:], population.costs))


def programme(population: Population, rates: Floats, finite: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return choice and prices of the linear programme over contexts and experts."""
    p, rewards = population.probabilities, population.rewards
    m, deciders = rewards.shape
    use = (population.costs[:, :, finite] * p[:, None, None]).reshape(m * (deciders - 1), -1)
    once = csr_array((np.ones(len(use)), (np.repeat(np.arange(m), deciders - 1), np.arange(len(use)))))
    found = linprog(
        -((rewards[:, 1:] - rewards[:, :1]) * p[:, None]).ravel(),
        A_ub=vstack([csr_array(use.T), once]),
        b_ub=np.concatenate([rates[finite], np.ones(m)]),
    )
    asked = np.clip(found.x.reshape(m, deciders - 1), 0.0, 1.0)
    price = np.zeros(len(rates))
    price[finite] = np.maximum(-found.ineqlin.marginals[: finite.sum()], 0.0)
    return np.column_stack([1.0 - asked.sum(axis=1), asked]), price


class Benchmark:
    """OPT for a stream, on just its tasks: on expectations where the truth is known, unless hindsight is asked for.

    Without `knows_phase` it is static OPT, which differs where rewards drift.
    """

    def __init__(self, stream: TaskStream, *, hindsight: bool = False, knows_phase: bool = True) -> None:
        self._truth = None if hindsight else stream.truth
        n = stream.n_tasks
        if self._truth is not None and self._truth.averaged is not None and not knows_phase:
            averaged = Population(np.full(n, 1 / n), self._truth.averaged, self._truth.costs)
            self._truth = self._truth._replace(population=averaged, kind=np.arange(n))
        realised = Population(np.full(n, 1 / n), stream.rewards, stream.costs)
        self._frontier = Frontier(realised if self._truth is None else self._truth.population)
        self._n = n

    def at(self, budgets: Sequence[float]) -> tuple[Floats, Floats]:
        """Return the probability of each decider for each task, and the prices, for total budgets."""
        best = self._frontier.at([budget / self._n for budget in budgets])
        if self._truth is None:
            return best.choice, best.price
        if self._truth.kind is None:
            tasks = Population(np.empty(0), self._truth.rewards, self._truth.costs)
            rule: Floats = np.eye(tasks.rewards.shape[1])[worths(tasks, best.price).argmax(axis=1)]
            return rule, best.price
        return best.choice[self._truth.kind], best.price


MIN_COST = 1e-9  # a task that costs less is free


def period_numbers(times: Floats, budget: Budget) -> NDArray[np.int64]:
    """Return the period of each task, counted from that of the first; all in one if the budget does not renew.

    >>> period_numbers(np.array([0.0, 3_599.0, 3_600.0, 9_000.0]), Budget(1, every="1h", start=0)).tolist()
    [0, 0, 1, 2]
    """
    if budget.every is None or len(times) == 0:
        return np.zeros(len(times), dtype=np.int64)
    schedule = budget.schedule
    ends = [schedule.containing(float(times[0]))[1]]
    while ends[-1] <= times[-1]:
        ends.append(schedule.following(ends[-1]))
    return np.searchsorted(np.array(ends), times, side="right").astype(np.int64)


def best_shares(gains: Floats, costs: Floats, periods: NDArray[np.int64], budget: Budget) -> Floats:
    """Return the share of each task that is best asked about; with any carry-over as if nothing lapsed.

    Args:
        gains: [n] What asking is expected to gain.
        costs: [n] What it is expected to cost.
        periods: [n] The period of each task, not decreasing.
        budget: Its total is that of one period.
    """
    weights = np.maximum(costs, MIN_COST)
    order = np.argsort(-gains / weights, kind="stable")
    order = order[gains[order] > 0]
    shares = np.zeros(len(gains))
    if budget.carry > 0 and budget.every is not None:
        room = float(budget.total) * np.arange(1, int(periods[-1]) + 2)  # up to the end of each period
        for task in order:
            first = periods[task]
            use = min(weights[task], room[first:].min())
            if use > 0:
                shares[task] = use / weights[task]
                room[first:] -= use
        return shares
    for period in np.unique(periods):
        chosen = order[periods[order] == period]
        before = np.concatenate([[0.0], np.cumsum(weights[chosen])[:-1]])
        shares[chosen] = np.clip((budget.total - before) / weights[chosen], 0.0, 1.0)
    return shares
