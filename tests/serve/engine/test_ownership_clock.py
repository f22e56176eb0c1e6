"""A clock that was set is not followed at a start; the time that a service was off is."""

import time
from collections.abc import Callable

import pytest

from deferkit.cli.service import create
from deferkit.serve.engine import ownership
from deferkit.serve.engine.ownership import start_time
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.faults.processes.conftest import (
    fork_server,
    postgres_store,
    reading,
    service_on,
    sqlite_path,
    store_url,
)
from tests.serve.harness.clients import CROWD_POLICY, PATH, until
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.service_process import ServiceProcess

__all__ = ["fork_server", "postgres_store", "reading", "service_on", "sqlite_path", "store_url"]

ServiceOn = Callable[..., ServiceProcess]
HOUR = 3600
MICRO = 10**6
WAITING = CROWD_POLICY | {"deadline_s": 600, "representation": "linear"}


def decide(service: ServiceProcess, task: str) -> None:
    assert service.post(f"{PATH}/decisions", task=task, context=[1, 0, 0], force="human").status == 201


def reserved(service: ServiceProcess) -> float:
    found: float = service.get(f"{PATH}/summary").json["budget"]["cost"]["reserved"]
    return found


def times(store: Store) -> list[int]:
    return [line.at for line in store.log(1)]


@pytest.mark.parametrize("hours", [1, -1])
def test_one_start_with_the_clock_an_hour_off_voids_nothing_and_time_does_not_stay_ahead(
    service_on: ServiceOn, store_url: str, reading: Callable[[str], Database], hours: int
) -> None:
    service = service_on(store_url)
    service.start()
    assert service.ready().post("/v1/policies", **WAITING).status == 201
    decide(service, "before")
    assert service.stop() == 0
    service.start(clock=hours * HOUR)
    service.ready()
    decide(service, "wrong")
    time.sleep(2.5)  # two rounds of maintenance
    [line] = [each for each in service.get("/metrics").body.splitlines() if each.startswith(b"deferkit_clock_jump_s")]
    assert float(line.split()[1]) == pytest.approx(hours * HOUR, abs=60)
    assert "the clock has jumped and is not followed" in service.log
    assert reserved(service) == 2
    service.kill()
    service.start()
    service.ready()
    decide(service, "after")
    assert reserved(service) == 3
    assert b"deferkit_clock_jump_seconds 0.0" in service.get("/metrics").body
    assert service.stop() == 0
    found = times(Store(reading(store_url)))
    assert found == sorted(found)
    assert found[-1] - found[0] < 600 * MICRO


def test_a_jump_that_is_accepted_is_followed(service_on: ServiceOn, sqlite_path: str) -> None:
    service, accepting = service_on(sqlite_path), service_on(sqlite_path, max_clock_jump_s=0)
    service.start()
    assert service.ready().post("/v1/policies", **WAITING).status == 201
    decide(service, "before")
    assert service.stop() == 0
    accepting.start(clock=HOUR)
    accepting.ready()
    until(lambda: reserved(accepting) == 0, "its deadline has passed")
    assert accepting.stop() == 0
    service.start(clock=HOUR)  # from now on that is the time
    assert b"deferkit_clock_jump_seconds 0.0" in service.ready().get("/metrics").body


def test_a_service_that_was_off_for_a_week_has_not_jumped(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.prepare()
    store = Store(database)
    wall, uptime = 10**15, 10**12
    machine = {"wall": wall, "uptime": ("boot", uptime)}
    monkeypatch.setattr(type(database), "now", lambda _: machine["wall"])
    monkeypatch.setattr(ownership, "read_uptime", lambda: machine["uptime"])
    week = 7 * 24 * HOUR * MICRO
    assert start_time(store, max_jump_s=300) == (wall, 0)
    machine |= {"wall": wall + week, "uptime": ("boot", uptime + week)}
    assert start_time(store, max_jump_s=300) == (wall + week, 0)
    machine |= {"wall": wall + week + 299 * MICRO}
    assert start_time(store, max_jump_s=300) == (wall + week + 299 * MICRO, 0)
    machine |= {"wall": wall + 3 * week}
    assert start_time(store, max_jump_s=300) == (wall + week + 299 * MICRO, 2 * week - 299 * MICRO)
    machine |= {"uptime": ("another boot", 5)}  # nothing to compare with
    assert start_time(store, max_jump_s=300) == (wall + 3 * week, 0)
    machine |= {"uptime": None}  # nor here
    assert start_time(store, max_jump_s=300) == (wall + 3 * week, 0)
    store.close()


def test_a_machine_says_for_how_long_it_has_run() -> None:
    first, second = ownership.read_uptime(), ownership.read_uptime()
    assert first is not None
    assert second is not None
    assert first[0] == second[0] != ""
    assert 0 < first[1] <= second[1]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_key_of_the_command_line_expires_by_the_clock_of_the_service(
    database: Database, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The machine's clock was set since the service was started."""
    database.prepare()
    store = Store(database)
    right = start_time(store, max_jump_s=300).at
    wrong = database.now() + hours * HOUR * MICRO
    monkeypatch.setattr(type(database), "now", lambda _: wrong)
    monkeypatch.setattr(time, "time", lambda: wrong / MICRO)
    monkeypatch.setattr(time, "time_ns", lambda: wrong * 1000)
    assert isinstance(database, Sqlite | Postgres)
    create(store=url_of(database.conninfo) if isinstance(database, Postgres) else database.path, expires_s=600)
    [row] = store.keys()
    assert row.expires is not None
    assert 590 * MICRO < row.expires - right < 700 * MICRO
    store.close()
