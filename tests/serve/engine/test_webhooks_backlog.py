"""Events that nobody takes: each is stored once, a webhook has so many, and they keep nobody else waiting."""

import asyncio
import json
import time
from statistics import median
from typing import Any

import pytest

from deferkit.serve.api.tasks import BatchBody, TaskBody
from deferkit.serve.domain.webhook import DEAD, DELIVERED, EVENTS, WebhookRow, new_id, new_secret
from deferkit.serve.engine import webhooks
from deferkit.serve.engine.commands.decide import Decide, DecideMany
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.in_process import KEY, SPEC, again, decide, play, started
from tests.serve.harness.webhook_receiver import Receiver

DEAD_END = "http://127.0.0.1:1/"  # nobody listens there


async def listen(engine: Engine, url: str = DEAD_END, *events: str, **given: Any) -> WebhookRow:
    """Add a webhook."""
    row = WebhookRow(new_id(), "default", url, new_secret(), " ".join(events or EVENTS), None, 1, 5)._replace(**given)
    engine.webhooks.store.add(row)
    await engine.webhooks.reload()
    return row


def run_sql(database: Database, sql: str, *values: Any) -> list[Any]:
    """Run a statement that is not among the named queries, on a connection of its own."""
    connection: Any = again(database).writer()
    try:
        if isinstance(database, Sqlite):
            return list(connection.connection.execute(sql.replace("%s", "?"), values))
        connection.execute("SELECT 1")
        cursor = connection.session.execute(sql, values)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def count(database: Database, table: str) -> int:
    return int(run_sql(database, f"SELECT COUNT(*) FROM {table}")[0][0])


def batch(prefix: str, tasks: int) -> DecideMany:
    return DecideMany(BatchBody(tasks=[TaskBody(task=f"{prefix}{n}", context=[1.0, 0.5]) for n in range(tasks)]))


async def wait_until(condition: Any, seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    return found


def test_an_event_is_stored_once_for_all_its_webhooks(database: Database) -> None:
    async def script(engine: Engine) -> None:
        engine.webhooks.stop()  # nothing is sent
        for _ in range(20):
            await listen(engine)
        for number in range(5):
            await decide(engine, f"t{number}", force="model")
        assert (count(database, "events"), count(database, "event_deliveries")) == (5, 100)
        assert count(database, "deliveries") == 0

    play(database, script)


def test_of_more_events_than_the_backlog_the_oldest_are_given_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TICK_S", 0.02)

    async def script(engine: Engine) -> None:
        dead, alive = await listen(engine), await listen(engine, receiver.url)
        for number in range(30):
            await decide(engine, f"t{number}", force="model")
            await wait_until(lambda: len(receiver.events()) > number)  # noqa: B023  whoever answers gets all of them
        store = engine.webhooks.store
        await wait_until(lambda: store.count_waiting([dead.id]) == {dead.id: 10})
        left = sorted(json.loads(row.body)["data"]["task"] for row in store.deliveries(dead.id, 100))
        assert left == [f"t{number}" for number in range(20, 30)]
        assert {row.id: row.dropped for row in store.webhooks()} == {dead.id: 20, alive.id: 0}
        assert engine.webhooks.attempts[engine.owned[KEY].id, "dropped"] == 20
        await wait_until(lambda: len(store.deliveries(alive.id, 100)) == 30)
        assert store.delete("default", alive.id)
        await wait_until(lambda: count(database, "events") == 10)  # nobody needs the others

    with Receiver() as receiver:
        play(database, script, settings=EngineSettings(webhook_private=True, webhook_backlog=10))


def test_a_store_with_more_than_the_backlog_is_cut_to_it_at_the_start(database: Database) -> None:
    async def first(engine: Engine) -> None:
        await listen(engine)
        await engine.submit(KEY, batch("t", 60))

    async def second(engine: Engine) -> None:
        [webhook] = engine.webhooks.store.webhooks()
        await wait_until(lambda: engine.webhooks.store.count_waiting([webhook.id]) == {webhook.id: 25})

    play(database, first)
    play(again(database), second, spec=None, settings=EngineSettings(webhook_backlog=25))


OLD = """
    INSERT INTO deliveries (webhook, id, policy, event, body, created, due, state, attempts, status, error, ended)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def test_what_the_version_before_has_written_is_delivered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with a body each, of two webhooks: those that wait are sent, the others stay in the list."""
    monkeypatch.setattr(webhooks, "TICK_S", 0.02)
    monkeypatch.setattr("deferkit.serve.storage.webhook_store.MOVED_AT_ONCE", 3)

    async def script(engine: Engine) -> None:
        hooks = [await listen(engine, receiver.url), await listen(engine, other.url)]
        policy, now = engine.owned[KEY].id, engine.clock.now()
        for number in range(10):
            for hook in hooks:
                name, body = f"{number:024x}", json.dumps({"id": f"{number:024x}", "event": "decided"}).encode()
                run_sql(database, OLD, hook.id, name, policy, "decided", body, now, now, "waiting", 1, 500, "no", None)
        for state in (DEAD, DELIVERED):
            run_sql(database, OLD, hooks[0].id, state, policy, "decided", b"{}", now, now, state, 1, 200, None, now)
        await wait_until(lambda: len(receiver.events()) == len(other.events()) == 10)
        store = engine.webhooks.store
        await wait_until(lambda: {row.state for row in store.deliveries(hooks[1].id, 100)} == {DELIVERED})
        await wait_until(lambda: len(store.deliveries(hooks[0].id, 100)) == 12)
        assert {*receiver.times().values(), *other.times().values()} == {1}
        assert count(database, "deliveries") == 0
        assert count(database, "events") == 12
        states = sorted(row.state for row in store.deliveries(hooks[0].id, 100))
        assert states == [DEAD] + [DELIVERED] * 11
        assert {row.attempts for row in store.deliveries(hooks[1].id, 100)} == {2}

    with Receiver() as receiver, Receiver() as other:
        play(database, script, settings=EngineSettings(webhook_private=True))


def test_an_event_of_a_policy_that_a_process_of_the_version_before_owns_is_left_to_it(postgres: Database) -> None:
    async def script() -> None:
        one = await started(postgres, settings=EngineSettings(webhook_private=True))
        two = await started(again(postgres), spec=None, number=1, settings=EngineSettings(webhook_private=True))
        hook = await listen(one, receiver.url)
        await two.webhooks.reload()
        one.webhooks.stop()  # like one that does not know of the new tables
        await wait_until(one._ticking[-1].done)
        policy, now = one.owned[KEY].id, one.clock.now()
        run_sql(
            postgres, OLD, hook.id, "0", policy, "decided", b'{"event":"x"}', now, now, "waiting", 0, None, None, None
        )
        await asyncio.sleep(1.2)
        assert (count(postgres, "deliveries"), len(receiver.calls)) == (1, 0)
        await one.stop()
        await wait_until(lambda: len(receiver.calls) == 1)  # the other process has acquired the policy
        await two.stop()

    with Receiver() as receiver:
        asyncio.run(script())


def test_20_dead_webhooks_and_6000_tasks_keep_nobody_waiting(sqlite: Database) -> None:
    """The attack that made 120,000 deliveries, and raised the median of others from 6 to 200 ms."""
    waits: dict[bool, list[float]] = {False: [], True: []}

    async def others(engine: Engine, attacked: bool, stop: asyncio.Event) -> None:
        while not stop.is_set():
            began = time.perf_counter()
            task = TaskBody(task=f"o{attacked}{len(waits[attacked])}", context=[1.0, 0.5])
            await engine.submit(("other", "p"), Decide(task))
            waits[attacked].append(time.perf_counter() - began)
            await asyncio.sleep(0.005)

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        for attacked in (False, True):
            for _ in range(20 * attacked):
                await listen(engine)
            stop = asyncio.Event()
            task = asyncio.create_task(others(engine, attacked, stop))
            await asyncio.gather(*(batches(engine, f"{attacked}{call}") for call in range(6)))
            stop.set()
            await task
        assert count(sqlite, "events") <= 6_000 + 10
        hooks = [row.id for row in engine.webhooks.store.webhooks()]
        await wait_until(lambda: max(engine.webhooks.store.count_waiting(hooks).values()) <= 2_000)
        usual, attacked_s = median(waits[False]), median(waits[True])
        print(f"median {usual * 1e3:.1f} ms, with 20 dead webhooks {attacked_s * 1e3:.1f} ms")
        assert attacked_s < max(0.06, 8 * usual)

    async def batches(engine: Engine, prefix: str) -> None:
        reply = await engine.submit(KEY, batch(f"{prefix}-", 1000))
        assert reply.status == 200

    play(sqlite, script, settings=EngineSettings(webhook_backlog=2_000))
