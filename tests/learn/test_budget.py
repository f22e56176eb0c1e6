"""The budget: reservations, settlements, expiry, bursts; and the promise, under any order of events."""

import math
from typing import Any

import pytest

from deferkit import (
    AlreadySettled,
    Budget,
    BudgetExhausted,
    ConflictingObservation,
    Deferrer,
    EventOutOfOrder,
    Exploration,
    InvalidArgument,
    Pacing,
    UnknownDecision,
)
from deferkit.types import REASONS
from tests.conftest import draw_tasks, rewards_of, step_through


def learner(**given: Any) -> Deferrer:
    given.setdefault("budget", Budget(10, horizon=100, max_cost=1))
    return Deferrer(n_features=2, **given)


X = [0.6, 0.8]


def test_a_burst_without_feedback_cannot_overspend() -> None:
    deferrer = learner(budget=Budget(10, horizon=200, max_cost=3), warm_up=101)
    deferrer.observe(deferrer.decide(X, force="human").id, cost=0)
    decisions = deferrer.decide_many([X] * 100)
    asked = [decision for decision in decisions if decision.route == "human"]
    assert len(asked) == 3
    assert deferrer.summary().reserved == 9
    assert {decision.reason for decision in decisions[asked[-1].id :]} == {"budget"}
    deferrer.observe(asked[0].id, cost=0.5)
    assert deferrer.summary().left == 3.5
    assert deferrer.decide(X, force="human").reserved == 3


@pytest.mark.parametrize(("cap", "most"), [(0.1, 5), (0.2, 2), (3, 1), (5, 1), (None, 5)])
def test_before_a_cost_is_known_little_is_held(cap: float | None, most: int) -> None:
    """A twentieth of the budget; where one task may cost more, one task."""
    deferrer = learner(budget=Budget(10, horizon=1000, max_cost=cap), warm_up=500)
    decisions = deferrer.decide_many([X] * 200)
    asked = [decision for decision in decisions if decision.route == "human"]
    assert len(asked) == most
    after = decisions[asked[-1].id + 1 :]
    assert {decision.reason for decision in after} == {"unsettled"}
    assert {(decision.route, decision.propensity) for decision in after} == {("model", 1.0)}
    assert after[0].explain().endswith("no cost is known yet and enough is held for tasks that wait for one.")
    deferrer.expire(asked[0].id)
    [again] = [decision for decision in deferrer.decide_many([X] * 100) if decision.route == "human"]
    assert deferrer.decide(X, force="human").route == "human"
    deferrer.observe(again.id, cost=0.01)
    assert {decision.reason for decision in deferrer.decide_many([X] * 100)} <= {"warm-up", "budget"}


def test_several_experts_wait_for_the_first_cost_of_any() -> None:
    deferrer = learner(experts=["ann", "bo"], budget=Budget(10, horizon=1000, max_cost=0.5), warm_up=500)
    decisions = deferrer.decide_many([X] * 100)
    [first] = [decision for decision in decisions if decision.route != "model"]
    assert decisions[-1].reason == "unsettled"
    assert deferrer.decide(X, available=[]).reason == "unavailable"
    deferrer.observe(first.id, cost=0.2)
    assert {decision.route for decision in deferrer.decide_many([X] * 30)} == {"model", "ann", "bo"}


def test_what_is_asked_one_at_a_time_is_never_unsettled() -> None:
    tasks = draw_tasks(300, 3, seed=1)
    deferrer = Deferrer(n_features=3, budget=Budget(5, horizon=300, max_cost=1))
    run = deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    assert REASONS.index("unsettled") not in run.reasons


def test_the_price_paces_on_what_is_reserved_too() -> None:
    """Two hundred decisions without any feedback: the re-solved price rises as reservations pile up."""
    tasks = draw_tasks(600, 3, seed=2)
    deferrer = Deferrer(n_features=3, budget=Budget(30, horizon=2000, max_cost=1), pacing=Pacing(every=10))
    half = {"model": tasks.rewards[:300, 0] * 0.1, "human": tasks.rewards[:300, 1]}
    deferrer.run(tasks.contexts[:300], half, tasks.costs[:300])
    before = deferrer.summary().price
    decisions = deferrer.decide_many(tasks.contexts[300:])
    assert sum(decision.route == "human" for decision in decisions) > 5
    assert deferrer.summary().price > before  # type: ignore[operator]


@pytest.mark.parametrize("cap", [None, 2.0])
def test_a_reservation_is_settled_at_the_true_cost(cap: float | None) -> None:
    deferrer = learner(budget=Budget(10, horizon=100, max_cost=cap))
    first = deferrer.decide(X, force="human")
    assert first.reserved == (2.0 if cap else 0.1)  # without a cap: a hundredth of the budget until a cost was seen
    deferrer.observe(first.id, cost=1.5)
    assert deferrer.decide(X, force="human").reserved == (2.0 if cap else 1.5)
    assert deferrer.summary().spent == 1.5


def test_without_a_cap_an_excess_is_counted_as_overrun() -> None:
    deferrer = learner(budget=Budget(1, horizon=100))
    decision = deferrer.decide(X, force="human")
    deferrer.observe(decision.id, cost=2.5)
    summary = deferrer.summary()
    assert (summary.spent, summary.overrun, summary.left) == (1, 1.5, 0)


def test_a_cost_known_beforehand_is_what_is_reserved_and_weighed() -> None:
    deferrer = learner(warm_up=0, exploration=Exploration(scale=0.0, prior=0.0))
    deferrer.warm_start([X, X], {"model": [0.2, 0.2], "human": [0.9, 0.9]}, cost=[0.5, 0.5])
    cheap = deferrer.decide(X, cost=0.25)
    assert (cheap.route, cheap.reserved, cheap.expected_cost) == ("human", 0.25, 0.25)
    deferrer._ledger.price[0] = 1.0
    deferrer._ledger.set("price_due", 0)
    assert deferrer.propose(X, cost=0.1).decision.route == "human"
    assert deferrer.propose(X, cost=1.0).decision.route == "model"


def test_expiry_releases_and_a_late_cost_is_still_booked() -> None:
    deferrer = learner(budget=Budget(2, horizon=100, max_cost=1))
    late = deferrer.decide(X, force="human")
    deferrer.expire(late.id)
    deferrer.expire(late.id)
    assert (deferrer.summary().reserved, deferrer.summary().expired) == (0, 1)
    deferrer.decide(X, force="human")
    deferrer.observe(late.id, {"human": 0.5}, cost=0.75)
    assert (deferrer.summary().spent, deferrer.summary().reserved, deferrer.summary().left) == (0.75, 1, 0.25)


def test_a_late_cost_that_no_longer_fits_is_an_overrun() -> None:
    deferrer = learner(budget=Budget(2, horizon=100, max_cost=1))
    late = deferrer.decide(X, force="human")
    deferrer.expire(late.id)
    for _ in range(2):
        deferrer.decide(X, force="human")
    deferrer.observe(late.id, cost=0.75)
    summary = deferrer.summary()
    assert (summary.spent, summary.reserved, summary.overrun) == (0, 2, 0.75)


def test_forcing_needs_free_budget_and_is_counted_apart() -> None:
    deferrer = learner(budget=Budget(1.5, horizon=100, max_cost=1))
    deferrer.decide(X, force="human")
    before = deferrer.to_bytes()
    with pytest.raises(BudgetExhausted, match="Asking human needs 1 of budget; 0.5 is free"):
        deferrer.decide(X, force="human")
    assert deferrer.to_bytes() == before
    assert deferrer.decide(X, force="model").propensity == 1
    assert deferrer.summary().forced == 2


def test_the_budget_can_be_topped_up_and_cut() -> None:
    deferrer = learner(budget=Budget(1, horizon=100, max_cost=1))
    deferrer.decide(X, force="human")
    assert deferrer.decide(X).reason == "budget"
    deferrer.change_budget(3)
    assert deferrer.summary().left == 2
    with pytest.raises(BudgetExhausted, match="cannot be cut to 0.5: 1 is spent or reserved"):
        deferrer.change_budget(0.5)
    deferrer.change_budget(1)
    assert deferrer.summary().left == 0


def test_a_budget_of_nothing_never_asks_and_says_why() -> None:
    deferrer = learner(budget=Budget(0, horizon=100))
    decision = deferrer.decide(X)
    assert (decision.route, decision.reason) == ("model", "budget")
    assert decision.explain() == "Task 0 goes to model, because the 0 left of the budget is not enough to ask."
    with pytest.raises(BudgetExhausted):
        deferrer.decide(X, force="human", cost=0.0)


def test_observations_repeat_conflict_and_come_in_parts() -> None:
    deferrer = learner()
    decision = deferrer.decide(X, force="human")
    deferrer.observe(decision.id, {"human": 0.5})
    after = deferrer.to_bytes()
    deferrer.observe(decision.id, {"human": 0.5})
    deferrer.observe(decision.id)
    assert deferrer.to_bytes() == after
    with pytest.raises(ConflictingObservation, match="reward of human for decision 0 was observed as 0.5. Got 0.6"):
        deferrer.observe(decision.id, {"model": 0.1, "human": 0.6}, 0.3)
    assert deferrer.to_bytes() == after
    deferrer.observe(decision.id, {"human": 0.5, "model": 0.25}, 0.3)
    with pytest.raises(ConflictingObservation, match="cost of decision 0 was observed as 0.3. Got 0.4"):
        deferrer.observe(decision.id, cost=0.4)
    deferrer.correct(decision.id, cost=0.4)
    deferrer.observe(decision.id, cost=0.4)


def test_what_holds_budget_is_remembered_beyond_the_memory() -> None:
    deferrer = Deferrer(
        n_features=2, memory=8, pacing="adaptive", warm_up=0, budget=Budget(100, horizon=1000, max_cost=1)
    )
    held = [deferrer.decide(X, force="human").id for _ in range(40)]
    for _ in range(50):
        deferrer.decide(X, force="model")
    assert deferrer.summary().reserved == 40
    restored = Deferrer.from_bytes(deferrer.to_bytes())
    for learner_ in (deferrer, restored):
        for decision in held:
            learner_.observe(decision, {"human": 0.5}, 0.25)
    assert restored == deferrer
    assert (deferrer.summary().spent, deferrer.summary().pending) == (10, 0)
    with pytest.raises(AlreadySettled, match="Decision 0 is already settled; only the last 8 decisions"):
        deferrer.observe(0, {"human": 0.5}, 0.25)
    with pytest.raises(AlreadySettled):
        deferrer.observe(60, {"model": 0.5})


def test_a_refused_context_moves_nothing_out_of_a_full_ring() -> None:
    deferrer = Deferrer(n_features=2, memory=4, pacing="adaptive", budget=Budget(100, horizon=1000, max_cost=1))
    for _ in range(4):
        deferrer.decide(X, force="human")
    before = deferrer.to_bytes()
    for context in ([math.nan, 1.0], [1.0]):
        with pytest.raises(InvalidArgument):
            deferrer.decide(context)
    assert deferrer.to_bytes() == before
    deferrer.observe(0, {"human": 0.5}, 0.25)
    deferrer.decide(X, force="human")
    assert (deferrer.summary().pending, deferrer.summary().reserved, deferrer.summary().spent) == (4, 4, 0.25)


def test_what_is_pending_stays_so_through_a_run_that_stops_to_refit() -> None:
    tasks = draw_tasks(300, 2, binary=True)
    given: dict[str, Any] = {"link": "logistic", "forget": "never", "memory": 50, "pacing": Pacing(window=20)}
    bulk, single = (Deferrer(n_features=2, budget=Budget(100, horizon=1000, max_cost=1), **given) for _ in range(2))
    for learner_ in (bulk, single):
        for _ in range(30):
            learner_.decide(X, force="human")
    bulk.run(tasks.contexts, rewards_of(bulk, tasks), tasks.costs)
    step_through(single, tasks)
    assert bulk == single
    assert bulk.summary().pending == 30


def test_a_corrected_cost_no_longer_decides_what_is_reserved() -> None:
    deferrer = learner(budget=Budget(5000, horizon=100))
    for cost in (2.0, 1000.0):
        deferrer.observe(deferrer.decide(X, force="human").id, cost=cost)
    deferrer.correct(1, cost=1.0)
    assert deferrer.decide(X, force="human").reserved == 2
    assert deferrer._ledger.view("cost_sum")[0] == 3


def test_a_changed_budget_is_priced_at_once() -> None:
    tasks = draw_tasks(400, 3)
    for kind in ("resolve", "gradient", "paper"):
        deferrer = Deferrer(n_features=3, pacing=kind, budget=Budget(20, horizon=1000, max_cost=1))
        deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
        before = deferrer.decide(tasks.contexts[0]).price
        deferrer.change_budget(2000)
        deferrer.decide(tasks.contexts[1])
        after = deferrer.decide(tasks.contexts[2]).price
        assert after < before / 5  # type: ignore[operator]


def test_a_budget_without_end_stays_so() -> None:
    deferrer = Deferrer(n_features=2, budget={"minutes": Budget(5, horizon=100), "air": Budget.unlimited()})
    deferrer.change_budget({"minutes": 9, "air": math.inf})
    assert deferrer.summary().total == {"minutes": 9, "air": math.inf}
    for bad in (
        {"minutes": math.inf, "air": math.inf},
        {"minutes": 9, "air": 5},
        {"minutes": 9},
        9,
        {"minutes": -1, "air": math.inf},
    ):
        with pytest.raises(InvalidArgument):
            deferrer.change_budget(bad)


@pytest.mark.parametrize("decision", [-1, 5, 0.5, "0", None, True, math.nan])
def test_unknown_ids(decision: Any) -> None:
    deferrer = learner()
    deferrer.decide_many([X] * 3)
    for call in (deferrer.observe, deferrer.expire, deferrer.correct):
        with pytest.raises(UnknownDecision, match="There are: 0 to 2"):
            call(decision)


def test_an_event_for_another_state_is_refused() -> None:
    deferrer = learner()
    event = deferrer.propose(X)
    deferrer.apply(event)
    with pytest.raises(EventOutOfOrder, match="The next decision is 1. Got decision 0"):
        deferrer.apply(event)
    with pytest.raises(InvalidArgument, match="one of the events"):
        deferrer.apply("decide")  # type: ignore[arg-type]
