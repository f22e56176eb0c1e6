"""Trees beside the decisions under any feedback: late, in parts, repeated, lost, corrected; saved at any moment."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from deferkit import Budget, BudgetChanged, Corrected, Decided, Deferrer, Event, Expired, Observed, Pacing, WarmStarted
from deferkit.learn.embed.tree_columns import TreeColumns
from tests.early_fits import FIRST, early_fits

D, HORIZON = 3, 120
KINDS = {
    "auto": {"representation": "auto"},
    "auto, logistic": {"representation": "auto", "link": "logistic"},
    "auto, never forgets": {"representation": "auto", "forget": "never"},
    "auto, stack": {"representation": "auto", "defaults": "2026.12"},
    "auto, stack, logistic": {"representation": "auto", "defaults": "2026.12", "link": "logistic"},
    "bank": {},
    "bank, logistic": {"link": "logistic"},
}
ACTIONS = ["task", "task", "decide", "decide", "model", "human", "human", "cost", "cost", "correct", "expire", "budget"]
ACTIONS += ["save", "warm start"]
Action = tuple[str, int, float]


def make(kind: str) -> Deferrer:
    given: dict[str, Any] = KINDS[kind]
    budget = Budget(12, horizon=HORIZON, max_cost=1)
    return Deferrer(n_features=D, budget=budget, memory=15, pacing=Pacing(window=10, every=3), **given)


class Player:
    """Turns actions into events, applies them, and checks the budget after each."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.learner = make(kind)
        self.copies: list[Deferrer] = []  # restored from what was saved, and told everything since
        self.events: list[Event] = []
        self.seen: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        for each in (self.learner, *self.copies):
            each.apply(event)
        self.events.append(event)
        view = self.learner._ledger.view
        assert (view("spent") + view("reserved") <= view("total") + 1e-9).all()

    def decide(self, value: float) -> int:
        number = self.learner.summary().decisions
        x = np.random.default_rng(number).uniform(-1, 1, D)
        free = float(self.learner._ledger.budget_left()[0])
        event = self.learner.propose(x, force="human" if value > 0.6 and free >= 1 else None)
        self.apply(event)
        assert isinstance(event, Decided)
        return event.decision.id

    def response(self, value: float) -> float:
        return float(value > 0.5) if "logistic" in self.kind else value

    def observe(self, decision: int, part: str, value: float) -> None:
        """Observe a reward or a cost; what is known already, once more."""
        ledger = self.learner._ledger
        slot, seen = ledger.slot(decision), ledger.get("n_seen")
        known = ledger.cost[slot, 0] if part == "cost" else ledger.reward[slot, int(part == "human")]
        known = known if ledger.route[slot] > 0 or part != "cost" else 0.0
        amount = float(known) if not np.isnan(known) else value if part == "cost" else self.response(value)
        self.apply(Observed(decision, {}, amount) if part == "cost" else Observed(decision, {part: amount}, None))
        assert ledger.get("n_seen") - seen == int(np.isnan(known))
        self.seen["repeated"] += not np.isnan(known)

    def correct(self, decision: int, value: float) -> None:
        ledger = self.learner._ledger
        slot = ledger.slot(decision)
        rewards = ledger.reward[slot]
        names = [name for name, y in zip(("model", "human"), rewards, strict=True) if not np.isnan(y)]
        paid = ledger.route[slot] > 0 and not np.isnan(ledger.cost[slot, 0])
        cost = min(value, float(ledger.cost[slot, 0])) if paid else None  # to less: more may not be left
        if names or cost is not None:
            self.apply(Corrected(decision, {name: self.response(value) for name in names}, cost))
            self.seen["corrected in mid-fit"] += self.is_fitting()

    def is_fitting(self) -> bool:
        representation = self.learner._representation
        return isinstance(representation, TreeColumns) and representation._fit is not None

    def save(self) -> None:
        self.seen["saved in mid-fit"] += self.is_fitting()
        self.copies.append(self.learner)  # what was saved goes on as well
        self.learner = Deferrer.from_bytes(self.learner.to_bytes())

    def play(self, action: Action) -> None:
        what, number, value = action
        made = self.learner.summary().decisions
        if what in ("task", "decide") or not made:
            decision = self.decide(value)
            if what == "task":
                route = self.learner._ledger.route[self.learner._ledger.slot(decision)]
                human = {"human": self.response(1 - value)} if route else {}
                self.apply(Observed(decision, {"model": self.response(value), **human}, value if route else None))
            return
        decision = made - 1 - number % min(made, 20)
        if what == "save":
            if made > 2 * FIRST and len(self.copies) < 2:
                self.save()
        elif what == "budget":
            ledger = self.learner._ledger
            self.apply(BudgetChanged(float((ledger.view("spent") + ledger.view("reserved"))[0] + 5 * value)))
        elif what == "warm start" and number % 4 == 0:
            rng = np.random.default_rng(number)
            x, y = rng.uniform(-1, 1, (number % 9 + 1, D)), rng.integers(2, size=number % 9 + 1).astype(float)
            rewards = {"model": y.tolist(), "human": (1 - y).tolist()}
            self.apply(WarmStarted(x.tolist(), rewards, "human", (y / 2).tolist()))
        elif self.learner.remembers(decision):
            if what == "expire":
                self.apply(Expired(decision))
            elif what == "correct":
                self.correct(decision, value)
            elif what in ("model", "human", "cost"):
                self.observe(decision, what, value)

    def finish(self) -> None:
        for each in self.copies:
            assert each == self.learner
        replayed = make(self.kind)
        for event in self.events:
            replayed.apply(event)
        assert replayed == self.learner


@pytest.mark.filterwarnings("ignore::deferkit.HorizonWarning", "ignore::deferkit.LinkWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_any_order_of_events_gives_one_state_within_the_budget(kind: str) -> None:
    seen: Counter[str] = Counter()
    action = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1_000), st.floats(0, 1))

    @given(st.lists(action, min_size=70, max_size=110))
    @settings(max_examples=20, phases=[Phase.generate])  # an example takes a second: shrinking one, minutes
    def play(actions: list[Action]) -> None:
        with early_fits():
            player = Player(kind)
            for each in actions:
                player.play(each)
            player.finish()
            seen.update(player.seen)

    play()
    if "auto" in kind:  # else this says nothing about fits
        assert min(seen["saved in mid-fit"], seen["corrected in mid-fit"], seen["repeated"]) > 0
