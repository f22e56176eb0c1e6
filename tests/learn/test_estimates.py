"""Estimates against direct solves, scikit-learn and statsmodels."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge

from deferkit import Budget, Decision, Deferrer, Exploration
from deferkit.learn.core import CONSTANTS
from deferkit.learn.core.layout import STASH
from tests.conftest import Floats, draw_tasks, november_deferrer, rewards_of

ANY = (-math.inf, math.inf)


def theta(deferrer: Deferrer, target: int) -> Floats:
    return np.array(deferrer._ledger.view("theta")[target])


def precision(deferrer: Deferrer, design: int) -> Floats:
    """The precision of a design with the contexts that still wait in its stash."""
    ledger = deferrer._ledger
    waiting = ledger.view("stash")[design][: ledger.view("n_stashed")[design]]
    half = np.tril(ledger.view("precision")[design])
    return np.array(half + np.tril(half, -1).T + waiting.T @ waiting)


@pytest.mark.parametrize("d", [1, 3, 4, 7, 20, 33])
@pytest.mark.parametrize("ridge", [1e-6, 0.1, 5.0])
def test_identity_estimates_are_ridge_regression(d: int, ridge: float) -> None:
    tasks = draw_tasks(300, d, seed=d)
    deferrer = november_deferrer(n_features=d, ridge=ridge, warm_up=30, budget=Budget(30, horizon=300, max_cost=1))
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    asked = run.routes == 1
    x = tasks.contexts
    for target, rows, y in (
        (0, np.ones(300, dtype=bool), tasks.rewards[:, 0]),
        (1, asked, tasks.rewards[:, 1]),
        (2, asked, tasks.costs[:, 0, 0]),
    ):
        expected = Ridge(alpha=ridge, fit_intercept=False, solver="cholesky", tol=0).fit(x[rows], y[rows]).coef_
        np.testing.assert_allclose(theta(deferrer, target), expected, rtol=1e-8, atol=1e-8)
    direct = ridge * np.eye(d) + x[asked].T @ x[asked]
    np.testing.assert_allclose(precision(deferrer, 1), direct, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(deferrer._ledger.view("inverse")[1] @ direct, np.eye(d), atol=1e-8)


def test_two_samples_by_hand() -> None:
    """Ridge 1, x = 1 twice, y = 0.3 and 0.9: θ = 1.2 / (1 + 2) = 0.4; spread 1/3.

    The errors before each sample are 0.3 and 0.9 − 0.15, their variances 1 + 1 and 1 + 1/2, so that the
    misfit is 0.045 + 0.375 = 0.42 = Σy² − θ·Σxy = 0.9 − 0.48.
    """
    deferrer = november_deferrer(n_features=1, ridge=1.0, warm_up=0, exploration=Exploration(scale=1.0, prior=0.0))
    deferrer.warm_start([[1.0], [1.0]], {"model": [0.3, 0.9]})
    scores = deferrer.score([[1.0]])
    assert scores.estimates["model"][0] == pytest.approx(0.4, abs=1e-15)
    noise = math.sqrt(0.42 / 2)
    assert deferrer.summary().noise["model"] == pytest.approx(noise, rel=1e-14)
    assert scores.widths["model"][0] == pytest.approx(noise * math.sqrt(1 / 3), rel=1e-14)


@pytest.mark.parametrize("kind", ["collinear", "constant", "zero", "tiny", "one-hot"])
def test_the_inverse_stays_accurate_over_a_million_steps(kind: str) -> None:
    """Against a direct inverse of the exact sum, to 1e-14 × its condition number (a direct solve has 1e-16 ×)."""
    d, n = 6, 1_000_000
    rng = np.random.default_rng(5)
    x = rng.random((n, d))
    if kind == "collinear":
        x[:, 1] = x[:, 0]
        x[:, 2] = 2 * x[:, 0] - x[:, 3]
    elif kind == "constant":
        x[:] = x[0]
    elif kind == "zero":
        x[:, 2:] = 0
    elif kind == "tiny":
        x *= 1e-160
    else:
        x = np.eye(d)[rng.integers(d, size=n)]
    y = x @ np.arange(d) + 0.1 * rng.standard_normal(n)
    deferrer = november_deferrer(n_features=d, budget=Budget(0, horizon=n), reward_range=ANY, pacing="gradient")
    deferrer.run(x, {"model": y, "human": y}, np.zeros(n), feedback="bandit")
    wide = x.astype(np.longdouble)  # in double, the sum itself would be off by more than what is tested
    exact = (0.01 * np.eye(d) + wide.T @ wide).astype(float)
    direct = np.linalg.inv(exact)
    inverse = deferrer._ledger.view("inverse")[0]
    assert np.abs(inverse - direct).max() / np.abs(direct).max() < 1e-14 * np.linalg.cond(exact) + 1e-12
    assert np.array_equal(inverse, inverse.T)
    assert np.linalg.eigvalsh(inverse).min() > 0
    np.testing.assert_allclose(x[:50] @ theta(deferrer, 0), x[:50] @ (direct @ (x.T @ y)), rtol=1e-6, atol=1e-9)


def test_a_drifted_inverse_is_refactored() -> None:
    n = STASH * CONSTANTS["check_every"]
    tasks = draw_tasks(n, 5)
    deferrer = november_deferrer(n_features=5, budget=Budget(0, horizon=n))
    half = n // 2
    deferrer.run(
        tasks.contexts[:half], {k: v[:half] for k, v in rewards_of(deferrer, tasks).items()}, tasks.costs[:half]
    )
    deferrer._ledger.view("inverse")[0] *= 1 + 1e4 * CONSTANTS["largest_inverse_error"]
    rest = tasks._replace(contexts=tasks.contexts[half:], rewards=tasks.rewards[half:], costs=tasks.costs[half:])
    tasks = rest
    deferrer.run(tasks.contexts[:-1], {k: v[:-1] for k, v in rewards_of(deferrer, tasks).items()}, tasks.costs[:-1])
    error = np.abs(deferrer._ledger.view("inverse")[0] @ precision(deferrer, 0) - np.eye(5)).max()
    deferrer.observe(deferrer.decide(tasks.contexts[-1]).id, {"model": 0.5})
    mended = np.abs(deferrer._ledger.view("inverse")[0] @ precision(deferrer, 0) - np.eye(5)).max()
    assert error > 10 * CONSTANTS["largest_inverse_error"]
    assert mended < 1e-12


@pytest.mark.parametrize("ridge", [0.1, 3.0])
@pytest.mark.parametrize("n", [16, 64, 128, 1024])
def test_a_logistic_refit_is_scikit_learn(ridge: float, n: int) -> None:
    tasks = draw_tasks(n, 5, binary=True, seed=n)
    deferrer = november_deferrer(
        n_features=5, link="logistic", forget="never", ridge=ridge, budget=Budget(0, horizon=n)
    )
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    model = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(tasks.contexts, tasks.rewards[:, 0])
    np.testing.assert_allclose(theta(deferrer, 0), model.coef_[0], rtol=1e-7, atol=1e-8)
    p = 1 / (1 + np.exp(-tasks.contexts @ theta(deferrer, 0)))
    fisher = ridge * np.eye(5) + (tasks.contexts * (p * (1 - p))[:, None]).T @ tasks.contexts
    np.testing.assert_allclose(precision(deferrer, 0), fisher, rtol=1e-8)


def test_a_logistic_refit_with_hardly_any_ridge_is_statsmodels() -> None:
    n = 512
    tasks = draw_tasks(n, 4, binary=True, seed=1)
    deferrer = november_deferrer(n_features=4, link="logistic", forget="never", ridge=1e-9, budget=Budget(0, horizon=n))
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    fit = sm.GLM(tasks.rewards[:, 0], tasks.contexts, family=sm.families.Binomial()).fit(tol=1e-14)
    np.testing.assert_allclose(theta(deferrer, 0), fit.params, rtol=1e-6)


def test_refitting_always_is_exact_after_every_sample() -> None:
    n = 75
    tasks = draw_tasks(n, 3, binary=True)
    deferrer = november_deferrer(n_features=3, link="logistic", ridge=0.2, refit="always", budget=Budget(0, horizon=n))
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    model = LogisticRegression(C=5, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(tasks.contexts, tasks.rewards[:, 0])
    np.testing.assert_allclose(theta(deferrer, 0), model.coef_[0], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("separable", [True, False])
def test_newton_converges_where_the_likelihood_has_no_maximum(separable: bool) -> None:
    """Perfectly separated labels and a ridge of 1e-6: the estimate is large, finite, and a zero of the gradient."""
    n = 256
    tasks = draw_tasks(n, 4, seed=2)
    y = (tasks.contexts[:, 0] > tasks.contexts[:, 1]).astype(float) if separable else np.ones(n)
    deferrer = november_deferrer(n_features=4, link="logistic", forget="never", ridge=1e-6, budget=Budget(0, horizon=n))
    deferrer.run(tasks.contexts, {"model": y, "human": y}, tasks.costs)
    estimate = theta(deferrer, 0)
    gradient = tasks.contexts.T @ (y - expit(tasks.contexts @ estimate)) - 1e-6 * estimate
    assert np.isfinite(estimate).all()
    assert np.abs(gradient).max() < 1e-5


def test_online_newton_between_refits_stays_close_to_the_exact_estimate() -> None:
    """Half-way between two refits the estimate is within a tenth of its own standard error."""
    n = 1500
    tasks = draw_tasks(n, 5, binary=True, seed=9)
    deferrer = november_deferrer(n_features=5, link="logistic", forget="never", ridge=0.1, budget=Budget(0, horizon=n))
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    model = LogisticRegression(C=10, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(tasks.contexts, tasks.rewards[:, 0])
    off = theta(deferrer, 0) - model.coef_[0]
    assert math.sqrt(off @ precision(deferrer, 0) @ off) < 0.1


def test_a_weighted_precision_and_its_inverse_stay_inverse_to_each_other() -> None:
    """Between refits too, where every sample enters with a weight of its own."""
    n = 200
    tasks = draw_tasks(n, 5, binary=True)
    deferrer = november_deferrer(n_features=5, link="logistic", refit="never", budget=Budget(0, horizon=n))
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    np.testing.assert_allclose(deferrer._ledger.view("inverse")[0] @ precision(deferrer, 0), np.eye(5), atol=1e-9)


def test_samples_are_let_go_after_the_last_refit() -> None:
    n = 3000
    tasks = draw_tasks(n, 3, binary=True)
    deferrer = november_deferrer(n_features=3, link="logistic", forget="never", refit_limit=64, warm_up=n)
    deferrer.run(tasks.contexts[:100], {k: v[:100] for k, v in rewards_of(deferrer, tasks).items()}, tasks.costs[:100])
    kept = deferrer.summary().history_bytes
    deferrer.run(tasks.contexts[100:], {k: v[100:] for k, v in rewards_of(deferrer, tasks).items()}, tasks.costs[100:])
    deferrer.decide(tasks.contexts[0])
    deferrer.observe(n, {"model": 1.0})
    assert deferrer._ledger.samples.nbytes == 0
    assert deferrer.summary().history_bytes < kept


@given(st.integers(1, 9), st.integers(0, 2**31), st.floats(0.01, 10))
@settings(max_examples=40, deadline=None)
def test_any_order_of_partial_feedback_gives_the_same_estimates(d: int, seed: int, ridge: float) -> None:
    """Rewards and costs come apart and shuffled: the estimates are those of all samples, whatever the order."""
    rng = np.random.default_rng(seed)
    n = 40
    tasks = draw_tasks(n, d, seed=seed)
    deferrer = november_deferrer(n_features=d, ridge=ridge, budget=Budget(n, horizon=n, max_cost=1), warm_up=0)
    for x in tasks.contexts:
        deferrer.decide(x, force="human")
    news = [(t, part) for t in range(n) for part in ("model", "human", "cost")]
    for i in rng.permutation(len(news)):
        t, part = news[i]
        if part == "cost":
            deferrer.observe(t, cost=float(tasks.costs[t, 0, 0]))
        else:
            deferrer.observe(t, {part: float(tasks.rewards[t, 0 if part == "model" else 1])})
    direct = np.linalg.inv(ridge * np.eye(d) + tasks.contexts.T @ tasks.contexts) @ tasks.contexts.T
    for target, y in enumerate((tasks.rewards[:, 0], tasks.rewards[:, 1], tasks.costs[:, 0, 0])):
        np.testing.assert_allclose(theta(deferrer, target), direct @ y, rtol=1e-7, atol=1e-8)


def test_a_correction_gives_the_estimates_of_the_corrected_sample() -> None:
    tasks = draw_tasks(60, 4)
    right = november_deferrer(n_features=4, forget="never", budget=Budget(60, horizon=60, max_cost=1))
    wrong = november_deferrer(n_features=4, forget="never", budget=Budget(60, horizon=60, max_cost=1))
    for t, x in enumerate(tasks.contexts):
        for learner in (right, wrong):
            learner.decide(x, force="human")
        reward, cost = float(tasks.rewards[t, 1]), float(tasks.costs[t, 0, 0])
        right.observe(t, {"human": reward}, cost)
        wrong.observe(t, {"human": 1 - reward if t % 7 == 0 else reward}, cost / 2 if t % 5 == 0 else cost)
    for t in range(60):
        wrong.correct(t, {"human": float(tasks.rewards[t, 1])}, float(tasks.costs[t, 0, 0]))
    for target in (1, 2):
        np.testing.assert_allclose(theta(wrong, target), theta(right, target), rtol=1e-9, atol=1e-10)
    assert wrong.summary().noise == pytest.approx(right.summary().noise, rel=1e-6)
    np.testing.assert_allclose(wrong._ledger.view("reward_power"), right._ledger.view("reward_power"))
    assert wrong.summary().spent == pytest.approx(right.summary().spent)


def test_a_corrected_logistic_sample_counts_in_the_next_refit() -> None:
    tasks = draw_tasks(32, 3, binary=True)
    deferrer = november_deferrer(n_features=3, link="logistic", forget="never", ridge=0.1, budget=Budget(0, horizon=32))
    y = tasks.rewards[:, 0].copy()
    for t, x in enumerate(tasks.contexts):
        deferrer.decide(x)
        deferrer.observe(t, {"model": float(1 - y[t] if t == 5 else y[t])})
        if t == 20:
            deferrer.correct(5, {"model": float(y[5])})
    model = LogisticRegression(C=10, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(tasks.contexts, y)
    np.testing.assert_allclose(theta(deferrer, 0), model.coef_[0], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_one_absurdly_large_context_leaves_everything_finite(link: str) -> None:
    for seed in range(10):
        tasks = draw_tasks(1200, 3, binary=True, seed=seed)
        tasks.contexts[5] *= 10.0 ** (4 * seed + 4)
        deferrer = november_deferrer(n_features=3, link=link, budget=Budget(100, horizon=1200, max_cost=1), seed=seed)
        deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
        scores = deferrer.score(np.full((1, 3), 0.5))
        for numbers in (*scores.estimates.values(), *scores.widths.values()):
            assert np.isfinite(numbers).all()


@pytest.mark.parametrize("forget", ["auto", "never"])
def test_a_first_context_of_a_million_times_the_others_leaves_everything_finite(forget: str) -> None:
    """Its precision, discounted after 32 samples, has a ridge below rounding: a factorisation of it overflows."""
    d = 300
    deferrer = november_deferrer(
        n_features=d, budget=Budget(1000, horizon=10_000, max_cost=1), forget=forget, representation="linear"
    )
    for i in range(40):
        context = [1e6] * d if i < 2 else [(i % 7 + j % 11) / 20 for j in range(d)]
        decision = deferrer.decide(context, force="human")
        numbers = [*decision.estimates.values(), *decision.widths.values(), decision.expected_cost]
        assert np.isfinite(numbers).all(), i  # type: ignore[arg-type]
        if i != 1:
            deferrer.observe(decision.id, {"human": 1.0, "model": 0.0}, cost=0.5)
    assert decision.estimates["human"] == pytest.approx(1.0, abs=0.01)
    assert decision.estimates["model"] == pytest.approx(0.0, abs=0.01)


def test_longest_step_foresees_what_is_recomputed() -> None:
    """Members forget after every 32, 64 and 128 samples; inverses are checked after 1,024."""
    d = 100
    deferrer = november_deferrer(n_features=d, budget=Budget(1000, horizon=10_000, max_cost=1), representation="linear")
    due = []
    for i in range(130):
        decision = deferrer.decide([1.0, *[0.0] * (d - 1)], force="model")
        if deferrer.longest_step(decision.id):
            due.append((i + 1, deferrer.longest_step(decision.id) // d**3))
        deferrer.observe(decision.id, {"model": 1.0})
    assert due == [(32, 1), (64, 2), (96, 1), (128, 3)]
    large = deferrer.decide([1e5] * d, force="model")
    assert deferrer.longest_step(large.id) == 4 * 3 * d**3  # every member of each reward and cost


def test_longest_step_counts_the_samples_of_a_refit() -> None:
    deferrer = november_deferrer(n_features=2, link="logistic", forget="never", representation="linear")
    found = []
    for i in range(70):
        decision = deferrer.decide([1.0, i / 70], force="model")
        found.append(deferrer.longest_step(decision.id))
        deferrer.observe(decision.id, {"model": float(i % 3 > 0)})
    refits = [i for i, steps in enumerate(found) if steps > 0]
    assert refits == [15, 31, 63]
    assert [found[i] for i in refits] == [10 * 4 * i for i in refits]


@pytest.mark.parametrize("size", [1e4, 1e7, 1.7e9])
def test_a_column_as_large_as_a_time_stamp_is_survived(size: float) -> None:
    """A rank-one step has no digits left where a context dwarfs the ones before: there the inverse is made afresh."""
    rng = np.random.default_rng(0)
    learner = november_deferrer(n_features=3, budget=Budget(1_000, horizon=1_000, max_cost=1), warm_up=0)
    seen, rewards = [], []
    for t in range(300):
        u = rng.random()
        x = np.array([1.0, u, size * (1.0 + 0.001 * t / 300)])
        decision = learner.decide(x)
        learner.observe(decision.id, {"model": 0.2 + 0.3 * u, decision.route: 0.2 + 0.3 * u}, cost_of(decision))
        seen.append(x)
        rewards.append(0.2 + 0.3 * u)
    scale = np.array([1.0, 1.0, size])
    z = np.array(seen) / scale  # the same ridge regression, in units that a direct solver likes
    direct = np.linalg.solve(z.T @ z + 0.01 * np.diag(1 / scale**2), z.T @ np.array(rewards))
    probe = np.array([1.0, 0.5, size])
    assert learner.score([probe]).estimates["model"][0] == pytest.approx(direct @ (probe / scale), rel=1e-3)


def cost_of(decision: Decision) -> float | None:
    return None if decision.route == "model" else 0.5
