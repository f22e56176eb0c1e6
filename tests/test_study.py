"""The world, the optimum and the trial."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from deferkit import InvalidArgument
from deferkit.study.baselines import arbitrary_human, model_only
from deferkit.study.gains import GOALS, gains
from deferkit.study.optimum import by_price, by_ratio, optimum
from deferkit.study.trial import POLICIES, sure_cost, trial
from deferkit.worlds.stream import Population
from deferkit.worlds.synthetic import Synthetic, support


def test_the_support_is_the_papers() -> None:
    """Σ C(20, k) for k = 1 … 8 is 263,949; p ∝ 0.3^k for each vector."""
    contexts, p = support(20, 8, 0.3)
    assert contexts.shape == (263_949, 20)
    np.testing.assert_allclose(np.linalg.norm(contexts, axis=1), 1)
    assert p.sum() == pytest.approx(1)
    ones = (contexts > 0).sum(axis=1)
    assert p[ones == 2][0] / p[ones == 1][0] == pytest.approx(0.3)


@pytest.mark.parametrize("regime", ["complementary", "dominant", "random"])
@pytest.mark.parametrize("binary", [False, True])
def test_a_stream_has_the_moments_of_its_population(regime: str, binary: bool) -> None:
    world = Synthetic(regime=regime, horizon=40_000, n_features=8, most_ones=3, binary=binary)
    stream = world.draw(3)
    error = stream.rewards - stream.expected_rewards
    spread = 0.5 if binary else 0.1
    np.testing.assert_allclose(error.mean(axis=0), 0, atol=5 * spread / 200)
    if not binary:
        np.testing.assert_allclose(error.std(axis=0), 0.1, rtol=0.03)
        again = world.draw(3)
        assert (again.rewards == stream.rewards).all()
    assert (stream.costs >= 0).all()


def programme(population: Population, rates: list[float]) -> float:
    """The optimum by the linear programme over all contexts and experts."""
    p = population.probabilities
    m, experts = len(p), population.rewards.shape[1] - 1
    gain = (population.rewards[:, 1:] - population.rewards[:, :1]) * p[:, None]
    use = (population.costs * p[:, None, None]).reshape(m * experts, -1).T
    once = np.kron(np.eye(m), np.ones(experts))
    found = linprog(-gain.ravel(), A_ub=np.concatenate([use, once]), b_ub=[*rates, *np.ones(m)], bounds=(0, 1))
    return float(p @ population.rewards[:, 0] - found.fun)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000), st.floats(0.001, 0.7))
@settings(max_examples=40)
def test_the_optimum_is_the_linear_programmes(experts: int, resources: int, seed: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    m = 40
    p = rng.random(m)
    population = Population(p / p.sum(), rng.random((m, experts + 1)), rng.random((m, experts, resources)))
    rates = [rate * (1 + j) for j in range(resources)]
    best = optimum(population, rates)
    assert best.value == pytest.approx(programme(population, rates), abs=1e-8)
    np.testing.assert_allclose(best.choice.sum(axis=1), 1, atol=1e-9)
    used = np.einsum("m,mk,mkr->r", population.probabilities, best.choice[:, 1:], population.costs)
    assert (used <= np.array(rates) + 1e-9).all()
    if experts == resources == 1:
        assert by_price(population, np.array(rates)).value == pytest.approx(
            by_ratio(population, rates[0]).value, abs=1e-8
        )


def test_the_price_of_the_optimum_is_what_the_next_unit_brings() -> None:
    population = Synthetic(regime="dominant", horizon=10).draw(0).population
    best, more = (optimum(population, [rate]) for rate in (0.1, 0.1001))
    assert best.price[0] == pytest.approx((more.value - best.value) / 0.0001, rel=1e-2)


def test_a_budget_that_does_not_bind_has_no_price() -> None:
    population = Synthetic(horizon=10, n_features=8, most_ones=3).draw(0).population
    assert optimum(population, [100.0]).price[0] == 0


def test_baselines_spend_as_they_say() -> None:
    stream = Synthetic(horizon=2_000).draw(0)
    assert model_only(stream).sum() == 0
    routes = arbitrary_human(stream, 100.0, sure_cost(stream))
    spent = (routes * stream.costs[:, 0, 0]).sum()
    assert 97 <= spent <= 100
    assert (np.diff(routes) <= 0).all()


def test_a_trial_is_the_same_again_and_opt_is_its_own_measure() -> None:
    world = Synthetic(horizon=3_000)
    first, second = (trial(world, 150, POLICIES, seed=4) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        assert one.reward == two.reward
    opt = first[POLICIES.index("opt")]
    assert (opt.gain, opt.pct_opt, opt.regret) == (100, 100, 0)
    assert first[0].gain == 0


def test_default_against_paper_and_rivals_in_the_small() -> None:
    """Gain at B/T = 4 %, T = 20,000, mean over 8 seeds: the default more than 1.8 × the printed algorithm."""
    world = Synthetic(regime="dominant", horizon=20_000)
    rows = [trial(world, 800, ["paper", "default"], seed=seed) for seed in range(8)]
    paper, default = (np.mean([row[i].gain for row in rows]) for i in range(2))
    assert default > 94
    assert default > 1.8 * paper


def test_the_gain_table_on_a_few_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One setting of `deferkit gains`, 6 seeds; 1.5 below the goal allowed for so few (sd of a trial 1–2)."""
    key = ("complementary", 0.1, 50_000)
    monkeypatch.setattr("deferkit.study.gains.GOALS", {key: GOALS[key]})
    for row in gains("default", 6):
        assert row.gain > row.goal - 1.5
        assert row.spent_pct > 99.3 or row.budget > 16_000
        assert row.spent_pct <= 100


def test_experiment_1_regret_of_the_default() -> None:
    """At most 45 over 100 trials; here 25 trials with a standard deviation near 30, so 18 more are allowed."""
    regrets = [trial(Synthetic(regime="random"), 8_000, ["default"], seed=seed)[0].regret for seed in range(25)]
    assert np.mean(regrets) < 45 + 18


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"regime": "easy"},
            "'regime' of a Synthetic must be one of 'complementary', 'dominant', 'random'. Got 'easy'",
        ),
        ({"horizon": 0}, "'horizon' of a Synthetic"),
        ({"n_features": 30}, "at most 24"),
        ({"n_experts": 2}, "1 in the complementary regime"),
    ],
)
def test_bad_worlds(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Synthetic(**given)  # type: ignore[arg-type]
