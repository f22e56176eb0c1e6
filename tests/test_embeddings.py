"""Learned representations: trained as they should be, rebuilt exactly, and no more trusted than they deserve."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

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
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.forest import Forest, from_text
from deferkit.learn.embed.gradient import Gradients
from deferkit.learn.embed.networks import Networks
from deferkit.learn.embed.past import Past
from deferkit.learn.embed.systems import solve
from tests.conftest import Tasks, draw_tasks, make, outcome, rewards_of, step_through

Floats = NDArray[np.float64]

SHAPE = Shape(4, 1, 1, "identity", (0.0, 1.0), 0)


def crossed(n: int, d: int, seed: int = 0) -> Tasks:
    """Return tasks whose rewards depend on a product of two features, which no linear learner can see."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    sign = x[:, 0] * x[:, 1] > 0
    means = np.column_stack([np.where(sign, 0.8, 0.2), np.where(sign, 0.2, 0.8)])
    rewards = np.clip(means + 0.1 * rng.standard_normal((n, 2)), 0, 1)
    return Tasks(x, rewards, rng.uniform(0.5, 1.0, (n, 1, 1)))


def past_of(shape: Shape, n: int, seed: int = 0) -> Past:
    """Return a past in which the model is always known and the human on every third task."""
    rng = np.random.default_rng(seed)
    past = Past(n_features=shape.n_features, n_deciders=2, n_resources=1)
    rewards = rng.random((n, 2))
    if shape.link == "logistic":
        rewards = np.round(rewards)
    rewards[np.arange(n) % 3 > 0, 1] = np.nan
    costs = np.where(np.isnan(rewards[:, 1:]), np.nan, 1.0 + rng.random((n, 1)))
    past.append(rng.uniform(-0.5, 0.5, (n, shape.n_features)))
    past.label(0, rewards, costs, np.where(np.isnan(costs[:, 0]), 0, 1))
    return past


# --- networks


@pytest.mark.parametrize(
    ("link", "reward_range"), [("identity", (0.0, 1.0)), ("identity", (-np.inf, np.inf)), ("logistic", (0.0, 1.0))]
)
@pytest.mark.parametrize("networks", [1, 2, 3])
def test_training_is_what_torch_does(link: str, reward_range: tuple[float, float], networks: int) -> None:
    """The same networks as separate torch modules, the same batches, autograd and torch's Adam: the same weights."""
    torch = pytest.importorskip("torch")
    shape = SHAPE._replace(link=link, reward_range=reward_range)
    settings = NeuralEmbedding(hidden=5, networks=networks, batch=40, learning_rate=0.01)
    ours = Networks(settings, shape)
    past = past_of(shape, 100)
    views = settings.views(shape)
    hidden = settings.hidden
    weights = ours.body.parameters.values["weights"].copy()
    biases = ours.body.parameters.values["biases"].copy()
    bodies = []
    for view in range(max(views) + 1):
        body = torch.nn.Linear(4, hidden)
        with torch.no_grad():
            body.weight.copy_(torch.from_numpy(weights[:, view * hidden : (view + 1) * hidden].T.copy()))
            body.bias.copy_(torch.from_numpy(biases[view * hidden : (view + 1) * hidden].copy()))
        bodies.append(body)
    heads = []
    for target, view in enumerate(views):
        head = torch.nn.Linear(hidden, 1)
        with torch.no_grad():
            rows = ours.heads.values["weights"][target, view * hidden : (view + 1) * hidden]
            head.weight.copy_(torch.from_numpy(rows.copy())[None])
            head.bias.fill_(float(ours.heads.values["biases"][target]))
        heads.append(head)
    parameters = [p for m in (*bodies, *heads) for p in m.parameters()]
    adam = torch.optim.Adam(parameters, lr=0.01)
    labels = [past.labelled(target) for target in range(3)]
    unit = labels[2][1].mean()
    order = np.random.default_rng([shape.seed, 0]).permutation(100)
    for start in range(0, 100, 40):
        batch = order[start : start + 40]
        loss = torch.zeros(())
        for target, (rows, values) in enumerate(labels):
            known = np.isin(batch, rows)
            y = np.zeros(100)
            y[rows] = values / (unit if target == 2 else 1.0)
            x = torch.from_numpy((past.x[batch[known]] * 2.0).astype(np.float32))
            out = heads[target](torch.relu(bodies[views[target]](x)))[:, 0]
            goal = torch.from_numpy(y[batch[known]].astype(np.float32))
            if target < 2 and link == "logistic":
                loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(out, goal)
            elif target < 2 and reward_range[1] <= 1:
                loss = loss + torch.nn.functional.mse_loss(torch.sigmoid(out), goal)
            else:
                loss = loss + torch.nn.functional.mse_loss(out, goal)
        adam.zero_grad()
        loss.backward()
        adam.step()
    ours.retrain(past, 1)
    for view, body in enumerate(bodies):
        found = ours.body.parameters.values["weights"][:, view * hidden : (view + 1) * hidden].T
        np.testing.assert_allclose(found, body.weight.detach().numpy(), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(
        ours.heads.values["biases"], [float(head.bias.detach()) for head in heads], rtol=2e-4, atol=2e-5
    )


def test_a_view_is_the_hidden_layer_and_the_context() -> None:
    networks = Networks(NeuralEmbedding(hidden=3), SHAPE)
    networks.retrain(past := past_of(SHAPE, 50), 2)
    out = np.zeros((50, 3 * 7))
    networks.transform(past.x, out)
    values = networks.body.parameters.values
    units = np.maximum(past.x * 2.0 @ values["weights"] + values["biases"], 0) / np.sqrt(3)
    for view in range(3):
        np.testing.assert_allclose(out[:, 7 * view : 7 * view + 3], units[:, 3 * view : 3 * view + 3], atol=1e-6)
        np.testing.assert_array_equal(out[:, 7 * view + 3 : 7 * view + 7], past.x)
        np.testing.assert_allclose(networks.embed(past, np.arange(50), view), out[:, 7 * view : 7 * view + 7])


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    for embedder in (
        Networks(NeuralEmbedding(hidden=50), SHAPE),
        Gradients(GradientEmbedding(hidden=50), SHAPE),
        Forest(TreeEmbedding(least_in_leaf=5), SHAPE),
    ):
        embedder.retrain(past := past_of(SHAPE, 400), 1)
        width = {Networks: 3 * 54, Gradients: 6, Forest: 7}[type(embedder)]
        together, alone = np.zeros((400, width)), np.zeros((400, width))
        embedder.transform(past.x, together)
        for row in range(400):
            embedder.transform(past.x[row : row + 1], alone[row : row + 1])
        np.testing.assert_array_equal(together, alone)


def test_networks_learn_what_a_linear_learner_cannot() -> None:
    """A quarter of the tasks can be asked about; gain is (reward − model alone) / (best quarter − model alone)."""
    gains: dict[str, list[float]] = {"linear": [], "neural": [], "trees": []}
    for seed in range(3):
        tasks = crossed(3_000, 4, seed)
        more = np.sort(tasks.rewards[:, 1] - tasks.rewards[:, 0])[::-1]
        for name, embedding in (
            ("linear", None),
            ("neural", NeuralEmbedding(hidden=20, every=50, learning_rate=1e-2)),
            ("trees", TreeEmbedding()),
        ):
            budget = Budget(562, horizon=3_000, max_cost=1)
            learner = Deferrer(n_features=4, budget=budget, embedding=embedding, seed=seed)
            run = learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
            gains[name].append((run.reward - tasks.rewards[:, 0].sum()) / more[:750].sum())
    assert np.mean(gains["linear"]) < 0.15
    assert np.mean(gains["neural"]) > 0.6
    assert np.mean(gains["trees"]) > 0.7


# --- systems


@pytest.mark.parametrize("logistic", [False, True])
def test_a_rebuilt_system_is_the_direct_solution(logistic: bool) -> None:
    rng = np.random.default_rng(1)
    z = rng.standard_normal((300, 5))
    y = rng.random(300)
    start = 0.1 * rng.standard_normal(5)
    if logistic:
        y = (rng.random(300) < 1 / (1 + np.exp(-z @ [1.0, -2.0, 0.5, 0, 0]))).astype(float)
    theta, precision, inverse, _ = solve(z, y, start, 0.5 * np.eye(5), np.zeros(5), logistic)
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
    exact = solve(z, y, np.zeros(3), np.eye(3), np.zeros(3), True)[0]
    for start in ([100.0, -50, 3], [1e6, 0, 0], [-5.0, 5, 5]):
        np.testing.assert_allclose(solve(z, y, np.array(start), np.eye(3), np.zeros(3), True)[0], exact, atol=1e-5)


@pytest.mark.parametrize("name", ["neural", "neural, logistic", "neural, two networks, no skip", "trees"])
def test_after_a_retraining_the_estimates_are_those_of_the_past(name: str) -> None:
    learner, tasks = make(name)
    learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs, feedback="bandit")
    representation: Any = learner._representation
    representation.retrain()
    past = representation.past
    for target, belief in enumerate(learner.coefficients().values()):
        rows, y = past.labelled(target)
        z = representation.embedder.embed(past, rows, representation.views[target])
        ridge = representation.systems._ridge
        logistic = name == "neural, logistic" and target < 2
        theta = solve(z, y, np.zeros(z.shape[1]), ridge, np.zeros(z.shape[1]), logistic)[0]
        np.testing.assert_allclose(belief.theta, theta, atol=2e-3 if logistic else 1e-7)
        assert learner._ledger.view("n_observed")[target] == len(y)


def test_the_past_holds_what_was_observed_and_nothing_else() -> None:
    learner, tasks = make("neural")
    events = step_through(learner, tasks, "bandit")
    past: Past = learner._representation.past  # type: ignore[union-attr]
    np.testing.assert_array_equal(past.x, tasks.contexts)
    asked = np.array([e.cost is not None for e in events if isinstance(e, Observed)])
    np.testing.assert_array_equal(past.labelled(0)[0], np.flatnonzero(~asked))
    np.testing.assert_array_equal(past.labelled(1)[0], np.flatnonzero(asked))
    np.testing.assert_array_equal(past.labelled(2)[1], tasks.costs[asked, 0, 0])


# --- feedback that is late, corrected, or comes in parts


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
        learner._representation.retrain()  # type: ignore[union-attr]
    for target in range(3):
        pasts = [learner._representation.past.labelled(target) for learner in (late, early)]  # type: ignore[union-attr]
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
    learner._ledger.next_solve[0] = learner._ledger.next_id  # the next decision solves the price
    representation.retrain()
    after = learner._ledger.view("context")[:120]
    assert not np.allclose(before, after, atol=1e-9)
    for view in range(3):
        np.testing.assert_allclose(
            after[:, view], representation.embedder.embed(representation.past, np.arange(120), view)
        )


def test_a_correction_reaches_the_past() -> None:
    learner, tasks = make("trees")
    step_through(learner, tasks._replace(contexts=tasks.contexts[:50]))
    learner.correct(10, {"model": 0.125})
    learner._representation.retrain()  # type: ignore[union-attr]
    rows, values = learner._representation.past.labelled(0)  # type: ignore[union-attr]
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
    past = learner._representation.past  # type: ignore[union-attr]
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


# --- bounded memory


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
    assert representation.past.n <= 200 + 50
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
    past = representation.past
    learner.run(tasks.contexts[80:99], {k: v[80:99] for k, v in rewards_of(learner, tasks).items()}, tasks.costs[80:99])
    first = past.labelled(0)[0]
    old = representation.embedder.embed(past, first[first < 9], 0)
    representation.retrain()
    kept = representation.embedder.embed(past, past.labelled(0)[0], 0)
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
        assert learner._representation.past.n <= 100  # type: ignore[union-attr]
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
    learner._representation.retrain()  # type: ignore[union-attr]
    assert learner.score([[1.0]]).estimates["human"][0] == pytest.approx(0.9, abs=0.01)


# --- noise and widths


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


def test_costs_of_several_resources_have_units_of_their_own() -> None:
    rng = np.random.default_rng(0)
    learner = Deferrer(
        n_features=2,
        budget={"euros": Budget(1e6, horizon=2_000, max_cost=3_000), "hours": Budget(20, horizon=2_000, max_cost=0.1)},
        embedding=GradientEmbedding(hidden=20, every=50, learning_rate=1e-2),
        warm_up=1_000,
    )
    for _ in range(600):
        decision = learner.decide(rng.random(2), force="human")
        learner.observe(decision.id, {"human": 0.5}, cost={"euros": 1_000.0, "hours": 0.01})
    costs = learner.score([[0.5, 0.5]]).costs["human"][0]
    np.testing.assert_allclose(costs, [1_000.0, 0.01], rtol=0.3)


# --- numbers out of all proportion


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


# --- trees


def test_trees_as_arrays_say_what_lightgbm_says() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((500, 4)), rng.random(500)
    booster = lightgbm.train({"verbosity": -1, "num_leaves": 7}, lightgbm.Dataset(x, y), 20)
    trees = from_text(booster.model_to_string())
    assert len(trees["root"]) == 20
    forest = Forest(TreeEmbedding(), SHAPE)
    forest.arrays = trees | {"column": np.zeros(20, dtype=np.int64), "fold": np.zeros(20, dtype=np.int64)}
    out = np.zeros((500, 7))
    forest.transform(x, out)
    np.testing.assert_allclose(out[:, 4], booster.predict(x), rtol=1e-12)


def test_the_past_is_predicted_by_trees_that_have_not_seen_it() -> None:
    """Rewards are pure noise: in-sample predictions would correlate with them, out-of-fold ones do not."""
    correlations, overfit = [], []
    for seed in range(10):
        shape = SHAPE._replace(seed=seed)
        past = past_of(shape, 600, seed)
        forest = Forest(TreeEmbedding(least_in_leaf=5), shape)
        forest.retrain(past, 1)
        rows, y = past.labelled(0)
        correlations.append(np.corrcoef(forest.embed(past, rows, 0)[:, 4], y)[0, 1])
        seen = np.zeros((600, 7))
        forest.transform(past.x, seen)
        overfit.append(np.corrcoef(seen[rows, 4], y)[0, 1])
    assert abs(np.mean(correlations)) < 0.05
    assert np.mean(overfit) > 0.5


def test_a_constant_or_rare_outcome_has_no_trees_yet() -> None:
    past = past_of(SHAPE, 90)
    past.label(0, np.full((90, 2), 0.5), np.full((90, 1), 1.0), np.ones(90, dtype=np.int64))
    forest = Forest(TreeEmbedding(), SHAPE)
    forest.retrain(past, 1)
    assert len(forest.arrays["root"]) == 0
    assert not forest.embed(past, np.arange(90), 0)[:, 4:].any()


# --- NeuralUCB


def test_widths_of_neural_ucb_are_those_of_the_gradient() -> None:
    torch = pytest.importorskip("torch")
    gradients = Gradients(GradientEmbedding(hidden=3, learning_rate=0.05), SHAPE)
    past = past_of(SHAPE, 40)
    gradients.retrain(past, 3)
    out = np.zeros((40, 6))
    gradients.transform(past.x, out)
    for g in range(3):
        parts = [
            torch.tensor(a, requires_grad=True)
            for a in (gradients.weights[g], gradients.biases[g], gradients.heads[g], gradients.offsets[g])
        ]

        def value(x: Floats, parts: Any = parts, g: int = g) -> Any:
            shown = torch.relu(torch.from_numpy(x) @ parts[0] + parts[1]) @ parts[2] + parts[3]
            return torch.sigmoid(shown) if g < 2 else shown

        def slope(x: Floats, parts: Any = parts, value: Any = value) -> Floats:
            return np.concatenate([p.numpy().ravel() for p in torch.autograd.grad(value(x), parts)])

        z = 1.0 + sum(slope(past.x[row]) ** 2 for row in past.labelled(g)[0])
        for row in (0, 7, 39):
            assert out[row, 2 * g] == pytest.approx(float(value(past.x[row]).detach()), rel=1e-9)
            expected = np.sqrt((slope(past.x[row]) ** 2 / z).sum())
            assert out[row, 2 * g + 1] == pytest.approx(expected, rel=1e-9)


def test_estimates_of_neural_ucb_are_what_the_networks_say() -> None:
    learner, tasks = make("neural ucb")
    learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
    representation: Any = learner._representation
    views = representation.transform(tasks.contexts[:20])
    scores = learner.score(tasks.contexts[:20])
    np.testing.assert_allclose(scores.estimates["model"], views[:, 0])
    np.testing.assert_allclose(scores.estimates["human"], views[:, 2])
    assert len(set(np.round(scores.widths["human"] / views[:, 3], 9))) == 1


# --- a module of the user's


def own_module(n_features: int) -> Any:
    torch = pytest.importorskip("torch")
    return torch.nn.Sequential(torch.nn.Linear(n_features, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6))


def test_a_module_of_your_own(tmp_path: Path) -> None:
    embedding = NeuralEmbedding(module=own_module, hidden=6, every=50, learning_rate=1e-2)
    tasks = draw_tasks(300, 4)
    bulk, single = (
        Deferrer(n_features=4, budget=Budget(100, horizon=300, max_cost=1), embedding=embedding) for _ in range(2)
    )
    bulk.run(tasks.contexts, rewards_of(bulk, tasks), tasks.costs)
    before = single._representation.embedder.state()["body body 0.0.weight"]  # type: ignore[union-attr]
    step_through(single, tasks)
    after = single._representation.embedder.state()["body body 0.0.weight"]  # type: ignore[union-attr]
    assert bulk == single
    assert not np.array_equal(before, after)
    bulk.save(tmp_path / "own.state")
    with pytest.raises(InvalidArgument, match="a torch module of your own"):
        Deferrer.load(tmp_path / "own.state")
    with pytest.raises(InvalidArgument, match="another embedding"):
        Deferrer.load(tmp_path / "own.state", embedding=NeuralEmbedding(module=own_module, hidden=6))
    again = Deferrer.load(tmp_path / "own.state", embedding=embedding)
    assert again == bulk
    for learner in (again, bulk):
        learner.change_budget(200)
        with pytest.warns(UserWarning, match="horizon"):
            learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
    assert again == bulk


def test_a_module_with_dropout_and_frozen_layers_is_part_of_the_fold(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def body(n_features: int) -> Any:
        first = torch.nn.Linear(n_features, 8)
        for parameter in first.parameters():
            parameter.requires_grad = False
        return torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))

    embedding = NeuralEmbedding(module=body, hidden=4, every=20)
    tasks = draw_tasks(100, 3)
    one, other = (Deferrer(n_features=3, embedding=embedding) for _ in range(2))
    for learner in (one, other):
        learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
    assert one == other
    one.save(tmp_path / "own.state")
    assert Deferrer.load(tmp_path / "own.state", embedding=embedding) == one


def test_a_module_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="turn \\[2, 4\\] into \\[2, 5\\]"):
        Deferrer(n_features=4, embedding=NeuralEmbedding(module=own_module, hidden=5))
    with pytest.raises(InvalidArgument, match="Got int"):
        Deferrer(n_features=4, embedding=NeuralEmbedding(module=lambda n: n, hidden=5))


# --- what is missing, what is wrong


@pytest.mark.parametrize(
    ("library", "room", "embedding", "hint"),
    [
        ("torch", "module", NeuralEmbedding(module=own_module), "pip install 'deferkit\\[neural\\]'"),
        ("lightgbm", "forest", TreeEmbedding(), "pip install 'deferkit\\[trees\\]'"),
    ],
)
def test_a_missing_library_gives_one_line(
    library: str, room: str, embedding: Any, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"deferkit.learn.embed.{room}", raising=False)
    with pytest.raises(InvalidArgument, match=hint):
        Deferrer(n_features=2, embedding=embedding)
    monkeypatch.undo()
    importlib.import_module(f"deferkit.learn.embed.{room}")


def test_the_default_network_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    learner = Deferrer(n_features=2, embedding=NeuralEmbedding(every=2))
    for _ in range(5):
        learner.observe(learner.decide([0.1, 0.2]).id, {"model": 0.5})


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
