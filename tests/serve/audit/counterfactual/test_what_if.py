"""What another budget would have done, against worlds in which that is known."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from deferkit import Budget, Deferrer
from deferkit.serve.audit.counterfactual.estimate import DecisionLog, ImputedOutcome, feedback_of, propensities
from deferkit.serve.audit.counterfactual.scenario import Alternative, logged_budgets, scenario_of
from deferkit.serve.audit.counterfactual.what_if import WhatIf, what_if
from deferkit.serve.audit.replay import logged_records, replay
from deferkit.serve.domain import records
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import learner_of
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicySpec
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.audit.test_replay import eventful
from tests.serve.harness.in_process import play
from tests.serve.harness.policy_histories import SimulatedHistory, World, simulate, spec_of


def asked_of(life: SimulatedHistory, *budgets: str) -> WhatIf:
    logged = logged_budgets(life.policy.spec, life.policy.accounts)
    scenarios = [scenario_of(each, logged) for each in budgets]
    return what_if(zip(life.times, life.log, strict=True), life.policy, life.decision_log, scenarios)


def with_budget(spec: PolicySpec, factor: float) -> PolicySpec:
    budget = {n: msgspec.structs.replace(b, total=round((b.total or 0) * factor, 6)) for n, b in spec.budget.items()}
    return msgspec.structs.replace(spec, budget=budget)


def errors(seeds: Sequence[int], factors: Sequence[float], *, n: int, bent: float, feedback: str, **given: Any) -> Any:
    """Return estimate less truth, and the standard error, for reward and difference: [seed, factor, 4]."""
    found = []
    for seed in seeds:
        world, spec = World.draw(seed, n, bent=bent), spec_of(n, 0.25, seed=seed, **given)
        life = simulate(spec, world, feedback=feedback)
        assert life.reward == pytest.approx(truth(spec, world, feedback))
        rows = asked_of(life, *(f"{factor:g}x" for factor in factors)).rows
        for row, factor in zip(rows[1:], factors, strict=True):
            was = truth(with_budget(spec, factor), world, feedback)
            assert row.reward is not None
            assert row.difference is not None
            off = (row.reward.mean - was, row.difference.mean - was + life.reward)
            found.append((off[0], row.reward.se, off[1], row.difference.se))
    return np.array(found).reshape(len(seeds), len(factors), 4)


def truth(spec: PolicySpec, world: World, feedback: str) -> float:
    """Return the mean reward of a policy that really has this budget, in the same world, with the same coins."""
    rewards = {name: world.rewards[:, k] for k, name in enumerate(spec.deciders)}
    run = learner_of(spec).run(world.contexts, rewards, world.costs[:, 0], feedback=feedback)
    return run.reward / len(world.contexts)


@pytest.mark.parametrize(
    ("feedback", "floor"),
    [("bandit", 0.1), ("reviewed", 0.2)],
    ids=["bandit feedback", "only reviewed tasks are judged"],
)
def test_estimates_are_within_their_error_of_the_truth(feedback: str, floor: float) -> None:
    found = errors(range(24), [0.5, 2.0], n=500, bent=0.3, feedback=feedback, explore_floor=floor)
    for off, se in ((found[:, :, 0], found[:, :, 1]), (found[:, :, 2], found[:, :, 3])):
        assert (np.abs(off) <= 2 * se).mean() >= 0.85
        assert (np.abs(off.mean(axis=0)) <= 3 * off.std(axis=0) / len(off) ** 0.5).all()  # no bias to be seen
        assert (se.mean(axis=0) < 2 * np.sqrt((off**2).mean(axis=0))).all()  # nor is the error just large


def test_without_a_floor_it_is_by_the_estimates_and_says_so() -> None:
    world = World.draw(1, 600)
    life = simulate(spec_of(600, 0.25, explore_floor=0.0), world, feedback="bandit")
    found = asked_of(life, "2x")
    assert found.basis.startswith("model-based: nothing was explored on purpose")
    assert found.rows[1].unsupported > 0.1
    was = simulate(with_budget(spec_of(600, 0.25, explore_floor=0.0), 2), world, feedback="bandit")
    row = found.rows[1]
    assert row.reward is not None
    assert abs(row.reward.mean - was.reward) < 3 * row.reward.se
    assert row.spent["cost"] == pytest.approx(was.spent(), rel=0.02)


def test_a_floor_makes_up_for_estimates_that_are_wrong() -> None:
    """Rewards that are far from linear: the estimates alone are off, those from propensities are not."""
    off = errors(range(6), [2.0], n=700, bent=2.5, feedback="full", explore_floor=0.2)
    assert (np.abs(off[:, 0, 2]) <= 2.5 * off[:, 0, 3]).all()


@pytest.mark.parametrize("feedback", ["full", "bandit", "reviewed"])
def test_the_budget_that_was_reproduces_the_log(feedback: str) -> None:
    life = simulate(spec_of(300, 0.3), World.draw(3, 300), feedback=feedback, delay=7)
    found = asked_of(life, "1x", "100%", f"{life.policy.accounts['cost'].total / 1e6:g}")  # type: ignore[operator]
    first, *others = found.rows
    assert first.reward is not None
    if feedback != "reviewed":
        assert first.reward.mean == pytest.approx(life.reward)
        assert first.reward.se == 0
    for row in others:
        assert row.difference == (0.0, 0.0)
        assert row._replace(budget="as it was", difference=first.difference) == first


def test_everything_that_can_happen_is_gone_through_again(database: Database) -> None:
    """Corrections, expiries, efforts, top-ups, late costs: the policy that was, bit for bit."""
    play(database, eventful)
    store, decision_log = Store(database), DecisionLog()
    report = replay(store, "default", "p", watch=decision_log.see)
    assert report.policy is not None
    logged = logged_budgets(report.policy.spec, report.policy.accounts)
    same = scenario_of("1x", logged)
    (_, created), *log = logged_records(store, report.row)
    assert isinstance(created, records.CreatedRecord)
    other = Alternative(created.spec, same, feedback_of(decision_log, decision_log.facts()))
    for at, record in log:
        if isinstance(record, records.DecidedRecord):
            other.decide(record, ImputedOutcome({}, {}), at)
        else:
            other.see(record)
    assert other.policy.learner == report.policy.learner
    assert other.policy.accounts == report.policy.accounts
    assert other.policy.tally == report.policy.tally
    assert other.policy.spec == report.policy.spec
    rows = what_if(logged_records(store, report.row), report.policy, decision_log, [same, scenario_of("2x", logged)])
    assert [row.spent["cost"] for row in rows.rows[:2]] == [3.625, 3.625]


def test_forced_and_unattended_tasks_stay_as_they_were() -> None:
    """What callers prescribe they would have prescribed; where nobody was on duty nobody would have been."""
    always = simulate(spec_of(100, 0.9), World.draw(5, 100), task=lambda t: {"force": "human" if t % 2 else "model"})
    for row in asked_of(always, "0.9x", "3x").rows:
        assert row.asked == 0.5
    nobody = simulate(spec_of(100, 0.2), World.draw(5, 100), task=lambda _: {"available": []})
    found = asked_of(nobody, "5x")
    assert [row.asked for row in found.rows] == [0, 0]
    assert found.rows[1].difference == (0.0, 0.0)
    short = asked_of(always, "10%")  # there a caller who asks for more than there is gets the model
    assert 0 < short.rows[1].asked < 0.2


def test_where_the_budget_was_gone_estimates_have_to_do() -> None:
    """Once nothing is left nobody can be asked: no coin is tossed, and it is said how much rests on that."""
    spec = spec_of(400, 0.05, pacing="gradient", exploration=3.0)
    found = asked_of(simulate(spec, World.draw(2, 400), feedback="bandit"), "8x")
    share = found.rows[1].unsupported
    assert share > 0.05
    assert f"8x: {100 * share:.0f} % of the choices rest on estimates alone" in " ".join(found.remarks)


def test_nothing_is_said_of_rewards_that_nobody_knows() -> None:
    life = simulate(spec_of(60, 0.5), World.draw(2, 60), feedback="none")
    found = asked_of(life, "2x")
    assert [row.reward for row in found.rows] == [None, None]
    assert found.remarks == ["No reward of model and human is known, so rewards cannot be estimated."]
    decision_log = DecisionLog()
    decision_log.see(life.log[0])
    empty = asked_of(SimulatedHistory(life.log[:1], Policy(spec_of(60, 0.5)), decision_log, 0.0, [0]), "2x")
    assert (empty.decisions, empty.remarks) == (0, ["The log has no decisions."])
    assert [row.reward for row in empty.rows] == [None, None]


def test_several_experts_and_named_features() -> None:
    world = World.draw(4, 300, experts=2)
    spec = spec_of(300, 0.25, experts=["ann", "bo"], explore_floor=0.3)
    found = asked_of(simulate(spec, world, feedback="bandit"), "1x", "2x")
    assert found.rows[1].difference == (0.0, 0.0)
    assert found.rows[2].asked > found.rows[0].asked
    named = FeatureSpec(numbers=["x", "z"], categories={"kind": ["a", "b"]})
    tasks = [{"x": x, "z": z, "kind": "ab"[int(x > 0.5)]} for _, x, z in world.contexts.tolist()]
    life = simulate(spec_of(300, 0.25, features=named), world, feedback="bandit", contexts=tasks)
    found = asked_of(life, "1x", "2x")
    assert found.rows[1].difference == (0.0, 0.0)
    assert found.rows[2].difference is not None
    assert 0 < found.rows[2].difference.se < 0.1


def test_chances_are_the_same_whatever_was_drawn() -> None:
    """The probability of every decider is found from any of the decisions that could have been drawn."""
    found: dict[str, list[float]] = {}
    for seed in range(60):
        learner = Deferrer(
            n_features=1,
            experts=["ann", "bo"],
            budget=Budget(50, horizon=100, max_cost=1),
            explore_floor=0.3,
            warm_up=0,
            seed=seed,
        )
        for name, reward in (("ann", 0.9), ("bo", 0.6), ("model", 0.2)):
            cost = None if name == "model" else 0.1
            learner.observe(learner.decide([1.0], force=name).id, {name: reward}, cost)
        decision = learner.decide([1.0])
        found[decision.route] = propensities(decision, ("model", "ann", "bo"), 0.3)
    assert set(found) == {"model", "ann", "bo"}
    for each in found.values():
        assert each == pytest.approx([0.1, 0.8, 0.1])


def test_a_budget_without_end() -> None:
    endless = spec_of(200, 0.5, budget={"cost": BudgetSpec()})
    life = simulate(endless, World.draw(6, 200), feedback="bandit")
    found = asked_of(life, "10", "inf")
    assert found.rows[0].totals == {"cost": None}
    assert found.rows[1].spent["cost"] <= 10 < found.rows[0].spent["cost"] == found.rows[2].spent["cost"]
