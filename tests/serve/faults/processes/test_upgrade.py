"""A service that is killed while it brings an old store up to date leaves the old or the new, never half."""

import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from deferkit.serve.storage import database as queries
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.clients import CROWD_POLICY, until
from tests.serve.harness.service_process import ServiceProcess
from tests.serve.storage.test_migrations import migrate, schema, select, version

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]


def clear(database: Database) -> None:
    """Leave nothing of a database."""
    if isinstance(database, Sqlite):
        for ending in ("", "-wal", "-shm"):
            Path(database.path + ending).unlink(missing_ok=True)
    else:
        [(name,)] = select(database, "SELECT current_schema()")
        select(database, f"DROP SCHEMA {name} CASCADE; CREATE SCHEMA {name}")


def outcome(service: ServiceProcess, statement: int) -> int | None:
    """Let a service die at a statement; return its exit code, None if it is ready before that."""
    service.start(death=statement)
    codes: list[int | None] = []

    def decided() -> bool:
        codes.append(service.wait(0.05))
        return codes[-1] is not None or service.answers()

    until(decided, "it dies or is ready")
    return codes[-1]


def test_killed_at_any_statement_of_an_upgrade(
    service_on: ServiceOn, store_url: str, reading: Reading, monkeypatch: pytest.MonkeyPatch, soak: bool
) -> None:
    steps = queries.migrations()
    database = reading(store_url)
    whole = {}  # what each version is made of
    for number in range(1, len(steps) + 1):
        migrate(database, monkeypatch, steps[:number])
        whole[number] = schema(database)
    service = service_on(store_url)
    left = []  # versions
    for statement in count(0, 1 if soak else 5):
        clear(database)
        migrate(database, monkeypatch, steps[:1])
        code = outcome(service, statement)
        if code is None:
            break  # it needs fewer statements than that
        assert code == -signal.SIGKILL, service.log
        left.append(version(database))
        assert schema(database) == whole[left[-1]]
        if left[-1] == len(steps) and not soak:
            break
    service.kill()
    assert schema(database) == whole[len(steps)]
    service.start()
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    print(f"{len(left)} deaths left the versions {left}")
    assert left == sorted(left)
    assert set(left) == set(range(1, len(steps) + 1))
