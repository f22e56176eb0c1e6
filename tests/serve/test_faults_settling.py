"""What reviewers have reported is settled once, whoever ends their task: the last of them, an outcome, time."""

from typing import Any

import msgspec
import pytest

from deferkit.serve.account import Account
from deferkit.serve.commands.bodies import EffortBody
from deferkit.serve.commands.expire import Expire
from deferkit.serve.commands.review import Effort
from deferkit.serve.engine import Engine
from deferkit.serve.records import Answered, decode
from deferkit.serve.replay import replay
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.rows import DecisionRow
from tests.serve.checking import account, problem_of, replayed
from tests.serve.playing import KEY, SPEC, call, claim, complete, decide, observe, play

M = 1_000_000
PAIRS = msgspec.structs.replace(SPEC, reviewers=2)


def row_of(engine: Engine, task: str) -> DecisionRow:
    row = engine.store.decision(engine.held[KEY].id, task)
    assert row is not None
    return row


def check_replay(engine: Engine) -> None:
    """Check that the log gives the same policy, and the same decisions."""
    assert replayed(engine.store) == engine.held[KEY].policy
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
        lease = {name: bo[name] for name in ("task", "seat", "epoch")}
        await call(engine, Effort(EffortBody(**lease, cost=0.125)))
        assert account(engine).posted == posted + 125_000
        check_replay(engine)

    play(database, script, spec=PAIRS)


def test_the_log_knows_what_each_reviewer_has_reported(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await complete(engine, await claim(engine, "ann"), answer="spam", rewards={"human": 0.5}, cost=0.5)
        *_, line = engine.store.log(engine.held[KEY].id)
        record = decode(bytes(line.body))
        assert isinstance(record, Answered)
        assert (record.rewards, record.cost) == ({"human": 0.5}, {"cost": 500_000})

    play(database, script, spec=PAIRS)
    old = decode(b'{"kind":"answered","task":"a","id":0,"seat":0,"reviewer":"ann"}')
    assert isinstance(old, Answered)
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
