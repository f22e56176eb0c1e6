"""The whole engine against a plain model of money and queue, in any order of events.

DEFERKIT_SOAK=20 runs twenty times as many examples.
"""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from deferkit.serve import owner
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.machine import ServiceMachine

SOAK = int(os.environ.get("DEFERKIT_SOAK", "1"))


def test_case_22_in_any_order_of_events_money_and_queue_are_what_a_plain_model_says(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(database, Sqlite):
        database.synchronous = "OFF"  # no power is lost here
    database.prepare()
    at = database.now()

    def now(moved: int | None = None) -> int:
        nonlocal at
        at = at if moved is None else moved
        return at

    monkeypatch.setattr(database, "now", now)
    monkeypatch.setattr(owner, "is_dead", lambda *_, **__: True)  # whoever was abandoned
    run_state_machine_as_test(
        lambda: ServiceMachine(database, now),  # type: ignore[arg-type]
        settings=settings(
            max_examples=(8 if database.shared else 50) * SOAK,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
