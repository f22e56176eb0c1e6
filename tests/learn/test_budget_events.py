"""The promise of a budget under any order of events: time, renewals, extensions, stops, late and lost costs.

Never over budget; the books of all periods add up; a replay of the events gives the same state, bit for bit, and so
does a learner that is saved and loaded on the way.
"""

import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deferkit import Budget, BudgetExhausted, Deferrer, Event, Expired, Extended, Observed, Stopped
from deferkit.events import BudgetChanged, Corrected, Decided
from tests.conftest import numbers

HOUR = 3_600.0
ALLOWANCE = 6.0
TINY = 1e-9
amounts = st.floats(0, 2)
contexts = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(list)

BUDGETS = {
    "renewing": Budget(ALLOWANCE, every="1h", max_cost=2),
    "carried over, held less": Budget(ALLOWANCE, every="1h", carry=1, max_cost=2, hold="auto"),
    "nothing lapses, fixed hold": Budget(ALLOWANCE, every="90min", carry=math.inf, max_cost=2, hold=0.5),
    "calendar, limit": Budget(ALLOWANCE, every="day", zone="Europe/Berlin", carry=0.5, max_cost=2, limit=1),
    "until, held less": Budget(4 * ALLOWANCE, until=200 * HOUR, max_cost=2, hold=0.7),
    "horizon, held less": Budget(4 * ALLOWANCE, horizon=60, max_cost=2, hold="auto"),
}


class Reviews(RuleBasedStateMachine):
    """A learner whose reviewers stop when they are told to."""

    @initialize(name=st.sampled_from(sorted(BUDGETS)), encoded=st.booleans(), seed=st.integers(0, 3))
    def start(self, name: str, encoded: bool, seed: int) -> None:
        self.budget = BUDGETS[name]
        self.given: dict[str, Any] = {"n_features": 2, "budget": self.budget, "memory": 30, "seed": seed}
        self.given |= {"pacing": "adaptive" if not self.budget.is_timed and encoded else "resolve"}
        if self.given["pacing"] == "resolve":
            self.given["memory"] = 1_000
        self.learner = Deferrer(**self.given)
        self.events: list[Event] = []
        self.now, self.pending, self.known = 0.0, dict[int, float](), dict[int, float]()
        self.granted, self.lapsed = self.budget.total, 0.0

    def do(self, event: Event) -> None:
        self.events.append(event)
        self.learner.apply(event)

    def time(self) -> float | None:
        return self.now if self.budget.is_timed else None

    @rule(context=contexts, force=st.sampled_from([None, None, "human", "model"]))
    def decide(self, context: list[float], force: str | None) -> None:
        before = self.learner.summary()
        at = self.time()
        due = [] if at is None else self.learner.renewals(at)
        total = before.total
        for event in due if before.decisions else due[1:]:
            self.granted += ALLOWANCE
            self.lapsed += total + ALLOWANCE - event.total  # type: ignore[operator]
            total = event.total
        for event in due if before.decisions else due[:0]:
            assert event.total >= before.spent + before.reserved  # type: ignore[operator]
        try:
            decision = self.learner.decide(context, force=force, at=at)
        except BudgetExhausted:
            self.events += due
            return
        self.events += [*due, Decided(decision, context, at)]
        if decision.route == "human":
            self.pending[decision.id] = decision.reserved  # type: ignore[assignment]

    @rule(hours=st.sampled_from([0.0, 0.01, 0.3, 1.0, 5.0, 37.0, -2.0]))
    def wait(self, hours: float) -> None:
        self.now = min(self.now + hours * HOUR, 150 * HOUR)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), cost=amounts, reward=st.floats(0, 1))
    def finish(self, data: st.DataObject, cost: float, reward: float) -> None:
        """A review needs this much: within its hold, or its hold is extended, or it is stopped."""
        number = data.draw(st.sampled_from(sorted(self.pending)))
        hold = self.pending.pop(number)
        if cost > hold:
            granted = self.learner.extend(number, cost - hold)
            self.events.append(Extended(number, granted))
            hold += granted  # type: ignore[operator]
        if cost <= hold:
            self.do(Observed(number, {"human": reward}, cost))
        else:
            cost = hold
            self.do(Stopped(number, cost, {"model": reward}))
        self.known[number] = cost

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.pending)))
        del self.pending[number]
        self.do(Expired(number))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), share=st.floats(0, 1))
    def correct_downwards(self, data: st.DataObject, share: float) -> None:
        number = data.draw(st.sampled_from(sorted(self.known)))
        if self.learner.remembers(number):
            self.known[number] *= share
            self.do(Corrected(number, {}, self.known[number]))

    @rule(more=st.floats(0, 3))
    def top_up(self, more: float) -> None:
        total = self.learner.summary().total + more  # type: ignore[operator]
        self.granted += total - self.learner.summary().total  # type: ignore[operator]
        self.do(BudgetChanged(total))

    @rule()
    def save_and_load(self) -> None:
        restored = Deferrer.from_bytes(self.learner.to_bytes())
        assert restored == self.learner
        self.learner = restored

    @invariant()
    def is_never_over_budget(self) -> None:
        summary = self.learner.summary()
        [total], [spent], [reserved] = map(numbers, (summary.total, summary.spent, summary.reserved))
        assert spent + reserved <= total + TINY * max(1.0, total)
        assert reserved >= -TINY
        assert summary.overrun == pytest.approx(0, abs=1e-8)
        assert summary.pending == len(self.pending)

    @invariant()
    def adds_up(self) -> None:
        summary = self.learner.summary()
        assert summary.spent == pytest.approx(sum(self.known.values()), abs=1e-7)
        used = summary.spent + summary.reserved + summary.left + self.lapsed  # type: ignore[operator]
        assert used == pytest.approx(self.granted, abs=1e-7)

    def teardown(self) -> None:
        if hasattr(self, "events"):
            replayed = Deferrer(**self.given)
            for event in self.events:
                replayed.apply(event)
            assert replayed == self.learner


Reviews.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestReviews = pytest.mark.filterwarnings("ignore::deferkit.HorizonWarning")(Reviews.TestCase)
