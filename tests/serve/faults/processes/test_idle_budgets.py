"""Budgets that renew every minute, after a day or a year without a call: nobody waits for their renewals."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

import pytest

from deferkit.serve.audit.replay import replay
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import Client, latencies
from tests.serve.harness.in_process import POLICY
from tests.serve.harness.service_process import ServiceProcess, keys_for

ServiceOn = Callable[..., ServiceProcess]
DAY = 86_400
BUDGET = {"cost": {"total": 3, "every": "1min", "carry": 5, "max_cost": 1}}
WATCHED_S = 6.0  # several rounds of maintenance, which renews them
MOST_S = 0.25  # that another tenant's call may take


@contextmanager
def connected_as(service: ServiceProcess, key: str) -> Iterator[Client]:
    """Connect with a key."""
    client = Client(service.url, key)
    with closing(client.connection):
        yield client


@pytest.mark.parametrize("days", [1, 300])
def test_budgets_that_were_idle_keep_nobody_waiting(
    service_on: ServiceOn, tmp_path: Path, reading: Callable[[str], Database], days: int, *, soak: bool
) -> None:
    names = [f"idle{i}" for i in range(60 if soak else 12)]
    store = tmp_path / "deferkit.db"
    idle_key, other_key = keys_for(tmp_path, "idle", "other")
    service = service_on(str(store), max_clock_jump_s=0)
    service.start()
    with connected_as(service.ready(), idle_key) as idle, connected_as(service, other_key) as other:
        assert other.post("/v1/policies", POLICY).status == 201
        for name in names:
            assert idle.post("/v1/policies", {**POLICY, "name": name, "budget": BUDGET}).status == 201
            assert idle.decide("first", policy=name).status == 201
    service.kill()

    service.start(clock=days * DAY)
    began = time.perf_counter()
    service.ready()
    started_s = time.perf_counter() - began
    going_on = threading.Event()
    going_on.set()
    with (
        connected_as(service, idle_key) as idle,
        connected_as(service, other_key) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        waits = threads.submit(latencies, lambda i: other.decide(f"t{i}", force=None), going_on)
        time.sleep(WATCHED_S / 2)
        for name in names:
            assert idle.decide("second", policy=name).status == 201
        time.sleep(WATCHED_S / 2)
        going_on.clear()
    found = waits.result()
    print(
        f"{len(names)} policies, {days} days: started in {started_s:.2f} s; {len(found)} calls of others,"
        f" median {median(found):.4f} s, worst {max(found):.4f} s"
    )
    assert median(found) < MOST_S
    assert max(found) < (MOST_S if soak and (os.cpu_count() or 1) > os.getloadavg()[0] else 4 * MOST_S)  # if busy
    service.kill()
    for name in names[:3]:
        report = replay(Store(reading(str(store))), "idle", name)
        assert report.faults == []
        assert report.policy is not None
        assert report.policy.periods["cost"].number == pytest.approx(days * DAY / 60, abs=3)
        assert report.rows < 10
