"""A representation at work: feedback late or corrected, an encoder in front, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deferkit import (
    Budget,
    Deferrer,
    Encoder,
    GradientEmbedding,
    InvalidArgument,
    NeuralEmbedding,
    Observed,
    Pacing,
    TreeEmbedding,
)
from deferkit.learn.embed.training_set import TrainingSet
from tests.conftest import draw_tasks, make, outcome, step_through
from tests.training_sets import crossed


def test_the_past_holds_what_was_observed_and_nothing_else() -> None:
    learner, tasks = make("neural")
    events = step_through(learner, tasks, "bandit")
    past: TrainingSet = learner._representation.training_set  # type: ignore[attr-defined]
    np.testing.assert_array_equal(past.x, tasks.contexts)
    asked = np.array([e.cost is not None for e in events if isinstance(e, Observed)])
    np.testing.assert_array_equal(past.select_labelled(0)[0], np.flatnonzero(~asked))
    np.testing.assert_array_equal(past.select_labelled(1)[0], np.flatnonzero(asked))
    np.testing.assert_array_equal(past.select_labelled(2)[1], tasks.costs[asked, 0, 0])


def test_late_feedback_is_learned_with_the_views_of_now() -> None:
    """Observations that come after retrainings give the same systems as those that came before them."""
    tasks = draw_tasks(300, 4)
    budget = Budget(300, horizon=300, max_cost=1)
    late, early = (
        Deferrer(n_features=4, budget=budget, embedding=NeuralEmbedding(hidden=6, every=25)) for _ in range(2)
    )
    for learner in (late, early):
        waiting = []
        for t in range(300):
            decision = learner.decide(tasks.contexts[t], force="human" if t % 2 else "model")
            seen = outcome(learner, tasks, t, decision)
            if learner is late and t % 5 == 0:
                waiting.append(seen)
            else:
                learner.observe(seen.id, seen.rewards, seen.cost)
        for seen in waiting:
            learner.observe(seen.id, seen.rewards, seen.cost)
        learner._representation.retrain()  # type: ignore[attr-defined]
    for target in range(3):
        pasts = [learner._representation.training_set.select_labelled(target) for learner in (late, early)]  # type: ignore[attr-defined]
        np.testing.assert_array_equal(pasts[0], pasts[1])
    assert late.summary().reserved == 0.0


def test_old_decisions_are_seen_anew_before_they_teach() -> None:
    learner, tasks = make("neural, one network, bounded")  # its price needs no window, so nothing is kept fresh for it
    first = learner.decide(tasks.contexts[0], force="human")
    step_through(learner, tasks._replace(contexts=tasks.contexts[:41]), start=1)
    representation: Any = learner._representation
    now = representation.transform(tasks.contexts[:1])
    assert not np.array_equal(learner._ledger.view("context")[0].reshape(1, -1), now)
    learner.observe(first.id, {"human": 0.5}, cost=0.5)
    np.testing.assert_array_equal(learner._ledger.view("context")[0].reshape(1, -1), now)


def test_the_price_is_solved_for_the_views_of_now() -> None:
    learner, tasks = make("neural")
    step_through(learner, tasks._replace(contexts=tasks.contexts[:120]))
    representation: Any = learner._representation
    before = learner._ledger.view("context")[:120].copy()
    learner._ledger.dual[-1] = learner._ledger.next_id  # the next decision solves the price
    representation.retrain()
    after = learner._ledger.view("context")[:120]
    assert not np.allclose(before, after, atol=1e-9)
    for view in range(3):
        np.testing.assert_allclose(
            after[:, view], representation.embedder.embed(representation.training_set, np.arange(120), view)
        )


def test_a_correction_reaches_the_past() -> None:
    learner, tasks = make("trees")
    step_through(learner, tasks._replace(contexts=tasks.contexts[:50]))
    learner.correct(10, {"model": 0.125})
    learner._representation.retrain()  # type: ignore[attr-defined]
    rows, values = learner._representation.training_set.select_labelled(0)  # type: ignore[attr-defined]
    assert values[rows == 10] == 0.125


@pytest.mark.parametrize("embedding", [NeuralEmbedding(hidden=4, every=30), TreeEmbedding(least_in_leaf=5)])
def test_an_encoder_in_front_settles_first(embedding: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    learner = Deferrer(
        encoder=Encoder(numbers=["a"], categories={"b": ["x", "y"]}),
        budget=Budget(50, horizon=200, max_cost=1),
        embedding=embedding,
    )
    for t in range(200):
        decision = learner.decide({"a": float(rng.normal(5, 2)), "b": "x" if t % 2 else "y"})
        seen = {"model": 0.4} if decision.route == "model" else {"model": 0.4, "human": 0.9}
        learner.observe(decision.id, seen, None if decision.route == "model" else 0.5)
    past = learner._representation.training_set  # type: ignore[attr-defined]
    assert past.n == 200
    assert np.abs(past.x).max() <= 1.0
    learner.save(tmp_path / "a.state")
    assert Deferrer.load(tmp_path / "a.state") == learner


def test_a_warm_start_trains_the_networks() -> None:
    tasks = crossed(2_000, 4)
    learner = Deferrer(
        n_features=4,
        budget=Budget(250, horizon=1_000, max_cost=1),
        embedding=NeuralEmbedding(learning_rate=5e-3, batch=100),
    )
    learner.warm_start(
        tasks.contexts, {"model": tasks.rewards[:, 0], "human": tasks.rewards[:, 1]}, cost=tasks.costs[:, 0, 0]
    )
    other = crossed(500, 4, seed=1)
    scores = learner.score(other.contexts)
    assert np.corrcoef(scores.estimates["model"], other.rewards[:, 0])[0, 1] > 0.8
    assert learner.decide(other.contexts[0]).reason != "warm-up"


@pytest.mark.parametrize("embedding", [NeuralEmbedding(hidden=4, every=5), TreeEmbedding(first=5, least_in_leaf=2)])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_huge_contexts_are_survived(embedding: Any, size: float) -> None:
    rng = np.random.default_rng(0)
    learner = Deferrer(n_features=3, budget=Budget(50, horizon=100, max_cost=1), ridge=1e-9, embedding=embedding)
    for _ in range(60):
        decision = learner.decide(rng.random(3) * [1.0, size, 1.0])
        learner.observe(decision.id, {"model": 0.5, decision.route: 0.5}, None if decision.route == "model" else 0.5)
    assert np.isfinite(learner._ledger.view("theta")).all()
    with pytest.raises(InvalidArgument, match="up to 1e\\+09"):
        learner.decide([1e20, 0.0, 0.0])
    with pytest.raises(InvalidArgument, match="up to 1e\\+09"):
        learner.run([[1e20, 0.0, 0.0]], {"model": [0.5], "human": [0.5]}, [0.5])


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: NeuralEmbedding(hidden=0), "'hidden' of a NeuralEmbedding"),
        (lambda: NeuralEmbedding(networks=4), "3, 2 or 1"),
        (lambda: NeuralEmbedding(every=0), "'every' of a NeuralEmbedding"),
        (lambda: NeuralEmbedding(every=[(5, 10)]), "begins at 0"),
        (lambda: NeuralEmbedding(every=[(0, 10), (0, 20)]), "begins at 0"),
        (lambda: NeuralEmbedding(every="often"), "'every' of a NeuralEmbedding"),  # type: ignore[arg-type]
        (lambda: NeuralEmbedding(learning_rate=float("nan")), "'learning_rate'"),
        (lambda: NeuralEmbedding(memory=0), "'memory' of a NeuralEmbedding"),
        (lambda: NeuralEmbedding(discount=1.5), "'discount' of a NeuralEmbedding"),
        (lambda: NeuralEmbedding(module=3), "'module' of a NeuralEmbedding"),  # type: ignore[arg-type]
        (lambda: TreeEmbedding(folds=1), "'folds' of a TreeEmbedding"),
        (lambda: TreeEmbedding(growth=1), "'growth' of a TreeEmbedding"),
        (lambda: GradientEmbedding(hidden=-1), "'hidden' of a GradientEmbedding"),
        (lambda: GradientEmbedding(ridge=0), "'ridge' of a GradientEmbedding"),
        (lambda: Deferrer(n_features=2, embedding="neural"), "'embedding' of a Deferrer"),  # type: ignore[arg-type]
        (lambda: Deferrer(n_features=2, embedding=TreeEmbedding(), cost_link="logistic"), "'cost_link'"),
    ],
)
def test_wrong_settings_are_named(make_it: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make_it()


def test_a_context_that_is_not_finite_is_refused_even_if_a_hidden_layer_would_hide_it() -> None:
    learner = Deferrer(n_features=2, embedding=NeuralEmbedding(skip=False))
    for bad in ([float("nan"), 0.0], [0.0, float("inf")]):
        with pytest.raises(InvalidArgument, match="finite numbers"):
            learner.decide(bad)
    assert learner.summary().decisions == 0


def test_all_contexts_that_the_price_is_solved_for_have_the_views_of_now() -> None:
    """The compiled core fills a window up to whole lanes, here of 30 contexts to 32."""
    tasks = draw_tasks(100, 4)
    embedding = NeuralEmbedding(hidden=3, networks=1, every=100, learning_rate=0.1)
    pacing = Pacing(window=30, every=1)
    learner = Deferrer(n_features=4, budget=Budget(50, horizon=1_000, max_cost=1), embedding=embedding, pacing=pacing)
    step_through(learner, tasks)  # the last observation retrains
    representation, window = learner._representation, learner._ledger.get("window")
    assert representation is not None
    assert window == 32
    views = representation.transform(tasks.contexts[-window:])
    np.testing.assert_allclose(learner._ledger.view("context")[100 - window : 100, 0], views, rtol=0, atol=1e-12)


def test_embeddings_of_other_packages_may_use_the_old_names() -> None:
    past = TrainingSet(n_features=2, n_deciders=2, n_resources=1)
    with pytest.warns(DeprecationWarning, match="select_labelled"):
        old = past.labelled(0)
    assert [each.tolist() for each in old] == [each.tolist() for each in past.select_labelled(0)]
    with pytest.warns(DeprecationWarning, match="copy_outcomes"):
        assert [each.tolist() for each in past.known()] == [each.tolist() for each in past.copy_outcomes()]
