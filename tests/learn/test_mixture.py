"""The mixture: members that forget, against direct solves; their weights, against the formula."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from deferkit import Budget, Deferrer
from deferkit.learn.settings import members_of
from tests.conftest import Floats, draw_tasks, november_deferrer

ANY = (-math.inf, math.inf)
MEMBERS = members_of("auto", None)
KEEPS = [((1 - 1 / window) ** every, every) for window, every in ((1_500, 128), (300, 64), (60, 32))]


def by_member(deferrer: Deferrer, name: str) -> Any:
    """Return an array of the state as [member, target, …]."""
    array = deferrer._ledger.view(name)
    return array.reshape(deferrer._ledger.get("n_members"), -1, *array.shape[1:])


def precision(deferrer: Deferrer, member: int, target: int) -> Floats:
    """Return H of a member, the contexts that still wait in its stash included."""
    n = by_member(deferrer, "n_stashed")[member, target]
    waiting = by_member(deferrer, "stash")[member, target][:n]
    half = np.tril(by_member(deferrer, "precision")[member, target])
    return np.array(half + np.tril(half, -1).T + waiting.T @ waiting)


def kept(n: int, member: int) -> Floats:
    """Return how much a member knows of each of n samples: it forgets after every so many, the last one included."""
    if member == 0:
        return np.ones(n)
    keep, every = KEEPS[member - 1]
    times = [sum(1 for moment in range(every, n + 1, every) if moment >= i) for i in range(1, n + 1)]
    return np.asarray(keep ** np.array(times))


def solved(x: Floats, y: Floats, member: int, ridge: float = 0.01) -> Floats:
    """Return the ridge regression with those weights."""
    weighted = x * kept(len(y), member)[:, None]
    return np.asarray(np.linalg.solve(ridge * np.eye(x.shape[1]) + weighted.T @ x, weighted.T @ y))


def changing(n: int, d: int, seed: int) -> tuple[Floats, Floats]:
    """Return contexts and rewards that begin to depend on them otherwise after a third."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    theta = np.where((np.arange(n) < n // 3)[:, None], rng.random(d), -rng.random(d))
    return x, np.sum(x * theta, axis=1) + 0.3 * rng.standard_normal(n)


def learn(x: Floats, y: Floats, **given: Any) -> Deferrer:
    """Return a learner that has seen these rewards of the model."""
    deferrer = november_deferrer(n_features=x.shape[1], budget=Budget(0, horizon=len(x)), **given)
    deferrer.run(x, {"model": y, "human": y}, np.zeros(len(x)))
    return deferrer


def test_the_members_are_those_that_are_promised() -> None:
    assert [member.forget_every for member in MEMBERS] == [0, 128, 64, 32]
    assert [member.keep for member in MEMBERS] == [1.0, *(keep for keep, _ in KEEPS)]
    np.testing.assert_allclose([member.prior for member in MEMBERS], np.array([8, 4, 2, 1]) / 15)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 128, 500])
@pytest.mark.parametrize("d", [1, 5])
def test_a_member_is_least_squares_with_discounted_samples(n: int, d: int) -> None:
    x, y = changing(n, d, seed=n)
    deferrer = learn(x, y, reward_range=ANY)
    for member in range(4):
        np.testing.assert_allclose(by_member(deferrer, "theta")[member, 0], solved(x, y, member), rtol=1e-8, atol=1e-10)
        direct = 0.01 * np.eye(d) + (x * kept(n, member)[:, None]).T @ x
        np.testing.assert_allclose(precision(deferrer, member, 0), direct, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(by_member(deferrer, "inverse")[member, 0] @ direct, np.eye(d), atol=1e-9)


@pytest.mark.parametrize("bounded", [True, False])
def test_the_weights_by_their_formula(bounded: bool) -> None:
    """w ∝ w·exp(−error²/2v), then a share 1/(n + 1) as at the start; v is the mean squared error of the mixture."""
    n, d = 200, 3
    x, y = changing(n, d, seed=2)
    if bounded:  # what is expected is then cut to what a reward can be
        y = np.clip(y, 0, 1)
    deferrer = learn(x, y, reward_range=(0.0, 1.0) if bounded else ANY)
    start = np.array([8, 4, 2, 1]) / 15
    weights, errors = start, 0.0
    for t in range(n):
        each = np.array([x[t] @ solved(x[:t], y[:t], member) if t else 0.0 for member in range(4)])
        low, high = (0.0, 1.0) if bounded else ANY
        errors += (y[t] - np.clip(weights @ each, low, high)) ** 2
        if errors > 0:
            weights = weights * np.exp(-((y[t] - np.clip(each, low, high)) ** 2) / (2 * errors / (t + 1)))
            weights = weights / weights.sum() * (1 - 1 / (t + 2)) + start / (t + 2)
    assert weights.max() < 0.99
    assert abs(weights - start).max() > 0.1  # there was something to weigh
    np.testing.assert_allclose(deferrer._ledger.view("member_weight")[0], weights, rtol=1e-7)


def test_what_is_decided_with_are_the_averages_over_the_members() -> None:
    x, y = changing(150, 4, seed=5)
    deferrer = learn(x, y, reward_range=ANY)
    weights = deferrer._ledger.view("member_weight")[0]
    probe = np.array([0.3, -0.2, 0.9, 0.1])
    scores = deferrer.score([probe])
    assert scores.estimates["model"][0] == pytest.approx(weights @ (by_member(deferrer, "theta")[:, 0] @ probe))
    mixed = deferrer.coefficients()["model"].theta
    np.testing.assert_allclose(mixed, weights @ by_member(deferrer, "theta")[:, 0], rtol=1e-12)


def test_a_logistic_member_forgets_by_the_formula() -> None:
    """The 32nd sample is learned by one Newton step, then S ← keep·S and θ ← (S + ridge·I)⁻¹·S·θ."""
    tasks = draw_tasks(32, 3, binary=True, seed=4)
    y = tasks.rewards[:, 0]
    before = learn(tasks.contexts[:31], y[:31], link="logistic", ridge=0.5)
    after = learn(tasks.contexts, y, link="logistic", ridge=0.5)
    x, ridge = tasks.contexts[31], 0.5 * np.eye(3)
    for member, keep in ((1, 1.0), (2, 1.0), (3, KEEPS[2][0])):
        theta, info = by_member(before, "theta")[member, 0], precision(before, member, 0)
        mean = expit(x @ theta)
        weight = mean * (1 - mean)
        theta = theta + np.linalg.solve(info, x) * (y[31] - mean) / (1 + weight * x @ np.linalg.solve(info, x))
        squares = keep * (info + weight * np.outer(x, x) - ridge)
        if keep < 1:
            theta = np.linalg.solve(squares + ridge, squares @ theta)
        np.testing.assert_allclose(by_member(after, "theta")[member, 0], theta, rtol=1e-9)
        np.testing.assert_allclose(precision(after, member, 0), squares + ridge, rtol=1e-9)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("at", [0, 30, 31, 32, 127, 128, 199])
def test_a_correction_is_exact_however_much_of_the_sample_was_forgotten(at: int, apart: bool) -> None:
    """Against a direct solve with the right value; rewards and costs observed at once, or apart in another order."""
    n, d = 200, 3
    tasks = draw_tasks(n, d, seed=8)
    deferrer = november_deferrer(n_features=d, budget=Budget(n, horizon=n, max_cost=1))
    order = np.random.default_rng(1).permutation(n) if apart else np.arange(n)
    for x in tasks.contexts:
        deferrer.decide(x, force="human")
    for t in order.tolist():
        reward, cost = float(tasks.rewards[t, 1]), float(tasks.costs[t, 0, 0])
        if t == at:
            reward, cost = 1 - reward, cost / 3
        deferrer.observe(t, {"human": reward}, None if apart else cost)
    for t in order[::-1].tolist() if apart else []:
        deferrer.observe(t, cost=float(tasks.costs[t, 0, 0]) / (3 if t == at else 1))
    if not apart:
        restored = Deferrer.from_bytes(deferrer.to_bytes())
        restored.correct(at, {"human": float(tasks.rewards[at, 1])}, float(tasks.costs[at, 0, 0]))
    deferrer.correct(at, {"human": float(tasks.rewards[at, 1])}, float(tasks.costs[at, 0, 0]))
    assert apart or restored == deferrer
    for target, y, rows in (
        (1, tasks.rewards[:, 1], order),
        (2, tasks.costs[:, 0, 0], order[::-1] if apart else order),
    ):
        for member in range(4):
            direct = solved(tasks.contexts[rows], y[rows], member)
            np.testing.assert_allclose(by_member(deferrer, "theta")[member, target], direct, rtol=1e-7, atol=1e-9)


def test_a_corrected_logistic_sample_counts_as_far_as_it_is_known() -> None:
    tasks = draw_tasks(150, 3, binary=True, seed=6)
    deferrer = learn(tasks.contexts, tasks.rewards[:, 0], link="logistic")
    before = by_member(deferrer, "theta")[:, 0].copy()
    infos = [precision(deferrer, member, 0) for member in range(4)]
    old, x = tasks.rewards[10, 0], tasks.contexts[10]
    deferrer.correct(10, {"model": 1 - old})
    for member in range(4):
        step = kept(150, member)[10] * (1 - 2 * old) * np.linalg.solve(infos[member], x)
        np.testing.assert_allclose(by_member(deferrer, "theta")[member, 0] - before[member], step, rtol=1e-6)


def test_the_summary_says_how_many_samples_are_in_use() -> None:
    x, y = changing(400, 3, seed=1)
    deferrer = learn(x, y, reward_range=ANY)
    each = np.array([kept(400, member).sum() for member in range(4)])
    used = deferrer._ledger.view("member_weight")[0] @ each
    assert deferrer.summary().samples_in_use["model"] == pytest.approx(used, rel=1e-12)
    assert used < 300
    assert deferrer.summary().samples["model"] == 400
    assert deferrer.summary().samples_in_use["human"] == 0
    assert learn(x, y, reward_range=ANY, forget="never").summary().samples_in_use["model"] == 400


def test_one_that_never_forgets_has_nothing_to_weigh() -> None:
    x, y = changing(300, 3, seed=1)
    deferrer = learn(x, y, reward_range=ANY, forget="never")
    assert deferrer._ledger.view("member_weight").tolist() == [[1.0]] * 3
    np.testing.assert_allclose(by_member(deferrer, "theta")[0, 0], solved(x, y, 0), rtol=1e-9)
    assert deferrer.drifts() == ()


response = st.one_of(
    st.floats(-1e50, 1e50),
    st.floats(-1e-200, 1e-200),
    st.sampled_from([0.0, 0.5, 1.0, 1e50, -1e50, 5e-324]),
)


@given(st.lists(response, min_size=1, max_size=150), st.integers(1, 3), st.booleans())
@example([0.0] * 100, 1, False)
@example([0.5] * 150, 2, True)
@example([1e50, 5e-324] * 50, 1, True)
@example([1e-170] * 20 + [1.0], 1, True)
@settings(max_examples=60)
def test_weights_stay_a_distribution_whatever_comes(responses: list[float], d: int, constant: bool) -> None:
    rng = np.random.default_rng(len(responses))
    x = np.ones((len(responses), d)) if constant else rng.standard_normal((len(responses), d))
    deferrer = learn(x, np.array(responses), reward_range=ANY)
    weights = deferrer._ledger.view("member_weight")
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    assert (weights[0] > 0).all()  # the fixed share: each of them can come back
    assert np.isfinite(by_member(deferrer, "theta")).all()
    assert 0 <= deferrer.summary().samples_in_use["model"] <= len(responses) * (1 + 1e-12)
    assert Deferrer.from_bytes(deferrer.to_bytes()) == deferrer


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"forget": "sometimes"},
            "The 'forget' of a Deferrer must be one of 'auto', 'never'. Got 'sometimes' instead.",
        ),
        ({"forget": 0.99}, "The 'forget' of a Deferrer must be one of 'auto', 'never'. Got 0.99 instead."),
        ({"forget": ["never"]}, "must be one of 'auto', 'never'"),
        ({"forget": True}, "must be one of 'auto', 'never'"),
        (
            {"forget": "auto", "refit": "always"},
            "The 'refit' of a Deferrer must be 'never' where something is forgotten",
        ),
        (
            {"representation": "trees"},
            "The 'representation' of a Deferrer must be one of 'linear', 'auto'. Got 'trees'",
        ),
        ({"representation": 3}, "must be one of 'linear', 'auto'. Got 3 instead."),
        ({"representation": ["auto"]}, "must be one of 'linear', 'auto'"),
        ({"representation": "auto", "cost_link": "logistic"}, "must be 'linear' with an embedding or a cost_link"),
    ],
)
def test_bad_values_are_told_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=".") as told:
        november_deferrer(n_features=2, **given)
    assert message in str(told.value)
    assert "\n" not in str(told.value)
