"""Several experts and several resources."""

import numpy as np
import pytest

from deferkit import Budget, Deferrer
from tests.conftest import SETTINGS, draw_tasks, make, rewards_of, trial


@pytest.mark.parametrize("pacing", ["paper", "gradient", "resolve", "adaptive"])
def test_an_expert_who_is_never_there_changes_nothing(pacing: str) -> None:
    """Two experts with one of them always off duty decide exactly as one expert does."""
    tasks = draw_tasks(300, 4)
    budget = Budget(25, horizon=300, max_cost=1)
    one = Deferrer(n_features=4, budget=budget, pacing=pacing, warm_up=0)
    two = Deferrer(n_features=4, budget=budget, pacing=pacing, warm_up=0, experts=["absent", "human"])
    for learner in (one, two):
        learner.warm_start(
            tasks.contexts[:20], {"human": tasks.rewards[:20, 1]}, expert="human", cost=tasks.costs[:20, 0, 0]
        )
        for t, x in enumerate(tasks.contexts):
            decision = learner.decide(x, available=["human"])
            route = int(decision.route == "human")
            seen = {decision.route: float(tasks.rewards[t, route])}
            learner.observe(decision.id, seen, float(tasks.costs[t, 0, 0]) if route else None)
    assert one.summary().routes["human"] == two.summary().routes["human"]
    assert one.summary().routes["human"] > 0 or pacing in ("paper", "gradient")  # those start far too dear
    assert one.summary().spent == two.summary().spent
    assert one.summary().price == two.summary().price


def test_a_resource_that_nobody_uses_changes_nothing() -> None:
    tasks = draw_tasks(400, 4)
    one = Deferrer(n_features=4, budget=Budget(25, horizon=400, max_cost=1), pacing="adaptive")
    both = {"minutes": Budget(25, horizon=400, max_cost=1), "gold": Budget(9, horizon=400, max_cost=1e-9)}
    two = Deferrer(n_features=4, budget=both, pacing="adaptive")
    routes = one.run(tasks.contexts, rewards_of(one, tasks), tasks.costs).routes
    costs = np.concatenate([tasks.costs, np.zeros_like(tasks.costs)], axis=2)
    assert (two.run(tasks.contexts, rewards_of(two, tasks), costs).routes == routes).all()


@pytest.mark.parametrize("name", [n for n in SETTINGS if "experts" in n or "resources" in n])
def test_every_resource_stays_within_its_budget(name: str) -> None:
    learner, tasks = make(name)
    run = learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
    for j, budget in enumerate(learner.settings.budget.values()):
        assert run.costs[:, j].sum() <= budget.total


FLOORS = {(3, 1): (99.0, 99.3, 99.6), (1, 2): (98.5, 99.0, 99.5), (3, 2): (98.5, 99.0, 99.5)}


@pytest.mark.parametrize(("experts", "resources"), FLOORS)
def test_three_experts_and_two_resources_reach_their_figures(experts: int, resources: int) -> None:
    """Per cent of the linear programme's optimum at B/T = .04, .16, .64; T = 20,000, mean over 3 seeds."""
    world = {"regime": "dominant", "horizon": 20_000, "n_features": 12, "n_experts": experts, "n_resources": resources}
    for rate, floor in zip((0.04, 0.16, 0.64), FLOORS[experts, resources], strict=True):
        pct = [trial(world, f"{rate}T", ["default", "adaptive"], seed=s) for s in range(3)]
        for i in range(2):
            assert np.mean([rows[i]["pct_opt"] for rows in pct]) >= floor


@pytest.mark.parametrize("link", ["identity", "logistic"])
@pytest.mark.parametrize(
    ("d", "experts", "off_duty"),
    [(1, {"human": 0.95}, 0), (4, {"human": 0.95}, 20), (4, {"a": 0.65, "b": 0.65, "c": 0.65, "e": 0.95}, 0)],
    ids=["one coin", "nobody on duty at first", "four experts"],
)
def test_a_good_expert_is_not_missed(link: str, d: int, experts: dict[str, float], off_duty: int) -> None:
    """The last expert is right in 95 % of 300 tasks, all others in 60 or 65 %, and there is budget for all: 20 seeds.

    Whom the coins of the warm-up do not choose is asked once after it. Over 30 seeds and 600 tasks 86 to 99 % went to
    the best, and none of the seeds was without; before, up to 12 of 30 were.
    """
    right = {"model": 0.6, **experts}
    best = [*experts][-1]
    shares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        budget = Budget(300, horizon=300, max_cost=1)
        deferrer = Deferrer(n_features=d, budget=budget, link=link, seed=seed, experts=[*experts])
        routes = []
        for i in range(300):
            decision = deferrer.decide([1.0, *rng.random(d - 1)], available=[] if i < off_duty else None)
            reward = float(rng.random() < right[decision.route])
            deferrer.observe(decision.id, {decision.route: reward}, None if decision.route == "model" else 0.5)
            routes.append(decision.route)
        shares.append(routes.count(best) / 300)
    assert min(shares) > 0
    assert float(np.mean(shares)) > 0.7


def test_who_was_never_asked_is_asked_once_after_the_warm_up() -> None:
    deferrer = Deferrer(n_features=2, experts=["a", "b"], budget=Budget(100, horizon=1000, max_cost=0.1), warm_up=3)
    decisions = [deferrer.decide([1.0, 0.0], available=[]) for _ in range(3)]
    decisions += [deferrer.decide([1.0, 0.0], available=["b"]), *deferrer.decide_many([[1.0, 0.0]] * 3)]
    assert [(each.route, each.reason) for each in decisions[3:5]] == [("b", "warm-up"), ("a", "warm-up")]
    assert {each.propensity for each in decisions} == {1.0}
    assert "warm-up" not in {each.reason for each in decisions[5:]}
    told = Deferrer(n_features=2, budget=Budget(100, horizon=1000, max_cost=0.1), warm_up=1)
    told.warm_start([[1.0, 0.0]] * 9, {"model": [1.0] * 9, "human": [0.0] * 9}, cost=[0.1] * 9)
    told.decide([1.0, 0.0], available=[])
    assert told.decide([1.0, 0.0]).reason == "not worth it"
