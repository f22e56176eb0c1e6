"""The whole engine against a plain model of money and queue, in any order of events.

DEFERKIT_SOAK=20 runs twenty times as many examples.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from deferkit.learn.embed import tree_columns, tree_views
from deferkit.learn.embed.tree_columns import TreeFit
from deferkit.serve.engine import ownership
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.reference_model import Lease
from tests.serve.harness.service_machine import SPEC, ServiceMachine
from tests.serve.harness.timed_reference_model import TIMED_SPEC, TimedServiceMachine

SOAK = int(os.environ.get("DEFERKIT_SOAK", "1"))


LEARNERS = {
    "linear": {"forget": "never", "representation": "linear"},
    "forgetting": {"forget": "auto", "representation": "linear"},
    "trees": {"forget": "auto", "representation": "auto"},
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_in_any_order_of_events_money_and_queue_are_what_a_plain_model_says(
    database: Database, learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timed_by_hand(database, monkeypatch)
    spec = msgspec.structs.replace(SPEC, **LEARNERS[learner])
    play(lambda: ServiceMachine(database, now, spec), 5 if database.shared else 40)


def test_with_time_renewals_extensions_and_stops_too(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timed_by_hand(database, monkeypatch)
    spec = msgspec.structs.replace(TIMED_SPEC, **LEARNERS["forgetting"])
    play(lambda: TimedServiceMachine(database, now, spec), 5 if database.shared else 40)


class CorrectedAnswers(ServiceMachine):
    """Corrects any answer there ever was, not only one of the latest."""

    def lease(self, place: int) -> tuple[Lease, dict[str, Any]]:
        lease = self.leases[place % len(self.leases)]
        return lease, self.named(lease)

    def answer(self, reviewer: str, label: str, cost: float) -> None:
        """Claim a task and answer it, if there is one."""
        before = len(self.leases)
        self.claim(reviewer)
        if len(self.leases) > before:
            self.complete(place=before, label=label, given={}, cost=cost, again=False)

    def check(self) -> None:
        """Compare with the model."""
        self.money_is_where_the_model_has_it()
        self.tasks_and_seats_are_as_the_model_has_them()
        self.the_summary_counts_what_there_is()


def test_answers_that_are_corrected_again_and_again_are_booked_as_a_plain_model_says(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long life: each task gets ten corrections of any answers, among deaths, restarts and failing commits."""
    rng = random.Random(9)
    machine = CorrectedAnswers(database, timed_by_hand(database, monkeypatch), SPEC)
    corrections = deaths = 0
    try:
        for turn in range(40 * SOAK):
            machine.change_budget(amount=64, again=False)
            machine.ask(cost=0.5, seats=rng.choice([1, 2]))
            for reviewer in ("ann", "bo"):
                machine.answer(reviewer, rng.choice("ab"), rng.randrange(96) / 64)
            for _ in range(10):
                before = len(machine.done)
                cost = rng.choice([None, rng.randrange(96) / 64])
                again = rng.random() < 0.1
                machine.correct_answer(place=rng.randrange(10**6), label=rng.choice("ab"), cost=cost, again=again)
                corrections += len(machine.done) - before
            if rng.random() < 0.1:
                machine.let_the_next_commit_fail(nth=rng.randrange(1, 12))
            if rng.random() < 0.1:
                machine.restart(dies=rng.random() < 0.5)
                deaths += 1
            if turn % (10 * SOAK) == 0:
                machine.check()
        machine.check()
    finally:
        machine.teardown()
    print(f"{len(machine.model.tasks)} tasks, {corrections} corrections of answers, {deaths} restarts")
    assert corrections > 200 * SOAK


def timed_by_hand(database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], int]:
    """Let fits begin early and take long, and the database tell a time that is moved by hand; return what moves it."""
    # fits begin and take effect within the life of an example
    monkeypatch.setattr(tree_columns, "FIRST_FIT", 1)
    monkeypatch.setattr(tree_columns, "MIN_DELAY", 1)
    monkeypatch.setattr(tree_views, "LEAVES_NEEDED", 1)
    fit = TreeFit._fit

    def slow(made: TreeFit, *given: Any) -> None:
        time.sleep(0.05)  # some outcomes come to wait for it
        fit(made, *given)

    monkeypatch.setattr(TreeFit, "_fit", slow)
    if isinstance(database, Sqlite):
        database.synchronous = "OFF"  # no power is lost here
    database.prepare()
    at = database.now()

    def now(moved: int | None = None) -> int:
        nonlocal at
        at = at if moved is None else moved
        return at

    monkeypatch.setattr(database, "now", now)
    monkeypatch.setattr(ownership, "is_dead", lambda *_, **__: True)  # whoever was abandoned
    return now


def play(machine: Callable[[], ServiceMachine], examples: int) -> None:
    """Let a machine run in many orders of events."""
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples * SOAK,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
