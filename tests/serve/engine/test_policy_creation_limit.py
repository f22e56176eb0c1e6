"""The limits of a tenant's policies hold, however many are created at once and by however many processes."""

import asyncio
from pathlib import Path

import msgspec

from deferkit.serve.domain.policy_learner import memory_of, with_defaults
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import PolicyChange
from deferkit.serve.engine.commands.policy import delete_policy
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.service_settings import ServiceSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import KEY, POLICY, SPEC, again, play, problem_of, running

LIMIT = 5
LIMITED = EngineSettings(max_policies=LIMIT)
NEEDED = memory_of(with_defaults(SPEC)) / 1e6  # MB
SHORT_OF_MEMORY = EngineSettings(tenant_memory=(LIMIT + 0.5) * NEEDED)


async def create(engine: Engine, name: str) -> int:
    """Create a policy; return the status."""
    try:
        return (await engine.create(KEY[0], msgspec.structs.replace(SPEC, name=name))).status
    except Problem as problem:
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


def test_policies_created_at_once_take_no_more_memory_than_their_tenant_may(database: Database) -> None:
    async def script(engine: Engine) -> None:
        statuses = await asyncio.gather(*(create(engine, f"p{i}") for i in range(20)))
        assert sorted(statuses) == [201] * LIMIT + [409] * (20 - LIMIT)
        assert engine.store.count_policies(KEY[0]) == LIMIT
        there = next(name for _, name in engine.owned)
        assert await create(engine, there) == 201  # the same one again
        refused = await problem_of(engine.create(KEY[0], msgspec.structs.replace(SPEC, name="more")))
        assert (refused.status, refused.code) == (409, "too_much_memory")
        needed, left = f"{NEEDED:,.1f} MB", f"{0.5 * NEEDED:,.1f} MB"
        assert f"needs {needed} of memory, and {left} are left" in str(refused)
        assert "delete a policy" in str(refused)
        assert (await engine.create("other", SPEC)).status == 201
        small = msgspec.structs.replace(SPEC, name="small", representation="linear", forget="never", memory=1000)
        assert memory_of(small) < 0.5e6 * NEEDED
        assert (await engine.create(KEY[0], small)).status == 201
        await delete_policy(engine, (KEY[0], there))
        assert await create(engine, "replacement") == 201
        assert await create(engine, "one-more") == 409

    async def later(engine: Engine) -> None:
        """Those that are there stay, whatever the limit is by then; they are counted from the database."""
        assert len([tenant for tenant, _ in engine.owned if tenant == KEY[0]]) == LIMIT + 1
        assert await create(engine, "another") == 409

    play(database, script, spec=None, settings=SHORT_OF_MEMORY)
    play(database, later, spec=None, settings=EngineSettings(tenant_memory=1))


def test_the_limit_of_memory_counts_what_other_processes_own(postgres: Postgres) -> None:
    async def script(engine: Engine) -> None:
        other = Engine(Store(again(postgres)), SHORT_OF_MEMORY, number=1)
        await other.start()
        try:
            calls = [create(each, f"p{i}") for i, each in enumerate([engine, other] * 10)]
            statuses = await asyncio.gather(*calls)
        finally:
            await other.stop()
        assert sorted(statuses) == [201] * LIMIT + [409] * (20 - LIMIT)
        assert engine.store.memory_taken(KEY[0]) == round(LIMIT * NEEDED * 1e6)

    play(postgres, script, spec=None, settings=SHORT_OF_MEMORY)


def test_policies_with_2000_features_fill_the_memory_of_a_tenant(tmp_path: Path) -> None:
    large = POLICY | {"features": 2000, "memory": 1000, "representation": "linear", "forget": "never"}
    with running(tmp_path, tenant_memory=250) as service:
        client = service.client()
        assert client.post("/v1/policies", large).status == 201
        refused = client.post("/v1/policies", large | {"name": "q"})
        assert (refused.status, refused.json["code"]) == (409, "too_much_memory")
        assert "needs 208.0 MB of memory, and 42.0 MB are left of the 250 MB" in refused.json["detail"]
        assert client.post("/v1/policies", large).status == 201  # the same one again
        too_large = large | {"name": "r", "experts": ["a", "b", "c"]}
        assert client.post("/v1/policies", too_large).status == 422  # however much memory there is


def test_as_many_usual_policies_as_a_tenant_may_have_fit_in_its_memory() -> None:
    usual, settings = with_defaults(msgspec.structs.replace(SPEC, features=20)), ServiceSettings()
    assert settings.max_policies * memory_of(usual) <= settings.tenant_memory * 1e6


def test_no_change_of_a_policy_changes_its_size() -> None:
    spec = with_defaults(SPEC)
    given = {
        "budget": {"cost": {"horizon": 10**9}},
        "learning_window_s": 1e6,
        "deadline_s": 60,
        "after_deadline": "wait",
        "lease_s": 1e6,
        "reviewers": 9,
        "review": {"form": [{"name": "why", "kind": "text"}]},
        "retention_s": None,
    }
    assert given.keys() == {*PolicyChange.__struct_fields__}  # a new one belongs here
    changed = msgspec.convert(given, PolicyChange).of(spec)
    assert changed != spec
    assert memory_of(changed) == memory_of(spec)
