"""The budget: reservations, settlements, expiry, bursts; and the promise, under any order of events."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from deferkit import (
    AlreadySettled,
    Budget,
    BudgetChanged,
    BudgetExhausted,
    ConflictingObservation,
    Deferrer,
    Event,
    EventOutOfOrder,
    Expired,
    Exploration,
    InvalidArgument,
    Observed,
    Pacing,
    UnknownDecision,
)
from deferkit.learn.arrays import OWED
from tests.conftest import draw_tasks, rewards_of, step_through


def learner(**given: Any) -> Deferrer:
    given.setdefault("budget", Budget(10, horizon=100, max_cost=1))
    return Deferrer(n_features=2, **given)


X = [0.6, 0.8]


def test_a_burst_without_feedback_cannot_overspend() -> None:
    deferrer = learner(budget=Budget(10, horizon=200, max_cost=3), warm_up=100)
    decisions = deferrer.decide_many([X] * 100)
    asked = [decision for decision in decisions if decision.route == "human"]
    assert len(asked) == 3
    assert deferrer.summary().reserved == 9
    assert {decision.reason for decision in decisions[asked[-1].id + 1 :]} == {"budget"}
    deferrer.observe(asked[0].id, cost=0.5)
    assert deferrer.summary().left == 3.5
    assert deferrer.decide(X, force="human").reserved == 3


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
    deferrer._ledger.view("price")[0] = 1.0
    deferrer._ledger.ints[OWED] = 0
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
    given: dict[str, Any] = {"link": "logistic", "memory": 50, "pacing": Pacing(window=20)}
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


RESOURCES = ("minutes", "euros")


class Reviews(RuleBasedStateMachine):
    """Decisions, outcomes late, lost, in parts and repeated, expiry, budget changes, restarts: beside a plain ledger.

    The ledger is dictionaries and floats. After every step the learner's accounts are the ledger's, reserved + spent
    is within the total for each resource, and at the end a replay of all events gives the same learner.
    """

    decisions: Bundle[int] = Bundle("decisions")

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.held: dict[int, float] = {}
        self.costs: dict[int, tuple[float, float]] = {}
        self.rewards: dict[tuple[int, str], float] = {}
        self.spent = np.zeros(2)
        self.overrun = np.zeros(2)

    @initialize(
        totals=st.tuples(st.floats(0, 20), st.floats(0.5, 20)),
        pacing=st.sampled_from(["resolve", "adaptive", "gradient", "paper"]),
        memory=st.sampled_from([4, 50]),
        floor=st.sampled_from([0.0, 0.5]),
    )
    def begin(self, totals: tuple[float, float], pacing: str, memory: int, floor: float) -> None:
        self.totals = np.array(totals)
        self.given = {
            "budget": {name: Budget(t, horizon=60, max_cost=1.0) for name, t in zip(RESOURCES, totals, strict=True)},
            "pacing": Pacing(kind=pacing, window=4, every=3),
            "memory": memory,
            "explore_floor": floor,
        }
        self.learner = self.make()
        self.memory = memory

    def make(self) -> Deferrer:
        given: dict[str, Any] = self.given
        return Deferrer(n_features=2, experts=["ann", "bo"], warm_up=10, **given)

    def free(self) -> Any:
        return self.totals - self.spent - len(self.held)

    def record(self, event: Event) -> None:
        self.learner.apply(event)
        self.events.append(event)

    @rule(target=decisions, a=st.floats(0, 1), who=st.sampled_from([None, "ann", "bo", "model"]))
    def decide(self, a: float, who: str | None) -> int:
        force = who if who is None or who == "model" or (self.free() >= 1).all() else "model"
        event = self.learner.propose([a, 1 - a], force=force)
        self.record(event)
        if event.decision.route != "model":
            self.held[event.decision.id] = 1.0
        return event.decision.id

    def is_remembered(self, decision: int) -> bool:
        return decision >= self.learner.summary().decisions - self.memory or decision in self.learner._ledger.overflow

    @rule(
        decision=decisions,
        reward=st.floats(0, 1),
        who=st.sampled_from(["model", "ann", "bo"]),
        cost=st.none() | st.tuples(st.floats(0, 1), st.floats(0, 1)),
    )
    def observe(self, decision: int, reward: float, who: str, cost: tuple[float, float] | None) -> None:
        if not self.is_remembered(decision):
            with pytest.raises(AlreadySettled):
                self.learner.observe(decision, {who: reward})
            return
        asked = decision in self.held or decision in self.costs
        expired = not asked and self.learner._ledger.status[self.learner._ledger.slot(decision)] == 3
        if cost is not None and not (asked or expired):
            cost = (0.0, 0.0)
        event = Observed(decision, {who: reward}, None if cost is None else dict(zip(RESOURCES, cost, strict=True)))
        before = self.learner.to_bytes()
        conflict = self.rewards.get((decision, who), reward) != reward or (
            cost is not None and self.costs.get(decision, cost) != cost
        )
        if conflict:
            with pytest.raises(ConflictingObservation):
                self.learner.apply(event)
            assert self.learner.to_bytes() == before
            return
        self.record(event)
        self.rewards[decision, who] = reward
        if cost is not None and (asked or expired) and decision not in self.costs:
            self.held.pop(decision, None)
            booked = np.minimum(cost, np.maximum(self.free(), 0))
            self.spent += booked
            self.overrun += np.array(cost) - booked
            self.costs[decision] = cost

    @rule(decision=consumes(decisions))
    def lose(self, decision: int) -> None:
        """Nothing is ever heard of it again; later it may expire."""
        if self.is_remembered(decision) and decision % 2:
            self.record(Expired(decision))
            self.held.pop(decision, None)

    @rule(resource=st.sampled_from([0, 1]), change=st.floats(-5, 5))
    def change_budget(self, resource: int, change: float) -> None:
        totals = self.totals.copy()
        totals[resource] = max(0.0, totals[resource] + change)
        amount = dict(zip(RESOURCES, totals.tolist(), strict=True))
        used = self.learner._ledger.view("spent") + self.learner._ledger.view("reserved")
        if (totals < used).any():
            with pytest.raises(BudgetExhausted):
                self.learner.change_budget(amount)
            return
        self.record(BudgetChanged(amount))
        self.totals = totals

    @rule()
    def restart(self) -> None:
        self.learner = Deferrer.from_bytes(self.learner.to_bytes())

    @invariant()
    def the_accounts_are_right(self) -> None:
        if not hasattr(self, "learner"):
            return
        view = self.learner._ledger.view
        assert (view("spent") + view("reserved") <= self.totals + 1e-9 * np.maximum(self.totals, 1)).all()
        np.testing.assert_allclose(view("reserved"), len(self.held), atol=1e-9)
        np.testing.assert_allclose(view("spent"), self.spent, atol=1e-9)
        np.testing.assert_allclose(view("overrun"), self.overrun, atol=1e-9)
        assert self.learner.summary().pending == len(self.held)

    def teardown(self) -> None:
        if hasattr(self, "learner"):
            replayed = self.make()
            for event in self.events:
                replayed.apply(event)
            assert replayed == self.learner


TestReviews = Reviews.TestCase
TestReviews.settings = settings(max_examples=60, stateful_step_count=40)
