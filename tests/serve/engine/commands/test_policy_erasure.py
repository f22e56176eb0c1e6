"""Retention and erasure: payloads, a policy, a tenant; and what the log keeps."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deferkit import Client
from deferkit.errors import InvalidArgument, ServiceError, UnknownDecision
from deferkit.serve.api.policies import EraseBody
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.domain.spec import BudgetSpec, PolicyChange
from deferkit.serve.engine.commands import upkeep
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.policy import ChangePolicy, delete_policy, delete_tenant
from deferkit.serve.engine.commands.upkeep import Erase
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage import store
from deferkit.serve.storage.database import Database
from tests.serve.harness.clients import until
from tests.serve.harness.in_process import (
    KEY,
    POLICY,
    SPEC,
    HandClock,
    call,
    claim,
    complete,
    decide,
    observe,
    play,
    problem_of,
    replayed,
    running,
)

SECRET = "s3cret of ann"
TABLES = ("declines", "claims", "seats", "snapshots", "requests", "parked", "decisions", "log", "budgets", "policies")


def everything(engine: Engine) -> str:
    """Return all rows of all tables."""
    connection: Any = engine.store.database.reader()
    return str([connection.execute(f"SELECT * FROM {table}") for table in TABLES])


def rows(engine: Engine) -> int:
    connection: Any = engine.store.database.reader()
    return sum(connection.execute(f"SELECT COUNT(*) FROM {table}")[0][0] for table in TABLES)


def test_a_payload_is_erased(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a", payload={"text": SECRET}, model_answer=SECRET, reviewers=2)
        await decide(engine, "b", payload="kept", model_answer="kept too")
        assert SECRET in everything(engine)
        assert await call(engine, Erase(EraseBody(task="a"))) == {"erased": 2}
        assert await call(engine, Erase(EraseBody(task="a"))) == {"erased": 0}
        assert SECRET not in everything(engine)
        assert [seat.payload for seat in engine.store.seats(engine.owned[KEY].id, "b")] == ['"kept"']
        assert (await problem_of(call(engine, Erase(EraseBody(task="c"))))).status == 404
        for wrong in (EraseBody(), EraseBody(task="a", older_than_s=1)):
            assert (await problem_of(call(engine, Erase(wrong)))).status == 422
        assert replayed(engine.store) == engine.owned[KEY].policy
        assert replay(engine.store, *KEY).faults == []
        await complete(engine, await claim(engine), answer="x", cost=0.5)  # it goes on

    play(database, script)


def test_old_payloads_are_erased_once_their_tasks_have_ended(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for task in ("done", "open"):
            await decide(engine, task, payload=SECRET + task)
        await observe(engine, "done", rewards={"human": 1.0}, cost=0.5)
        assert await call(engine, Erase(EraseBody(older_than_s=3600))) == {"erased": 0}
        assert await call(engine, Erase(EraseBody(older_than_s=0))) == {"erased": 1}
        assert SECRET + "done" not in everything(engine)
        assert SECRET + "open" in everything(engine)
        assert replay(engine.store, *KEY).faults == []

    play(database, script)


def test_a_payload_stays_as_long_as_a_reviewer_of_its_task_is_still_to_answer(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", payload=SECRET, reviewers=2)
        await complete(engine, await claim(engine), answer="x", cost=0.5)
        assert await call(engine, Erase(EraseBody(older_than_s=0))) == {"erased": 0}
        second = await claim(engine, "bo")
        assert second["payload"] == SECRET
        await complete(engine, second, answer="x", cost=0.5)
        assert await call(engine, Erase(EraseBody(older_than_s=0))) == {"erased": 2}

    play(database, script)


DAY = 86_400


def test_payloads_are_erased_when_their_time_is_over(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ERASED_AT_ONCE", 2)

    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        number = engine.owned[KEY].id
        assert engine.owned[KEY].policy.spec.retention_s == 30 * DAY
        for task in ("a", "b", "c", "open"):
            await decide(engine, task, payload=SECRET + task, model_answer=SECRET)
        for task in ("a", "b", "c"):
            await observe(engine, task, rewards={"human": 1.0}, cost=0.5)
        clock.advance(29 * DAY)
        await decide(engine, "new", payload=SECRET)
        await observe(engine, "new", rewards={"human": 1.0}, cost=0.5)
        await engine.maintenance.erase_expired()
        assert not [line for line in engine.store.log(number) if line.kind == "erased"]
        clock.advance(2 * DAY)
        await engine.maintenance.erase_expired()
        found = {task: engine.store.seats(number, task)[0] for task in ("a", "b", "c", "open", "new")}
        assert [task for task, seat in found.items() if seat.payload is not None] == ["open", "new"]
        assert [task for task, seat in found.items() if seat.model_answer is not None] == ["open"]
        erased = [line for line in engine.store.log(number) if line.kind == "erased"]
        assert len(erased) == 2  # two at once
        assert msgspec.json.decode(erased[-1].body)["before"] == clock.at - 30 * DAY * MICRO
        await engine.maintenance.erase_expired()
        assert engine.owned[KEY].policy.seq == erased[-1].seq + 1
        await call(engine, ChangePolicy(PolicyChange(retention_s=DAY)))
        clock.advance(61)
        await engine.maintenance.erase_expired()
        assert engine.store.seats(number, "new")[0].payload is None
        await call(engine, ChangePolicy(PolicyChange(retention_s=None)))
        await observe(engine, "open", rewards={"human": 1.0}, cost=0.5)
        clock.advance(1000 * DAY)
        await engine.maintenance.erase_expired()
        assert SECRET + "open" in everything(engine)
        assert replayed(engine.store) == engine.owned[KEY].policy
        assert replay(engine.store, *KEY).faults == []

    play(database, script, settings=EngineSettings(tick_s=1e9))


def test_a_policy_from_before_there_was_retention_keeps_its_payloads(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        owned = engine.owned[KEY]
        owned.policy.spec = msgspec.structs.replace(owned.policy.spec, retention_s=msgspec.UNSET)
        await decide(engine, "t", payload=SECRET)
        await observe(engine, "t", rewards={"human": 1.0}, cost=0.5)
        clock.advance(1000 * DAY)
        await engine.maintenance.erase_expired()
        assert engine.store.seats(owned.id, "t")[0].payload is not None

    play(database, script, settings=EngineSettings(tick_s=1e9))


def test_a_deleted_policy_leaves_nothing(database: Database) -> None:
    async def script(engine: Engine) -> None:
        other = ("other", "p")
        await engine.create("other", SPEC)
        await decide(engine, "kept")
        before = rows(engine)
        spec = msgspec.structs.replace(SPEC, name="q")
        await engine.create("default", spec)
        policy = engine.owned["default", "q"]
        await engine.ownership.snapshot(policy)
        for number in range(3):
            body = {"task": f"t{number}", "context": [1.0, 0.5], "force": "human", "payload": SECRET}
            await submit(engine, ("default", "q"), body)
        assert rows(engine) > before
        await delete_policy(engine, ("default", "q"))
        assert rows(engine) == before
        assert SECRET not in everything(engine)
        assert ("default", "q") not in engine.owned
        assert (await problem_of(delete_policy(engine, ("default", "q")))).status == 404
        assert (await problem_of(submit(engine, ("default", "q"), {"task": "t", "context": [1.0, 0.5]}))).status == 404
        assert (await engine.create("default", spec)).status == 201  # its name is free again
        assert engine.owned["default", "q"].policy.seq == 1
        await delete_tenant(engine, "default")
        assert [row.tenant for row in engine.store.policies()] == ["other"]
        assert engine.owned[other].policy.seq == 1
        assert replay(engine.store, *other).faults == []

    play(database, script)
    play(database, lambda engine: engine.holding(("other", "p")), spec=None)  # and it starts


def test_a_large_policy_is_deleted_in_slices(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served between them, and what a crash leaves is deleted after the next start."""
    monkeypatch.setattr(store, "SLICE", 7)

    async def script(engine: Engine) -> None:
        await engine.create("default", msgspec.structs.replace(SPEC, name="q"))
        for i in range(40):
            await decide(engine, f"t{i}", payload=SECRET)
        slices, delete_slice = 0, engine.store.delete_slice
        served: list[int] = []

        def fails_in_the_middle(number: int) -> bool:
            nonlocal slices
            slices += 1
            if slices == 6:
                raise StoreFailed("The disk is full.")
            return delete_slice(number)

        monkeypatch.setattr(engine.store, "delete_slice", fails_in_the_middle)
        deletion = asyncio.create_task(problem_of(delete_policy(engine, KEY)))
        while not deletion.done():
            await submit(engine, ("default", "q"), {"task": f"t{len(served)}", "context": [1.0, 0.5]})
            served.append(slices)
        assert (await deletion).status == 503
        assert len(set(served)) > 3  # between slices
        assert KEY not in engine.owned
        assert SECRET in everything(engine)  # not all of it is gone
        assert [row.name for row in engine.store.policies()] == ["q"]
        assert (await problem_of(delete_policy(engine, KEY))).status == 404
        assert (await engine.create("default", SPEC)).status == 201  # its name is free

    rich = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=100, horizon=1000, max_cost=1)})
    play(database, script, spec=rich, settings=EngineSettings(tick_s=60))

    async def after(engine: Engine) -> None:
        while SECRET in everything(engine) or engine.store.retired_policies():
            await asyncio.sleep(0.01)
        assert sorted(row.name for row in engine.store.policies()) == ["p", "q"]
        assert replay(engine.store, "default", "q").faults == []

    monkeypatch.undo()
    play(database, after, spec=None, settings=EngineSettings(tick_s=0.05))


async def submit(engine: Engine, key: tuple[str, str], body: dict[str, Any]) -> Any:
    return await engine.submit(key, Decide(TaskBody(**body)))


def test_a_tenant_deletes_itself_over_http_and_nobody_else(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        weak, key = service.key("acme", "decide", "observe", "review"), service.key("acme")
        other = service.client("other")
        assert other.post("/v1/policies", POLICY).status == 201
        mine = service.client(key=key)
        for name in ("p", "q"):
            assert mine.post("/v1/policies", POLICY | {"name": name}).status == 201
        assert mine.decide("a", payload=SECRET).status == 201
        with Client(service.url, policy="p", key=weak) as client:
            for forbidden in (client.delete, lambda: client.erase("a")):
                with pytest.raises(ServiceError) as caught:
                    forbidden()
                assert caught.value.status == 403
        assert service.client(key=weak).call("DELETE", "/v1/tenant").status == 403
        with Client(service.url, policy="p", key=key) as client:
            assert client.erase("a") == 1
            assert client.erase(older_than_s=1) == 0
            with pytest.raises(UnknownDecision):
                client.erase("nope")
            with pytest.raises(InvalidArgument):
                client.erase()
            client.delete()
            with pytest.raises(ServiceError) as caught:
                client.summary()
            assert caught.value.status == 404
        assert mine.call("DELETE", "/v1/tenant").json == {"deleted": "acme"}
        until(lambda: mine.get("/v1/policies").status == 401, seconds=10)  # its keys are revoked
        assert [row.tenant for row in service.store.policies()] == ["other"]
        assert other.decide("b").status == 201
