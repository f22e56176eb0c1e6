"""Recovery applies a log once, whatever was forgotten, and policies are served while others are loaded."""

import asyncio
import threading
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from deferkit.serve.api.policies import UpgradeBody
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.engine import ownership as ownership_module
from deferkit.serve.engine import recovery
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.relearn import forget_task, upgrade_policy
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import PATH, until
from tests.serve.harness.in_process import (
    KEY,
    POLICY,
    again,
    decide,
    observe,
    play,
    problem_of,
    small,
    started,
)
from tests.serve.harness.service_process import ServiceProcess

OTHER = ("other", "p")
SLOW = """
import time
from deferkit.serve.engine import ownership, recovery
def slowly(store, row, *rest):
    time.sleep(8)
    return recovery.recover(store, row, *rest)
ownership.recover = slowly
"""


def drop_snapshots(database: Database) -> None:
    connection = database.writer()
    connection.run("drop_snapshots", policy=1, keep=0)
    connection.close()


def rows_applied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of each row that is applied from now on."""
    applied: list[int] = []
    take = Policy.take

    def counted(policy: Policy, *given: Any) -> None:
        applied.append(policy.seq)
        take(policy, *given)

    monkeypatch.setattr(Policy, "take", counted)
    return applied


async def forget_much(engine: Engine) -> bytes:
    for i in range(30):
        await decide(engine, f"t{i}", force="human" if i % 3 else "model")
        await observe(engine, f"t{i}", rewards={"model": float(i % 2)})
        if i % 4 == 3:
            await forget_task(engine, KEY, f"t{i - 2}")
        if i == 15:
            await upgrade_policy(engine, KEY, UpgradeBody(defaults="2026.11"))
        if i == 20:
            await upgrade_policy(engine, KEY, UpgradeBody(defaults="2026.12"))
    return engine.owned[KEY].policy.to_bytes()


def test_a_start_applies_each_row_once_whatever_was_forgotten(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = play(database, forget_much, spec=small(1000))
    drop_snapshots(database)
    store = Store(database)
    row = store.policy(*KEY)
    assert row is not None
    step_by_step: Policy | None = None
    for line in store.log(row.id):  # each row that rebuilds the learner does so
        record = recovery.next_record(step_by_step, row, line)
        step_by_step = recovery.apply_row(step_by_step, row, line, record, store)
    applied = rows_applied(monkeypatch)
    assert recovery.recover(store, row).to_bytes() == live == step_by_step.to_bytes()  # type: ignore[union-attr]
    assert applied == list(range(row.seq))
    applied.clear()
    assert replay(store, *KEY).faults == []
    assert applied == list(range(row.seq))


def test_a_snapshot_from_before_a_forgotten_task_is_rebuilt_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(engine: Engine) -> bytes:
        for i in range(12):
            await decide(engine, f"t{i}")
        early = engine.owned[KEY].policy.to_bytes()
        for i in range(5):
            await forget_task(engine, KEY, f"t{i}")
        return early

    early = Policy.from_bytes(play(database, script, spec=small(1000)))
    store = Store(database)
    row = store.policy(*KEY)
    assert row is not None
    applied = rows_applied(monkeypatch)
    assert recovery.roll_forward(store, row, early) == recovery.recover(store, row)
    assert applied == list(range(row.seq))  # `recover` has the snapshot of the last stop, and applies nothing


def test_tasks_that_are_forgotten_at_once_share_a_rebuild(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(engine: Engine) -> None:
        for i in range(40):
            await decide(engine, f"t{i}")
        before = engine.owned[KEY].policy.seq
        applied = rows_applied(monkeypatch)
        calls = [forget_task(engine, KEY, task) for task in (*(f"t{i}" for i in range(30)), "t3", "nope")]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(getattr(reply, "status", 0) == 200 for reply in replies) == 31
        assert getattr(replies[-1], "status", 0) == 404
        assert len(applied) < 3 * before  # the first one, then all others; a rebuild for each would apply 30 times it
        monkeypatch.undo()
        assert set(engine.owned[KEY].policy.relearned.forgotten) == set(range(30))
        assert replay(engine.store, *KEY).faults == []

    play(database, script, spec=small(1000))


async def two_tenants(database: Database) -> None:
    """Leave a store with a policy of each of two tenants."""
    engine = await started(database)
    await engine.create(OTHER[0], small(10))
    await decide(engine, "first")
    await engine.stop()


def decided(engine: Engine, key: tuple[str, str], task: str) -> Awaitable[Any]:
    return engine.submit(key, Decide(TaskBody(task=task, context=[1.0, 0.5])))


def held_up(monkeypatch: pytest.MonkeyPatch, tenant: str) -> threading.Event:
    """Keep the policies of a tenant from being loaded until the event is set."""
    gate = threading.Event()

    def recover(store: Store, row: PolicyRow, stopping: threading.Event | None = None) -> Policy:
        while row.tenant == tenant and not gate.wait(0.01):
            if stopping is not None and stopping.is_set():
                raise recovery.Interrupted
        return recovery.recover(store, row, stopping)

    monkeypatch.setattr(ownership_module, "recover", recover)
    return gate


def test_policies_are_served_while_others_are_loaded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script() -> None:
        await two_tenants(database)
        gate = held_up(monkeypatch, KEY[0])
        engine = Engine(Store(again(database)))
        await engine.begin()
        await engine.wait_loaded(0.5)
        try:
            assert (await decided(engine, OTHER, "a")).status == 201
            problem = await problem_of(decided(engine, KEY, "a"))
            assert (problem.status, problem.retry_after) == (503, 1.0)
            assert "being loaded" in str(problem)
            assert engine.loading
            gate.set()
            await engine.wait_loaded(60)
            assert not engine.loading
            assert (await decided(engine, KEY, "a")).status == 201
        finally:
            await engine.stop()

    asyncio.run(script())


def test_who_stops_while_policies_are_loaded_gives_them_up(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script() -> None:
        await two_tenants(database)
        held_up(monkeypatch, KEY[0])
        engine = Engine(Store(again(database)))
        await engine.begin()
        await engine.wait_loaded(0.5)
        assert engine.ownership.loading
        began = time.monotonic()
        await asyncio.wait_for(engine.stop(), 20)
        assert time.monotonic() - began < 10
        assert {row.owner for row in Store(database).policies()} == {None}  # another process need not wait

    asyncio.run(script())


def test_a_log_is_given_up_at_once_when_the_process_stops(database: Database) -> None:
    play(database, forget_much, spec=small(1000))
    drop_snapshots(database)
    store, stopping = Store(database), threading.Event()
    row = store.policy(*KEY)
    assert row is not None
    stopping.set()
    with pytest.raises(recovery.Interrupted):
        recovery.recover(store, row, stopping)


def test_a_policy_that_cannot_be_loaded_keeps_no_other_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(store: Store, row: PolicyRow, *rest: Any) -> Policy:
        if row.tenant == KEY[0]:
            raise RuntimeError("a bug")
        return recovery.recover(store, row, *rest)

    async def script() -> None:
        await two_tenants(database)
        with monkeypatch.context() as patch:
            patch.setattr(ownership_module, "recover", fails)
            engine = Engine(Store(again(database)))
            await engine.start()
        try:
            assert not engine.loading
            assert (await decided(engine, OTHER, "a")).status == 201
            assert (await decided(engine, KEY, "a")).status == 201  # tried again with the next call
        finally:
            await engine.stop()

    asyncio.run(script())


def test_another_process_may_load_what_a_starting_one_has_not_reached(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        await two_tenants(postgres)
        gate = held_up(monkeypatch, KEY[0])
        first, second = (Engine(Store(again(postgres)), number=number) for number in (1, 2))
        await first.begin()
        await first.wait_loaded(0.5)
        await second.begin()
        gate.set()
        for engine in (first, second):
            await engine.wait_loaded(60)
        assert sorted([*first.owned, *second.owned]) == sorted([KEY, OTHER])  # each has one owner
        assert [row.epoch for row in first.store.policies()] == [2, 2]
        for engine in (first, second):
            await engine.stop()

    asyncio.run(script())


def test_a_service_listens_before_its_policies_are_loaded(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service:
        assert service.post("/v1/policies", **POLICY).status == 201
    with ServiceProcess(tmp_path, setup=f"exec({SLOW!r})") as service:
        assert service.get("/healthz").status == 200
        ready = service.get("/readyz")
        assert (ready.status, ready.headers["retry-after"]) == (503, "1")
        refused = service.post(f"{PATH}/decisions", task="a", context=[1, 0])
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert service.get("/v1/policies").status == 200
        until(lambda: service.get("/readyz").status == 200, "all policies are loaded")
        assert service.post(f"{PATH}/decisions", task="a", context=[1, 0]).status == 201
