"""Repeated requests, failed commits and restarts, case by case: what was acknowledged stands, the rest never was."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from deferkit.serve.api.tasks import BatchBody, TaskBody
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import learner_of, with_defaults
from deferkit.serve.domain.problems import Problem, StoreFailed
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.engine import ownership
from deferkit.serve.engine.commands.decide import Decide, DecideMany
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Database
from tests.serve.harness.fault_injection import failing_connection
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    abandon,
    call,
    check_booked,
    check_in_step,
    claim,
    complete,
    decide,
    observe,
    play,
    problem_of,
    replayed,
    started,
)

AMPLE = BudgetSpec(total=1000, horizon=1000, max_cost=1)
RANDOM = msgspec.structs.replace(SPEC, budget={"cost": AMPLE}, warm_up=10, explore_floor=0.5, seed=4)


def state(engine: Engine, key: tuple[str, str] = KEY) -> bytes:
    return engine.owned[key].policy.to_bytes()


def test_a_repeated_request_gets_the_first_reply_byte_for_byte(database: Database) -> None:
    tasks = [TaskBody(task=f"t{i}", context=[0.1 * i, 1.0], payload={"z": 1, "a": [i]}) for i in range(12)]

    async def first(engine: Engine) -> list[bytes]:
        replies = [await engine.submit(KEY, Decide(task)) for task in tasks]
        assert {reply.status for reply in replies} == {201}
        await observe(engine, "t3", rewards={"model": 0.5})  # what is learned since changes no reply
        before = state(engine)
        assert [await engine.submit(KEY, Decide(task)) for task in tasks] == replies
        assert state(engine) == before
        return [reply.body for reply in replies]

    async def second(engine: Engine) -> None:
        assert [(await engine.submit(KEY, Decide(task))).body for task in tasks] == bodies
        turned = msgspec.structs.replace(tasks[5], payload={"a": [5], "z": 1})  # the same, in another order
        assert (await engine.submit(KEY, Decide(turned))).body == bodies[5]
        batch = await call(engine, DecideMany(BatchBody(tasks=tasks)))
        assert [each["decision"] for each in batch["results"]] == [msgspec.json.decode(body) for body in bodies]

    bodies = play(database, first, spec=RANDOM)
    assert len({msgspec.json.decode(body)["propensity"] for body in bodies}) > 1
    play(database, second, spec=None)


@pytest.mark.parametrize(
    "other", [{"context": [1.0, 0.4]}, {"force": None}, {"payload": 1}, {"cost": 0.5}, {"available": ["human"]}]
)
def test_the_same_task_with_another_body_is_a_conflict(other: dict[str, Any], database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        before = state(engine)
        assert (await problem_of(decide(engine, "a", **other))).status == 409
        task = {"context": [1.0, 0.5], "force": "human"} | other
        batch = DecideMany(BatchBody(tasks=[TaskBody(task="a", **task), TaskBody(task="b", context=[0.0, 0.0])]))
        assert [each["status"] for each in (await call(engine, batch))["results"]] == [409, 201]
        row = engine.store.policy(*KEY)
        assert row is not None
        assert row.seq == 3
        assert before != state(engine)

    play(database, script)


def test_fifty_identical_requests_at_once_are_one(database: Database) -> None:
    async def script(engine: Engine) -> None:
        body = TaskBody(task="a", context=[1.0, 0.5], force="human")
        replies = await asyncio.gather(*(engine.submit(KEY, Decide(body)) for _ in range(50)))
        assert len(set(replies)) == 1
        assert engine.owned[KEY].policy.seq == 2
        assert engine.owned[KEY].policy.accounts["cost"].reserved == 1_000_000
        seats = engine.store.seats(engine.owned[KEY].id, "a")
        assert len(seats) == 1

    play(database, script)


@pytest.mark.parametrize("done", [False, True], ids=["nothing is done", "it is done and nobody told"])
def test_wherever_a_commit_fails_memory_is_as_it_was_and_everyone_is_told(done: bool, database: Database) -> None:
    other = ("other", "p")

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        for i in range(3):
            await decide(engine, f"t{i}")
        lease = await claim(engine)
        free = next(f"t{i}" for i in range(3) if lease["task"] != f"t{i}")
        await observe(engine, "early", cost=0.5)
        owned = engine.owned[KEY]
        group: list[Callable[[], Any]] = [
            lambda: decide(engine, "new"),
            lambda: decide(engine, "early"),
            lambda: observe(engine, free, rewards={"human": 1.0}, cost=2.0),
            lambda: complete(engine, lease, rewards={"human": 0.5}, cost=0.25),
            lambda: engine.submit(other, Decide(TaskBody(task="t", context=[1.0, 1.0], force="human"))),
        ]
        failures = 0
        while True:
            before = (state(engine), state(engine, other), owned.parked)
            with failing_connection(engine, failures + 1, done=done):
                replies = await asyncio.gather(*(each() for each in group), return_exceptions=True)
            if not all(isinstance(reply, Problem) for reply in replies):
                break
            failures += 1
            assert engine.failing is not None
            for problem in replies:
                assert isinstance(problem, Problem)
                assert (problem.status, problem.retry_after) == (503, 1.0)
            if owned.policy.seq == Policy.from_bytes(before[0]).seq:
                assert (state(engine), state(engine, other), owned.parked) == before
            assert owned.policy == replayed(engine.store)
        assert failures > 3
        assert engine.failing is None
        assert not [reply for reply in replies if isinstance(reply, BaseException)]
        assert [await each() for each in group][:2] == replies[:2]
        assert engine.owned[other].policy == replayed(engine.store, other)
        assert owned.policy == replayed(engine.store)
        assert (owned.parked, owned.policy.accounts["cost"].posted) == (0, 2_750_000)
        check_in_step(owned.policy)
        check_booked(engine)

    play(database, script, settings=EngineSettings(tick_s=3600))


def test_what_cannot_be_written_fails_alone(database: Database) -> None:
    """One of a group is more than the database can take: nobody thought of that."""

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        commit = engine.store.commit

        def picky(work: UnitOfWork, *given: Any) -> None:
            if any(task == "huge" for _, task in work.changed_decisions):
                raise OverflowError("s3cret")
            commit(work, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.store, "commit", picky)
            body = TaskBody(task="t", context=[1.0, 1.0], force="human")
            calls = [decide(engine, "huge"), decide(engine, "a"), engine.submit(("other", "p"), Decide(body))]
            huge, mine, others = cast("list[Any]", await asyncio.gather(*calls, return_exceptions=True))
        assert (huge.status, str(huge)) == (500, "The call failed: OverflowError.")
        assert (mine["id"], others.status) == (0, 201)
        assert engine.owned[KEY].policy == replayed(engine.store)

    play(database, script)


def test_a_policy_that_cannot_be_rebuilt_yet_stops_no_other(database: Database) -> None:
    other = ("other", "p")
    task = TaskBody(task="t", context=[1.0, 1.0], force="human")

    def no_room(*_: Any) -> None:
        raise StoreFailed("There is no room.")

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        log = engine.store.log

        def unreadable(policy: int, seq: int = 0) -> Any:
            if policy == engine.owned[KEY].id:
                raise StoreFailed("not now.")
            return log(policy, seq)

        with pytest.MonkeyPatch.context() as reading:
            reading.setattr(engine.store, "log", unreadable)
            with pytest.MonkeyPatch.context() as writing:
                writing.setattr(engine.store, "commit", no_room)
                assert (await problem_of(decide(engine, "a"))).status == 503
            assert (await engine.submit(other, Decide(task))).status == 201
            assert (await problem_of(decide(engine, "a"))).status == 503
        assert (await decide(engine, "a"))["id"] == 0

    play(database, script)


def test_after_a_restart_the_random_stream_goes_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [TaskBody(task=f"t{i}", context=[0.3, 0.1 * (i % 7)]) for i in range(40)]
    monkeypatch.setattr(ownership, "is_dead", lambda *_, **__: True)

    async def lives(first: int, *, dies: bool) -> list[Any]:
        engine = await started(database, spec=RANDOM if first == 0 else None)
        replies = await asyncio.gather(*(engine.submit(KEY, Decide(body)) for body in bodies[first : first + 8]))
        await (abandon(engine) if dies else engine.stop())
        return [msgspec.json.decode(reply.body) for reply in replies]

    restarted = [reply for i in range(5) for reply in asyncio.run(lives(8 * i, dies=i % 2 == 0))]
    whole = learner_of(with_defaults(RANDOM))
    for body, reply in zip(bodies, restarted, strict=True):
        decision = whole.decide(body.context)
        assert (reply["route"], reply["reason"], reply["propensity"]) == (
            decision.route,
            decision.reason,
            decision.propensity,
        )
    assert {"warm-up", "explored"} <= {reply["reason"] for reply in restarted}


def test_who_hangs_up_has_decided_all_the_same(database: Database) -> None:
    async def script(engine: Engine) -> None:
        body = TaskBody(task="a", context=[1.0, 0.5], force="human")
        async with engine.ownership.busy:
            waiting = asyncio.create_task(engine.submit(KEY, Decide(body)))
            while not engine._at_work:
                await asyncio.sleep(0)
            waiting.cancel()
        reply = await engine.submit(KEY, Decide(body))
        assert msgspec.json.decode(reply.body)["id"] == 0
        assert waiting.cancelled()
        assert engine.owned[KEY].policy.accounts["cost"].reserved == 1_000_000
        assert engine.owned[KEY].policy.seq == 2

    play(database, script)
