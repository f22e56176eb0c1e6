"""The linear layer on top of a representation, rebuilt from the past: exact, and with its noise."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from deferkit import (
    Budget,
    Deferrer,
    GradientEmbedding,
    NeuralEmbedding,
    Pacing,
    TreeEmbedding,
)
from deferkit.learn.embed.systems import cholesky, solve
from deferkit.learn.links import LINKS
from tests.conftest import draw_tasks, make, rewards_of


@pytest.mark.parametrize("logistic", [False, True])
def test_a_rebuilt_system_is_the_direct_solution(logistic: bool) -> None:
    rng = np.random.default_rng(1)
    z = rng.standard_normal((300, 5))
    y = rng.random(300)
    start = 0.1 * rng.standard_normal(5)
    if logistic:
        y = (rng.random(300) < 1 / (1 + np.exp(-z @ [1.0, -2.0, 0.5, 0, 0]))).astype(float)
    theta, precision, inverse, _ = solve(
        z, y, start, 0.5 * np.eye(5), np.zeros(5), LINKS["logistic" if logistic else "identity"]
    )
    if logistic:
        exact = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(z, y).coef_[0]
        mean = 1 / (1 + np.exp(-z @ theta))
        np.testing.assert_allclose(theta, exact, atol=1e-5)
        np.testing.assert_allclose(precision, 0.5 * np.eye(5) + (z.T * (mean * (1 - mean))) @ z, rtol=1e-2)
    else:
        np.testing.assert_allclose(theta, np.linalg.solve(z.T @ z + 0.5 * np.eye(5), z.T @ y), rtol=1e-10)
    np.testing.assert_allclose(inverse @ precision, np.eye(5), atol=1e-9)


def test_a_start_that_is_far_off_does_no_harm() -> None:
    rng = np.random.default_rng(2)
    z = rng.standard_normal((200, 3))
    y = (rng.random(200) < 1 / (1 + np.exp(-z @ [2.0, 0, -1]))).astype(float)
    exact = solve(z, y, np.zeros(3), np.eye(3), np.zeros(3), LINKS["logistic"])[0]
    for start in ([100.0, -50, 3], [1e6, 0, 0], [-5.0, 5, 5]):
        np.testing.assert_allclose(
            solve(z, y, np.array(start), np.eye(3), np.zeros(3), LINKS["logistic"])[0], exact, atol=1e-5
        )


@pytest.mark.parametrize("name", ["neural", "neural, logistic", "neural, two networks, no skip", "trees"])
def test_after_a_retraining_the_estimates_are_those_of_the_past(name: str) -> None:
    learner, tasks = make(name)
    learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs, feedback="bandit")
    representation: Any = learner._representation
    representation.retrain()
    past = representation.training_set
    for target, belief in enumerate(learner.coefficients().values()):
        rows, y = past.select_labelled(target)
        z = representation.embedder.embed(past, rows, representation.views[target])
        ridge = representation.systems._ridge
        logistic = name == "neural, logistic" and target < 2
        theta = solve(
            z, y, np.zeros(z.shape[1]), ridge, np.zeros(z.shape[1]), LINKS["logistic" if logistic else "identity"]
        )[0]
        np.testing.assert_allclose(belief.theta, theta, atol=2e-3 if logistic else 1e-7)
        assert learner._ledger.view("n_observed")[target] == len(y)


@pytest.mark.parametrize("embedding", [NeuralEmbedding(hidden=4), TreeEmbedding(least_in_leaf=5), GradientEmbedding()])
@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_a_warm_start_knows_how_noisy_rewards_are(embedding: Any, link: str) -> None:
    tasks = draw_tasks(400, 3, binary=link == "logistic")
    learner = Deferrer(n_features=3, budget=Budget(50, horizon=500, max_cost=1), link=link, embedding=embedding)
    rewards = {"model": tasks.rewards[:, 0], "human": tasks.rewards[:, 1]}
    learner.warm_start(tasks.contexts, rewards, cost=tasks.costs[:, 0, 0])
    noise = learner.summary().noise
    assert all(0.02 < noise[name] < (2.0 if link == "logistic" else 0.5) for name in ("model", "human"))
    assert learner.decide(tasks.contexts[0]).reason != "warm-up"


def test_logistic_noise_does_not_grow_where_memory_is_bounded() -> None:
    tasks = draw_tasks(2_000, 3, binary=True)
    learner = Deferrer(
        n_features=3,
        budget=Budget(500, horizon=2_000, max_cost=1),
        link="logistic",
        pacing=Pacing(window=50),
        embedding=NeuralEmbedding(hidden=4, every=20, memory=50),
    )
    noises = []
    for start in range(0, 2_000, 500):
        part = slice(start, start + 500)
        rewards = {name: column[part] for name, column in rewards_of(learner, tasks).items()}
        learner.run(tasks.contexts[part], rewards, tasks.costs[part])
        noises.append(learner.summary().noise["model"])
    assert max(noises) < 1.5 * min(noises)


def test_a_precision_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        cholesky(np.array([[1.0, np.inf], [np.inf, 1.0]]))
