"""A tenant keeps so much in the store: new tasks beyond that are refused with the reason, everything else goes on."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deferkit.serve.api.policies import EraseBody
from deferkit.serve.api.reviews import AnswerCorrectionBody
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.engine import disk_quota
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.policy import delete_policy
from deferkit.serve.engine.commands.review import CorrectAnswer
from deferkit.serve.engine.commands.upkeep import Erase
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.connections import PolicyBytes
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.clients import until
from tests.serve.harness.in_process import (
    KEY,
    POLICY,
    SPEC,
    call,
    claim,
    complete,
    decide,
    observe,
    play,
    problem_of,
    running,
)

PAYLOAD = "x" * 40_000


@pytest.fixture(autouse=True)
def _measured_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_quota, "MEASURE_S", 0.0)


async def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_new_tasks_beyond_the_quota_are_refused_and_settled_ones_are_not(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        first = await decide(engine, "t0", payload=PAYLOAD)
        for number in range(1, 6):
            await decide(engine, f"t{number}", payload=PAYLOAD)
        owned = engine.owned[KEY]
        await wait_until(lambda: owned.over_quota)
        seq = owned.policy.seq
        for refused in (decide(engine, "t6"), engine.create(KEY[0], msgspec.structs.replace(SPEC, name="q"))):
            problem = await problem_of(refused)
            assert (problem.status, problem.code) == (409, "too_much_data")
            assert "may take 0 MB (the setting tenant_disk)" in str(problem)
        assert owned.policy.seq == seq
        assert await decide(engine, "t0", payload=PAYLOAD) == first  # a retry gets its reply
        assert (await engine.create(KEY[0], SPEC)).status == 201  # the same one again
        await observe(engine, "t0", cost=0.5)  # what was spent is booked
        held = await claim(engine)
        await complete(engine, held, answer="x", cost=0.5)
        for again in (1, 2):  # else the store could grow by one answer again and again
            token = {name: held[name] for name in ("task", "seat", "epoch", "token")}
            correction = CorrectAnswer(AnswerCorrectionBody(**token, id=f"c{again}", answer=PAYLOAD))
            problem = await problem_of(call(engine, correction))
            assert (problem.status, problem.code) == (409, "too_much_data")
        assert owned.policy.accounts["cost"].posted == 1_000_000
        assert (await engine.submit(("other", "p"), decision_of("a"))).status == 201
        await call(engine, Erase(EraseBody(task="t0")))
        await call(engine, Erase(EraseBody(task="t1")))
        await wait_until(lambda: owned.over_quota is None)
        await decide(engine, "t6")
        await decide(engine, "t7", payload=PAYLOAD * 2)
        await wait_until(lambda: owned.over_quota)
        await engine.create("third", SPEC)
        await delete_policy(engine, KEY)
        await wait_until(lambda: KEY[0] not in engine.disk_quota.taken)
        await engine.create(KEY[0], SPEC)
        await decide(engine, "t0")

    play(database, script, settings=EngineSettings(tick_s=0.02, tenant_disk=0.22))


def decision_of(task: str) -> Any:
    return Decide(TaskBody(task=task, context=[1.0, 0.5]))


def test_the_bytes_are_about_those_of_the_store(sqlite: Sqlite) -> None:
    """Counted are contents and a part for rows; indexes and free pages come on top."""

    async def script(engine: Engine) -> None:
        for number in range(2000):
            await decide(engine, f"t{number}", payload="x" * 300, cost=0.001)
        reader = sqlite.reader()
        measured = PolicyBytes()
        taken = measured.of_tenant(reader, KEY[0])
        assert measured.of_tenant(reader, KEY[0]) == taken  # read once, and then only what is new
        assert measured.of_tenant(reader, "nobody") == 0
        [(pages,)], [(size,)] = reader.execute("PRAGMA page_count"), reader.execute("PRAGMA page_size")
        print(f"{taken:,} bytes, {pages * size:,} in the file")
        assert 0.5 * pages * size < taken < pages * size

    play(sqlite, script)


def test_a_service_says_how_much_a_tenant_keeps(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True, tenant_disk=1, rate=0) as service:
        admin, other = service.client("acme"), service.client("other")
        assert admin.post("/v1/policies", POLICY).status == 201
        assert other.post("/v1/policies", POLICY).status == 201
        for task in range(4):
            assert admin.decide(f"t{task}", force="human", payload="x" * 300_000).status == 201
        metric = b"\ndeferkit_tenant_bytes 1.2"
        until(lambda: metric in admin.get("/metrics").body)
        answer = admin.decide("more")
        assert (answer.status, answer.json["code"]) == (409, "too_much_data")
        assert metric not in other.get("/metrics").body
        assert other.decide("more").status == 201
