"""What reviewers have reported is settled once, whoever ends their task: the last of them, an outcome, time."""

from typing import Any

import msgspec
import pytest

from deferkit.serve.api.common import Reply
from deferkit.serve.api.reviews import EffortBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.accounts import Account
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict
from deferkit.serve.domain.records import AnsweredRecord, decode
from deferkit.serve.domain.rows import DecisionRow
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    HandClock,
    account,
    call,
    claim,
    complete,
    decide,
    observe,
    play,
    problem_of,
    replayed,
)

M = 1_000_000
PAIRS = msgspec.structs.replace(SPEC, reviewers=2)


def row_of(engine: Engine, task: str) -> DecisionRow:
    row = engine.store.decision(engine.owned[KEY].id, task)
    assert row is not None
    return row


def check_replay(engine: Engine) -> None:
    """Check that the log gives the same policy, and the same decisions."""
    assert replayed(engine.store) == engine.owned[KEY].policy
    assert replay(engine.store, *KEY).faults == []


@pytest.mark.parametrize(
    ("given", "posted"), [({"rewards": {"human": 1.0}}, 500_000), ({"cost": 0.25}, 750_000), ({"cost": 0.0}, 500_000)]
)
def test_an_outcome_that_ends_a_task_settles_what_a_reviewer_has_reported(
    given: Any, posted: int, database: Database
) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        ann, bo = await claim(engine, "ann"), await claim(engine, "bo")
        await complete(engine, ann, answer="spam", rewards={"model": 0.25, "human": 0.5}, cost=0.5)
        reply = await observe(engine, "a", **given)
        assert (reply["changed"], reply["booked"]) == (True, posted / M)
        assert account(engine) == Account(10 * M, 0, posted, 0)
        row = row_of(engine, "a")
        assert (row.state, row.final, row.answer) == ("posted", "human", '"spam"')
        assert row.rewards == {"model": 0.25, "human": given.get("rewards", {}).get("human", 0.5)}
        assert (await observe(engine, "a", **given))["changed"] is False  # once
        assert (await problem_of(observe(engine, "a", cost=0.125))).status == 409
        lease = {name: bo[name] for name in ("task", "seat", "epoch", "token")}
        await call(engine, Effort(EffortBody(**lease, cost=0.125)))
        assert account(engine).posted == posted + 125_000
        check_replay(engine)

    play(database, script, spec=PAIRS)


def test_the_log_knows_what_each_reviewer_has_reported(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await complete(engine, await claim(engine, "ann"), answer="spam", rewards={"human": 0.5}, cost=0.5)
        *_, line = engine.store.log(engine.owned[KEY].id)
        record = decode(bytes(line.body))
        assert isinstance(record, AnsweredRecord)
        assert (record.rewards, record.cost) == ({"human": 0.5}, {"cost": 500_000})

    play(database, script, spec=PAIRS)
    old = decode(b'{"kind":"answered","task":"a","id":0,"seat":0,"reviewer":"ann"}')
    assert isinstance(old, AnsweredRecord)
    assert (old.rewards, old.cost) == ({}, None)


def test_a_reviewer_who_contradicts_what_was_observed_is_refused_and_the_task_ends_all_the_same(
    database: Database,
) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await observe(engine, "a", rewards={"model": 1.0})
        ann, bo = await claim(engine, "ann"), await claim(engine, "bo")
        wrong = await problem_of(complete(engine, ann, rewards={"model": 0.0, "human": 1.0}, cost=0.5))
        assert wrong.status == 409
        for lease in (ann, bo):
            await complete(engine, lease, rewards={"model": 1.0, "human": 1.0}, cost=0.5)
        assert row_of(engine, "a").rewards == {"model": 1.0, "human": 1.0}
        assert account(engine) == Account(10 * M, 0, 1 * M, 0)
        check_replay(engine)

    play(database, script, spec=PAIRS)


@pytest.mark.parametrize("by_time", [True, False])
def test_what_was_observed_after_an_answer_stands_against_it(by_time: bool, database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await complete(engine, await claim(engine, "ann"), rewards={"model": 0.0, "human": 1.0}, cost=0.5)
        await observe(engine, "a", rewards={"model": 1.0})
        if by_time:
            assert (await call(engine, Expire("a")))["final"] == "human"
        else:
            assert (await complete(engine, await claim(engine, "bo"), rewards={"human": 0.5}, cost=0.25))["finished"]
        row = row_of(engine, "a")
        assert (row.state, row.rewards) == ("posted", {"model": 1.0, "human": 1.0 if by_time else 0.75})
        assert account(engine) == Account(10 * M, 0, 500_000 if by_time else 750_000, 0)
        check_replay(engine)

    play(database, script, spec=PAIRS)


def test_the_average_of_equal_rewards_is_what_they_are(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a", reviewers=3)
        for reviewer in ("ann", "bo", "cy"):
            lease = await claim(engine, reviewer)
            assert (await complete(engine, lease, rewards={"human": 0.1}, cost=0.125))["task"] == "a"
        assert row_of(engine, "a").rewards == {"human": 0.1}
        check_replay(engine)

    play(database, script, spec=msgspec.structs.replace(SPEC, reward_range=(0.0, 0.1)))


def test_at_the_deadline_an_answer_without_a_cost_counts(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        await complete(engine, await claim(engine, "ann"), answer="spam", rewards={"human": 0.5})
        clock.advance(601)
        await engine.maintenance.reap()
        row = row_of(engine, "a")
        assert (row.state, row.final, row.answer, row.rewards) == ("void", "human", '"spam"', {"human": 0.5})
        assert account(engine) == Account(10 * M, 0, 0, 0)
        assert (await call(engine, Expire("a")))["final"] == "human"
        await observe(engine, "a", cost=0.25)
        assert account(engine) == Account(10 * M, 0, 250_000, 0)
        check_replay(engine)

    play(database, script, spec=msgspec.structs.replace(PAIRS, deadline_s=600.0))


def test_nothing_is_reserved_beyond_the_deadline_where_nobody_is_still_to_answer(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "done", reviewers=1)
        await complete(engine, await claim(engine, "ann"), answer="spam")
        await decide(engine, "closed", reviewers=1)
        lease = await claim(engine, "bo")
        await observe(engine, "closed", rewards={"human": 1.0})
        await call(engine, Effort(EffortBody(task="closed", epoch=lease["epoch"], token=lease["token"], cost=0.25)))
        clock.advance(600)
        await engine.maintenance.reap()
        assert account(engine) == Account(10 * M, 2 * M, 250_000, 0)
        clock.advance(0.000_001)
        await engine.maintenance.reap()
        assert account(engine) == Account(10 * M, 0, 250_000, 0)
        for task in ("done", "closed"):
            assert (row_of(engine, task).state, row_of(engine, task).final) == ("void", "human")
        check_replay(engine)

    play(database, script, spec=msgspec.structs.replace(SPEC, deadline_s=600.0))


def test_tasks_that_cannot_be_expired_do_not_hold_up_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("deferkit.serve.engine.maintenance.OVERDUE_AT_ONCE", 2)
    expire = Expire.run

    def stuck(self: Expire, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        if self.task.startswith("stuck"):
            raise conflict("It is stuck.")
        return expire(self, owned, work, now)

    monkeypatch.setattr(Expire, "run", stuck)

    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        for task in ("stuck1", "stuck2", "stuck3", "b", "a"):
            await decide(engine, task)
            clock.advance(1)
        clock.advance(598.5)  # a has time left
        await engine.maintenance.reap()
        assert [row_of(engine, task).state for task in ("stuck3", "b", "a")] == ["open", "void", "open"]

    with caplog.at_level("WARNING", logger="deferkit"):
        play(database, script, spec=msgspec.structs.replace(SPEC, deadline_s=600.0))
    assert "tasks were not expired" in caplog.text
