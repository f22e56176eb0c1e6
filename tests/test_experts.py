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
