"""The compiled prices of budgets with an end or a period are those of the formulas in plain numpy."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from deferkit import Budget, Deferrer, Pacing
from tests.conftest import Tasks, draw_tasks, draw_times, november_deferrer, numbers, rewards_of
from tests.learn.test_reference import assert_same
from tests.reference import Choice
from tests.reference_renewing import Plan, RenewingLearner

D, N, HOUR = 4, 260, 3_600.0


class Case(NamedTuple):
    plans: list[Plan]
    capped: bool = True
    experts: int = 1
    links: tuple[str, str] = ("identity", "identity")
    window: int = 1_000


WEEKLY = Plan(4, every=HOUR)
CASES = {
    "renewing": Case([WEEKLY]),
    "carried over": Case([Plan(3, every=HOUR, carry=1.0)]),
    "nothing lapses, no cap": Case([Plan(3, every=2 * HOUR, carry=math.inf)], capped=False),
    "small window, two experts": Case([Plan(5, every=HOUR, carry=0.5)], experts=2, window=40),
    "until": Case([Plan(30, until=60_000.0)]),
    "until, bins of an hour": Case([Plan(30, until=900_000.0)]),
    "logistic": Case([Plan(6, every=HOUR)], links=("logistic", "identity")),
    "three resources": Case([Plan(4, every=HOUR), Plan(30, until=60_000.0), Plan(20, horizon=N)], experts=2),
}


def budget_of(plan: Plan, capped: bool) -> Budget:
    cap = 1.0 if capped else None
    if plan.every is not None:
        return Budget(plan.amount, every=f"{plan.every}s", carry=plan.carry, max_cost=cap)
    if plan.until is not None:
        return Budget(plan.amount, until=plan.until, max_cost=cap)
    return Budget(plan.amount, horizon=int(plan.horizon), max_cost=cap)


def make(case: Case, seed: int) -> tuple[Deferrer, RenewingLearner, Tasks]:
    deferrer = november_deferrer(
        n_features=D,
        experts=[f"expert {k}" for k in range(case.experts)],
        budget={f"resource {r}": budget_of(plan, case.capped) for r, plan in enumerate(case.plans)},
        link=case.links[0],
        cost_link=case.links[1],
        pacing=Pacing(window=case.window),
        seed=seed,
    )
    caps = [1.0 if case.capped else math.nan] * len(case.plans)
    learner = RenewingLearner(D, case.experts, case.plans, caps, list(case.links), seed)
    learner.window = case.window
    binary = case.links[0] == "logistic"
    tasks = draw_tasks(N, D, experts=case.experts, resources=len(case.plans), binary=binary, seed=seed)
    return deferrer, learner, tasks._replace(times=draw_times(N, seed))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_prices_are_those_of_the_formulas(name: str, seed: int, late: bool) -> None:
    deferrer, learner, tasks = make(CASES[name], seed)
    rng = np.random.default_rng(seed)
    deciders, resources = deferrer.settings.deciders, deferrer.settings.resources
    made, expected = [], []
    due: list[tuple[int, int]] = []
    for t in range(N):
        at = tasks.at(t)
        assert at is not None
        decision = deferrer.decide(tasks.contexts[t], at=at)
        route = deciders.index(decision.route)
        some_left = numbers(decision.budget_left) > 1e-12  # where nothing is left, no price is high enough
        made.append(Choice(route, decision.reason, decision.propensity, tuple(numbers(decision.price) * some_left)))
        choice = learner.decide_at(tasks.contexts[t], at)
        expected.append(choice._replace(prices=tuple(np.array(choice.prices) * some_left)))
        if made[-1][:3] != expected[-1][:3]:
            break
        due.append((t + int(rng.integers(20)) if late else t, t))
        for when, task in due:
            if when == t:
                asked = expected[task].route
                known = {k: float(tasks.rewards[task, k]) for k in {0, asked}}
                costs = tasks.costs[task, asked - 1] if asked else None
                amount = None if costs is None else dict(zip(resources, costs.tolist(), strict=True))
                cost = amount if amount is None or len(resources) > 1 else next(iter(amount.values()))
                deferrer.observe(task, {deciders[k]: reward for k, reward in known.items()}, cost)
                learner.observe(task, known, costs)
    assert len(made) == N or made[-1][:3] == expected[-1][:3]
    assert_same(made, expected)


def test_the_streams_meet_every_rule() -> None:
    deferrer, _, tasks = make(CASES["carried over"], 0)
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs, at=tasks.times)
    assert deferrer.summary().backwards > 0
    assert len(np.unique(run.prices)) > 50
    assert tasks.times is not None
    assert np.diff(np.floor(tasks.times / HOUR)).max() > 2  # a gap of several periods
