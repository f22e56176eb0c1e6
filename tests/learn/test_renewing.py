"""Budgets that renew or have an end: renewals as events, the clock, changes, and the saved state."""

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from deferkit import (
    Budget,
    BudgetExhausted,
    Decided,
    Deferrer,
    EventOutOfOrder,
    HorizonWarning,
    InvalidArgument,
    Renewed,
    UnaffordableReviewWarning,
    UnreadableState,
)
from deferkit.learn import state
from tests.conftest import draw_tasks, rewards_of

X = [0.6, 0.8]
HOUR = 3_600.0


def learner(budget: Any = None, **given: Any) -> Deferrer:
    return Deferrer(n_features=2, budget=budget or Budget(4, every="1h", max_cost=1), **given)


def ask(deferrer: Deferrer, at: float, cost: float | None = None) -> int:
    number = deferrer.decide(X, force="human", at=at).id
    if cost is not None:
        deferrer.observe(number, cost=cost)
    return number


@pytest.mark.parametrize(("carry", "left"), [(0, 4), (0.5, 6), (1, 6.5), (math.inf, 6.5)])
def test_what_is_left_is_carried_over_up_to_the_rule(carry: float, left: float) -> None:
    deferrer = learner(Budget(4, every="1h", carry=carry, max_cost=1))
    for cost in (0.5, 1.0):
        ask(deferrer, 0, cost)
    deferrer.decide(X, force="model", at=HOUR)
    assert deferrer.summary().left == left
    period = deferrer.summary().periods["cost"]
    assert (period.start, period.end, period.total, period.spent) == (HOUR, 2 * HOUR, left, 0)


def test_a_gap_of_ten_periods_renews_ten_times() -> None:
    deferrer = learner(Budget(4, every="1h", carry=2.5, max_cost=1))
    ask(deferrer, 0, 1.0)
    due = deferrer.renewals(10.5 * HOUR)
    assert [(event.start, event.end) for event in due] == [(h * HOUR, (h + 1) * HOUR) for h in range(1, 11)]
    assert [event.total for event in due] == [1 + 3 + 4, 1 + 7 + 4, *[1 + 10 + 4] * 8]  # at most 2.5 · 4 is carried
    deferrer.decide(X, force="model", at=10.5 * HOUR)
    assert deferrer.summary().left == 14
    nothing_lapses = learner(Budget(4, every="1h", carry=math.inf, max_cost=1))
    nothing_lapses.decide(X, force="model", at=0)
    nothing_lapses.decide(X, force="model", at=10 * HOUR)
    assert nothing_lapses.summary().left == 44


def test_a_pending_review_takes_its_hold_along() -> None:
    deferrer = learner()
    pending = [ask(deferrer, 0) for _ in range(3)]
    assert deferrer.summary().left == 1
    deferrer.decide(X, force="model", at=HOUR)
    assert (deferrer.summary().left, deferrer.summary().reserved) == (4, 3)  # the 1 that was free has lapsed
    deferrer.observe(pending[0], cost=0.25)
    summary = deferrer.summary()
    assert (summary.left, summary.reserved, summary.spent) == (4.75, 2, 0.25)
    assert (summary.periods["cost"].total, summary.periods["cost"].spent) == (7, 0.25)
    deferrer.expire(pending[1])
    assert deferrer.summary().left == 5.75
    deferrer.decide(X, force="model", at=2 * HOUR)
    assert (deferrer.summary().left, deferrer.summary().reserved) == (4, 1)


def test_the_first_task_begins_the_first_period_unless_a_start_is_given() -> None:
    free = learner()
    free.decide(X, at=500)
    assert free.summary().periods["cost"].start == 500
    calendar = learner(Budget(4, every="day", zone="Europe/Berlin", max_cost=1))
    calendar.decide(X, at=datetime(2026, 3, 29, 12, tzinfo=UTC))
    period = calendar.summary().periods["cost"]
    assert period.end - period.start == 23 * HOUR
    later = learner(Budget(4, every="1h", start=1_000, max_cost=1))
    assert (later.decide(X, at=0).reason, later.summary().left) == ("budget", 0)
    with pytest.raises(BudgetExhausted):
        later.decide(X, force="human", at=999)
    ask(later, 1_000, 0.5)
    assert (later.summary().left, later.summary().periods["cost"].end) == (3.5, 1_000 + HOUR)


def test_a_clock_that_goes_backwards_counts_as_standing_still() -> None:
    deferrer = learner()
    ask(deferrer, 2 * HOUR - 1, 1.0)
    ask(deferrer, 100.0, 1.0)
    ask(deferrer, 2 * HOUR, 1.0)
    summary = deferrer.summary()
    assert (summary.backwards, summary.left) == (1, 1)
    assert deferrer._ledger.view("at")[:3].tolist() == [2 * HOUR - 1, 2 * HOUR - 1, 2 * HOUR]


@pytest.mark.parametrize("at", [None, math.nan, math.inf, "noon", True, datetime(2026, 1, 1), 1e300])
def test_tasks_need_a_valid_time(at: Any) -> None:
    deferrer = learner()
    before = deferrer.to_bytes()
    for call in (
        lambda: deferrer.decide(X, at=at),
        lambda: deferrer.decide(X, at=at, force="human"),
        lambda: deferrer.propose(X, at=at),
        lambda: deferrer.decide_many([X, X], at=at),
        lambda: deferrer.decide_many([X, X], at=[0.0, at]),
        lambda: deferrer.run([X], {"model": [0.5], "human": [0.5]}, [0.5], at=None if at is None else [at]),
    ):
        with pytest.raises(InvalidArgument, match="'at' of a Deferrer must be"):
            call()
    assert deferrer.to_bytes() == before


def test_times_are_as_many_as_tasks_and_datetimes_are_fine() -> None:
    deferrer, other = learner(), learner()
    when = [datetime(2026, 1, 1, h, tzinfo=UTC) for h in range(3)]
    with pytest.raises(InvalidArgument, match="3 times, one for each task"):
        deferrer.decide_many([X] * 3, at=when[:2])
    made = deferrer.decide_many([X] * 3, at=when)
    assert made == other.decide_many(np.array([X] * 3), at=np.array([each.timestamp() for each in when]))
    assert deferrer == other
    with pytest.raises(InvalidArgument, match="'at' of a Deferrer must be left out where no budget"):
        Deferrer(n_features=2).decide(X, at=0)
    assert Deferrer(n_features=2).decide(X).id == 0


def test_a_refused_task_renews_nothing() -> None:
    deferrer = learner()
    ask(deferrer, 0)
    before = deferrer.to_bytes()
    for bad in ({"context": [math.nan, 1.0]}, {"context": X, "force": "nobody"}, {"context": X, "cost": -1}):
        with pytest.raises(InvalidArgument):
            deferrer.decide(**{"at": 5 * HOUR, **bad})  # type: ignore[arg-type]
    assert deferrer.to_bytes() == before


def test_a_proposal_waits_for_its_renewal() -> None:
    deferrer = learner()
    ask(deferrer, 0, 1.0)
    with pytest.raises(EventOutOfOrder, match="A period of cost began on 1970-01-01 01:00 UTC: apply the events of"):
        deferrer.propose(X, at=HOUR)
    same = learner()
    ask(same, 0, 1.0)
    [due] = deferrer.renewals(HOUR)
    deferrer.apply(due)
    event = deferrer.propose(X, at=HOUR)
    with pytest.raises(EventOutOfOrder):  # it happens once
        deferrer.apply(due)
    with pytest.raises(EventOutOfOrder, match="apply the events of"):
        same.apply(event)
    deferrer.apply(event)
    assert same.decide(X, at=HOUR) == event.decision
    assert same == deferrer


def test_renewals_that_make_no_sense_are_refused() -> None:
    deferrer = learner()
    ask(deferrer, 0)
    before = deferrer.to_bytes()
    refused: list[tuple[Any, ...]] = [
        ("euros", HOUR, 2 * HOUR, 5.0),
        ("cost", 2 * HOUR, 3 * HOUR, 5.0),
        ("cost", HOUR, HOUR, 5.0),
        ("cost", HOUR, math.nan, 5.0),
        ("cost", HOUR, 2 * HOUR, 0.5),
        ("cost", HOUR, 2 * HOUR, math.inf),
    ]
    for wrong in refused:
        with pytest.raises((InvalidArgument, EventOutOfOrder, BudgetExhausted)):
            deferrer.apply(Renewed(*wrong))
    with pytest.raises(InvalidArgument, match="one that renews"):
        Deferrer(n_features=2, budget=Budget(1, horizon=5)).apply(Renewed("cost", 0.0, 1.0, 1.0))
    with pytest.raises(InvalidArgument, match="'at' of a Deferrer must be the time"):
        deferrer.apply(Decided(deferrer.propose(X, at=1).decision, X))
    assert deferrer.to_bytes() == before


def test_an_end_in_the_past_is_refused_at_the_first_task() -> None:
    deferrer = learner(Budget(5, until=datetime(2026, 3, 31, tzinfo=UTC), max_cost=1))
    with pytest.raises(InvalidArgument, match="budget of cost ended on 2026-03-31 00:00 UTC, before the first task"):
        deferrer.decide(X, at=datetime(2026, 4, 1, tzinfo=UTC))


def test_after_its_end_a_budget_is_said_to_be_over_and_can_be_extended() -> None:
    deferrer = learner(Budget(5, until=10 * HOUR, max_cost=1))
    ask(deferrer, 0, 1.0)
    with pytest.warns(HorizonWarning, match="The budget ended on 1970-01-01 10:00 UTC. What is left of the budget"):
        deferrer.decide(X, force="model", at=10 * HOUR)
    with pytest.raises(InvalidArgument, match="after the latest task, which came on 1970-01-01 10:00 UTC"):
        deferrer.change_budget(until=9 * HOUR)
    deferrer.change_budget(until=datetime(1970, 1, 2, tzinfo=UTC), add=2)
    assert (deferrer.summary().left, deferrer.summary().periods["cost"].end) == (6, 24 * HOUR)
    deferrer.decide(X, at=11 * HOUR)
    with pytest.warns(HorizonWarning):
        deferrer.decide(X, at=25 * HOUR)


def test_an_allowance_can_be_changed_and_topped_up() -> None:
    deferrer = learner()
    ask(deferrer, 0, 1.0)
    deferrer.change_budget(add=3)
    assert deferrer.summary().left == 6
    deferrer.change_budget(allowance=9)
    assert deferrer.summary().left == 6
    deferrer.decide(X, force="model", at=HOUR)
    assert deferrer.summary().left == 9
    restored = Deferrer.from_bytes(deferrer.to_bytes())
    assert restored == deferrer
    assert restored.renewals(2 * HOUR)[0].total == 1 + 9


def test_a_horizon_can_be_moved() -> None:
    tasks = draw_tasks(300, 2)
    given: dict[str, Any] = {"n_features": 2, "budget": Budget(30, horizon=200, max_cost=1)}
    moved, same = Deferrer(**given), Deferrer(**given)
    for each in (moved, same):
        each.run(tasks.contexts[:150], {k: v[:150] for k, v in rewards_of(each, tasks).items()}, tasks.costs[:150])
    before = moved.decide(tasks.contexts[150]).price
    same.decide(tasks.contexts[150])
    moved.change_budget(horizon=1_000)
    moved.decide(tasks.contexts[151])
    assert moved.decide(tasks.contexts[152]).price > before  # type: ignore[operator]
    assert Deferrer.from_bytes(moved.to_bytes()) == moved
    moved.decide_many(tasks.contexts[:200])  # beyond the horizon before, without a warning
    same.change_budget(horizon=150)
    with pytest.warns(HorizonWarning, match="150 tasks is over"):
        same.decide(tasks.contexts[151])


@pytest.mark.parametrize(
    ("budget", "change", "message"),
    [
        (
            Budget(5, horizon=10),
            {"until": 5},
            "'until' of a budget must be left out for cost, whose budget has not `until`",
        ),
        (Budget(5, horizon=10), {"allowance": 5}, "whose budget has not `every`"),
        (Budget(5, every="day"), {"horizon": 5}, "whose budget has not a horizon"),
        (Budget(5, horizon=10), {"horizon": 0}, "'horizon' of a budget must be a whole number of at least 1"),
        (Budget(5, every="day"), {"allowance": -1}, "'allowance' of a budget must be a finite number of at least 0"),
        (Budget(5, until=9), {"until": "soon"}, "'until' of a budget must be seconds since 1970"),
        (Budget(5, until=9), {"until": 12}, "'until' of a budget must be changed after the first task"),
        (Budget(5, horizon=10), {"horizon": {"euros": 5}}, "There is no resource 'euros'"),
        (Budget(5, horizon=10), {"add": math.nan}, "'add' of a budget must be a finite number"),
        (Budget(5, horizon=10), {"total": 5, "add": 1}, "'add' of a budget must be left out where the total is given"),
    ],
)
def test_bad_changes(budget: Budget, change: dict[str, Any], message: str) -> None:
    deferrer = learner(budget)
    before = deferrer.to_bytes()
    with pytest.raises(InvalidArgument) as caught:
        deferrer.change_budget(**change)
    assert message in str(caught.value)
    assert deferrer.to_bytes() == before
    with pytest.raises(InvalidArgument, match="changed with the pacing 'resolve' or 'adaptive' only"):
        Deferrer(n_features=2, pacing="gradient", budget=Budget(5, horizon=10)).change_budget(horizon=20)
    with pytest.raises(InvalidArgument, match="'resolve' where a budget has `until` or `every`"):
        learner(Budget(5, every="day"), pacing="adaptive")


def test_an_allowance_below_one_review_is_told() -> None:
    with pytest.warns(UnaffordableReviewWarning, match="max_cost of 9 .* what cost gets in a period is 4"):
        learner(Budget(4, every="1h", max_cost=9))
    with pytest.warns(UnaffordableReviewWarning, match="gets in a period and can carry over is 8"):
        learner(Budget(4, every="1h", carry=1, max_cost=9))
    saved_up = learner(Budget(4, every="1h", carry=2, max_cost=9))
    assert saved_up.decide(X, at=0).reason == "budget"
    saved_up.decide(X, force="model", at=2 * HOUR)
    assert saved_up.decide(X, force="human", at=2 * HOUR).route == "human"


def test_two_resources_renew_at_their_own_times() -> None:
    budget = {"minutes": Budget(4, every="1h", max_cost=1), "euros": Budget(5, every="90min", carry=1, max_cost=1)}
    deferrer = learner(budget)
    deferrer.decide(X, force="human", at=0)
    deferrer.observe(0, cost={"minutes": 1.0, "euros": 0.5})
    due = [(event.resource, event.start, event.total) for event in deferrer.renewals(3 * HOUR)]
    assert due == [
        ("minutes", HOUR, 5.0),
        ("euros", 1.5 * HOUR, 10.0),
        ("minutes", 2 * HOUR, 5.0),
        ("minutes", 3 * HOUR, 5.0),
        ("euros", 3 * HOUR, 10.5),
    ]
    deferrer.decide(X, force="model", at=3 * HOUR)
    assert deferrer.summary().left == {"minutes": 4, "euros": 10}


def test_the_books_of_all_periods_add_up() -> None:
    """What came in is what was spent, what lapsed and what is left, period by period."""
    rng = np.random.default_rng(0)
    deferrer, spent, lapsed = learner(Budget(4, every="1h", carry=0.25, start=0, max_cost=1), warm_up=10_000), 0.0, 0.0
    deferrer.decide(X, force="model", at=0)
    total = 4.0
    for time in np.sort(rng.random(400)) * 40 * HOUR:
        for event in deferrer.renewals(time):
            lapsed += total + 4 - event.total
            total = event.total
        decision = deferrer.decide(X, at=time)
        if decision.route == "human":
            cost = round(float(rng.random()), 2)
            deferrer.observe(decision.id, cost=cost)
            spent += cost
    summary = deferrer.summary()
    assert summary.spent == pytest.approx(spent)
    assert summary.spent + lapsed + summary.left == pytest.approx(4 * 40)  # type: ignore[operator]
    assert lapsed > 0


def test_what_is_not_used_up_makes_the_price_fall_towards_the_end_of_a_period() -> None:
    tasks = draw_tasks(2_000, 3, seed=4)
    times = np.arange(2_000) * 36.0  # a hundred an hour
    deferrer = Deferrer(n_features=3, budget=Budget(5, every="1h", max_cost=1))
    rewards = {"model": tasks.rewards[:, 0] * 0.1, "human": tasks.rewards[:, 1]}
    run = deferrer.run(tasks.contexts, rewards, tasks.costs, at=times)
    spent = np.array([run.costs[times // HOUR == hour].sum() for hour in range(20)])
    assert (spent <= 5).all()
    assert spent[2:].mean() > 4
    assert len(np.unique(run.prices)) > 100


def test_forged_times_and_periods_are_refused() -> None:
    """The core searches in them without looking whether they are in order."""
    deferrer = learner()
    for hour in range(6):
        ask(deferrer, hour * HOUR, 0.5)
    plain, arrays = state.unpack(deferrer.to_bytes(), "The state")
    forgeries: dict[str, tuple[Any, float]] = {
        "at": (0, 9 * HOUR),
        "period_start": ((0, 1), 7 * HOUR),
        "period_end": (0, 2 * HOUR),
        "bin_length": (0, 0.0),
        "timing": (0, 1),
        "arrivals": ((0, 3), -1.0),
    }
    for name, (index, value) in forgeries.items():
        forged = {each: array.copy() for each, array in arrays.items()}
        forged[name][index] = value
        with pytest.raises(UnreadableState):
            Deferrer.from_bytes(state.pack(plain, forged))
    assert Deferrer.from_bytes(state.pack(plain, arrays)) == deferrer
