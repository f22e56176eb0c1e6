import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from deferkit import Budget, Deferrer, Exploration, InvalidArgument, Pacing
from deferkit.learn.pacing import PACINGS
from tests.conftest import Floats, draw_tasks, numbers, rewards_of
from tests.reference import simplex_weights


def forced_costs(pacing: str, costs: Floats, budgets: list[float], horizon: int, **more: float) -> Floats:
    """Return the prices before each decision when every task is forced to the expert at these costs."""
    resources = costs.shape[1]
    names = [f"r{j}" for j in range(resources)]
    budget = {name: Budget(total, horizon=horizon) for name, total in zip(names, budgets, strict=True)}
    deferrer = Deferrer(n_features=1, budget=budget, pacing=Pacing(kind=pacing, **more), warm_up=0)
    prices = []
    for cost in costs:
        route = "human" if cost.any() else "model"
        decision = deferrer.decide([1.0], force=route)
        prices.append(numbers(decision.price))
        amount = dict(zip(names, cost.tolist(), strict=True))
        deferrer.observe(decision.id, cost=amount)
    return np.array(prices)


@given(st.integers(1, 3), st.integers(0, 1000))
@settings(max_examples=25)
def test_gradient_is_the_simplex_form_of_agrawal_and_devanur(resources: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    horizon = 300
    costs = np.where(rng.random((200, 1)) < 0.5, rng.random((200, resources)), 0.0)
    budgets = rng.uniform(150, 400, resources) * 10
    prices = forced_costs("gradient", costs, budgets.tolist(), horizon)
    thetas = simplex_weights(costs, budgets / horizon, horizon)
    np.testing.assert_allclose(prices[1:], thetas[:-1] * horizon / budgets, rtol=1e-9)
    np.testing.assert_allclose(prices[0], horizon / budgets / (resources + 1))


def test_adaptive_by_hand() -> None:
    """Costs 2, 0 with B = 10, T = 5 and η = 0.3. After the first: mean cost 2, left 8, tasks left 4.

    g = (2 − 8/4)/2 = 0, so nothing moves. After the second: g = (0 − 8/3)/2 = −4/3, Σg² = 16/9, step −0.3/2, cut at 0.
    A third that costs 5: mean cost 7/2, left 3, tasks left 2, g = (5 − 3/2)/3.5 = 1, Σg² = 25/9, step (0.3/3.5)·(3/5).
    """
    prices = forced_costs("adaptive", np.array([[2.0], [0.0], [5.0], [0.0]]), [10.0], 5, step=0.3)
    assert prices[:, 0] == pytest.approx([0, 0, 0, 0.3 / 3.5 * 3 / 5])


@pytest.mark.parametrize("resources", [1, 2])
@pytest.mark.parametrize("experts", [1, 3])
def test_resolve_finds_the_prices_of_the_linear_programme(experts: int, resources: int) -> None:
    """Against HiGHS on the same window: our prices keep the budgets and earn the optimum, less one task."""
    n, d = 400, 5
    tasks = draw_tasks(n, d, experts=experts, resources=resources, seed=8)
    names = [f"e{k}" for k in range(experts)]
    rate = 0.08
    budget = {f"r{j}": Budget(rate * 2 * n, horizon=2 * n, max_cost=1) for j in range(resources)}
    # without a bonus the index is the estimate
    means = Exploration(scale=0.0, prior=0.0)
    pacing = Pacing(window=n)
    deferrer = Deferrer(
        n_features=d, experts=names, budget=budget, pacing=pacing, memory=n, warm_up=50, exploration=means
    )
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    deferrer._ledger.dual[-1] = 0
    deferrer.decide(tasks.contexts[0], force="model")  # lets the price move
    scores = deferrer.score(tasks.contexts)
    gain = np.stack([scores.estimates[name] - scores.estimates["model"] for name in names], axis=1)
    cost = np.maximum(np.stack([scores.costs[name] for name in names], axis=1), 0)
    summary = deferrer.summary()
    left = numbers(summary.left)
    goals = left / (n - 1) * n
    a_ub = np.concatenate([cost.reshape(n * experts, resources).T, np.kron(np.eye(n), np.ones(experts))])
    best = linprog(-gain.ravel(), A_ub=a_ub, b_ub=np.concatenate([goals, np.ones(n)]), bounds=(0, 1))
    price = numbers(summary.price)
    values = gain - cost @ price
    chosen = values.argmax(axis=1)
    asked = values.max(axis=1) > 0
    every = np.arange(n)
    used = (cost[every, chosen] * asked[:, None]).sum(axis=0)
    earned = (gain[every, chosen] * asked).sum()
    # a task cannot be asked in part: the last one that the programme splits is one of about thirty
    assert (used <= goals * 1.03).all()
    assert earned == pytest.approx(-best.fun, rel=0.04)
    if resources == 1:
        assert price[0] == pytest.approx(-best.ineqlin.marginals[0], rel=0.05)


def test_resolve_does_not_care_about_the_unit_of_cost() -> None:
    tasks = draw_tasks(600, 4)
    routes = []
    for unit in (1.0, 64.0):  # a power of two, so that nothing is rounded otherwise
        deferrer = Deferrer(n_features=4, budget=Budget(40 * unit, horizon=600, max_cost=unit))
        run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs * unit)
        routes.append(run.routes.tolist())
    assert routes[0] == routes[1]


@pytest.mark.parametrize("kind", ["paper", "gradient", "resolve", "adaptive"])
def test_an_infinite_budget_has_no_price(kind: str) -> None:
    tasks = draw_tasks(300, 3)
    deferrer = Deferrer(n_features=3, pacing=kind)
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    assert (run.prices == 0).all()
    better = tasks.rewards[:, 1] > tasks.rewards[:, 0]
    assert (run.routes[100:] == better[100:]).mean() > 0.7


@pytest.mark.parametrize("kind", ["paper", "gradient", "resolve", "adaptive"])
def test_one_infinite_resource_beside_a_finite_one(kind: str) -> None:
    tasks = draw_tasks(400, 3, resources=2)
    budget = {"minutes": Budget(30, horizon=400, max_cost=1), "air": Budget.unlimited()}
    deferrer = Deferrer(n_features=3, pacing=kind, budget=budget)
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    assert (run.prices[:, 1] == 0).all()
    assert run.costs[:, 0].sum() <= 30
    assert np.isfinite(run.prices).all()


@pytest.mark.parametrize("kind", ["resolve", "adaptive"])
def test_the_budget_is_used_up_where_it_binds(kind: str) -> None:
    n = 4000
    tasks = draw_tasks(n, 5, seed=1)
    spent = []
    for seed in range(5):
        deferrer = Deferrer(n_features=5, pacing=kind, budget=Budget(0.05 * n, horizon=n, max_cost=1), seed=seed)
        spent.append(deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs).costs.sum())
    assert min(spent) > 0.98 * 0.05 * n


def test_the_price_moves_with_the_expected_cost_when_the_true_one_is_late() -> None:
    """The second task is priced as if the first cost what it was expected to; the true cost, later, moves nothing."""
    budget = Budget(50, horizon=100, max_cost=1)
    late, prompt = (Deferrer(n_features=1, budget=budget, pacing="gradient", warm_up=0) for _ in range(2))
    for deferrer in (late, prompt):
        deferrer.decide([1.0], force="human", cost=0.7)
    prompt.observe(0, cost=0.7)
    assert late.propose([1.0]).decision.price == prompt.propose([1.0]).decision.price
    late.decide([1.0], force="model")
    price = late.summary().price
    late.observe(0, cost=0.1)
    assert late.summary().price == price


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"kind": "fast"},
            "'pacing' of a Deferrer must be one of 'resolve', 'adaptive', 'gradient', 'paper'. Got 'fast'",
        ),
        ({"every": 0}, "'every' of a Pacing must be a whole number of at least 1. Got 0"),
        ({"window": 1.5}, "'window' of a Pacing must be a whole number of at least 2. Got 1.5"),
        ({"kind": "adaptive", "step": math.nan}, "'step' of a Pacing must be a number above 0. Got nan"),
        ({"step": 0.3}, "'resolve' has no parameter 'step'. Its parameters are: 'every', 'window'."),
    ],
)
def test_bad_pacing(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Pacing(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["paper", "gradient", "resolve", "adaptive"])
@pytest.mark.parametrize("total", [5e-324, 1e-200, 1e-90, 1e90, 1e300])
def test_absurd_budgets_have_finite_prices(kind: str, total: float) -> None:
    tasks = draw_tasks(200, 3)
    deferrer = Deferrer(n_features=3, pacing=kind, budget=Budget(total, horizon=200))
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    assert np.isfinite(run.prices).all()


@pytest.mark.parametrize("pacing", sorted(PACINGS))
def test_costs_next_to_nothing_leave_the_price_finite(pacing: str) -> None:
    deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=2), pacing=pacing)
    for number in range(30):
        decision = deferrer.decide([0.0, 0.5], force="human" if number == 1 else None)
        asked = decision.route == "human"
        deferrer.observe(decision.id, {decision.route: 0.5}, cost=2.9e-250 if asked else None)
    assert Deferrer.from_bytes(deferrer.to_bytes()) == deferrer  # a price that is not finite cannot be loaded
