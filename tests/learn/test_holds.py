"""Holds of pending reviews that are smaller than `max_cost`: sized, extended, stopped; and the promise."""

import math
from typing import Any

import numpy as np
import pytest

from deferkit import AlreadySettled, Budget, BudgetExhausted, Deferrer, Extended, InvalidArgument, UnknownDecision
from deferkit.types import REASONS
from tests.conftest import draw_tasks, rewards_of

X = [0.6, 0.8]


def learner(**given: Any) -> Deferrer:
    return Deferrer(n_features=2, budget=Budget(**{"total": 100, "horizon": 1_000, "max_cost": 50} | given))


def test_without_a_hold_max_cost_is_held() -> None:
    assert learner().decide(X, force="human").reserved == 50


def test_auto_is_three_times_the_mean_cost_and_at_most_max_cost() -> None:
    deferrer = learner(total=10_000, hold="auto")
    first = deferrer.decide(X, force="human")
    assert first.reserved == 50  # a hundredth of the budget before a cost is known, up to max_cost
    deferrer.observe(first.id, cost=2.0)
    second = deferrer.decide(X, force="human")
    assert second.reserved == 6
    deferrer.observe(second.id, cost=46.0)
    assert deferrer.decide(X, force="human").reserved == 50
    uncapped = learner(total=10_000, max_cost=None, hold="auto")
    uncapped.observe(uncapped.decide(X, force="human").id, cost=7.0)
    assert uncapped.decide(X, force="human").reserved == 21


def test_auto_is_a_hundredth_of_what_is_left_but_no_less_than_the_mean_cost() -> None:
    deferrer = learner(total=200, hold="auto")
    deferrer.observe(deferrer.decide(X, force="human").id, cost=1.0)
    assert deferrer.decide(X, force="human").reserved == pytest.approx(1.99)
    small = learner(total=60, hold="auto")
    small.observe(small.decide(X, force="human").id, cost=1.0)
    assert small.decide(X, force="human").reserved == 1


def test_costs_that_are_corrected_to_nothing_leave_a_mean_of_0() -> None:
    deferrer = learner(hold="auto")
    for cost in (0.1, 0.2, 0.7):
        deferrer.observe(deferrer.decide(X, force="human").id, cost=cost)
    for decision in range(3):
        deferrer.correct(decision, cost=0.0)
    assert deferrer._ledger.view("cost_sum")[0] >= 0
    event = deferrer.propose(X, force="human")
    assert event.decision.reserved == pytest.approx(0, abs=1e-12)
    deferrer.apply(event)


def test_a_fixed_hold_and_a_limit() -> None:
    assert learner(hold=4).decide(X, force="human").reserved == 4
    assert learner(hold=4, limit=3).decide(X, force="human").reserved == 3
    assert learner(limit=30).decide(X, force="human").reserved == 30
    assert learner(hold=80).decide(X, force="human").reserved == 50
    assert learner(hold=4).decide(X, force="human", cost=9.0).reserved == 9


def test_an_extension_is_what_is_left_up_to_the_most_of_one_review() -> None:
    deferrer = learner(hold=10, limit=40)
    first, second = (deferrer.decide(X, force="human").id for _ in range(2))
    assert deferrer.extend(first, 25) == 25
    assert deferrer.extend(first, 25) == 5  # up to the limit of 40
    third = deferrer.decide(X, force="human").id
    assert deferrer.extend(second, 30) == 30
    assert deferrer.summary().left == 10
    assert deferrer.extend(third, 30) == 10  # what is left
    assert deferrer.extend(third, 1) == 0
    assert deferrer.summary().reserved == 100
    deferrer.observe(second, cost=37.5)
    assert deferrer.summary().left == 2.5
    restored = Deferrer.from_bytes(deferrer.to_bytes())
    for each in (deferrer, restored):
        assert each.extend(third, 5) == 2.5
    assert restored == deferrer


def test_a_stopped_review_is_booked_and_counted() -> None:
    deferrer = learner(hold=10)
    decision = deferrer.decide(X, force="human").id
    deferrer.stop(decision, 10.0, {"model": 0.5})
    summary = deferrer.summary()
    assert (summary.spent, summary.reserved, summary.stopped, summary.pending) == (10, 0, 1, 0)
    assert (summary.samples["model"], summary.samples["human"], summary.samples["cost of human"]) == (1, 0, 1)
    deferrer.stop(decision, 10.0)  # again: nothing happens
    assert deferrer.summary().stopped == 1


def test_a_reviewer_who_does_not_stop_is_an_overrun() -> None:
    deferrer = learner(total=20, hold=10)
    going_on, other = (deferrer.decide(X, force="human").id for _ in range(2))
    assert deferrer.extend(going_on, 5) == 0
    deferrer.observe(going_on, cost=14.0)
    summary = deferrer.summary()
    assert (summary.spent, summary.overrun, summary.reserved) == (10, 4, 10)
    deferrer.observe(other, cost=3.0)
    assert deferrer.summary().left == 7


def test_bad_extensions_and_stops() -> None:
    deferrer = learner(hold=10)
    asked, not_asked = deferrer.decide(X, force="human").id, deferrer.decide(X, force="model").id
    before = deferrer.to_bytes()
    for amount in (-1, math.nan, math.inf, "much", None):
        with pytest.raises(InvalidArgument):
            deferrer.extend(asked, amount)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            deferrer.stop(asked, amount)  # type: ignore[arg-type]
    with pytest.raises(AlreadySettled, match="holds no budget"):
        deferrer.extend(not_asked, 1)
    with pytest.raises(InvalidArgument, match="one for which an expert was asked"):
        deferrer.stop(not_asked, 0)
    with pytest.raises(UnknownDecision):
        deferrer.extend(7, 1)
    with pytest.raises(BudgetExhausted, match="Extending decision 0 needs 91 of budget; 90 is free"):
        deferrer.apply(Extended(asked, 91))
    assert deferrer.to_bytes() == before
    deferrer.expire(asked)
    with pytest.raises(AlreadySettled):
        deferrer.extend(asked, 1)


def test_pacing_counts_what_pending_reviews_are_expected_to_cost() -> None:
    """Two hundred tasks without feedback: with large holds the price rises, with expected costs hardly."""
    tasks = draw_tasks(600, 3, seed=2)
    prices = []
    for hold in (None, "auto"):
        deferrer = Deferrer(n_features=3, budget=Budget(60, horizon=2_000, max_cost=1, hold=hold))
        half = {"model": tasks.rewards[:300, 0] * 0.1, "human": tasks.rewards[:300, 1]}
        deferrer.run(tasks.contexts[:300], half, tasks.costs[:300] * 0.2)
        before = deferrer.summary().price
        asked = [d.id for d in deferrer.decide_many(tasks.contexts[300:]) if d.route == "human"]
        prices.append(deferrer.summary().price / before)  # type: ignore[operator]
        for number in asked:
            deferrer.observe(number, cost=0.1)
        assert deferrer._ledger.view("pending_cost")[0] == pytest.approx(0, abs=1e-9)
    assert prices[0] > 1.3 * prices[1]


def test_run_stops_reviews_at_their_limit_and_leaves_the_models_answer() -> None:
    tasks = draw_tasks(400, 3, seed=5)
    deferrer = Deferrer(n_features=3, budget=Budget(20, horizon=400, max_cost=1, limit=0.15), warm_up=400)
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    asked = run.routes == 1
    long = asked & (tasks.costs[:, 0, 0] > 0.15)
    assert long.sum() > 20
    assert run.costs[asked, 0].max() <= 0.15
    assert (run.rewards[long] == tasks.rewards[long, 0]).all()
    assert (run.rewards[asked & ~long] == tasks.rewards[asked & ~long, 1]).all()
    assert deferrer.summary().stopped >= long.sum()
    assert deferrer.summary().samples["human"] == (asked & ~long).sum()


def test_heavy_tails_leave_the_budget_unspent_only_where_all_of_it_is_held() -> None:
    rng = np.random.default_rng(1)
    n = 2_000
    contexts = np.abs(rng.standard_normal((n, 3)))
    costs = np.minimum(np.exp(rng.standard_normal(n) - 0.5) * np.where(rng.random(n) < 0.002, 100, 1), 100)
    rewards = {"model": np.full(n, 0.2), "human": rng.random(n)}
    spent = {}
    for name, hold in (("max_cost", None), ("auto", "auto")):
        deferrer = Deferrer(n_features=3, budget=Budget(200, horizon=n, max_cost=100, hold=hold))
        run = deferrer.run(contexts, rewards, costs)
        spent[name] = run.costs.sum()
        assert spent[name] <= 200 * (1 + 1e-12)
        assert deferrer.summary().overrun == 0
        assert {REASONS[r] for r in run.reasons} <= set(REASONS)
    assert spent["max_cost"] < 130
    assert spent["auto"] > 190
