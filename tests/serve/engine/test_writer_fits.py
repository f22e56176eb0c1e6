"""Trees are fitted beside the decisions: only outcomes wait for them, and a log gives the same policy again."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from deferkit.learn.embed.tree_columns import TreeFit
from deferkit.serve.api.tasks import OutcomeBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicySpec
from deferkit.serve.engine import ownership
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.recovery import load_snapshot, roll_forward
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    abandon,
    check_booked,
    check_in_step,
    decide,
    observe,
    play,
    replayed,
    snapshot_written,
    started,
)
from tests.serve.harness.policy_histories import RandomHistory

TREES = msgspec.structs.replace(
    SPEC, budget={"cost": BudgetSpec(total=100, horizon=1000, max_cost=1)}, forget="auto", representation="auto"
)
OTHER = ("default", "other")
FIRST, EFFECT = 16, 24  # observations at which trees are fitted first, and at which they take effect
PATIENCE_S = 60
FITTED = {
    "trees": {"features": 2},
    "trees, logistic": {"features": 3, "link": "logistic", "experts": ["ann", "bo"], "explore_floor": 0.2},
    "trees, named": {"features": FeatureSpec(numbers=["a"], categories={"c": 3}), "forget": "never"},
    "linear that forgets": {"features": 2, "representation": "linear"},
}


class Gate:
    """Fits that begin, and go on when they are let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self._open = threading.Event()
        fit = TreeFit._fit

        def held_up(made: TreeFit, *given: Any) -> None:
            self.begun += 1
            assert self._open.wait(PATIENCE_S)
            fit(made, *given)

        monkeypatch.setattr(TreeFit, "_fit", held_up)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open()  # whatever a test came to: no thread is left behind


async def work(engine: Engine, tasks: range) -> None:
    """Decide tasks and report what came of them."""
    rng = np.random.default_rng([7, tasks.start])
    for number in tasks:
        x = rng.random(2).round(3).tolist()
        await decide(engine, f"t{number}", context=x, force="human" if number % 3 else "model")
        rewards = {"model": float(x[0] < 0.5), "human": float(rng.random() < 0.9)}
        await observe(engine, f"t{number}", rewards=rewards, cost=None if number % 3 == 0 else 0.25)


def waits(task: "asyncio.Task[Any]") -> bool:
    return not task.done()


def test_an_outcome_that_needs_a_fit_waits_for_it_and_nothing_else_does(sqlite: Sqlite, gate: Gate) -> None:
    async def script(engine: Engine) -> None:
        await engine.create("default", msgspec.structs.replace(TREES, name="other"))
        await work(engine, range(EFFECT - 1))
        owned = engine.owned[KEY]
        assert gate.begun == 1
        assert owned.policy.learner.awaits_fit
        await decide(engine, "last", context=[0.1, 0.2])
        outcome = asyncio.create_task(observe(engine, "last", rewards={"human": 1.0}, cost=0.5))
        later = asyncio.create_task(observe(engine, "t0", cost=None, rewards={"model": 9.0}))  # refused, in its turn
        for number in range(20):
            await asyncio.wait_for(decide(engine, f"d{number}", context=[0.3, 0.4], force="model"), PATIENCE_S)
        body = OutcomeBody(task="nothing", rewards={"model": 0.5}, park=True)
        await asyncio.wait_for(engine.submit(OTHER, Observe(body)), PATIENCE_S)
        assert waits(outcome)
        assert waits(later)
        assert engine.queue.length == 2
        assert owned.policy.accounts["cost"].reserved == 1_000_000  # not booked yet
        gate.open()
        assert (await asyncio.wait_for(outcome, PATIENCE_S))["learned"]
        with pytest.raises(Exception, match="from 0 to 1"):
            await later
        assert engine.queue.length == 0
        assert gate.begun == 2  # the next one
        check_in_step(owned.policy)
        check_booked(engine)
        assert replayed(engine.store) == owned.policy

    play(sqlite, script, spec=TREES)


def test_a_decision_whose_outcome_came_first_waits_with_it(sqlite: Sqlite, gate: Gate) -> None:
    async def script(engine: Engine) -> None:
        await observe(engine, "early", rewards={"model": 0.5}, park=True)
        await work(engine, range(EFFECT - 1))
        early = asyncio.create_task(decide(engine, "early", force="model"))
        await decide(engine, "other", force="model")
        assert waits(early)
        gate.open()
        assert (await asyncio.wait_for(early, PATIENCE_S))["route"] == "model"
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(sqlite, script, spec=TREES)


def test_what_waits_for_a_fit_counts_as_waiting(sqlite: Sqlite, gate: Gate) -> None:
    async def script(engine: Engine) -> None:
        await work(engine, range(EFFECT - 1))
        for number in range(5):
            await decide(engine, f"d{number}", force="model")
        calls = [asyncio.create_task(observe(engine, f"d{n}", rewards={"model": 0.5})) for n in range(4)]
        while len(engine.queue.blocked.get(KEY, ())) < 4:
            await asyncio.sleep(0.001)
        with pytest.raises(Exception, match="Too many calls wait, 4 of them yours"):
            await observe(engine, "d4", rewards={"model": 0.5})
        gate.open()
        assert all(each["learned"] for each in await asyncio.gather(*calls))
        kept = [row.task for row in engine.store.log(engine.owned[KEY].id)][-4:]
        assert kept == ["d0", "d1", "d2", "d3"]  # in the order that they came in

    play(sqlite, script, spec=TREES, settings=EngineSettings(queue_limit=8, tenant_share=0.5))


def test_no_snapshot_is_taken_during_a_fit(sqlite: Sqlite, gate: Gate) -> None:
    async def script(engine: Engine) -> None:
        async def last() -> int:
            await snapshot_written(engine)
            return max(engine.store.snapshot_seqs(engine.owned[KEY].id), default=0)

        await work(engine, range(FIRST - 1))
        before = await last()
        assert before > 0
        await work(engine, range(FIRST - 1, EFFECT - 2))
        assert gate.begun == 1
        fitted_from = 1 + 2 * FIRST
        assert await last() <= fitted_from
        gate.open()
        while engine.owned[KEY].policy.learner.fitting:
            await asyncio.sleep(0.001)
        await work(engine, range(EFFECT - 2, EFFECT - 1))  # the fit is done, and in the snapshot
        assert await last() > fitted_from

    play(sqlite, script, spec=TREES, settings=EngineSettings(snapshot_every=8))
    assert replay(Store(sqlite), *KEY).faults == []


def test_a_process_that_dies_during_a_fit_loses_nothing(
    database: Database, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "is_dead", lambda *_, **__: True)

    async def dies() -> None:
        engine = await started(database, spec=TREES, settings=EngineSettings(snapshot_every=30))
        await work(engine, range(EFFECT - 1))
        await decide(engine, "last", context=[0.1, 0.2])
        lost = asyncio.create_task(observe(engine, "last", rewards={"human": 1.0}, cost=0.5))
        while engine.queue.length == 0:
            await asyncio.sleep(0.001)
        await abandon(engine)
        assert waits(lost)
        lost.cancel()

    async def goes_on(engine: Engine) -> None:
        assert (await observe(engine, "last", rewards={"human": 1.0}, cost=0.5))["changed"]  # it was never answered
        await work(engine, range(EFFECT, 2 * EFFECT))
        check_booked(engine)
        assert replayed(engine.store) == engine.owned[KEY].policy

    asyncio.run(dies())
    gate.open()
    play(database, goes_on, spec=None)
    assert replay(Store(database), *KEY).faults == []


@pytest.mark.parametrize("given", FITTED.values(), ids=FITTED)
def test_snapshots_and_replays_agree_before_during_and_after_fits(sqlite: Sqlite, given: dict[str, Any]) -> None:
    spec = PolicySpec(
        name="p", budget={"cost": BudgetSpec(total=60, horizon=400, max_cost=1)}, lease_s=1e6, seed=3, **given
    )
    kept: list[tuple[int, bytes]] = []

    async def script(engine: Engine) -> None:
        await engine.create(KEY[0], spec)
        life, owned = RandomHistory(1, spec), engine.owned[KEY]
        while owned.policy.tally.outcomes < 150:
            before = owned.policy.tally.outcomes
            await life.step(engine)
            if owned.policy.tally.outcomes > before and before in (20, 63, 64, 70, 95, 96, 110):
                kept.append((owned.policy.seq, owned.policy.to_bytes()))
        check_booked(engine)
        assert replayed(engine.store) == owned.policy

    sqlite.synchronous = "OFF"
    play(sqlite, script, spec=None, settings=EngineSettings(snapshot_every=50))
    report, store = replay(Store(sqlite), *KEY), Store(sqlite)
    assert report.faults == []
    assert report.snapshots > 2
    row = store.policy(*KEY)
    assert row is not None
    for seq, data in kept:
        policy = load_snapshot(store, row, seq, data)
        assert policy is not None
        assert policy.to_bytes() == data
        assert roll_forward(store, row, policy) == report.policy


def test_a_fit_that_fails_fails_the_outcome_that_needs_it_until_a_fit_succeeds(
    sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, left = TreeFit._fit, 1

    def fails_once(made: TreeFit, *given: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise MemoryError
        fit(made, *given)

    monkeypatch.setattr(TreeFit, "_fit", fails_once)

    async def script(engine: Engine) -> None:
        await work(engine, range(EFFECT - 1))
        await decide(engine, "last", force="model")
        with pytest.raises(Exception, match="MemoryError"):
            await observe(engine, "last", rewards={"model": 0.5})
        assert (await observe(engine, "last", rewards={"model": 0.5}))["changed"]  # rebuilt from its log, and fitted
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(sqlite, script, spec=TREES)
