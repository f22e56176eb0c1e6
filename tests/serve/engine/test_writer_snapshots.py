"""A snapshot of a large policy is compressed beside the decisions: nobody waits for it."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from deferkit.learn import state
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.policy import SMALL_STATE, Policy, PolicyCopy
from deferkit.serve.domain.policy_learner import with_defaults
from deferkit.serve.domain.spec import FeatureSpec
from deferkit.serve.engine import ownership
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.policy import delete_policy
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from tests.serve.harness.clients import until
from tests.serve.harness.in_process import KEY, SPEC, decide, play

LARGE = msgspec.structs.replace(SPEC, features=150, representation="linear")
SMALL_KEY = (KEY[0], "small")
EVERY = 10
SETTINGS = EngineSettings(snapshot_every=EVERY)
PATIENCE_S = 60


class Compressing:
    """Holds up what compresses a state, until it is let go."""

    def __init__(self) -> None:
        self.states = 0
        self.let_go = threading.Event()

    async def begun(self, states: int) -> None:
        """Wait for the start: a caller has its reply before."""
        await asyncio.to_thread(until, lambda: self.states == states, "a snapshot begins", PATIENCE_S)


@pytest.fixture
def compressing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compressing]:
    gate, pack = Compressing(), state.pack

    def later(*given: Any) -> bytes:
        gate.states += 1
        gate.let_go.wait(PATIENCE_S)
        return pack(*given)

    monkeypatch.setattr(state, "pack", later)
    yield gate
    gate.let_go.set()


async def large(engine: Engine, numbers: range) -> None:
    for number in numbers:
        context = [1.0 + number / 7] * 150
        await asyncio.wait_for(decide(engine, f"t{number}", context=context, force="model"), PATIENCE_S / 4)


async def places(engine: Engine, number: int) -> list[int]:
    """Return where the log has snapshots, when the one that is being made is there."""
    assert engine.ownership._snapshot is not None
    await asyncio.wait_for(engine.ownership._snapshot, PATIENCE_S)
    return sorted(engine.store.snapshot_seqs(number))


def test_nobody_waits_while_the_snapshot_of_a_small_policy_is_compressed(
    database: Database, compressing: Compressing
) -> None:
    async def script(engine: Engine) -> None:
        number = engine.owned[KEY].id
        assert engine.owned[KEY].policy.learner.n_bytes < SMALL_STATE
        for i in range(EVERY + 5):
            await asyncio.wait_for(decide(engine, f"t{i}", force="model"), PATIENCE_S / 4)
        await compressing.begun(1)
        assert engine.store.snapshot_seqs(number) == []
        compressing.let_go.set()
        assert await places(engine, number) == [EVERY + 1]

    play(database, script, settings=SETTINGS)


def test_nobody_waits_while_the_snapshot_of_a_large_policy_is_compressed(
    database: Database, compressing: Compressing
) -> None:
    async def script(engine: Engine) -> None:
        number = engine.owned[KEY].id
        await engine.create(KEY[0], msgspec.structs.replace(SPEC, name="small"))
        assert engine.owned[KEY].policy.learner.n_bytes > SMALL_STATE
        await large(engine, range(EVERY))
        await compressing.begun(1)
        task = Decide(TaskBody(task="t", context=[1.0, 0.5]))
        await asyncio.wait_for(engine.submit(SMALL_KEY, task), PATIENCE_S / 4)
        await large(engine, range(EVERY, 2 * EVERY + 5))  # the policy itself goes on as well
        assert compressing.states == 1  # another one is due, and waits
        assert engine.store.snapshot_seqs(number) == []
        compressing.let_go.set()
        assert await places(engine, number) == [EVERY + 1]
        await large(engine, range(2 * EVERY + 5, 2 * EVERY + 6))
        await compressing.begun(2)
        assert await places(engine, number) == [EVERY + 1, 2 * EVERY + 7]
        assert replay(engine.store, *KEY).faults == []  # which compares each snapshot with its place in the log

    play(database, script, spec=LARGE, settings=SETTINGS)


def test_nobody_but_its_own_callers_waits_while_a_large_policy_is_copied(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go, copy = threading.Event(), threading.Event(), Policy.copy

    def later(policy: Policy) -> PolicyCopy:
        begun.set()
        let_go.wait(PATIENCE_S)
        return copy(policy)

    async def script(engine: Engine) -> None:
        number = engine.owned[KEY].id
        await engine.create(KEY[0], msgspec.structs.replace(SPEC, name="small"))
        await large(engine, range(EVERY))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        own = asyncio.create_task(large(engine, range(EVERY, EVERY + 1)))
        for i in range(20):
            task = Decide(TaskBody(task=f"t{i}", context=[1.0, 0.5]))
            await asyncio.wait_for(engine.submit(SMALL_KEY, task), PATIENCE_S / 4)
        assert not own.done()
        assert engine.owned[KEY].policy.seq == EVERY + 1
        let_go.set()
        await own
        assert await places(engine, number) == [EVERY + 1]
        assert replay(engine.store, *KEY).faults == []

    monkeypatch.setattr(ownership, "COPIED_AT_ONCE", 0)
    monkeypatch.setattr(Policy, "copy", later)
    play(database, script, spec=LARGE, settings=SETTINGS)


def test_a_policy_that_is_deleted_meanwhile_gets_no_snapshot(database: Database, compressing: Compressing) -> None:
    async def script(engine: Engine) -> None:
        number = engine.owned[KEY].id
        await large(engine, range(EVERY))
        await compressing.begun(1)
        await delete_policy(engine, KEY)
        compressing.let_go.set()
        assert await places(engine, number) == []

    play(database, script, spec=LARGE, settings=SETTINGS)


def test_an_engine_that_stops_waits_for_a_snapshot(database: Database, compressing: Compressing) -> None:
    async def script(engine: Engine) -> Engine:
        await large(engine, range(EVERY))
        await compressing.begun(1)
        threading.Timer(0.3, compressing.let_go.set).start()
        return engine

    engine = play(database, script, spec=LARGE, settings=SETTINGS)
    assert engine.ownership._snapshot is not None
    assert engine.ownership._snapshot.done()
    assert compressing.states == 2  # and that of the end


def test_a_copy_of_a_policy_stays_as_it_was() -> None:
    features = FeatureSpec(numbers=["age"], categories={"country": 3})  # with levels that are taken as they come
    spec = msgspec.structs.replace(LARGE, features=features)
    policy = Policy(with_defaults(spec))
    for country in ("de", "fr", "it"):
        before, copied = policy.to_bytes(), policy.copy()
        decision = policy.learner.decide({"age": 1.0, "country": country}, force="human")
        policy.learner.observe(decision.id, {"human": 1.0, "model": 0.0}, cost=0.5)
        policy.tally.outcomes += 1
        assert copied.to_bytes() == before != policy.to_bytes()
