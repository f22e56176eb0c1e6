"""Networks in front of the linear layer: trained as torch trains them, and NeuralUCB on top of them."""

from typing import Any

import numpy as np
import pytest
import torch

from deferkit import (
    Budget,
    Deferrer,
    GradientEmbedding,
    NeuralEmbedding,
    TreeEmbedding,
)
from deferkit.learn.embed.forest import Forest
from deferkit.learn.embed.gradient import Gradients
from deferkit.learn.embed.networks import Networks
from tests.conftest import make, november_deferrer, rewards_of
from tests.training_sets import SHAPE, Floats, crossed, past_of


@pytest.mark.parametrize(
    ("link", "reward_range"), [("identity", (0.0, 1.0)), ("identity", (-np.inf, np.inf)), ("logistic", (0.0, 1.0))]
)
@pytest.mark.parametrize("networks", [1, 2, 3])
def test_training_is_what_torch_does(link: str, reward_range: tuple[float, float], networks: int) -> None:
    """The same networks as separate torch modules, the same batches, autograd and torch's Adam: the same weights."""
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
    labels = [past.select_labelled(target) for target in range(3)]
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
        loss.backward()  # type: ignore[no-untyped-call]
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
            # with the constant of the rank view, a plane fits one of the two quadrants in which asking pays
            learner = november_deferrer(n_features=4, budget=budget, embedding=embedding, seed=seed)
            run = learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
            gains[name].append((run.reward - tasks.rewards[:, 0].sum()) / more[:750].sum())
    assert np.mean(gains["linear"]) < 0.15
    assert np.mean(gains["neural"]) > 0.6
    assert np.mean(gains["trees"]) > 0.7


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


def test_widths_of_neural_ucb_are_those_of_the_gradient() -> None:
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

        z = 1.0 + sum(slope(past.x[row]) ** 2 for row in past.select_labelled(g)[0])
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
