"""OPT against the linear programme over all contexts and experts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from deferkit.study import optimum
from deferkit.study.optimum import Benchmark, Frontier, Optimum, by_programme, compute_use
from deferkit.worlds.base import Population, TaskStream
from deferkit.worlds.drift import KINDS, Drift
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
    assert (compute_use(population, best.choice) <= np.array(rates) + 1e-9).all()
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
        if compute_use(population, choice)[0] <= 0.2:
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
        assert compute_use(population, best.choice)[0] <= rate * (1 + 1e-12)
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
    table = TaskStream(stream.contexts, stream.rewards, stream.costs)  # nobody knows the truth of a table
    np.testing.assert_array_equal(Benchmark(table).at([100.0])[0], seen)


def ratio_rule(gain: NDArray[np.float64], cost: NDArray[np.float64], budget: float) -> NDArray[np.float64]:
    """Ask by gain for a unit of cost, best first, the last task in part; one task after another."""
    asked = np.zeros(len(gain))
    for task in sorted(range(len(gain)), key=lambda task: -gain[task] / cost[task]):
        if gain[task] > 0 and budget > 0:
            asked[task] = min(1.0, budget / cost[task])
            budget -= asked[task] * cost[task]
    return asked


@pytest.mark.parametrize("family", ["lin", "cat"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [0.0, 7.3, 30.0, 1e6])
def test_dynamic_and_static_optimum_of_a_drifting_stream(family: str, kind: str, budget: float) -> None:
    """Each is the linear programme over tasks: for what is expected of them, and for the mean over all phases."""
    stream = Drift(family=family, kind=kind, horizon=160).draw(3)
    truth = stream.truth
    assert truth is not None
    assert truth.averaged is not None
    cost, worth = truth.costs[:, 0, 0], {}
    for knows, rewards in ((True, truth.rewards), (False, truth.averaged)):
        choice, price = Benchmark(stream, knows_phase=knows).at([budget])
        gain = rewards[:, 1] - rewards[:, 0]
        found = linprog(-gain, A_ub=cost[None], b_ub=[budget], bounds=(0, 1))
        assert choice[:, 1] @ gain == pytest.approx(-found.fun, abs=1e-9)
        assert choice[:, 1] @ cost <= budget + 1e-9
        if budget > 0:
            np.testing.assert_allclose(choice[:, 1], ratio_rule(gain, cost, budget), atol=1e-9)
            assert price[0] == pytest.approx(-found.ineqlin.marginals[0], abs=1e-9)
        worth[knows] = float((choice * truth.rewards).sum())
    assert worth[True] >= worth[False] - 1e-9
    if kind == "none":
        assert worth[True] == pytest.approx(worth[False])


def test_static_optimum_is_the_best_rule_without_a_phase() -> None:
    """Twelve contexts, each seen at every phase of the stream: no other set of asks earns more on average over time."""
    stream = Drift(kind="gradual", horizon=12, n_features=3).draw(5)
    truth = stream.truth
    assert truth is not None
    u = stream.contexts[:, 1:]
    rng = np.random.default_rng([5, 1])
    rng.uniform(-1, 1, u.shape)
    first, second = (rng.standard_normal((2, 2)) * 0.5 / np.sqrt(2) * 1.732 for _ in range(2))
    angles = np.pi * np.arange(12) / 12
    apart = [u @ (np.cos(a) * (first[1] - first[0]) + np.sin(a) * (second[1] - second[0])) for a in angles]
    gain, cost = np.mean(apart, axis=0), truth.costs[:, 0, 0]
    choice, _ = Benchmark(stream, knows_phase=False).at([4.0])
    best = max(
        sum(gain[task] for task in asked)
        for size in range(13)
        for asked in itertools.combinations(range(12), size)
        if sum(cost[task] for task in asked) <= 4.0
    )
    last = max(gain[task] for task in range(12) if 0 < choice[task, 1] < 1)
    assert best <= choice[:, 1] @ gain <= best + last + 1e-12


def test_a_whole_stream_has_the_value_that_goals_were_measured_with() -> None:
    """T = 20,000, seed 0; the optima of the independent program that the goals were measured with."""
    for kind, by_budget in {
        "none": {2_000: 12078.682034190195, 5_000: 13914.709964530875},
        "seasonal": {2_000: 12879.197137947049, 5_000: 15195.818857375813},
    }.items():
        stream = Drift(kind=kind).draw(0)
        for budget, value in by_budget.items():
            choice, _ = Benchmark(stream).at([budget])
            assert float((choice * stream.known()[0]).sum()) == pytest.approx(value, rel=1e-10)


def test_worlds_that_do_not_drift_have_one_optimum() -> None:
    stream = Synthetic(horizon=500).draw(0)
    one, other = (Benchmark(stream, knows_phase=knows).at([20.0])[0] for knows in (True, False))
    np.testing.assert_array_equal(one, other)
