"""Each decision carries what an auditor needs to take it again."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from deferkit import Budget, Decided, Decision, Deferrer, Exploration, InvalidArgument
from deferkit.types import REASONS
from tests.conftest import SETTINGS, make, november_deferrer, numbers, step_through

NONE = Exploration(scale=0.0, prior=0.0)


def drawn_chance(learner: Deferrer, decision: Decision, price: NDArray[np.float64]) -> float:
    """The probability of a route under Thompson sampling: the difference of the two drawn values is normal."""
    costs, widths = (numbers(of["human"]) for of in (decision.costs, decision.cost_widths))
    ahead = decision.estimates["human"] - decision.estimates["model"] - float(price @ costs)
    spread = np.linalg.norm([*decision.widths.values(), *(price * widths)])
    asked = norm.cdf(ahead / spread)
    floor = learner.settings.explore_floor
    return float((1 - floor) * (asked if decision.route == "human" else 1 - asked) + floor / 2)


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
@pytest.mark.parametrize("name", SETTINGS)
def test_an_auditor_finds_the_same_choice(name: str) -> None:
    learner, tasks = make(name)
    decisions = [event.decision for event in step_through(learner, tasks) if isinstance(event, Decided)]
    for decision in decisions:
        if decision.reason not in ("worth it", "not worth it"):
            continue
        price = numbers(decision.price)
        if learner.settings.exploration.sampled:
            assert decision.propensity == pytest.approx(drawn_chance(learner, decision, price), abs=1e-9)
            continue
        worth = {"model": decision.estimates["model"] + decision.widths["model"]}
        for expert in learner.settings.experts:
            low = np.maximum(numbers(decision.costs[expert]) - numbers(decision.cost_widths[expert]), 0)
            worth[expert] = decision.estimates[expert] + decision.widths[expert] - float(price @ low)
        best = max(worth, key=lambda decider: worth[decider])
        assert worth[decision.route] == pytest.approx(worth[best], abs=1e-9)
        assert (decision.reason == "worth it") == (decision.route != "model")
    assert {decision.reason for decision in decisions} <= set(REASONS)


@pytest.mark.filterwarnings("ignore::deferkit.SpendingWarning")  # nothing is observed
@pytest.mark.parametrize("name", SETTINGS)
def test_every_decision_explains_itself_in_a_sentence(name: str) -> None:
    learner, tasks = make(name)
    for decision in learner.decide_many(tasks.contexts[:80], at=tasks.when(0, 80)):
        sentence = decision.explain()
        assert sentence.startswith(f"Task {decision.id} goes to {decision.route}, ")
        assert sentence.endswith(".")
        assert "nan" not in sentence


def test_a_tie_goes_to_the_model() -> None:
    deferrer = Deferrer(n_features=1, warm_up=0)
    assert deferrer.decide([1.0]).route == "model"


def test_the_default_asks_when_it_is_worth_it_by_hand() -> None:
    """Ridge 1, a sample at x = 1 each, no optimism: 0.1 and 0.45, cost 0.25. 0.45 − λ·0.25 > 0.1 up to λ = 1.4."""
    deferrer = november_deferrer(
        n_features=1, ridge=1.0, warm_up=0, exploration=NONE, budget=Budget(50, horizon=100, max_cost=1)
    )
    deferrer.warm_start([[1.0]], {"model": [0.2], "human": [0.9]}, cost=[0.5])
    for price, route in ((1.39, "human"), (1.41, "model")):
        deferrer._ledger.price[0] = price
        decision = deferrer.propose([1.0]).decision
        assert decision.route == route
        assert decision.estimates == pytest.approx({"model": 0.1, "human": 0.45})
        assert decision.costs == pytest.approx({"human": 0.25})
    assert deferrer.propose([1.0]).decision.explain() == (
        "Task 0 goes to model, because an expert is not worth it: human is expected to earn 0.45 ± 0 at a cost of 0.25,"
        " the model 0.1 ± 0, with a price of 1.41 for a unit of budget; at best human is expected to earn 0.35 more,"
        " and the price of its cost is 0.352."
    )


@pytest.mark.parametrize("rule", ["index", "interval"])
def test_the_widths_by_their_formula(rule: str) -> None:
    """(0.3·noise + √ridge·rms) · √(xᵀM⁻¹x) for rewards, 0.3·noise · √(xᵀM⁻¹x) for the cost.

    The root is that of the first member, which forgets nothing. The index pays min(1, asks left / 5d) of it, and
    nothing for costs. Contexts are of length 1 here.
    """
    learner, tasks = make("resolve, 2026.11", rule=rule, rate=0.04)
    step_through(learner, tasks._replace(contexts=tasks.contexts[:250]))
    x = tasks.contexts[7]
    share = 1.0
    if rule == "index":
        costs = learner._ledger.cost[:250][learner._ledger.route[:250] == 1]
        share = min(1.0, learner._ledger.budget_left()[0] / costs.mean() / (5 * 6))
        assert 0 < share < 1
    scores = learner.score([x])
    noise = learner.summary().noise
    roots = np.sqrt(np.einsum("i,tij,j->t", x, learner._ledger.view("inverse")[:3], x))
    known = learner._ledger.reward[:250]
    rms = np.sqrt(np.nanmean(known**2))
    for i, name in enumerate(("model", "human")):
        width = share * (0.3 * noise[name] + np.sqrt(0.01) * rms) * roots[i]
        assert scores.widths[name][0] == pytest.approx(width, rel=1e-9)
    cost = scores.cost_widths["human"][0, 0]
    width = 0.3 * noise["cost of human"] * roots[1]
    assert cost == pytest.approx(0.0 if rule == "index" else width, rel=1e-9)


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_an_expert_who_was_never_seen_is_tried_even_without_noise(feedback: str) -> None:
    """Three kinds of task, rewards without any noise, each decider good at one: found on each of 20 seeds."""
    for seed in range(20):
        kinds = np.random.default_rng(seed).integers(3, size=1500)
        good = {"model": 0, "ann": 1, "bo": 2}
        rewards = {name: np.where(kinds == kind, 0.9, 0.2) for name, kind in good.items()}
        budget = Budget(1250, horizon=1500, max_cost=1)
        deferrer = Deferrer(n_features=3, experts=["ann", "bo"], budget=budget, seed=seed)
        run = deferrer.run(np.eye(3)[kinds], rewards, np.ones((1500, 2, 1)), feedback=feedback)
        assert (run.routes[200:] == kinds[200:]).mean() > 0.98


def test_the_noise_estimate_finds_the_noise() -> None:
    """True σ 0.2 of the model's reward, 0.05 of the human's, 0.1 of the cost; within 10 % on each of ten seeds."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.random((4000, 5)) / 3
        rewards = {
            "model": x.sum(1) + 0.2 * rng.standard_normal(4000),
            "human": x[:, 0] + 0.05 * rng.standard_normal(4000),
        }
        cost = np.abs(3 * x.sum(1) + 0.1 * rng.standard_normal(4000))
        deferrer = Deferrer(n_features=5, reward_range=(-9, 9), explore_floor=1.0)
        deferrer.run(x, rewards, cost)
        noise = deferrer.summary().noise
        assert noise == pytest.approx({"model": 0.2, "human": 0.05, "cost of human": 0.1}, rel=0.1)


@given(st.floats(0.05, 1), st.integers(0, 2**31))
@settings(max_examples=20)
def test_the_explore_floor_takes_routes_as_often_as_their_propensity(floor: float, seed: int) -> None:
    """Σ 1[route]/propensity over n decisions is n for each decider, within 5 standard errors."""
    n = 3000
    deferrer = Deferrer(n_features=1, experts=["ann", "bo"], explore_floor=floor, warm_up=0, seed=seed, memory=n)
    deferrer.warm_start([[1.0]] * 3, {"model": [0.1] * 3, "ann": [0.9] * 3, "bo": [0.5] * 3})
    decisions = deferrer.decide_many([[1.0]] * n)
    for decider in ("model", "ann", "bo"):
        chances = [d.propensity for d in decisions if d.route == decider]
        p = chances[0] if chances else floor / 3
        assert len(set(chances)) <= 1
        assert len(chances) == pytest.approx(n * p, abs=5 * np.sqrt(n * p * (1 - p)) + 1)


@pytest.mark.parametrize("floor", [0.0, 0.2])
@pytest.mark.parametrize("cost", [None, 0.3])
def test_thompson_sampling_asks_as_often_as_its_formula_says(floor: float, cost: float | None) -> None:
    """The share of 4,000 learners, alike but for the seed, that ask: within 4 standard errors of the propensity."""
    budget = Budget(800, horizon=1_000, max_cost=1)  # a price of ½·T/B to begin with
    rng = np.random.default_rng(0)
    past = rng.random((6, 2)) / 2
    asked, chances = 0, set()
    for seed in range(4_000):
        learner = Deferrer(
            n_features=2,
            budget=budget,
            warm_up=0,
            seed=seed,
            exploration=Exploration.thompson(),
            explore_floor=floor,
            pacing="gradient",
        )
        learner.warm_start(
            past, {"model": past[:, 0], "human": past[:, 1] + np.resize([0.25, 0.05], 6)}, cost=past[:, 0]
        )
        decision = learner.decide([0.3, 0.3], cost=cost)
        asked += decision.route == "human"
        chances.add(round(decision.propensity if decision.route == "human" else 1 - decision.propensity, 9))
    assert len(chances) == 1
    (p,) = chances
    assert 0.02 < p < 0.98
    assert asked == pytest.approx(4_000 * p, abs=4 * np.sqrt(4_000 * p * (1 - p)))


def test_thompson_sampling_needs_a_formula() -> None:
    cases: list[dict[str, Any]] = [{"link": "logistic"}, {"experts": ["ann", "bo"]}]
    for more in cases:
        with pytest.raises(InvalidArgument, match="optimistic unless there is one expert"):
            Deferrer(n_features=1, exploration=Exploration.thompson(), **more)


def test_warm_up_draws_among_those_on_duty() -> None:
    deferrer = Deferrer(n_features=1, experts=["ann", "bo"], warm_up=3000, memory=3000)
    routes = [deferrer.decide([1.0], available=["bo"]) for _ in range(1000)]
    assert {decision.route for decision in routes} == {"model", "bo"}
    assert {decision.propensity for decision in routes} == {0.5}
    assert sum(decision.route == "bo" for decision in routes) == pytest.approx(500, abs=5 * np.sqrt(250))


def test_a_warm_start_shortens_the_warm_up() -> None:
    deferrer = Deferrer(n_features=4, budget=Budget(10, horizon=100, max_cost=1), warm_up=4)
    x = np.eye(4)
    deferrer.warm_start(x[:3], {"model": [0.1] * 3, "human": [0.9, 0.9, np.nan]}, cost=[0.1, 0.1, np.nan])
    assert [deferrer.decide(x[0]).reason for _ in range(3)] == ["warm-up", "warm-up", "worth it"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scale": -1}, "'scale' of an Exploration must be a finite number of at least 0. Got -1"),
        ({"noise": float("nan")}, "'noise' of an Exploration must be None or a finite number"),
        ({"delta": 1.0}, "'delta' of an Exploration must be None or a number between 0 and 1"),
        ({"kappa": 0.0}, "'kappa' of an Exploration must be"),
        ({"sampled": 1}, "'sampled' of an Exploration must be True or False"),
    ],
)
def test_bad_exploration(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Exploration(**given)


def test_a_known_cost_is_what_the_decision_shows() -> None:
    learner, tasks = make("three experts")
    step_through(learner, tasks._replace(contexts=tasks.contexts[:200]))
    decision = learner.propose(tasks.contexts[0], cost={"bo": 0.125}).decision
    assert decision.costs["bo"] == 0.125
    assert decision.cost_widths["bo"] == 0
    assert decision.costs["ann"] != 0.125


@pytest.mark.parametrize("resources", [3, 40])
def test_a_decision_tells_the_costs_of_many_resources(resources: int) -> None:
    names = [f"r{i}" for i in range(resources)]
    learner = november_deferrer(
        n_features=2, budget=dict.fromkeys(names, Budget(100, horizon=100, max_cost=1)), ridge=1.0
    )
    cost = {name: i / resources for i, name in enumerate(names)}
    asked = learner.decide([1.0, 0.0], force="human")
    learner.observe(asked.id, {"human": 1.0}, cost)
    decision = learner.decide([1.0, 0.0])
    # after one sample with ‖x‖ = 1 and ridge 1, an estimate is half of what was seen
    assert decision.costs == {"human": pytest.approx({name: each / 2 for name, each in cost.items()})}
    widths = decision.cost_widths["human"]
    assert isinstance(widths, dict)
    assert list(widths) == names
    assert all(0 <= width < 1 for width in widths.values())
