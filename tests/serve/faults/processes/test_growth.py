"""A week of simulated time: memory and the store of a service grow with the log, and with nothing else."""

import asyncio
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deferkit.serve.api.tasks import BatchBody, OutcomeBody, TaskBody
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.domain.webhook import WebhookRow, new_id
from deferkit.serve.engine import maintenance, webhooks
from deferkit.serve.engine.commands.decide import DecideMany
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import SNAPSHOTS_KEPT
from tests.serve.harness.in_process import KEY, SPEC, HandClock, play
from tests.serve.harness.webhook_receiver import Receiver

HOURS, DAY = 168, 24
SIZES = {
    "records": "SELECT COUNT(*) FROM log",
    "log": "SELECT SUM(octet_length(body)) FROM log",
    "snapshots": "SELECT COUNT(*) FROM snapshots",
    "snapshot": "SELECT MAX(octet_length(data)) FROM snapshots",
    "payloads": "SELECT COUNT(*) FROM seats WHERE payload IS NOT NULL",
    "seats": "SELECT COUNT(*) FROM seats",
    "events": "SELECT COUNT(*) FROM events",
    "deliveries": "SELECT COUNT(*) FROM event_deliveries",
    "parked": "SELECT COUNT(*) FROM parked",
}


def sizes_of(engine: Engine) -> dict[str, float]:
    """Return what there is in the store, the megabytes of this process, and the blocks of memory that Python uses."""
    gc.collect()
    reader: Any = engine.store.database.reader()
    found = {name: float(reader.execute(sql)[0][0] or 0) for name, sql in SIZES.items()}
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return found | {"MB": pages * os.sysconf("SC_PAGESIZE") / 1e6, "blocks": float(sys.getallocatedblocks())}


async def hour(engine: Engine, clock: HandClock, number: int, tasks: int) -> int:
    """Decide the tasks of an hour, report what the experts cost, let time pass; return how many were asked."""
    bodies = [
        TaskBody(task=f"{number}-{i}", context=[(number * tasks + i) % 7 / 7, i % 5 / 5], payload="x" * 200)
        for i in range(tasks)
    ]
    reply = await engine.submit(KEY, DecideMany(BatchBody(tasks=bodies)))
    results: list[Any] = msgspec.json.decode(reply.body)["results"]
    asked = [each["decision"]["task"] for each in results if each["decision"]["route"] != "model"]
    outcomes = [Observe(OutcomeBody(task=task, rewards={"human": 0.9, "model": 0.4}, cost=0.5)) for task in asked]
    for start in range(0, len(outcomes), 100):
        await asyncio.gather(*(engine.submit(KEY, each) for each in outcomes[start : start + 100]))
    clock.advance(3600)
    return len(asked)


async def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


def test_a_week_of_tasks_grows_the_log_and_nothing_else(
    sqlite: Database, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "PRUNE_S", 0.2)
    monkeypatch.setattr(maintenance, "RETENTION_EVERY", 0)
    tasks = 600 if soak else 12  # in an hour
    budget = {"cost": BudgetSpec(total=24 * tasks, every="1d", max_cost=1)}
    spec = msgspec.structs.replace(
        SPEC, budget=budget, retention_s=float(DAY * 3600), representation="linear", explore_floor=0.5, memory=1000
    )
    stops = (2 * DAY, 4 * DAY, HOURS)

    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        hook = WebhookRow(new_id(), KEY[0], receiver.url, "whsec_x", "decided completed", None, 0, 5)
        engine.webhooks.store.add(hook)
        await engine.webhooks.reload()
        asked, told, at = 0, 0, []
        for number in range(HOURS):
            asked += await hour(engine, clock, number, tasks)
            await wait_until(lambda: not engine.webhooks.store.count_waiting([hook.id]))
            told += len(receiver.times())
            receiver.calls.clear()  # they are in this process, whose memory is measured
            if number + 1 in stops:
                await asyncio.sleep(1.0)  # what is due to be erased or pruned is
                at.append(sizes_of(engine))
                print(f"hour {number + 1}: {asked:,} of {(number + 1) * tasks:,} asked, {at[-1]}")
        first, middle, last = at
        assert last["log"] / last["records"] < 1.1 * first["log"] / first["records"]
        assert last["snapshots"] <= SNAPSHOTS_KEPT
        assert last["snapshot"] < 1.2 * middle["snapshot"]
        for name in ("payloads", "events", "deliveries"):  # those of a day
            assert last[name] < 1.5 * first[name] + 2 * tasks
        assert last["payloads"] < 0.3 * last["seats"]
        assert last["parked"] == 0
        assert last["blocks"] < 1.05 * middle["blocks"]
        assert last["MB"] < first["MB"] + 4 * 67  # what connections to SQLite keep of the file: 64 MB each at most
        assert told == 2 * asked

    with Receiver() as receiver:
        settings = EngineSettings(webhook_private=True, tick_s=0.1, snapshot_every=500)
        play(sqlite, script, spec=spec, settings=settings)
