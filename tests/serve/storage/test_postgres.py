"""A server that goes away and comes back, and one that must not be trusted."""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
import pytest

from deferkit.errors import DeferkitError
from deferkit.serve.domain.problems import Problem, StoreFailed, Unconfirmed
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.recovery import roll_forward
from deferkit.serve.storage.postgres import Postgres, PostgresConnection
from deferkit.serve.storage.store import Store
from tests.serve.conftest import insist
from tests.serve.harness.in_process import KEY, SPEC, add, again, claim, complete, decide, observe, play

RICH = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=1000, horizon=1000, max_cost=1)})
CALM = EngineSettings(tick_s=3600)  # nothing happens but what a test does

WAITS_FOR_US = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"


def cut(url: str, postgres: Postgres) -> int:
    """End all connections to the database, as an administrator or a network may; return how many there were."""
    name = psycopg.conninfo.conninfo_to_dict(postgres.conninfo)["application_name"]
    with psycopg.connect(url, autocommit=True) as connection:
        query = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = %s"
        return len(connection.execute(query, [name]).fetchall())


def whole(engine: Engine) -> bool:
    """Whether the policy in memory is what its log says."""
    row = engine.store.policy(*KEY)
    assert row is not None
    return roll_forward(engine.store, row, None) == engine.owned[KEY].policy


async def eventually(engine: Engine, task: str) -> Any:
    """Decide a task, and try again for as long as that is the advice."""
    end = time.monotonic() + 60
    while True:
        try:
            return await decide(engine, task)
        except Problem as problem:
            if problem.status != 503 or time.monotonic() > end:
                raise
        await asyncio.sleep(0.02)


def test_a_connection_that_is_lost_is_replaced(postgres: Postgres, postgres_server: str) -> None:
    postgres.prepare()
    store = Store(postgres)
    owned = add(store)
    assert len(store.policies()) == 1
    assert cut(postgres_server, postgres) == 2  # the writer's and this thread's
    assert len(store.policies()) == 1
    assert store.renew({owned.id: 1}, "a", 500) == set()
    assert cut(postgres_server, postgres) == 2
    store.in_own_transaction(lambda connection: connection.run("release_policy", policy=owned.id, owner="a", epoch=1))
    assert store.policies()[0].owner is None
    store.close()


def test_a_transaction_whose_connection_is_lost_is_not_gone_on_with(postgres: Postgres, postgres_server: str) -> None:
    postgres.prepare()
    store = Store(postgres)
    owned = add(store)
    writer = store.writer
    writer.begin()
    writer.run("renew", policy=owned.id, owner="a", epoch=1, expires=999)
    cut(postgres_server, postgres)
    for _ in range(2):  # and not on a new connection either
        with pytest.raises(StoreFailed):
            writer.run("renew", policy=owned.id, owner="a", epoch=1, expires=999)
    with pytest.raises(StoreFailed, match="lost in a transaction"):
        writer.commit()
    writer.rollback()
    assert store.policies()[0].expires == 100
    assert store.renew({owned.id: 1}, "a", 500) == set()
    store.close()


def test_a_reader_only_reads(postgres: Postgres) -> None:
    postgres.prepare()
    with pytest.raises(StoreFailed, match="read-only"):
        postgres.reader().run("revoke_key", id="k", at=1)


def test_threads_that_are_gone_leave_no_connections(postgres: Postgres) -> None:
    async def thrice() -> None:
        await asyncio.gather(*(asyncio.to_thread(postgres.now) for _ in range(3)))

    postgres.prepare()
    for _ in range(3):
        asyncio.run(thrice())
    here = postgres.now()
    assert len(postgres._connections) == 1
    assert abs(here / 1e6 - time.time()) < 60


def test_calls_go_on_when_the_server_has_restarted(postgres: Postgres, server: Any) -> None:
    def crash() -> None:
        postmaster = server.get_postmaster_info().process
        postmaster.send_signal(signal.SIGQUIT)  # nothing is put in order
        postmaster.wait(60)
        insist(server.ensure_postgres_running)

    async def script(engine: Engine) -> None:
        first = [await decide(engine, f"a{i}") for i in range(5)]
        calls = [asyncio.create_task(eventually(engine, f"b{i}")) for i in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(crash)
        second = await asyncio.gather(*calls)
        assert [await decide(engine, f"a{i}") for i in range(5)] == first
        assert [await decide(engine, f"b{i}") for i in range(20)] == second
        assert len({each["id"] for each in first + second}) == 25
        assert whole(engine)

    play(postgres, script, spec=RICH, settings=CALM)


def test_a_server_that_is_away_is_said_to_be(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    def goes(self: PostgresConnection, _: object) -> None:
        self.conninfo = psycopg.conninfo.make_conninfo(postgres.conninfo, host="/nowhere")
        self.close()
        raise StoreFailed("The server has gone.")

    async def script(engine: Engine) -> None:
        await decide(engine, "one")
        with monkeypatch.context() as patch:
            patch.setattr(PostgresConnection, "write_all", goes)
            with pytest.raises(Problem, match="^Nothing was written: The server has gone. Try again.$"):
                await decide(engine, "two")
        for _ in range(2):  # what was in memory cannot be rebuilt now
            with pytest.raises(Problem, match="being recovered") as caught:
                await decide(engine, "two")
            assert caught.value.status == 503
        engine.store.writer.conninfo = postgres.conninfo  # type: ignore[attr-defined]
        assert (await decide(engine, "two"))["id"] == 1
        assert whole(engine)

    play(postgres, script, settings=CALM)


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_that_is_not_confirmed_was_done_or_not(
    postgres: Postgres, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: PostgresConnection) -> None:
        assert self.session is not None
        self.session.execute("COMMIT" if done else "ROLLBACK")
        self.close()
        raise Unconfirmed("The line went dead.")

    async def script(engine: Engine) -> None:
        one = await decide(engine, "one")
        with monkeypatch.context() as patch:
            patch.setattr(PostgresConnection, "commit", lost)
            with pytest.raises(Problem, match="^The line went dead. Try again.$"):
                await decide(engine, "two")
        two = await decide(engine, "two")
        assert two["id"] == one["id"] + 1
        assert engine.owned[KEY].policy.accounts["cost"].reserved == 2_000_000
        assert whole(engine)

    play(postgres, script, settings=CALM)


def test_a_commit_that_is_still_on_its_way_is_waited_for(postgres: Postgres) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "one")
        owned = engine.owned[KEY]
        engine.ownership._dirty.add(KEY)  # as after a commit that was not confirmed
        with psycopg.connect(postgres.conninfo) as late:
            late.execute("UPDATE policies SET parked = 7 WHERE id = %s", [owned.id])
            mending = asyncio.create_task(decide(engine, "two"))
            while not late.execute(WAITS_FOR_US).fetchall():
                assert not mending.done()
                await asyncio.sleep(0.01)
            late.commit()
        await mending
        assert owned.parked == 7  # it was read when that commit had ended

    play(postgres, script, settings=CALM)


@contextmanager
def setting(url: str, name: str, value: str) -> Iterator[None]:
    """The server with another setting."""

    def put(statement: str, there: Callable[[str], bool]) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement)
            connection.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + 60
        while True:
            with psycopg.connect(url, autocommit=True) as connection:
                if there(connection.execute(f"SHOW {name}").fetchall()[0][0]):
                    return
            assert time.monotonic() < end

    put(f"ALTER SYSTEM SET {name} = {value}", lambda now: now == value)
    try:
        yield
    finally:
        put(f"ALTER SYSTEM RESET {name}", lambda now: now != value)


@pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
def test_a_server_that_could_lose_what_it_confirmed_is_refused(
    postgres: Postgres, postgres_server: str, name: str
) -> None:
    with (
        setting(postgres_server, name, "off"),
        pytest.raises(DeferkitError, match=f"with {name} = off, and could lose what it has confirmed: {name} = on is"),
    ):
        postgres.prepare()
    postgres.prepare()


def test_a_database_that_has_not_all_characters_is_refused(postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        with pytest.raises(DeferkitError, match="server_encoding = LATIN1, and could not keep every text"):
            Postgres(psycopg.conninfo.make_conninfo(postgres_server, dbname="latin")).prepare()
        connection.execute("DROP DATABASE latin")


def test_a_commit_waits_for_the_disk_whatever_the_server_is_set_to(postgres: Postgres, postgres_server: str) -> None:
    with setting(postgres_server, "synchronous_commit", "off"):
        postgres.prepare()
        for connection in (postgres.writer(), postgres.reader()):
            assert connection.execute("SHOW synchronous_commit") == [("on",)]
            connection.close()
    with setting(postgres_server, "synchronous_commit", "remote_apply"):  # which is more
        assert postgres.reader().execute("SHOW synchronous_commit") == [("remote_apply",)]


def test_a_password_is_not_told(postgres: Postgres) -> None:
    with pytest.raises(
        DeferkitError, match="^The URL of the database is postgresql://user:password@host/name.$"
    ) as caught:
        Postgres("postgres//ann:secret@host/db?x")
    assert caught.value.__suppress_context__
    with pytest.raises(StoreFailed) as refused:
        Postgres("postgresql://ann:secret@/db?host=/nowhere").prepare()
    assert "secret" not in str(refused.value)
    assert postgres.shared


def test_many_calls_at_once_and_the_log_has_it_all(postgres: Postgres) -> None:
    async def script(engine: Engine) -> None:
        rng = random.Random(0)

        async def client(number: int) -> None:
            for i in range(15):
                task = f"{number}-{i}"
                context = [rng.random() / 2, rng.random() / 2]
                replies = await asyncio.gather(*(decide(engine, task, context=context) for _ in range(2)))
                assert replies[0] == replies[1]
                if i % 3 == 0:
                    await observe(engine, task, rewards={"model": 0.5, "human": 0.75}, cost=0.5)
                elif (lease := await claim(engine, f"r{number}")) is not None:
                    await complete(engine, lease, rewards={"human": 1.0}, cost=0.25, answer={"ok": True})

        await asyncio.gather(*(client(number) for number in range(12)))
        assert engine.groups < engine.commands / 3
        account = engine.owned[KEY].policy.accounts["cost"]
        assert engine.store.budgets(engine.owned[KEY].id)["cost"] == account
        assert account.posted + account.reserved <= 1000 * 10**6
        assert whole(engine)

    # with trees an outcome may wait for a fit, and a reviewer who was offered its task comes before it
    play(postgres, script, spec=msgspec.structs.replace(RICH, representation="linear"))
    assert play(again(postgres), lambda engine: asyncio.sleep(0, whole(engine)), spec=None)
