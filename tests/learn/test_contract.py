"""What every learner promises, whatever its settings: checked for each of `SETTINGS`."""

import copy
import warnings
from pathlib import Path

import numpy as np
import pytest

from deferkit import Decided, Deferrer, HorizonWarning, LinkWarning, SpendingWarning
from deferkit.learn.embed.tree_columns import TreeColumns
from deferkit.learn.initial_state import new_ledger
from deferkit.types import REASONS
from tests.conftest import SETTINGS, make, numbers, outcome, rewards_of, step_through

pytestmark = pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
every_learner = pytest.mark.parametrize("name", SETTINGS)
every_feedback = pytest.mark.parametrize("feedback", ["full", "bandit", "reviewed"])


@every_learner
@every_feedback
def test_bulk_is_one_at_a_time_is_replay(name: str, feedback: str) -> None:
    bulk, tasks = make(name)
    single, _ = make(name)
    replayed, _ = make(name)
    run = bulk.run(tasks.contexts, rewards_of(bulk, tasks), tasks.costs, feedback=feedback, at=tasks.times)
    events = step_through(single, tasks, feedback)
    decisions = [event.decision for event in events if isinstance(event, Decided)]
    assert [run.deciders[route] for route in run.routes] == [decision.route for decision in decisions]
    assert [REASONS[reason] for reason in run.reasons] == [decision.reason for decision in decisions]
    assert run.propensities.tolist() == [decision.propensity for decision in decisions]
    for event in events:
        replayed.apply(event)
    assert bulk == single
    assert replayed == single


def test_the_settings_pass_fits_and_drifts() -> None:
    """Else the contract would not say anything about them."""
    fitted = {name: given for name, given in SETTINGS.items() if given.get("representation") == "auto"}
    assert {"auto", "auto, named features", "auto, experts and resources"} <= set(fitted)
    for name in fitted:
        learner, tasks = make(name)
        step_through(learner, tasks)
        assert isinstance(learner._representation, TreeColumns)
        assert len(learner._representation.trees["root"]) > 0
        assert learner._representation.state()["schedule"][0] > 300  # when the next fit is due: several are over
    for name in (name for name, given in SETTINGS.items() if given.get("drifts")):
        learner, tasks = make(name)
        step_through(learner, tasks)
        assert "model" in {drift.target for drift in learner.drifts()}
        assert learner.summary().samples_in_use["model"] < 200


@every_learner
def test_saved_in_mid_stream_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    whole, tasks = make(name)
    half, _ = make(name)
    first = tasks._replace(contexts=tasks.contexts[:150])
    step_through(half, first)
    half.decide(tasks.contexts[150], at=tasks.at(150))  # pending when it is saved
    half.save(tmp_path / "half.state")
    restored = Deferrer.load(tmp_path / "half.state")
    assert restored == half
    for learner in (restored, half):
        learner.observe(150, {"model": 0.5 if learner.settings.link == "identity" else 1.0})
        learner.decide_many(tasks.contexts[151:160], at=tasks.when(151, 160))
        step_through(learner, tasks, start=160)
    assert restored == half
    step_through(whole, tasks)
    assert whole != restored


@every_learner
def test_proposing_and_scoring_change_nothing(name: str) -> None:
    learner, tasks = make(name)
    step_through(learner, tasks._replace(contexts=tasks.contexts[:60]))
    learner.decide(tasks.contexts[60], at=tasks.at(60))
    before = learner.to_bytes()
    learner.propose(tasks.contexts[61], at=tasks.at(60))
    if tasks.times is not None:
        learner.renewals(tasks.times[-1])
    learner.score(tasks.contexts[61:90])
    learner.summary()
    assert learner.to_bytes() == before


@every_learner
def test_spending_stays_within_the_budget(name: str) -> None:
    learner, tasks = make(name)
    run = learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs, at=tasks.times)
    for j, (budget, spent) in enumerate(zip(learner.settings.budget.values(), run.costs.sum(axis=0), strict=True)):
        if budget.max_cost is not None and budget.every is None:
            # what a cost above max_cost overruns is covered before anybody is asked: one such cost at most is open
            caps = [budget.max_cost_of(expert) or 1.0 for expert in learner.settings.experts]
            above = max(0.0, 1.0 - min(caps))
            assert spent <= budget.total + above, j
    assert min(numbers(learner.summary().left)) >= 0


@every_learner
def test_decide_many_is_many_decides(name: str) -> None:
    together, tasks = make(name)
    apart, _ = make(name)
    for learner in (together, apart):
        step_through(learner, tasks._replace(contexts=tasks.contexts[:30]))
    assert together.decide_many(tasks.contexts[30:130], at=tasks.when(30, 130)) == [
        apart.decide(tasks.contexts[t], at=tasks.at(t)) for t in range(30, 130)
    ]
    assert together == apart


@every_learner
def test_observe_many_is_many_observes(name: str) -> None:
    together, tasks = make(name)
    apart, _ = make(name)
    decisions = together.decide_many(tasks.contexts[:25], at=tasks.when(0, 25))
    apart.decide_many(tasks.contexts[:25], at=tasks.when(0, 25))
    seen = [outcome(apart, tasks, t, decision) for t, decision in enumerate(decisions)]
    for each in seen:
        apart.observe(each.id, each.rewards, each.cost)
    rewards = {name: [each.rewards.get(name, float("nan")) for each in seen] for name in together.settings.deciders}
    resources = len(together.settings.resources)
    routes = [together.settings.deciders.index(decision.route) for decision in decisions]
    costs = np.array([tasks.costs[t, r - 1] if r else np.full(resources, np.nan) for t, r in enumerate(routes)])
    together.observe_many([each.id for each in seen], rewards, cost=costs[:, None, :])
    assert together == apart


@every_learner
def test_other_seeds_decide_otherwise_in_the_warm_up(name: str) -> None:
    learner, tasks = make(name)
    if learner.settings.budget[learner.settings.resources[0]].total == 0:
        return  # nothing to draw for
    routes = set()
    for seed in range(20):
        given = {**learner.settings.to_dict(), "seed": seed, "warm_up": 3}
        settings = type(learner.settings).from_dict(given)
        other = Deferrer._of(settings, new_ledger(settings), copy.deepcopy(learner._contexts.encoder))
        routes.add(tuple(decision.route for decision in other.decide_many(tasks.contexts[-3:], at=tasks.when(-3))))
    assert len(routes) > 3


@pytest.mark.filterwarnings("ignore::deferkit.SpendingWarning")  # nothing is observed
@every_learner
def test_propensities_are_probabilities_and_1_where_nothing_is_drawn(name: str) -> None:
    learner, tasks = make(name, horizon=400)
    decisions = learner.decide_many(tasks.contexts[:200], at=tasks.when(0, 200))
    assert all(0 < decision.propensity <= 1 for decision in decisions)
    if learner.settings.explore_floor == 0 and not learner.settings.exploration.sampled:
        budgets = learner.settings.budget.values()
        # an expert whose reviews can be stopped is asked again while nothing became known of it
        again = any(budget.hold is not None or budget.limit is not None for budget in budgets)
        tried = {"model"}
        for decision in decisions:
            untried = decision.reason == "warm-up" and decision.route not in tried  # asked once, and not by chance
            assert (decision.propensity == 1) == (decision.reason != "warm-up") or untried
            if not again or decision.route == "model":
                tried.add(decision.route)


@every_learner
def test_the_end_of_the_horizon_is_told_once(name: str) -> None:
    learner, tasks = make(name, horizon=400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for advice in (LinkWarning, SpendingWarning):
            warnings.simplefilter("ignore", advice)
        learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs, at=tasks.times)
    if max(b.horizon or 0 for b in learner.settings.budget.values()) == 0:
        learner.decide(tasks.contexts[0], at=tasks.at(-1))
        return
    with pytest.warns(HorizonWarning, match="400 tasks is over"):
        learner.decide(tasks.contexts[0], at=tasks.at(-1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.decide(tasks.contexts[1], at=tasks.at(-1))
