"""The compiled learner takes the decisions of the plain transcription, which docs/reference.md prints."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from deferkit import Budget, Deferrer, Pacing
from deferkit.types import REASONS
from tests import reference
from tests.conftest import Floats, Tasks, draw_tasks, november_deferrer, numbers, rewards_of
from tests.reference import Choice, Learner, Limit

ROOT = Path(__file__).parents[2]
D, N = 5, 300
IDENTITY, LOGISTIC, LOGISTIC_COSTS = ["identity"] * 2, ["logistic", "identity"], ["identity", "logistic"]


class Case(NamedTuple):
    experts: int = 1
    budgets: Sequence[Budget] = (Budget(0.1 * N, horizon=N, max_cost=1),)
    links: list[str] = IDENTITY
    every: int = 200
    window: int = 1_000


UNCAPPED = Budget(0.1 * N, horizon=N)
TWO = (Budget(0.08 * N, horizon=N, max_cost=1), Budget(0.08 * N, horizon=N - 20))
CASES = {
    "default": Case(),
    "max_cost unknown": Case(budgets=[UNCAPPED]),
    "small window": Case(every=20, window=64),
    "three experts": Case(3),
    "more experts than the warm-up has steps": Case(7),
    "two resources": Case(budgets=TWO),
    "three experts, three resources": Case(3, [*TWO, UNCAPPED], every=15, window=100),
    "horizon passed": Case(2, [Budget(0.1 * N, horizon=N // 2, max_cost=1)]),
    "logistic": Case(links=LOGISTIC),
    "logistic, three experts, two resources": Case(3, TWO, LOGISTIC),
    "logistic costs": Case(links=LOGISTIC_COSTS),
    "logistic costs, two experts, two resources": Case(2, TWO, LOGISTIC_COSTS, every=10, window=80),
    "both logistic": Case(2, links=["logistic", "logistic"]),
    "overrun": Case(2, [Budget(1, horizon=N)]),
    "unlimited": Case(2, [Budget.unlimited()]),
    "nothing": Case(budgets=[Budget(0, horizon=N)]),
}


def make(case: Case, seed: int) -> tuple[Deferrer, Learner, Tasks]:
    """Return both learners and a stream; every other stream has contexts of any sign and length."""
    deferrer = november_deferrer(
        n_features=D,
        experts=[f"expert {k}" for k in range(1, case.experts + 1)],
        budget={f"resource {r}": budget for r, budget in enumerate(case.budgets)},
        link=case.links[0],
        cost_link=case.links[1],
        pacing=Pacing(every=case.every, window=case.window),
        seed=seed,
    )
    limits = [Limit(b.total, b.horizon or math.inf, b.max_cost_of("human") or math.nan) for b in case.budgets]
    learner = Learner(D, case.experts, limits, case.links, seed)
    learner.every, learner.window = case.every, case.window
    binary = case.links[0] == "logistic"
    tasks = draw_tasks(N, D, experts=case.experts, resources=len(limits), binary=binary, seed=seed)
    if seed % 2:
        tasks = tasks._replace(contexts=np.random.default_rng(seed).standard_normal((N, D)))
    return deferrer, learner, tasks


def assert_same(made: list[Choice], expected: list[Choice]) -> None:
    """Routes, reasons and propensities are equal; prices come from bisection and are the same to rounding."""
    assert [choice[:3] for choice in made] == [choice[:3] for choice in expected]
    np.testing.assert_allclose([c.prices for c in made], [c.prices for c in expected], rtol=1e-9)


@pytest.mark.filterwarnings("ignore::deferkit.HorizonWarning")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("feedback", ["full", "bandit", "reviewed"])
@pytest.mark.parametrize("name", CASES)
def test_a_stream_is_decided_as_the_reference_decides_it(name: str, feedback: str, seed: int) -> None:
    deferrer, learner, tasks = make(CASES[name], seed)
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs, feedback=feedback)
    rows = zip(run.routes, run.reasons, run.propensities, run.prices, strict=True)
    made = [Choice(int(route), REASONS[reason], float(p), tuple(prices)) for route, reason, p, prices in rows]
    assert_same(made, reference.run(learner, tasks, feedback))


def play_late(deferrer: Deferrer, learner: Learner, tasks: Tasks, seed: int) -> tuple[list[Choice], list[Choice]]:
    """Let both learners decide while experts come and go, and rewards and costs arrive late, in parts and in any order.

    Now and then the reward of an expert who was not asked becomes known too.
    """
    rng = np.random.default_rng(seed)
    deciders, resources = deferrer.settings.deciders, deferrer.settings.resources
    made, expected = [], []
    arrivals: list[tuple[int, int, dict[int, float], Floats | None]] = []
    for t, x in enumerate(tasks.contexts):
        on_duty = [k for k in range(1, len(deciders)) if rng.random() < 0.8]
        decision = deferrer.decide(x, available=[deciders[k] for k in on_duty])
        route = deciders.index(decision.route)
        choice = learner.decide(x, on_duty)
        # A budget that is used up after an overrun is 0 but for rounding; below 0 no price is high enough.
        some_left = numbers(decision.budget_left) > 1e-12
        prices = np.where(some_left, numbers(decision.price), 0.0)
        made.append(Choice(route, decision.reason, decision.propensity, tuple(prices)))
        expected.append(choice._replace(prices=tuple(np.where(some_left, choice.prices, 0.0))))
        if made[-1][:3] != expected[-1][:3]:
            break
        known = {0, route} | ({int(rng.integers(len(deciders)))} if rng.random() < 0.3 else set())
        arrivals += [(t + int(rng.integers(25)), t, {k: float(tasks.rewards[t, k])}, None) for k in known]
        if route > 0:
            arrivals.append((t + int(rng.integers(25)), t, {}, tasks.costs[t, route - 1]))
        for due, task, rewards, costs in arrivals:
            if due == t:
                named = {deciders[k]: reward for k, reward in rewards.items()}
                amount = None if costs is None else dict(zip(resources, costs.tolist(), strict=True))
                deferrer.observe(task, named, amount)
                learner.observe(task, rewards, costs)
    return made, expected


@pytest.mark.filterwarnings("ignore::deferkit.HorizonWarning")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_late_outcomes_are_taken_in_as_the_reference_takes_them_in(name: str, seed: int) -> None:
    assert_same(*play_late(*make(CASES[name], seed), seed))


@pytest.mark.filterwarnings("ignore::deferkit.HorizonWarning")
def test_the_streams_meet_every_rule() -> None:
    late = [play_late(*make(CASES[name], seed), seed)[1] for name in ("default", "three experts") for seed in range(4)]
    choices = [choice for stream in late for choice in stream]
    assert {choice.reason for choice in choices} == set(REASONS) - {"forced", "explored"}
    assert any(choice.reason == "warm-up" and choice.propensity == 1 for choice in choices)  # an untried expert
    two, _, tasks = make(CASES["logistic, three experts, two resources"], 0)
    prices = two.run(tasks.contexts, rewards_of(two, tasks), tasks.costs).prices
    assert (prices > 0).all(axis=1).mean() > 0.3  # both resources are scarce


def test_the_page_prints_the_reference() -> None:
    source = (ROOT / "tests" / "reference.py").read_text().split("# The default learner.\n")[1]
    page = (ROOT / "docs" / "reference.md").read_text()
    blocks = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    # two blank lines, as between any two definitions
    assert "\n\n".join(blocks) == source.removeprefix("\n")
