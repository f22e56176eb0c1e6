"""OPT against the linear programme over all contexts and experts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from deferkit.study import optimum
from deferkit.study.optimum import Benchmark, Frontier, Optimum, by_programme, used
from deferkit.worlds.stream import Population, Stream
from deferkit.worlds.synthetic import Synthetic


def programme(population: Population, rates: list[float]) -> float:
    """The value of the optimum, by HiGHS."""
    p = population.probabilities
    m, experts = len(p), population.rewards.shape[1] - 1
    gain = (population.rewards[:, 1:] - population.rewards[:, :1]) * p[:, None]
    use = (population.costs * p[:, None, None]).reshape(m * experts, -1).T
    once = np.kron(np.eye(m), np.ones(experts))
    bound = [*np.minimum(rates, 1e9), *np.ones(m)]
    found = linprog(-gain.ravel(), A_ub=np.concatenate([use, once]), b_ub=bound, bounds=(0, 1))
    return float(p @ population.rewards[:, 0] - found.fun)


def random_population(m: int, experts: int, resources: int, seed: int) -> Population:
    """Contexts with ties: few different values, some experts for nothing, some of no use."""
    rng = np.random.default_rng(seed)
    p = rng.random(m)
    rewards, costs = rng.random((m, experts + 1)), rng.random((m, experts, resources))
    if seed % 2:
        rewards, costs = np.round(rewards, 1), np.round(costs, 1)
    return Population(p / p.sum(), rewards, costs)


def check(best: Optimum, population: Population, rates: list[float]) -> None:
    """The value is the programme's, the choice is a policy that keeps the budget, the price is a shadow price."""
    assert best.value == pytest.approx(programme(population, rates), abs=1e-9)
    np.testing.assert_allclose(best.choice.sum(axis=1), 1, atol=1e-9)
    assert (best.choice >= -1e-12).all()
    assert (used(population, best.choice) <= np.array(rates) + 1e-9).all()
    # at the prices, nobody can be worth more than what was chosen: strong duality
    worth = np.concatenate(
        [population.rewards[:, :1], population.rewards[:, 1:] - population.costs @ best.price], axis=1
    )
    dual = population.probabilities @ worth.max(axis=1) + best.price @ np.where(np.isfinite(rates), rates, 0)
    assert dual == pytest.approx(best.value, abs=1e-8)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000), st.floats(0.001, 0.9))
@settings(max_examples=60)
def test_the_optimum_is_the_linear_programmes(experts: int, resources: int, seed: int, rate: float) -> None:
    population = random_population(40, experts, resources, seed)
    rates = [rate * (1 + j) for j in range(resources)]
    check(Frontier(population).at(rates), population, rates)
    if resources == 1:
        check(by_programme(population, np.array(rates)), population, rates)


def test_budgets_of_nothing_and_without_end() -> None:
    for resources in (1, 2):
        population = random_population(30, 2, resources, 2)
        for rates in ([0.0] * resources, [np.inf] * resources, [0.1] + [np.inf] * (resources - 1)):
            check(Frontier(population).at(rates), population, rates)


def test_the_programme_over_close_contexts_is_that_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    population = random_population(3_000, 2, 2, 4)
    rates = [0.07, 0.05]
    whole = programme_value(population, rates)
    monkeypatch.setattr("deferkit.study.optimum.CLOSE", 100)
    assert Frontier(population).at(rates).value == pytest.approx(whole, abs=1e-9)


def programme_value(population: Population, rates: list[float]) -> float:
    choice, _ = optimum.programme(population, np.array(rates), np.ones(len(rates), dtype=bool))
    return float(population.probabilities @ (choice * population.rewards).sum(axis=1))


def test_every_policy_by_brute_force() -> None:
    """Three contexts, two experts: no deterministic policy that keeps the budget is better."""
    population = random_population(3, 2, 1, 8)
    best = Frontier(population).at([0.2])
    for routes in itertools.product(range(3), repeat=3):
        choice = np.eye(3)[list(routes)]
        if used(population, choice)[0] <= 0.2:
            assert population.probabilities @ (choice * population.rewards).sum(axis=1) <= best.value + 1e-12


def whole_population(regime: str, experts: int = 1) -> Population:
    truth = Synthetic(regime=regime, horizon=1, n_experts=experts).draw(1).truth
    assert truth is not None
    return truth.population


@pytest.mark.parametrize("regime", ["dominant", "random"])
def test_all_263_949_contexts_against_highs(regime: str) -> None:
    """The ratio rule equals the linear programme to 1e-9 at the paper's size."""
    population = whole_population(regime)
    gain = (population.rewards[:, 1] - population.rewards[:, 0]) * population.probabilities
    use = (population.costs[:, 0, 0] * population.probabilities)[None]
    found = linprog(-gain, A_ub=use, b_ub=[0.16], bounds=(0, 1))
    value = float(population.probabilities @ population.rewards[:, 0] - found.fun)
    best = Frontier(population).at([0.16])
    assert best.value == pytest.approx(value, abs=1e-9)
    assert best.price[0] == pytest.approx(-found.ineqlin.marginals[0], rel=1e-6)


@pytest.mark.parametrize(("regime", "experts"), [("complementary", 1), ("dominant", 1), ("random", 1), ("random", 3)])
def test_all_contexts_by_duality(regime: str, experts: int) -> None:
    """A policy that keeps the budget and earns what no policy can pass at some price is the optimum:"
    " no solver needed."""
    population = whole_population(regime, experts)
    frontier = Frontier(population)
    for rate in (0.0025, 0.01, 0.16, 0.64):
        best = frontier.at([rate])
        assert used(population, best.choice)[0] <= rate * (1 + 1e-12)
        asked = population.rewards[:, 1:] - population.costs @ best.price
        worth = np.maximum(population.rewards[:, 0], asked.max(axis=1))
        assert population.probabilities @ worth + best.price[0] * rate == pytest.approx(best.value, rel=1e-12)


def test_the_price_of_the_optimum_is_what_the_next_unit_brings() -> None:
    truth = Synthetic(regime="dominant", horizon=10).draw(0).truth
    assert truth is not None
    best, more = (Frontier(truth.population).at([rate]) for rate in (0.1, 0.1001))
    assert best.price[0] == pytest.approx((more.value - best.value) / 0.0001, rel=1e-2)
    assert Frontier(truth.population).at([100.0]).price[0] == 0


def test_hindsight_sees_the_outcomes() -> None:
    """On realised outcomes no policy that keeps the budget earns more: the linear programme's value and price."""
    stream = Synthetic(horizon=2_000, noise=0.5).draw(0)
    static, _ = Benchmark(stream).at([100.0])
    seen, price = Benchmark(stream, hindsight=True).at([100.0])
    assert (seen * stream.rewards).sum() > (static * stream.rewards).sum()
    assert (seen[:, 1] * stream.costs[:, 0, 0]).sum() == pytest.approx(100)
    gains = stream.rewards[:, 1] - stream.rewards[:, 0]
    found = linprog(-gains, A_ub=stream.costs[:, 0].T, b_ub=[100.0], bounds=(0, 1))
    assert (seen * stream.rewards).sum() == pytest.approx(stream.rewards[:, 0].sum() - found.fun)
    assert price[0] == pytest.approx(-found.ineqlin.marginals[0])
    table = Stream(stream.contexts, stream.rewards, stream.costs)  # nobody knows the truth of a table
    np.testing.assert_array_equal(Benchmark(table).at([100.0])[0], seen)
