"""Outcomes that wait for their decisions: each API key has its share of the room."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.request_bodies import OutcomeBody
from deferkit.serve.engine.commands import outcome
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import KEY, POLICY, SPEC, decide, play, problem_of, running


async def park(engine: Engine, key: str, task: str) -> Any:
    """Park an outcome with an API key."""
    reply = await engine.submit(KEY, Observe(OutcomeBody(task=task, rewards={"human": 1.0}), key))
    return msgspec.json.decode(reply.body)


def parked(engine: Engine) -> dict[str, str]:
    """Return the tasks of all parked outcomes, and the key of each."""
    rows = engine.store.database.reader().run("oldest_parked", policy=engine.owned[KEY].id, keys=["junk", "ann", "bob"])
    return {row[2]: row[1] for row in rows}


def test_10000_junk_parked_outcomes_leave_room_for_other_keys(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "MOST_PARKED", 6)

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


def test_what_another_key_adds_to_a_parked_outcome_does_not_move_it(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await park(engine, "ann", "a")
        more = Observe(OutcomeBody(task="a", rewards={"model": 0.0}), "bob")
        await engine.submit(KEY, more)
        assert parked(engine) == {"a": "ann"}
        assert +engine.owned[KEY].parked_by == {"ann": 1}

    play(database, script)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=60))
def test_nobody_loses_room_to_a_key_that_has_as_much(calls: list[tuple[str, int]]) -> None:
    """Whatever is parked by whom, in one group: the counts are those of the rows, and only the greediest loses."""
    owned, most = OwnedPolicy(1, "default", Policy(SPEC), 1, 0), 5
    work = UnitOfWork()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outcome, "MOST_PARKED", most)
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
    monkeypatch.setattr(outcome, "MOST_PARKED", 3)
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
