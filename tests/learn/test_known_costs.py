"""Costs that are known before the decision, that every review has, and that exceed what was held for them."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit import (
    Budget,
    BudgetExhausted,
    ConflictingObservation,
    Deferrer,
    Expired,
    InvalidArgument,
    Observed,
    SpendingWarning,
)

NOW = 1_800_000_000.0


def learner(budget: Budget | dict[str, Budget] | None = None, **given: Any) -> Deferrer:
    return Deferrer(**{"n_features": 2, "budget": budget or Budget(10, horizon=100, max_cost=1)} | given)


def ask(deferrer: Deferrer, **given: Any) -> int:
    return deferrer.decide([0.6, 0.8], **{"force": "human"} | given).id


# ------------------------------------------------------------ announced


def test_an_announced_cost_is_booked_with_the_reward_of_the_expert() -> None:
    deferrer = learner()
    first, second, unknown = ask(deferrer, cost=0.5), ask(deferrer, cost=0.25), ask(deferrer)
    deferrer.observe(first, {"model": 1.0})
    assert deferrer.summary().spent == 0
    deferrer.observe(first, {"human": 1.0})
    deferrer.observe(second, {"human": 1.0}, cost=0.75)  # what is reported counts
    deferrer.observe(unknown, {"human": 1.0})
    assert (deferrer.summary().spent, deferrer.summary().pending) == (1.25, 1)
    with pytest.raises(ConflictingObservation):
        deferrer.observe(first, cost=0.75)
    deferrer.observe(first, {"human": 1.0})  # the same again


def test_the_same_in_one_call_for_many() -> None:
    many, one = learner(), learner()
    ids, _ = ([ask(each, cost=0.5), ask(each), ask(each, force="model", cost=0.5)] for each in (many, one))
    many.observe_many(ids, {"human": [1.0, 1.0, float("nan")], "model": [0.0, 1.0, 1.0]})
    for number, human, model in zip(ids, (1.0, 1.0, None), (0.0, 1.0, 1.0), strict=True):
        one.observe(number, {"model": model} | ({} if human is None else {"human": human}))
    assert many == one
    assert many.summary().spent == 0.5


def test_an_event_books_what_it_says_so_that_old_logs_replay_as_they_were() -> None:
    deferrer = learner()
    number = ask(deferrer, cost=0.5)
    event = deferrer.observation(number, {"human": 1.0})
    assert event == Observed(number, {"human": 1.0}, 0.5)
    deferrer.apply(Observed(number, {"human": 1.0}, None))
    assert (deferrer.summary().spent, deferrer.summary().pending) == (0, 1)
    assert deferrer.observation(number, {"model": 1.0}) == Observed(number, {"model": 1.0}, None)


def test_a_log_of_events_gives_the_same_learner() -> None:
    live, replayed = (learner(Budget(15, horizon=150, max_cost=1), explore_floor=0.2) for _ in range(2))
    rng = np.random.default_rng(5)
    for t in range(150):
        decided = live.propose(rng.random(2), cost=float(rng.random()) if t % 3 else None)
        assert decided.announced == (t % 3 > 0 and decided.decision.route == "human")
        live.apply(decided)
        replayed.apply(decided)
        if decided.decision.route == "human" and t % 5 == 0:
            live.expire(decided.decision.id)
            replayed.apply(Expired(decided.decision.id))
        observed = live.observation(decided.decision.id, {decided.decision.route: float(rng.random() < 0.5)})
        live.observe(observed.id, observed.rewards)
        replayed.apply(observed)
    assert live == replayed
    assert Deferrer.from_bytes(live.to_bytes()) == live


def test_an_expired_review_books_no_announced_cost() -> None:
    deferrer = learner()
    number = ask(deferrer, cost=0.5)
    deferrer.expire(number)
    deferrer.observe(number, {"human": 1.0})
    assert deferrer.summary().spent == 0


def test_an_announced_cost_of_several_resources_is_booked_if_all_are_known() -> None:
    deferrer = learner({"minutes": Budget(10, horizon=100, max_cost=2), "asks": Budget.reviews(10, horizon=100)})
    known, unknown = ask(deferrer, cost={"minutes": 1.5, "asks": 1}), ask(deferrer)
    deferrer.observe(known, {"human": 1.0})
    deferrer.observe(unknown, {"human": 1.0})  # its minutes are not known
    assert deferrer.summary().spent == {"minutes": 1.5, "asks": 1}
    assert deferrer.summary().reserved == {"minutes": 2, "asks": 1}


def test_the_first_problem_of_a_newcomer_uses_the_whole_budget() -> None:
    """`decide(x, cost=1)` and no cost in `observe` asked 5 of 1,000 times."""
    for budget, cost in ((Budget(100, horizon=1_000, max_cost=1), 1.0), (Budget.reviews(100, horizon=1_000), None)):
        deferrer, rng = Deferrer(n_features=3, budget=budget), np.random.default_rng(0)
        for _ in range(1_000):
            decision = deferrer.decide(rng.random(3), cost=cost)
            rewards = {"model": float(rng.random() < 0.6), "human": float(rng.random() < 0.95)}
            deferrer.observe(decision.id, {name: rewards[name] for name in {"model", decision.route}})
        assert deferrer.summary().spent == 100


# ------------------------------------------------------------ fixed


def test_a_budget_of_reviews_is_one_of_cost_1() -> None:
    assert Budget.reviews(40, every="week") == Budget(40, every="week", max_cost=1, fixed_cost=1)
    fixed, announced = learner(Budget.reviews(20, horizon=200)), learner(Budget(20, horizon=200, max_cost=1))
    rng = np.random.default_rng(1)
    for _ in range(200):
        x, right = rng.random(2), {"model": float(rng.random() < 0.5), "human": float(rng.random() < 0.9)}
        decisions = fixed.decide(x), announced.decide(x, cost=1)
        assert decisions[0] == decisions[1]
        for each, decision in zip((fixed, announced), decisions, strict=True):
            each.observe(decision.id, {name: right[name] for name in {"model", decision.route}})
    assert fixed.summary() == announced.summary()
    assert fixed.summary().spent == 20


def test_bulk_needs_no_costs_of_a_budget_of_reviews() -> None:
    rng = np.random.default_rng(2)
    contexts, rewards = rng.random((200, 2)), {"model": rng.random(200), "human": rng.random(200)}
    bulk, single = (learner(Budget.reviews(20, horizon=200)) for _ in range(2))
    run = bulk.run(contexts, rewards)
    for t, x in enumerate(contexts):
        decision = single.decide(x)
        single.observe(decision.id, {name: rewards[name][t] for name in {"model", decision.route}})
    assert bulk == single
    assert run.costs.sum() == single.summary().spent
    with pytest.raises(InvalidArgument, match="'cost' of a call of run must be given, unless"):
        learner().run(contexts, rewards)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_cost": 1, "fixed_cost": 2}, "'fixed_cost' of a Budget must be at most the max_cost. Got 2"),
        ({"max_cost": 1, "fixed_cost": 1, "hold": "auto"}, "left out where reviews can be stopped"),
        ({"fixed_cost": 0}, "'fixed_cost' of a Budget must be a finite number above 0"),
        ({"max_cost": {"ann": 1, "bo": 0}}, "'max_cost' of a Budget must be a finite number above 0. Got 0"),
        ({"max_cost": 1, "strict": 1}, "'strict' of a Budget must be True or False. Got 1"),
    ],
)
def test_bad_budgets(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Budget(10, horizon=100, **wrong)


# ------------------------------------------------------------ above max_cost


def test_a_cost_above_max_cost_takes_free_budget_and_is_learned() -> None:
    deferrer = learner()
    number = ask(deferrer)
    deferrer.observe(number, {"human": 1.0}, cost=1.75)
    summary = deferrer.summary()
    assert (summary.spent, summary.overrun, summary.pending, summary.left) == (1.75, 0, 0, 8.25)
    assert summary.samples["cost of human"] == 1


def test_nobody_is_asked_until_an_overrun_is_covered() -> None:
    deferrer = learner(Budget(3, horizon=100, max_cost=1))
    first, second, third = (ask(deferrer) for _ in range(3))
    deferrer.observe(first, cost=2.5)
    assert (deferrer.summary().spent, deferrer.summary().overrun) == (1, 1.5)
    deferrer.observe(second, cost=0.25)  # releases 1: its own cost, and 0.75 of the overrun
    assert (deferrer.summary().spent, deferrer.summary().overrun, deferrer.summary().left) == (2, 0.75, 0)
    with pytest.raises(BudgetExhausted):
        ask(deferrer, cost=0.1)
    deferrer.expire(third)
    assert (deferrer.summary().spent, deferrer.summary().overrun, deferrer.summary().left) == (2.75, 0, 0.25)
    ask(deferrer, cost=0.1)


def test_a_larger_budget_and_a_correction_cover_an_overrun() -> None:
    ways: list[Callable[[Deferrer], None]] = [
        lambda deferrer: deferrer.change_budget(4),
        lambda deferrer: deferrer.correct(0, cost=0.5),
    ]
    for cover in ways:
        deferrer = learner(Budget(1, horizon=100, max_cost=1))
        deferrer.observe(ask(deferrer), cost=3)
        assert (deferrer.summary().overrun, deferrer.summary().left) == (2, 0)
        cover(deferrer)
        assert deferrer.summary().overrun == 0
        assert deferrer.summary().left in (1.0, 0.5)


def test_the_next_period_covers_an_overrun() -> None:
    deferrer = learner(Budget(1, every="1h", max_cost=1))
    deferrer.observe(ask(deferrer, at=NOW), cost=1.4)
    decision = deferrer.decide([0.6, 0.8], at=NOW + 3_600)
    assert decision.reason == "budget"
    assert decision.budget_left == pytest.approx(0.6)
    assert deferrer.summary().overrun == 0
    assert ask(deferrer, at=NOW + 7_200) == 2


def test_a_strict_budget_refuses_it() -> None:
    deferrer = learner(Budget(10, horizon=100, max_cost=1, strict=True))
    number = ask(deferrer)
    before = deferrer.to_bytes()
    with pytest.raises(InvalidArgument, match=r"'cost' of a decision must be at most 1, the max_cost of its budget"):
        deferrer.observe(number, cost=1.5)
    with pytest.raises(InvalidArgument, match="must be between 0 and 1"):
        deferrer.run([[0.6, 0.8]], {"model": [1.0], "human": [1.0]}, cost=[1.5])
    assert deferrer.to_bytes() == before


def test_an_announced_cost_above_max_cost_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="must be between 0 and 1. Got 1.5"):
        learner().decide([0.6, 0.8], cost=1.5)


def test_a_late_cost_within_max_cost_is_no_debt() -> None:
    """As before: what an expired review overruns is not covered."""
    deferrer = learner(Budget(2, horizon=100, max_cost=1))
    late, *others = (ask(deferrer) for _ in range(2))
    deferrer.expire(late)
    others.append(ask(deferrer))
    deferrer.observe(late, cost=0.75)
    assert deferrer.summary().overrun == 0.75
    deferrer.expire(others[0])
    assert (deferrer.summary().overrun, deferrer.summary().left) == (0.75, 1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_paid_is_spent_or_overrun_and_free_budget_covers_it(data: st.DataObject) -> None:
    deferrer, paid = learner(Budget(6, horizon=100, max_cost=1)), 0.0
    open_ones: list[int] = []
    for _ in range(data.draw(st.integers(1, 25))):
        if open_ones and data.draw(st.sampled_from([0, 1])):
            number = open_ones.pop(data.draw(st.sampled_from(range(len(open_ones)))))
            cost = data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 4.0]))
            deferrer.observe(number, cost=cost)
            paid += cost
        elif deferrer._ledger.budget_left()[0] >= 1:
            open_ones.append(ask(deferrer))
        left = deferrer._ledger.budget_left().item()
        spent, overrun, reserved = (deferrer._ledger.view(name).item() for name in ("spent", "overrun", "reserved"))
        assert spent + overrun == pytest.approx(paid)
        assert min(overrun, left) == pytest.approx(0)
        assert spent + reserved <= 6 + 1e-9


# ------------------------------------------------------------ by expert


def test_each_expert_has_a_hold_of_its_own() -> None:
    team = ["senior", "junior"]
    deferrer = learner(Budget(10, horizon=100, max_cost={"senior": 6, "junior": 2}), experts=team)
    held = [deferrer.decide([0.6, 0.8], force=name).reserved for name in team]
    assert held == [6, 2]
    with pytest.raises(BudgetExhausted):
        ask(deferrer, force="senior")
    assert deferrer.decide([0.6, 0.8], available=["senior"]).reason == "budget"
    assert deferrer.decide([0.6, 0.8], force="junior").reserved == 2  # 2 are left, which is enough for a junior
    strict = learner(Budget(10, horizon=100, max_cost={"senior": 6, "junior": 2}, strict=True), experts=team)
    strict.observe(strict.decide([0.6, 0.8], force="senior").id, cost=5)
    with pytest.raises(InvalidArgument, match="at most 2, the max_cost"):
        strict.observe(strict.decide([0.6, 0.8], force="junior").id, cost=5)


def test_max_cost_is_given_for_all_experts() -> None:
    with pytest.raises(InvalidArgument, match="'max_cost' of a Budget must be given for senior, junior"):
        learner(Budget(10, horizon=100, max_cost={"senior": 6}), experts=["senior", "junior"])


def test_the_same_max_cost_for_all_experts_is_one_number() -> None:
    rng, team = np.random.default_rng(3), ["ann", "bo"]
    one = learner(Budget(10, horizon=100, max_cost=1), experts=team)
    each = learner(Budget(10, horizon=100, max_cost={"ann": 1, "bo": 1}), experts=team)
    given = rng.random((100, 2)), {name: rng.random(100) for name in ("model", *team)}, rng.random((100, 2, 1))
    one.run(*given)
    each.run(*given)
    assert one.summary() == each.summary()
    assert Deferrer.from_bytes(each.to_bytes()).settings.budget["cost"].max_cost_of("bo") == 1


# ------------------------------------------------------------ reviews without a cost


def test_rewards_without_costs_are_mentioned_once_and_in_the_summary() -> None:
    deferrer, rng = learner(Budget(50, horizon=200, max_cost=1)), np.random.default_rng(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for t in range(120):
            decision = deferrer.decide(rng.random(2))
            rewards = {"model": float(rng.random() < 0.2), decision.route: 1.0}
            deferrer.observe(decision.id, rewards, 1.0 if decision.route == "human" and t < 20 else None)
    said = [str(each.message) for each in caught if each.category is SpendingWarning]
    assert len(said) == 1
    assert "came without a cost, and" in said[0] or "whose cost was not reported" in said[0]
    assert "Report `cost`" in deferrer.summary().remark
