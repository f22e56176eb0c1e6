"""One process owns a policy; another takes it over when that is gone, and what the first still writes is refused."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest

from deferkit.errors import DeferkitError
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Fenced, Problem, StoreFailed
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine import ownership
from deferkit.serve.engine import ownership as custody_module
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.engine import Elsewhere, Engine, EngineSettings
from deferkit.serve.engine.recovery import recover, roll_forward
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.connections import ReadSet
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres, PostgresConnection
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import KEY, SPEC, add, again, claim, decide, observe, seat, write

LASTING = EngineSettings(owner_lease_s=600, tick_s=0.05)
PAUSED = EngineSettings(owner_lease_s=0.2, tick_s=3600, address="old:1")  # it never renews its lease
WAKING = EngineSettings(owner_lease_s=600, tick_s=0.05, address="new:2")


@asynccontextmanager
async def running(database: Database, number: int, settings: EngineSettings = LASTING) -> AsyncIterator[Engine]:
    """An engine as another process would have it."""
    engine = Engine(Store(again(database)), settings, number=number)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def until(happened: Callable[[], bool]) -> None:
    """Wait for something that comes by itself."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)


def row_of(engine: Engine) -> PolicyRow:
    row = engine.store.policy(*KEY)
    assert row is not None
    return row


def named(name: str) -> PolicySpec:
    return msgspec.structs.replace(SPEC, name=name)


def whole(engine: Engine) -> bool:
    """Whether the policy in memory is what its log says."""
    return roll_forward(engine.store, row_of(engine), None) == engine.owned[KEY].policy


def test_who_does_not_own_a_policy_says_who_does(postgres: Postgres) -> None:
    async def script() -> None:
        settings = LASTING._replace(address="first:1")
        async with running(postgres, 0, settings) as first, running(postgres, 1) as second:
            await first.create(KEY[0], SPEC)
            with pytest.raises(Elsewhere) as caught:
                await decide(second, "t")
            assert (caught.value.address, second.owned) == ("first:1", {})
            assert (await decide(first, "t"))["route"] == "human"
            with pytest.raises(Problem, match="no policy 'q'"):
                await second.holding(("default", "q"))

    asyncio.run(script())


def test_a_policy_that_is_given_up_is_taken_without_a_call(postgres: Postgres) -> None:
    async def script() -> None:
        async with running(postgres, 1) as second:
            async with running(postgres, 0) as first:
                await first.create(KEY[0], SPEC)
                one = await decide(first, "one")
                assert second.owned == {}
            await until(lambda: KEY in second.owned)
            assert (await decide(second, "two"))["id"] == one["id"] + 1
            assert await decide(second, "one") == one
            assert whole(second)

    asyncio.run(script())


def test_a_paused_owner_is_fenced(postgres: Postgres) -> None:
    async def script() -> None:
        async with running(postgres, 0, PAUSED) as old:
            await old.create(KEY[0], SPEC)
            await decide(old, "one")
            async with running(postgres, 1, WAKING) as new:
                await until(lambda: KEY in new.owned)  # the lease has lapsed
                assert (row_of(new).epoch, row_of(new).address) == (2, "new:2")
                two = await decide(new, "two")
                # it wakes up, and knows of nothing
                calls = [decide(old, "three"), decide(old, "two"), observe(old, "one", cost=0.5)]
                for each in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(each, Problem)
                    assert (each.status, each.retry_after) == (503, 1.0)
                assert old.owned == {}
                with pytest.raises(Elsewhere) as caught:
                    await decide(old, "three")
                assert caught.value.address == "new:2"
                assert await decide(new, "two") == two
                assert [line.task for line in new.store.log(row_of(new).id)] == [None, "one", "two"]
                assert (await observe(new, "one", cost=0.25))["booked"] == 0.25
                assert whole(new)

    asyncio.run(script())


def test_an_owner_that_renews_finds_out_that_it_is_none(postgres: Postgres) -> None:
    async def script() -> None:
        async with running(postgres, 0, PAUSED) as old, running(postgres, 1, WAKING) as new:
            await old.create(KEY[0], SPEC)
            await until(lambda: KEY in new.owned)
            await old.ownership.renew_if_due()
            assert old.owned == {}

    asyncio.run(script())


def test_a_takeover_in_the_middle_of_a_group_waits_for_nobody(postgres: Postgres) -> None:
    postgres.prepare()
    old, new = Store(postgres), Store(again(postgres))
    owned = add(old, expires=100)
    write(old, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "t", state="claimed", reviewer="ann")]))
    row = new.policies()[0]
    work = old.begin([ReadSet(owned.id, ("t",), seats=True)], UnitOfWork())  # the seat is locked
    assert new.acquire(row, "b", None, 500, 600, dead=None) == 2
    work.changed[owned.id] = owned
    with pytest.raises(Fenced):
        old.commit(work, "a", 700)
    old.rollback()
    for store in (old, new):
        store.close()


def test_what_is_being_written_is_not_taken(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = "SET lock_timeout = '20s'; SET idle_in_transaction_session_timeout = '600s'"
    monkeypatch.setattr("deferkit.serve.storage.postgres.SETTINGS", patient)
    postgres.prepare()
    old, new = Store(postgres), Store(again(postgres))
    owned = add(old, expires=100)
    old.begin([], UnitOfWork())
    old.writer.run("renew", policy=owned.id, owner="a", epoch=1, expires=150)  # and there it stops
    row = new.policies()[0]
    assert new.acquire(row, "b", None, 500, 600, dead=None) is None
    assert isinstance(old.writer, PostgresConnection)
    old.writer.execute("SET LOCAL idle_in_transaction_session_timeout = '100ms'")  # now it may end
    end = time.monotonic() + 60
    while new.acquire(row, "b", None, 500, 600, dead=None) is None:  # until the server ends the transaction
        assert time.monotonic() < end
    with pytest.raises(StoreFailed):
        old.writer.commit()
    old.rollback()
    assert old.renew({owned.id: 1}, "a", 900) == {owned.id}  # on a new connection
    for store in (old, new):
        store.close()


def test_each_policy_has_one_owner_when_many_start_at_once(postgres: Postgres) -> None:
    async def script() -> None:
        async with running(postgres, 9) as maker:
            for i in range(6):
                await maker.create("default", named(f"p{i}"))
        engines = [Engine(Store(again(postgres)), LASTING, number=i) for i in range(3)]
        await asyncio.gather(*(engine.start() for engine in engines))
        try:
            await until(lambda: sum(len(engine.owned) for engine in engines) == 6)
            owners = {row.name: row.owner for row in engines[0].store.policies()}
            for engine in engines:
                assert all(owners[name] == engine.ownership.owner for _, name in engine.owned)
        finally:
            await asyncio.gather(*(engine.stop() for engine in engines))

    asyncio.run(script())


def test_many_make_policies_at_once(postgres: Postgres) -> None:
    async def script() -> None:
        async with running(postgres, 0) as first, running(postgres, 1) as second:
            calls = [each.create("default", named(name)) for name in "abcdabcd" for each in (first, second)]
            assert {reply.status for reply in await asyncio.gather(*calls)} == {201}
            rows = first.store.policies()
            assert sorted(row.name for row in rows) == ["a", "b", "c", "d"]
            assert len(first.owned) + len(second.owned) == 4

    asyncio.run(script())


def test_a_policy_that_could_not_be_read_is_tried_again(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script() -> None:
        async with running(postgres, 0) as first:
            await first.create(KEY[0], SPEC)
        async with running(postgres, 1, LASTING._replace(tick_s=3600)) as second:
            second.owned.clear()  # as if it had just started, and nobody had told it
            with monkeypatch.context() as patch:
                patch.setattr(custody_module, "recover", fails)
                with pytest.raises(Problem, match="gone for now"):
                    await decide(second, "t")
            assert (await decide(second, "t"))["task"] == "t"
            assert whole(second)

    asyncio.run(script())


def test_while_a_policy_is_brought_into_memory_the_others_go_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, told = threading.Event(), threading.Event()

    def slowly(store: Store, row: PolicyRow, *rest: Any) -> Policy:
        begun.set()
        assert told.wait(60)
        return recover(store, row, *rest)

    async def script() -> None:
        async with running(database, 0, LASTING._replace(tick_s=3600)) as engine:
            await engine.create(KEY[0], SPEC)
            await engine.create(KEY[0], named("other"))
            await decide(engine, "first")
            owned = engine.owned.pop(KEY)  # as if another had owned it and given it up
            monkeypatch.setattr(custody_module, "recover", slowly)
            calls = [asyncio.create_task(decide(engine, f"t{i}")) for i in range(3)]
            await asyncio.to_thread(begun.wait, 60)
            reply = await engine.submit((KEY[0], "other"), Decide(TaskBody(task="x", context=[1.0, 0.5])))
            assert reply.status == 201
            before = row_of(engine)
            engine.ownership._renew_at = 0
            await engine.ownership.renew_if_due()
            assert row_of(engine).expires > before.expires  # it is renewed as if it were here
            assert not any(call.done() for call in calls)
            told.set()
            assert sorted([(await call)["id"] for call in calls]) == [1, 2, 3]
            assert engine.owned[KEY].epoch == owned.epoch + 1  # once for all of them
            assert whole(engine)

    asyncio.run(script())


def test_processes_with_slow_logs_do_not_take_them_from_each_other(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a log takes longer than a lease lasts: the lease is renewed meanwhile."""
    leases = LASTING._replace(owner_lease_s=1.0)

    def slowly(store: Store, row: PolicyRow, *rest: Any) -> Policy:
        time.sleep(2.5)
        return recover(store, row, *rest)

    async def script() -> None:
        async with running(postgres, 0) as maker:
            for name in ("a", "b"):
                await maker.create(KEY[0], named(name))
        monkeypatch.setattr(custody_module, "recover", slowly)
        async with running(postgres, 1, leases) as first, running(postgres, 2, leases) as second:
            await asyncio.sleep(1.5)
            assert {name for _, name in first.owned} | {name for _, name in second.owned} == {"a", "b"}
            assert [row.epoch for row in first.store.policies()] == [2, 2]

    asyncio.run(script())


def test_a_log_that_is_ahead_takes_no_other_policy_with_it(database: Database) -> None:
    hour = 3_600_000_000

    async def script() -> None:
        async with running(database, 0, LASTING._replace(tick_s=3600)) as engine:
            await engine.create(KEY[0], SPEC)
            await engine.create(KEY[0], named("other"))
            now = engine.clock.now
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine.clock, "now", lambda: now() + hour)  # as the owner before had it
                await decide(engine, "first")
            del engine.owned[KEY]
            await decide(engine, "second")
            owned, other = engine.owned[KEY], engine.owned[KEY[0], "other"]
            assert 0 < owned.clock_offset <= hour
            assert other.time(engine.clock.now()) == pytest.approx(now(), abs=hour / 4)
            times = [line.at for line in engine.store.log(owned.id)]
            assert times == sorted(times)

    asyncio.run(script())


def fails(*_: object) -> None:
    raise StoreFailed("gone for now")


@contextmanager
def process(database: Database) -> Iterator["subprocess.Popen[str]"]:
    """Another process that owns the policy, a real one."""
    place = database.path if isinstance(database, Sqlite) else database.conninfo  # type: ignore[attr-defined]
    script = "import sys; from tests.serve.harness.in_process import own_until_killed; own_until_killed(*sys.argv[1:])"
    command = [sys.executable, "-c", script, type(database).__name__, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            yield started
        finally:
            started.kill()


def test_a_living_process_keeps_a_policy_and_a_dead_one_loses_it_at_once(database: Database) -> None:
    async def script(other: "subprocess.Popen[str]") -> None:
        if database.shared:
            async with running(database, 0) as engine:
                with pytest.raises(Elsewhere) as caught:
                    await decide(engine, "second")
                assert caught.value.address == "there:1"
        else:
            refused = Engine(Store(again(database)))
            with pytest.raises(DeferkitError, match="'p' is owned by another process .* Stop that one, or wait 15 s"):
                await refused.start()
            await refused.stop()
        before = Store(database).policies()[0]
        other.kill()
        other.wait()
        assert before.expires > database.now()  # its lease is not over
        async with running(database, 0) as engine:
            assert engine.owned[KEY].epoch == before.epoch + 1
            again_first = await decide(engine, "first")
            assert (await decide(engine, "second"))["id"] == again_first["id"] + 1
            assert (await claim(engine))["task"] in {"first", "second"}
            assert whole(engine)

    with process(database) as other:
        asyncio.run(script(other))


def test_nothing_is_known_of_a_process_elsewhere() -> None:
    host, began, inside, _, start, number = ownership.identity().split("/")
    gone = f"{host}/{began}/{inside}/{2**22 + 1}/{start}/{number}"
    assert (ownership.is_dead(gone), ownership.is_dead(gone, shared=True)) == (True, True)
    for elsewhere in (f"{host}/00000000/{inside}/1/1/0", f"{host}/{began}/1/1/1/0"):  # another boot, another container
        assert (ownership.is_dead(elsewhere), ownership.is_dead(elsewhere, shared=True)) == (True, False)
    for odd in ("", "a", f"x{host}/{began}/{inside}/1/1/0", ownership.identity(), ownership.identity(7)):
        assert not ownership.is_dead(odd)
    reused = f"{host}/{began}/{inside}/{os.getpid()}/1/0"
    assert ownership.is_dead(reused, shared=True)
    assert host == socket.gethostname()
