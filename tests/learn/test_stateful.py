"""The default under any order of events: the link switches, ranks are frozen, feedback comes late, again or corrected.

Rewards are right or wrong at first, and graded at some point in about half of the streams. After every step the link
and the rank tables are those that a plain list of all contexts and rewards implies. A learner that is saved and loaded
goes on bit for bit, and so does one that replays the events, from the start or from a state in the middle.
"""

import bisect
import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deferkit import Budget, Corrected, Deferrer, Encoder, Event, Expired, Observed, Pacing, WarmStarted
from deferkit.learn.core import CONSTANTS
from tests.early_fits import early_fits

RANKED: int = CONSTANTS["ranked_contexts"]
ABSURD = 1_000  # times the larger decile
VALUES = (0.0, 0.25, 0.25, 0.5, 1.0, -3.0, 1e6)  # with ties and an outlier
LEARNERS: dict[str, dict[str, Any]] = {
    "default": {},
    "never forgets": {"forget": "never"},
    "trees": {"representation": "auto"},
    "confidence": {"confidence": 1},
    "short memory": {"memory": 60, "pacing": Pacing(window=30)},
    "two experts": {"experts": ["human", "bo"]},
    "named features": {"encoder": ["a", "b"], "representation": "linear"},
    "named features, trees, confidence": {"encoder": ["a", "b"], "confidence": "b", "representation": "auto"},
    "logistic": {"link": "logistic"},
    "2026.11": {"defaults": "2026.11"},
}
right_or_wrong = st.sampled_from([0.0, 1.0])
rewards = right_or_wrong | right_or_wrong | st.floats(0, 1)


def is_absurd(table: list[float], value: float) -> bool:
    """Return whether a rank table tells that a value is absurd: it takes ten values for that."""
    n = len(table)
    largest = max(abs(table[n // 10]), abs(table[n - 1 - n // 10])) if n >= 10 else 0.0
    return largest > 0.0 and abs(value) > ABSURD * largest


class DayOne(RuleBasedStateMachine):
    """A learner, its events, and what is known of its past without it."""

    def __init__(self) -> None:
        super().__init__()
        self.early = ExitStack()
        self.early.enter_context(early_fits())
        self.events: list[Event] = []
        self.seen = 0  # contexts that came, for the rank tables
        self.tables: tuple[list[float], list[float]] = ([], [])  # the rank tables of plain contexts
        self.known: dict[tuple[int, str], float] = {}
        self.costs: dict[int, float] = {}
        self.is_graded = False
        self.middle: tuple[int, bytes] = (0, b"")
        self.frozen: Any = None

    @initialize(name=st.sampled_from(sorted(LEARNERS)), seed=st.integers(0, 3))
    def begin(self, name: str, seed: int) -> None:
        self.given = LEARNERS[name] | {"seed": seed, "budget": Budget(60, horizon=2_000, max_cost=1)}
        self.learner = self.make()
        self.middle = (0, self.learner.to_bytes())

    def make(self) -> Deferrer:
        given = dict(self.given)
        if names := given.pop("encoder", None):
            return Deferrer(encoder=Encoder(numbers=names), **given)
        return Deferrer(n_features=2, **given)

    @property
    def is_named(self) -> bool:
        return "encoder" in self.given

    @property
    def is_binary(self) -> bool:
        return self.given.get("link") == "logistic"

    def contexts(self, n: int, seed: int) -> list[Any]:
        values: list[Any] = np.random.default_rng(seed).choice(VALUES, (n, 2)).tolist()
        if not self.is_named:
            return values
        return [{"a": None if a == -3 else a, "b": b} for a, b in values]

    def record(self, event: Event) -> None:
        self.learner.apply(event)
        self.events.append(event)

    def rank(self, context: Any, checked: bool = True) -> None:
        """Add a context to the expected rank tables; those of a warm start are not checked for absurd values."""
        self.seen += 1
        if self.seen > RANKED or self.is_named:
            return
        for table, value in zip(self.tables, context, strict=True):
            if not (checked and is_absurd(table, value)):
                bisect.insort(table, value)

    def allowed(self, reward: float) -> float:
        """Return a reward that the link of the learner allows."""
        return float(round(reward) if self.is_binary else reward)

    def count(self, rewards: Iterable[float]) -> None:
        self.is_graded |= any(reward not in (0.0, 1.0) for reward in rewards)

    @rule(n=st.sampled_from([1, 3, 20, 60]), seed=st.integers(0, 999), force=st.sampled_from([None, None, "human"]))
    def decide(self, n: int, seed: int, force: str | None) -> None:
        for context in self.contexts(n, seed):
            affordable = self.learner.summary().left >= 1  # type: ignore[operator]
            self.record(self.learner.propose(context, force=force if affordable else None))
            self.rank(context)

    @precondition(lambda self: self.learner.summary().decisions > 0)
    @rule(data=st.data(), n=st.sampled_from([1, 30]), reward=rewards, others=right_or_wrong)
    def observe(self, data: st.DataObject, n: int, reward: float, others: float) -> None:
        """Outcomes of decisions in any order become known: the last one maybe graded, the others right or wrong."""
        last = data.draw(st.integers(0, self.learner.summary().decisions - 1))
        for number in range(max(0, last - n + 1), last + 1):
            if self.learner.remembers(number):
                self.observe_one(number, self.allowed(reward if number == last else others))

    def observe_one(self, number: int, reward: float) -> None:
        ledger = self.learner._ledger
        route = self.learner.settings.deciders[ledger.route[ledger.slot(number)]]
        new = {who: self.known.get((number, who), reward) for who in {"model", route}}
        cost = None if route == "model" else self.costs.get(number, 0.5)
        event = Observed(number, new, cost)
        self.record(event)
        self.count(new.values())
        self.known |= {(number, who): value for who, value in new.items()}
        if cost is not None:
            self.costs[number] = cost
        if not self.learner.remembers(number):
            return
        before = self.learner.to_bytes()
        self.record(event)  # repeated feedback
        assert self.learner.to_bytes() == before

    @precondition(lambda self: self.known)
    @rule(data=st.data(), reward=rewards)
    def correct(self, data: st.DataObject, reward: float) -> None:
        number, who = data.draw(st.sampled_from(sorted(self.known)))
        if self.learner.remembers(number):
            self.known[number, who] = self.allowed(reward)
            self.record(Corrected(number, {who: self.known[number, who]}, None))
            self.count([self.known[number, who]])

    @precondition(lambda self: self.learner.summary().decisions > 0)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.learner.summary().decisions - 1))
        if number not in self.costs and self.learner.remembers(number):
            self.record(Expired(number))

    @rule(n=st.sampled_from([20, 70, 120]), seed=st.integers(0, 999), reward=rewards)
    def learn_from_history(self, n: int, seed: int, reward: float) -> None:
        contexts = self.contexts(n, seed)
        columns = {who: [1.0, 0.0] * (n // 2) for who in self.learner.settings.deciders}
        columns["model"][0] = self.allowed(reward)
        self.record(WarmStarted(contexts, columns, "human", [0.5] * n))
        self.count(columns["model"])
        for context in contexts:
            self.rank(context, checked=False)

    @rule()
    def save_and_load(self) -> None:
        saved = self.learner.to_bytes()
        restored = Deferrer.from_bytes(saved)
        assert restored == self.learner
        self.learner = restored
        self.middle = (len(self.events), saved)

    @rule()
    def replay_from_the_middle(self) -> None:
        first, saved = self.middle
        replayed = Deferrer.from_bytes(saved)
        for event in self.events[first:]:
            replayed.apply(event)
        assert replayed == self.learner
        self.learner = replayed

    @invariant()
    def the_link_follows_the_rewards(self) -> None:
        if hasattr(self, "learner") and self.learner.settings.link == "auto":
            assert self.learner._ledger.get("reward_link") == (0 if self.is_graded else 1)

    @invariant()
    def the_tables_hold_the_first_contexts(self) -> None:
        if not hasattr(self, "learner") or not self.learner.settings.has_ranks:
            return
        ledger = self.learner._ledger
        assert ledger.get("n_in_ranks") == min(self.seen, RANKED)
        count, table = ledger.view("rank_count"), ledger.view("rank_table")
        if not self.is_named:
            for j in range(2):
                np.testing.assert_array_equal(table[j, : count[j]], self.tables[j])
        if self.seen >= RANKED and not ledger.get("unsettled"):
            now = [table[j, : count[j]].tolist() for j in range(len(count))]
            self.frozen = now if self.frozen is None else self.frozen
            assert now == self.frozen

    @invariant()
    def the_budget_is_kept(self) -> None:
        if hasattr(self, "learner"):
            summary = self.learner.summary()
            assert summary.spent + summary.reserved <= summary.total + 1e-9  # type: ignore[operator]
            assert summary.spent == pytest.approx(sum(self.costs.values()))
            assert all(math.isfinite(noise) for noise in summary.noise.values())

    def teardown(self) -> None:
        with self.early:
            if hasattr(self, "learner"):
                replayed = self.make()
                for event in self.events:
                    replayed.apply(event)
                assert replayed == self.learner


DayOne.TestCase.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)
TestDayOne = pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")(DayOne.TestCase)
