"""Outcomes that wait for their decisions: each API key has its share of the room."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.serve.api.tasks import OutcomeBody
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.engine.commands import outcome
from deferkit.serve.engine.commands.outcome import Observe, parked_shares
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import KEY, POLICY, SPEC, decide, play, problem_of, running

JOINED = ("ann bob", "ann junk", "bob junk")


async def park(engine: Engine, key: str, task: str) -> Any:
    """Park an outcome with an API key."""
    reply = await engine.submit(KEY, Observe(OutcomeBody(task=task, rewards={"human": 1.0}), key))
    return msgspec.json.decode(reply.body)


def parked(engine: Engine) -> dict[str, str]:
    """Return the tasks of all parked outcomes, and the key of each."""
    rows = engine.store.database.reader().run(
        "oldest_parked", policy=engine.owned[KEY].id, keys=["junk", "ann", "bob", *JOINED]
    )
    return {row[2]: row[1] for row in rows}


def test_10000_junk_parked_outcomes_leave_room_for_other_keys(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "MAX_PARKED", 6)

    async def script(engine: Engine) -> None:
        for i in range(6):
            await park(engine, "junk", f"junk {i}")
        assert (await problem_of(park(engine, "junk", "junk 6"))).retry_after == 60  # its own share is full
        for task in ("a", "b"):
            assert (await park(engine, "ann", task))["parked"] is True
        assert parked(engine) == {**{f"junk {i}": "junk" for i in range(2, 6)}, "a": "ann", "b": "ann"}
        assert (await park(engine, "bob", "c"))["parked"] is True
        assert (await park(engine, "bob", "d"))["parked"] is True
        assert [*parked(engine)] == ["junk 4", "junk 5", "a", "b", "c", "d"]
        for key in ("junk", "ann", "bob"):  # all have as much
            assert (await problem_of(park(engine, key, "more"))).status == 503
        owned = engine.owned[KEY]
        assert (owned.parked, owned.parked_by, owned.dropped_parked) == (6, {"junk": 2, "ann": 2, "bob": 2}, 4)

    async def after(engine: Engine) -> None:
        assert engine.owned[KEY].parked_by == {"junk": 2, "ann": 2, "bob": 2}
        assert (await decide(engine, "a"))["route"] == "human"
        row = engine.store.decision(engine.owned[KEY].id, "a")
        assert row is not None
        assert row.rewards == {"human": 1.0}
        assert engine.owned[KEY].parked_by["ann"] == 1
        await park(engine, "ann", "e")
        assert (await problem_of(park(engine, "ann", "f"))).status == 503

    play(database, script)
    play(database, after, spec=None)


def test_an_outcome_that_another_key_adds_to_belongs_to_both(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await park(engine, "bob", "a")
        more = Observe(OutcomeBody(task="a", rewards={"model": 0.0}), "ann")
        assert msgspec.json.decode((await engine.submit(KEY, more)).body)["changed"] is True
        assert msgspec.json.decode((await engine.submit(KEY, more)).body)["changed"] is False
        assert parked(engine) == {"a": "ann bob"}
        assert engine.owned[KEY].parked_by == {"ann bob": 1}
        assert parked_shares(engine.owned[KEY]) == {"ann": 1, "bob": 1}

    async def after(engine: Engine) -> None:
        assert (engine.owned[KEY].parked, engine.owned[KEY].parked_by) == (1, {"ann bob": 1})
        await decide(engine, "a")
        row = engine.store.decision(engine.owned[KEY].id, "a")
        assert row is not None
        assert row.rewards == {"human": 1.0, "model": 0.0}
        assert (engine.owned[KEY].parked, engine.owned[KEY].parked_by) == (0, {})
        assert parked(engine) == {}

    play(database, script)
    play(database, after, spec=None)


@pytest.mark.parametrize("honest", [{"cost": 0.5}, {"rewards": {"model": 0.0}}], ids=["adds", "repeats"])
@pytest.mark.parametrize("first", ["junk", "ann"])
def test_an_acknowledged_outcome_is_not_dropped_with_the_share_of_a_key_that_parked_there_too(
    database: Database, monkeypatch: pytest.MonkeyPatch, first: str, honest: dict[str, Any]
) -> None:
    monkeypatch.setattr(outcome, "MAX_PARKED", 6)

    async def script(engine: Engine) -> None:
        harmless = Observe(OutcomeBody(task="t", rewards={"model": 0.0}), "junk")
        mine = Observe(OutcomeBody(task="t", **honest), "ann")
        for each in (harmless, mine) if first == "junk" else (mine, harmless):
            assert (await engine.submit(KEY, each)).status == 202
        for i in range(5):
            await park(engine, "junk", f"junk {i}")
        for task in ("a", "b", "c"):  # those of junk make room, the oldest first: not the one that is ann's too
            assert (await park(engine, "bob", task))["parked"] is True
        assert (await problem_of(park(engine, "bob", "d"))).status == 503
        assert parked(engine) == {"t": "ann junk", "junk 3": "junk", "junk 4": "junk", **dict.fromkeys("abc", "bob")}
        assert engine.owned[KEY].dropped_parked == 3
        await decide(engine, "t")
        row = engine.store.decision(engine.owned[KEY].id, "t")
        assert row is not None
        assert row.rewards == {"model": 0.0} if "rewards" in honest else row.cost == {"cost": 500_000}

    play(database, script)


def test_several_keys_do_not_keep_more_room_by_parking_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "MAX_PARKED", 6)

    async def script(engine: Engine) -> None:
        for i in range(6):
            for key in ("junk", "bob"):
                await park(engine, key, f"junk {i}")
        assert engine.owned[KEY].parked_by == {"bob junk": 6}
        for i in range(3):
            assert (await park(engine, "ann", f"a {i}"))["parked"] is True
        assert engine.owned[KEY].parked_by == {"bob junk": 3, "ann": 3}
        assert (await problem_of(park(engine, "ann", "a 3"))).status == 503

    play(database, script)


def test_sets_of_keys_are_bounded_and_what_is_refused_was_not_acknowledged(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "MAX_KEY_SETS", 1)

    async def script(engine: Engine) -> None:
        for task in ("a", "b"):
            await park(engine, "junk", task)
        assert (await park(engine, "ann", "a"))["parked"] is True
        assert (await park(engine, "ann", "b"))["parked"] is True  # the same set
        assert (await problem_of(park(engine, "bob", "a"))).retry_after == 60
        assert (await park(engine, "bob", "c"))["parked"] is True  # one key is no such set
        assert engine.owned[KEY].parked_by == {"ann junk": 2, "bob": 1}
        for task in ("a", "b"):
            await decide(engine, task)
        await park(engine, "ann", "c")
        assert engine.owned[KEY].parked_by == {"ann bob": 1}

    play(database, script)


def test_an_outcome_that_is_added_to_in_the_same_group_is_not_dropped(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "MAX_PARKED", 4)

    async def script(engine: Engine) -> None:
        for i in range(4):
            await park(engine, "junk", f"junk {i}")
        results = await asyncio.gather(park(engine, "ann", "junk 0"), park(engine, "bob", "b"))
        assert all(each["parked"] for each in results)
        assert parked(engine) == {"junk 0": "ann junk", "junk 2": "junk", "junk 3": "junk", "b": "bob"}
        assert engine.owned[KEY].parked_by == {"ann junk": 1, "junk": 2, "bob": 1}
        rows = engine.store.parked_by_key(engine.owned[KEY].id)
        assert rows == engine.owned[KEY].parked_by

    play(database, script)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 7), st.sampled_from(["human", "model"])), max_size=80))
def test_an_outcome_is_dropped_only_if_all_who_were_told_that_it_is_kept_have_parked_more(
    calls: list[tuple[str, int, str]],
) -> None:
    """Whatever is parked by whom for which task: counts are those of the rows, and nobody loses its share."""
    owned, most = OwnedPolicy(1, "default", Policy(SPEC), 1, 0), 5
    work = UnitOfWork()
    acknowledged: dict[str, set[str]] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outcome, "MAX_PARKED", most)
        for now, (key, number, decider) in enumerate(calls):
            task = f"t{number}"
            work.decisions[1, task] = None
            work.parked.setdefault((1, task), None)
            work.oldest_parked.clear()  # as a transaction of its own would read them
            for row in sorted(filter(None, work.parked.values()), key=lambda row: row.at):
                work.oldest_parked.setdefault((1, row.key), []).append(row)
            before = parked_shares(owned)
            try:
                Observe(OutcomeBody(task=task, rewards={decider: 1.0}), key).run(owned, work, now)
                acknowledged.setdefault(task, set()).add(key)
            except Problem:
                assert owned.parked == most
            rows = [row for row in work.parked.values() if row is not None]
            assert owned.parked == len(rows) <= most
            assert owned.parked_by == Counter(row.key for row in rows)
            for row in rows:
                assert {*row.key.split(" ")} == acknowledged[row.task]
            for dropped in acknowledged.keys() - {row.task for row in rows}:
                for each in acknowledged.pop(dropped):
                    assert before[each] > before[key] + 1
            shares = Counter(each for keys in acknowledged.values() for each in keys)
            assert parked_shares(owned) == shares


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=60))
def test_nobody_loses_room_to_a_key_that_has_as_much(calls: list[tuple[str, int]]) -> None:
    """Whatever is parked by whom, in one group: the counts are those of the rows, and only the greediest loses."""
    owned, most = OwnedPolicy(1, "default", Policy(SPEC), 1, 0), 5
    work = UnitOfWork()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outcome, "MAX_PARKED", most)
        for now, (key, number) in enumerate(calls):
            task = f"{key}{number}"
            work.decisions[1, task] = None
            work.parked.setdefault((1, task), None)
            there = [row for row in work.parked.values() if row is not None]
            for each in "abc":  # as a transaction of its own would read them
                work.oldest_parked[1, each] = sorted((r for r in there if r.key == each), key=lambda row: row.at)
            before = owned.parked_by.copy()
            try:
                Observe(OutcomeBody(task=task, rewards={"human": 1.0}), key).run(owned, work, now)
            except Problem:
                assert owned.parked == most
                assert before[key] + 1 >= max(before.values())
            rows = [row for row in work.parked.values() if row is not None]
            assert owned.parked == len(rows) <= most
            assert {k: n for k, n in owned.parked_by.items() if n} == {
                k: sum(row.key == k for row in rows) for k in "abc" if any(row.key == k for row in rows)
            }
            for each in "abc":
                if each != key and owned.parked_by[each] < before[each]:
                    assert owned.parked_by[each] >= owned.parked_by[key]


def test_the_key_of_a_call_is_whose_share_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MAX_PARKED", 3)
    with running(tmp_path, tenants=True) as service:
        junk, honest = service.client("acme"), service.client("acme")
        assert junk.post("/v1/policies", POLICY).status == 201
        for i in range(4):
            status = junk.post("/v1/policies/p/outcomes", {"task": f"junk {i}", "cost": 0.5}).status
            assert status == (202 if i < 3 else 503)
        assert honest.post("/v1/policies/p/outcomes", {"task": "mine", "cost": 0.5}).status == 202
        metrics = junk.get("/metrics").body
        assert b'deferkit_parked{policy="p"} 3.0' in metrics
        assert b'deferkit_parked_dropped_total{policy="p"} 1.0' in metrics
