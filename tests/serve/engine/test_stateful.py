"""The whole engine against a plain model of money and queue, in any order of events.

DEFERKIT_SOAK=20 runs twenty times as many examples.
"""

import os
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
