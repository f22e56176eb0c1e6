"""Representations that keep only the latest tasks: what the others taught stays, with less and less weight."""

from typing import Any

import numpy as np
import pytest

from deferkit import (
    Budget,
    Deferrer,
    NeuralEmbedding,
    Pacing,
    TreeEmbedding,
)
from tests.conftest import draw_tasks, make, rewards_of


def test_bounded_memory_stays_bounded_and_keeps_what_was_learned() -> None:
    tasks = draw_tasks(2_000, 4)
    budget = Budget(500, horizon=2_000, max_cost=1)
    small = Pacing(window=100)
    learner = Deferrer(
        n_features=4,
        budget=budget,
        pacing=small,
        embedding=NeuralEmbedding(hidden=4, every=50, memory=200, discount=1.0),
    )
    learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
    representation: Any = learner._representation
    assert representation.training_set.n <= 200 + 50
    # with no discount nothing is forgotten: the systems hold every sample ever observed
    assert learner._ledger.view("n_observed")[0] == 2_000
    forgetful = Deferrer(
        n_features=4,
        budget=budget,
        pacing=small,
        embedding=NeuralEmbedding(hidden=4, every=50, memory=200, discount=0.5),
    )
    forgetful.run(tasks.contexts, rewards_of(forgetful, tasks), tasks.costs)
    assert 200 < forgetful._ledger.view("n_observed")[0] < 400


def test_old_tasks_weigh_as_their_own_views_saw_them() -> None:
    """One retirement by hand: the precision is ridge·I + discount·(old) + Σ zzᵀ of what is kept."""
    learner, tasks = make("neural, one network, bounded")
    learner.run(tasks.contexts[:80], {k: v[:80] for k, v in rewards_of(learner, tasks).items()}, tasks.costs[:80])
    representation: Any = learner._representation
    past = representation.training_set
    learner.run(tasks.contexts[80:99], {k: v[80:99] for k, v in rewards_of(learner, tasks).items()}, tasks.costs[80:99])
    first = past.select_labelled(0)[0]
    old = representation.embedder.embed(past, first[first < 9], 0)
    representation.retrain()
    kept = representation.embedder.embed(past, past.select_labelled(0)[0], 0)
    expected = representation.systems._ridge + old.T @ old + kept.T @ kept
    np.testing.assert_allclose(learner._ledger.view("precision")[0], expected, atol=1e-9)


def test_memory_is_bounded_without_feedback_too() -> None:
    rng = np.random.default_rng(0)
    for embedding in (NeuralEmbedding(hidden=3, memory=50), TreeEmbedding(memory=50)):
        learner = Deferrer(n_features=2, embedding=embedding, pacing=Pacing(window=40))
        bulk = Deferrer(n_features=2, embedding=embedding, pacing=Pacing(window=40))
        contexts = rng.random((1_000, 2))
        for row in contexts:
            learner.decide(row)
        bulk.decide_many(contexts)
        assert learner._representation.training_set.n <= 100  # type: ignore[attr-defined]
        assert learner == bulk


def test_what_is_said_of_a_task_that_was_let_go_still_counts() -> None:
    """Late labels and corrections reach the systems although the task is no longer kept, and survive a retraining."""
    learner = Deferrer(
        n_features=1,
        budget=Budget(1_000, horizon=1_000, max_cost=1),
        pacing=Pacing(window=10),
        embedding=NeuralEmbedding(hidden=2, every=20, memory=10, discount=1.0),
    )
    for _ in range(100):
        learner.observe(learner.decide([1.0], force="human").id, {"model": 0.5}, cost=0.5)
    for number in range(50):
        learner.observe(number, {"human": 0.2})
    counts = learner._ledger.view("n_observed")
    assert counts[1] == 50
    for number in range(50):
        learner.correct(number, {"human": 0.9})
    learner._representation.retrain()  # type: ignore[attr-defined]
    assert learner.score([[1.0]]).estimates["human"][0] == pytest.approx(0.9, abs=0.01)
