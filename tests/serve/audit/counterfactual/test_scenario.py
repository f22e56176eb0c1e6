"""A policy with another budget on its way through a log: what it is told, and when."""

import msgspec
import numpy as np
import pytest

from deferkit.serve.audit.counterfactual.estimate import Feedback, ImputedOutcome, OutcomeImputer
from deferkit.serve.audit.counterfactual.scenario import Alternative, scenario_of
from deferkit.serve.domain.records import BudgetChangedRecord, DecidedRecord
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from tests.serve.audit.counterfactual.test_estimate import decided
from tests.serve.harness.policy_histories import World, simulate, spec_of

# everything is drawn by lot, so that half of what the log left to the model goes to the human
SPEC = PolicySpec(name="p", features=1, budget={"cost": BudgetSpec(total=90, horizon=90, max_cost=1)}, warm_up=90)
BELIEF = ImputedOutcome({"model": 0.25, "human": 0.75}, {"human": {"cost": 100_000}})
SAME = scenario_of("1x", {"cost": 90_000_000})
BOTH = {"model": ("model",), "human": ("model", "human")}


def gone_through(feedback: Feedback, n: int = 20) -> Alternative:
    other = Alternative(SPEC, SAME, feedback)
    for i in range(n):
        other.decide(decided(i, "model", 0.5), BELIEF)
    return other


def test_other_choices_hear_what_is_believed_of_them() -> None:
    other = gone_through(Feedback({"model": 0, "human": 0}, BOTH, {"model": 0.0, "human": 0.0}), 40)
    summary = other.policy.learner.summary()
    asked = summary.routes["human"]
    assert 10 < asked < 30
    assert asked - summary.pending in (asked, asked - 1)  # the last is yet to be heard of
    assert other.policy.accounts["cost"].posted == (asked - summary.pending) * 100_000
    scores = other.policy.learner.score([[1.0]])
    assert scores.estimates["human"][0] == pytest.approx(0.75, rel=0.01)
    assert scores.estimates["model"][0] == pytest.approx(0.25, rel=0.01)


def test_it_takes_as_long_as_it_usually_does() -> None:
    ample = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=900, horizon=90, max_cost=1)})
    soon, last = (
        Alternative(ample, SAME, Feedback({"model": 0, "human": after}, BOTH, {"model": 0.0, "human": 0.0}))
        for after in (5, 99)
    )
    routes = []
    for i in range(20):
        before = last.policy.learner.summary().routes["human"]
        for other in (soon, last):
            other.decide(decided(i, "model", 0.5), BELIEF)
        routes.append(last.policy.learner.summary().routes["human"] - before)
    assert soon.policy.learner.summary().pending == sum(routes[-6:])
    assert last.policy.learner.summary().pending == sum(routes)


def test_who_never_answers_is_not_paid() -> None:
    other = gone_through(Feedback({"model": 0, "human": 0}, BOTH, {"model": 0.0, "human": 1.0}))
    summary = other.policy.learner.summary()
    assert summary.expired == summary.routes["human"] - summary.pending > 5
    assert other.policy.accounts["cost"].posted == 0


def test_what_is_never_reported_is_not_heard() -> None:
    other = gone_through(Feedback({"model": 0, "human": 0}, {"model": (), "human": ()}, {"model": 0.0, "human": 0.0}))
    assert other.policy.learner.score([[1.0]]).estimates["human"][0] == 0
    assert other.policy.accounts["cost"].posted > 0


def test_top_ups_and_cuts_are_in_proportion() -> None:
    half = scenario_of("50%", {"cost": 90_000_000})
    spec = half.spec(SPEC, decisions=90, max_logged_cost={"cost": 1.0})
    assert spec.budget["cost"].total == 45
    other = Alternative(spec, half, Feedback({"model": 0, "human": 0}, BOTH, {"model": 0.0, "human": 0.0}))
    for i in range(20):
        other.decide(decided(i, "model", 0.5), BELIEF)
    used = other.policy.accounts["cost"].posted + other.policy.accounts["cost"].reserved
    for logged, total in ((120_000_000, 60_000_000), (0, used)):
        other.see(BudgetChangedRecord(request="b", totals={"cost": logged}))
        assert other.policy.accounts["cost"].total == total


def test_what_is_known_goes_before_what_is_believed() -> None:
    world = World.draw(0, 50)
    life = simulate(spec_of(50, 0.5), world, task=lambda _: {"cost": 0.9})
    log = [record for record in life.log if isinstance(record, DecidedRecord)]
    told, estimated, vectors = OutcomeImputer(life.policy, life.decision_log.facts()).of(log)
    routes = life.decision_log.facts().routes
    assert np.array_equal(vectors, world.contexts)
    for t in range(50):
        assert told[t].rewards["model"] == world.rewards[t, 0]
        assert told[t].rewards["human"] == (world.rewards[t, 1] if routes[t] else estimated[t, 1])
        assert told[t].costs["human"] == {"cost": 900_000}
