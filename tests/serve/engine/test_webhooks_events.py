"""Events are written with what they tell of, for the webhooks that want them, and for nobody else."""

import json
from typing import Any

import msgspec
import pytest

from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.tasks import CorrectionBody
from deferkit.serve.domain.accounts import MICRO, Account
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.domain.webhook import EVENTS, MAX_BODY, BudgetAlarm, WebhookRow, alarms_of, new_id
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.policy import ChangeBudget, delete_policy, delete_tenant
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from tests.serve.harness.fault_injection import failing_connection
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    call,
    claim,
    complete,
    decide,
    observe,
    play,
    replayed,
    small,
)

NOWHERE = "http://192.0.2.1/"  # set aside for documentation: refused before any connection
SECRET = "a feature or a payload"


async def listen(engine: Engine, events: tuple[str, ...] = EVENTS, **given: Any) -> WebhookRow:
    """Add a webhook whose deliveries stay in the store."""
    webhook = WebhookRow(new_id(), "default", NOWHERE, "whsec_x", " ".join(events), None, 0, 5)._replace(**given)
    engine.webhooks.store.add(webhook)
    await engine.webhooks.reload()
    return webhook


def written(engine: Engine, webhook: WebhookRow, *kinds: str) -> list[Any]:
    """Return the events that were written for a webhook, in their order."""
    rows = engine.webhooks.store.deliveries(webhook.id, 1000)
    events = sorted((json.loads(row.body) for row in rows), key=lambda event: event["seq"])
    assert all(event["id"] == row.id for event, row in zip(events, sorted(rows, key=order), strict=True))
    return [event for event in events if not kinds or event["event"] in kinds]


def order(row: Any) -> Any:
    return json.loads(row.body)["seq"]


def kinds(engine: Engine, webhook: WebhookRow) -> list[str]:
    return [event["event"] for event in written(engine, webhook)]


def test_decided_completed_and_expired(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, ("decided", "completed", "expired"))
        await decide(engine, "by the model", force="model")
        first = await decide(engine, "a", payload=SECRET, model_answer=SECRET)
        await complete(engine, await claim(engine), answer={"label": "spam"}, rewards={"human": 1.0}, cost=0.5)
        await decide(engine, "b")
        await call(engine, Expire("b"))
        await decide(engine, "c")
        await observe(engine, "c", cost=0.25)
        await observe(engine, "c", rewards={"model": 1.0})  # more of what is settled
        await decide(engine, "a", payload=SECRET, model_answer=SECRET)  # again
        events = written(engine, webhook)
        assert [(event["event"], event["data"]["task"]) for event in events] == [
            ("decided", "a"),
            ("completed", "a"),
            ("decided", "b"),
            ("expired", "b"),
            ("decided", "c"),
            ("completed", "c"),
        ]
        assert len({event["id"] for event in events}) == 6
        decided, completed, _, expired, *_ = events
        assert decided["policy"] == "p"
        assert {name: decided["data"][name] for name in ("id", "route", "reason", "reserved", "price")} == {
            name: first[name] for name in ("id", "route", "reason", "reserved", "price")
        }
        assert completed["data"] == {
            "task": "a",
            "id": first["id"],
            "route": "human",
            "final": "human",
            "answer": {"label": "spam"},
            "rewards": {"human": 1.0},
            "cost": 0.5,
        }
        assert expired["data"] == {"task": "b", "id": first["id"] + 1, "why": "asked for", "final": "model"}
        log = {line.seq: line for line in engine.store.log(engine.owned[KEY].id)}
        told = {"decided": "decided", "completed": "observed", "expired": "expired"}
        for event in events:  # each is written with the record that it tells of
            line = log[event["seq"]]
            assert (line.task, line.kind) == (event["data"]["task"], told[event["event"]])
            assert event["at"] == line.at / 1e6
        everything = str(engine.webhooks.store.deliveries(webhook.id, 100))
        assert SECRET not in everything
        assert "context" not in everything
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script)


def test_a_webhook_gets_what_it_wants(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await engine.create("default", msgspec.structs.replace(SPEC, name="q"))
        everything = await listen(engine)
        models = await listen(engine, ("decided",), models=1)
        completions = await listen(engine, ("completed",))
        here = await listen(engine, ("decided",), policies="o p")
        elsewhere = await listen(engine, ("decided",), policies="q")
        stranger = await listen(engine, tenant="other")
        await decide(engine, "model's", force="model")
        await decide(engine, "a")
        await observe(engine, "a", cost=0.25)
        assert kinds(engine, everything) == ["decided", "completed"]
        assert kinds(engine, models) == ["decided", "decided"]
        assert kinds(engine, completions) == ["completed"]
        assert kinds(engine, here) == ["decided"]
        assert kinds(engine, elsewhere) == kinds(engine, stranger) == []
        [one], [two] = written(engine, everything, "completed"), written(engine, completions)
        assert one == two  # one event, whoever hears of it

    play(database, script)


def test_several_reviewers_complete_a_task_once(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, ("completed", "expired"))
        await decide(engine, "a", reviewers=2)
        await complete(engine, await claim(engine, "ann"), answer="x", cost=0.25, rewards={"human": 1.0})
        assert kinds(engine, webhook) == []
        await complete(engine, await claim(engine, "bo"), answer="x", cost=0.25, rewards={"human": 0.0})
        [event] = written(engine, webhook)
        assert (event["data"]["cost"], event["data"]["rewards"]) == (0.5, {"human": 0.5})
        await call(engine, Correct(CorrectionBody(id="1", task="a", cost=0.75)))
        assert len(written(engine, webhook)) == 1
        await decide(engine, "b", reviewers=2)
        await complete(engine, await claim(engine, "ann"), answer="y")
        await call(engine, Expire("b"))  # what was answered counts, what was held is released
        assert kinds(engine, webhook) == ["completed", "completed", "expired"]
        assert written(engine, webhook)[-1]["data"]["final"] == "human"

    play(database, script)


def test_an_outcome_that_came_before_its_decision_completes_it(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, ("decided", "completed"))
        await observe(engine, "a", cost=0.25, rewards={"human": 1.0})
        await decide(engine, "a")
        assert kinds(engine, webhook) == ["decided", "completed"]

    play(database, script)


def test_an_answer_that_is_too_large_is_left_out(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, ("completed",))
        for task, letters in (("a", 60_000), ("b", 70_000)):
            await decide(engine, task)
            await complete(engine, await claim(engine), answer="x" * letters, cost=0.5)
        rows = engine.webhooks.store.deliveries(webhook.id, 10)
        assert all(len(row.body) <= MAX_BODY for row in rows)
        first, second = (event["data"] for event in written(engine, webhook))
        assert (first["answer"], "answer_left_out" in first) == ("x" * 60_000, False)
        assert (second["answer"], second["answer_left_out"], second["cost"]) == (None, True, 0.5)

    play(database, script)


def raised(engine: Engine, webhook: WebhookRow) -> list[tuple[str, str | None]]:
    return [(event["data"]["alarm"], event["data"]["resource"]) for event in written(engine, webhook)]


def test_alarms_of_the_budget_each_once_for_each_crossing(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, ("budget",))
        for number in range(15):
            await decide(engine, f"t{number}")
        assert raised(engine, webhook) == []
        await decide(engine, "t15")  # 80 of 100 are reserved
        assert raised(engine, webhook) == [("used_80_percent", "cost")]
        for number in range(16, 19):
            await decide(engine, f"t{number}")
        assert len(raised(engine, webhook)) == 1
        await decide(engine, "t19")
        assert raised(engine, webhook)[1:] == [("used_100_percent", "cost")]
        await observe(engine, "t0", cost=1)
        await observe(engine, "t1", cost=4)  # 95: what comes and goes does not raise it again
        await decide(engine, "t20")
        assert len(raised(engine, webhook)) == 2
        await observe(engine, "t2", cost=0)
        await observe(engine, "t3", cost=0)  # 90
        await decide(engine, "t21")
        await decide(engine, "t22")  # all of it, anew
        assert raised(engine, webhook)[2:] == [("used_100_percent", "cost")]
        await call(engine, ChangeBudget(BudgetBody(id="1", total=1000)))
        await call(engine, ChangeBudget(BudgetBody(id="2", total=104)))  # a cut passes it as well
        assert set(raised(engine, webhook)[3:]) == {("used_100_percent", "cost"), ("used_80_percent", "cost")}
        assert len(raised(engine, webhook)) == 5
        [last] = written(engine, webhook)[-1:]
        assert last["data"]["budget"] == {"cost": {"total": 104.0, "posted": 5.0, "reserved": 95.0, "suspense": 0.0}}

    play(database, script, spec=small(100, 5))


def test_alarms_of_what_stands_in_suspense(database: Database) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine, ("budget",))
        await decide(engine, "a")
        await observe(engine, "a", cost=3.0)
        kinds = {"used_80_percent", "used_100_percent", "suspense", "frozen"}
        assert {alarm for alarm, _ in raised(engine, webhook)} == kinds
        assert ("frozen", None) in raised(engine, webhook)
        await call(engine, ChangeBudget(BudgetBody(id="1", total=2.5)))  # still frozen
        assert len(raised(engine, webhook)) == 4
        await call(engine, ChangeBudget(BudgetBody(id="2", total=20)))
        await decide(engine, "b")
        await observe(engine, "b", cost=19.0)
        assert len(raised(engine, webhook)) == 8

    play(database, script, spec=small(2.0))


def test_alarms_by_hand() -> None:
    spec = msgspec.structs.replace(SPEC, budget={"a": BudgetSpec(total=100, horizon=9, max_cost=2), "b": BudgetSpec()})

    def stand(reserved: int, posted: int, before: frozenset[BudgetAlarm] = frozenset(), suspense: int = 0) -> set[str]:
        accounts = {
            "a": Account(100_000_000, reserved * 1_000_000, posted * 1_000_000, suspense),
            "b": Account(None, 10**15, 10**15),
        }
        return {f"{alarm.kind} {alarm.resource}" for alarm in alarms_of(accounts, spec, before)}

    eighty, hundred = BudgetAlarm("used_80_percent", "a"), BudgetAlarm("used_100_percent", "a")
    assert stand(40, 39) == set()
    assert stand(40, 40) == {"used_80_percent a"}
    assert stand(40, 35, frozenset({eighty})) == {"used_80_percent a"}
    assert stand(40, 34, frozenset({eighty})) == set()
    assert stand(0, 98) == {"used_80_percent a"}
    assert stand(0, 99) == stand(0, 100) == {"used_80_percent a", "used_100_percent a"}
    assert stand(0, 95, frozenset({hundred})) == {"used_80_percent a", "used_100_percent a"}
    assert stand(0, 94, frozenset({hundred})) == {"used_80_percent a"}
    assert stand(0, 100, suspense=1) == {"used_80_percent a", "used_100_percent a", "suspense a", "frozen None"}


@pytest.mark.parametrize("done", [False, True])
def test_a_group_that_is_not_committed_tells_of_nothing(database: Database, done: bool) -> None:
    async def script(engine: Engine) -> None:
        webhook = await listen(engine)
        engine.webhooks.stop()  # it would write as well
        await engine._ticking[-1]
        for number in range(7):
            await decide(engine, f"t{number}")
        before = len(written(engine, webhook))
        for nth in range(1, 7):
            with failing_connection(engine, nth, done=done):
                refused = 0
                try:
                    await decide(engine, "t7")
                except Problem as problem:
                    refused = problem.status
            if not refused:
                assert nth > 4  # a group has no more statements
                break
            assert refused == 503
            if len(written(engine, webhook)) != before:  # the commit was done, and its confirmation was lost
                break
            assert engine.owned[KEY].policy.accounts["cost"].reserved == 7_000_000
        await decide(engine, "t7")
        assert sorted(event["event"] for event in written(engine, webhook)[before:]) == ["budget", "decided"]
        assert written(engine, webhook, "decided")[-1]["data"]["task"] == "t7"

    play(database, script)


def rows(engine: Engine) -> tuple[int, int]:
    return count(engine, "webhooks"), count(engine, "event_deliveries")


def count(engine: Engine, table: str) -> int:
    connection: Any = engine.store.database.reader()
    return int(connection.execute(f"SELECT COUNT(*) FROM {table}")[0][0])


def test_a_deleted_policy_or_tenant_leaves_no_deliveries_and_no_webhooks_of_its_own(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await engine.create("default", msgspec.structs.replace(SPEC, name="q"))
        await engine.create("other", SPEC)
        both = await listen(engine, ("decided",))
        await listen(engine, ("decided",), policies="p")
        await listen(engine, ("decided",), tenant="other", policies="p")
        await listen(engine, ("decided",), policies="p q")
        await decide(engine, "a")
        assert rows(engine) == (4, 3)
        assert count(engine, "events") == 1
        await delete_policy(engine, KEY)
        assert rows(engine) == (3, 0)
        assert count(engine, "events") == 0
        await delete_tenant(engine, "default")
        [(left,)] = [(row.tenant,) for row in engine.webhooks.store.webhooks()]
        assert left == "other"
        await engine.webhooks.reload()
        assert both.tenant not in engine.webhooks.by_tenant

    play(database, script)


def test_a_deleted_webhook_takes_its_deliveries_along_and_gets_no_more(database: Database) -> None:
    async def script(engine: Engine) -> None:
        one, two = await listen(engine), await listen(engine)
        await decide(engine, "a")
        store = engine.webhooks.store
        assert not store.delete("other", one.id)
        assert count(engine, "events") == 1
        assert store.delete("default", one.id)
        assert not store.delete("default", one.id)
        assert count(engine, "events") == 1  # the other webhook waits for it
        await decide(engine, "b")  # by an engine that does not know of it yet
        assert rows(engine) == (1, 2)
        assert kinds(engine, two) == ["decided", "decided"]
        assert store.delete("default", two.id)
        assert rows(engine) == (0, 0)
        assert count(engine, "events") <= 1  # the one that was written for both: it goes when it is old
        await engine.ownership.in_thread(store.prune, engine.clock.now() + 30 * 86_400 * MICRO, [engine.owned[KEY].id])
        assert count(engine, "events") == 0

    play(database, script)


def test_without_webhooks_nothing_is_written(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await listen(engine, tenant="other")
        await decide(engine, "a")
        await observe(engine, "a", cost=0.5)
        assert rows(engine) == (1, 0)
        assert engine.owned[KEY].alarms is None

    play(database, script)
