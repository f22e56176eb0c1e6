"""Outcomes, case by case: early, twice, contradicting, unknown, late."""

import asyncio

import msgspec
import pytest

from deferkit.serve.api.reviews import EffortBody
from deferkit.serve.api.tasks import CorrectionBody, OutcomeBody
from deferkit.serve.domain.accounts import Account
from deferkit.serve.engine.commands import outcome
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
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
    records,
    replayed,
)

M = 1_000_000


def test_an_outcome_before_its_decision_is_parked_and_applied_once(database: Database) -> None:
    async def before(engine: Engine) -> None:
        reply = await engine.submit(KEY, Observe(OutcomeBody(task="a", rewards={"human": 1.0})))
        assert reply.status == 202
        assert msgspec.json.decode(reply.body)["parked"] is True
        await observe(engine, "a", cost=0.4)  # in parts
        await observe(engine, "a", rewards={"human": 1.0}, cost=0.4)  # again
        assert (await problem_of(observe(engine, "a", rewards={"human": 0.5}))).status == 409
        assert (await problem_of(observe(engine, "a", cost=0.5))).status == 409
        assert engine.owned[KEY].parked == 1
        assert records(engine) == 1

    async def after(engine: Engine) -> None:
        assert engine.owned[KEY].parked == 1
        await decide(engine, "a")
        assert account(engine) == Account(10 * M, 0, 400_000, 0)
        assert engine.owned[KEY].parked == 0
        assert (await observe(engine, "a", rewards={"human": 1.0}, cost=0.4))["changed"] is False
        assert (await claim(engine)) is None  # nobody is asked what is known
        assert account(engine).posted == 400_000
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, before)
    play(database, after, spec=None)


def test_what_is_parked_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MAX_PARKED", 2)

    async def script(engine: Engine) -> None:
        await observe(engine, "a", cost=0.4)
        await observe(engine, "b", cost=0.4)
        full = await problem_of(observe(engine, "c", cost=0.4))
        assert (full.status, full.retry_after) == (503, 60)
        await observe(engine, "b", rewards={"model": 1.0})  # more of one that has its place
        await decide(engine, "a")
        await observe(engine, "c", cost=0.4)
        assert (await problem_of(observe(engine, "d", park=False))).status == 404
        wrong = await problem_of(observe(engine, "d", rewards={"nobody": 1.0}))
        assert wrong.status == 422

    play(database, script)


def test_what_waits_too_long_makes_room(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MAX_PARKED", 3)

    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        for task in ("misspelt", "mistaken"):
            await observe(engine, task, cost=0.4)
        clock.advance(86_400)
        await engine.maintenance.drop_old_parked()
        assert engine.owned[KEY].parked == 2
        await observe(engine, "new", cost=0.4)
        assert (await problem_of(observe(engine, "newer", cost=0.4))).status == 503
        await engine.maintenance.drop_old_parked()
        assert engine.owned[KEY].parked == 3  # none is older than a day
        clock.advance(0.000_001)
        await engine.maintenance.drop_old_parked()
        assert (engine.owned[KEY].parked, engine.owned[KEY].dropped_parked) == (1, 2)
        await observe(engine, "newer", cost=0.4)
        for task in ("misspelt", "new"):
            await decide(engine, task)
        assert account(engine) == Account(10 * M, 1 * M, 400_000, 0)
        assert engine.owned[KEY].parked == 1

    play(database, script)


def test_what_waits_already_is_the_same_however_it_is_said(database: Database) -> None:
    async def script(engine: Engine) -> None:
        assert (await observe(engine, "a", cost=0.5))["changed"] is True
        for cost in (0.5, {"cost": 0.5}):
            reply = await observe(engine, "a", cost=cost)
            assert (reply["changed"], reply["parked"]) == (False, True)
        assert (await observe(engine, "a", rewards={"model": 1.0}))["changed"] is True
        assert (await observe(engine, "a", rewards={"model": 1.0}, cost=0.5))["changed"] is False
        await decide(engine, "b")
        for task in "ab":
            assert (await problem_of(observe(engine, task))).status == 422  # there is nothing in it
        await decide(engine, "a")
        assert account(engine) == Account(10 * M, 1 * M, 500_000, 0)

    play(database, script)


def test_the_first_to_be_parked_does_not_disturb_who_is_decided_beside_it(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await asyncio.gather(observe(engine, "a", cost=0.4), decide(engine, "b"), decide(engine, "a"))
        assert engine.groups == 1
        assert engine.owned[KEY].parked == 0
        assert account(engine) == Account(10 * M, 1 * M, 400_000, 0)

    play(database, script)


def test_an_outcome_twice_is_one_and_another_value_is_a_conflict(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await observe(engine, "a", rewards={"human": 0.75}, cost=0.4)
        n, learned = records(engine), engine.owned[KEY].policy.learner.to_bytes()
        for given in ({"rewards": {"human": 0.75}, "cost": 0.4}, {"rewards": {"human": 0.75}}, {"cost": 0.4}):
            reply = await observe(engine, "a", **given)
            assert (reply["changed"], reply["booked"]) == (False, None)
        for given in ({"rewards": {"human": 0.5}}, {"cost": 0.5}, {"rewards": {"model": 1.0}, "cost": 0.5}):
            assert (await problem_of(observe(engine, "a", **given))).status == 409
        assert (records(engine), engine.owned[KEY].policy.learner.to_bytes()) == (n, learned)
        assert account(engine).posted == 400_000

    play(database, script)


def test_a_correction_is_an_entry_of_its_own_and_happens_once(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await observe(engine, "a", rewards={"human": 0.75}, cost=0.4)
        right = CorrectionBody(id="1", task="a", rewards={"human": 0.5}, cost=1.5)
        for _ in range(2):
            assert (await call(engine, Correct(right)))["learned"] is True
        assert account(engine).posted == 1_500_000
        other = msgspec.structs.replace(right, cost=0.1)
        assert (await problem_of(call(engine, Correct(other)))).status == 409
        await call(engine, Correct(msgspec.structs.replace(other, id="2")))
        assert account(engine) == Account(10 * M, 0, 100_000, 0)
        row = engine.store.decision(engine.owned[KEY].id, "a")
        assert row is not None
        assert (row.cost, row.rewards) == ({"cost": 100_000}, {"human": 0.5})
        kinds = [line.kind for line in engine.store.log(engine.owned[KEY].id)]
        assert kinds == ["created", "decided", "observed", "corrected", "corrected"]
        for wrong in ({"rewards": {"model": 1.0}}, {"rewards": {"nobody": 1.0}}, {}):
            problem = await problem_of(call(engine, Correct(CorrectionBody(id="3", task="a", **wrong))))
            assert problem.status == (409 if "model" in wrong.get("rewards", {}) else 422)
        await decide(engine, "b")
        assert (await problem_of(call(engine, Correct(CorrectionBody(id="4", task="b", cost=1.0))))).status == 409

    play(database, script)


def test_unknown_ids_and_deciders(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        unknown = [
            observe(engine, "x", cost=0.4, park=False),
            call(engine, Expire("x")),
            call(engine, Correct(CorrectionBody(id="1", task="x", cost=1.0))),
            complete(engine, {"task": "x", "seat": 0, "epoch": 1}),
            complete(engine, {"task": "a", "seat": 1, "epoch": 1}),
            call(engine, Effort(EffortBody(task="x", epoch=1, cost=0.1))),
            call(engine, Effort(EffortBody(task="a", epoch=1, cost=0.1))),
            engine.submit(("default", "q"), Expire("a")),
            engine.submit(("other", "p"), Expire("a")),
        ]
        assert [(await problem_of(each)).status for each in unknown] == [404] * len(unknown)
        assert (await problem_of(observe(engine, "a", rewards={"bo": 1.0}))).status == 422
        assert (await problem_of(decide(engine, "b", force="bo"))).status == 422
        assert records(engine) == 2

    play(database, script)


def test_after_the_learning_window_a_cost_is_booked_and_not_learned(database: Database) -> None:
    spec = msgspec.structs.replace(SPEC, learning_window_s=60.0)

    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        await decide(engine, "b")
        clock.advance(60)
        assert (await observe(engine, "a", rewards={"human": 1.0}, cost=0.25))["learned"] is True
        clock.advance(0.000_001)
        reply = await observe(engine, "b", rewards={"human": 1.0}, cost=0.5)
        assert (reply["learned"], reply["late"], reply["booked"]) == (False, "the learning window is over", 0.5)
        policy = engine.owned[KEY].policy
        assert policy.tally.late == 1
        assert policy.learner.summary().spent == 0.25
        assert account(engine) == Account(10 * M, 0, 750_000, 0)
        assert replayed(engine.store) == policy

    play(database, script, spec=spec)
