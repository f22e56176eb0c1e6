"""The limit of a tenant's policies holds, however many are created at once and by however many processes."""

import asyncio
from pathlib import Path

import msgspec

from deferkit.serve.domain.problems import TooManyPolicies
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import KEY, POLICY, SPEC, again, play, running

LIMIT = 5
LIMITED = EngineSettings(max_policies=LIMIT)


async def create(engine: Engine, name: str) -> int:
    """Create a policy; return the status."""
    try:
        return (await engine.create(KEY[0], msgspec.structs.replace(SPEC, name=name))).status
    except TooManyPolicies as problem:
        return problem.status


def test_40_policy_creations_at_once_keep_to_the_limit(database: Database) -> None:
    async def script(engine: Engine) -> None:
        statuses = await asyncio.gather(*(create(engine, f"p{i}") for i in range(40)))
        assert sorted(statuses) == [201] * LIMIT + [409] * (40 - LIMIT)
        assert engine.store.count_policies(KEY[0]) == LIMIT
        there = next(name for _, name in engine.owned)
        assert await create(engine, there) == 201  # the same one again
        assert (await engine.create("other", SPEC)).status == 201

    play(database, script, spec=None, settings=LIMITED)


def test_the_limit_holds_for_several_processes_on_one_database(postgres: Postgres) -> None:
    async def script(engine: Engine) -> None:
        other = Engine(Store(again(postgres)), LIMITED, number=1)
        await other.start()
        try:
            calls = [create(each, f"p{i}") for i, each in enumerate([engine, other] * 20)]
            statuses = await asyncio.gather(*calls)
        finally:
            await other.stop()
        assert sorted(statuses) == [201] * LIMIT + [409] * (40 - LIMIT)
        assert engine.store.count_policies(KEY[0]) == LIMIT

    play(postgres, script, spec=None, settings=LIMITED)


def test_the_limit_of_the_settings_is_that_of_the_service(tmp_path: Path) -> None:
    with running(tmp_path, max_policies=1) as service:
        client = service.client()
        assert client.post("/v1/policies", POLICY).status == 201
        assert client.post("/v1/policies", POLICY).status == 201
        assert client.post("/v1/policies", POLICY | {"name": "q"}).status == 409
