"""A step of a large learner takes seconds: it runs in another thread, and nobody but its own policy waits for it."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pytest

from deferkit.errors import DeferkitError
from deferkit.serve.api.policies import ResetBody
from deferkit.serve.api.tasks import BatchBody, CorrectionBody, OutcomeBody, TaskBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain import policy as policy_module
from deferkit.serve.domain import records
from deferkit.serve.domain.policy import LONG_STEP, Policy
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.decide import Decide, DecideMany
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.relearn import ResetLearner, forget_task
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.clients import Client, latencies
from tests.serve.harness.in_process import KEY, POLICY, SPEC, account, call, claim, complete, decide, observe, play
from tests.serve.harness.service_process import ServiceProcess, keys_for

FEATURES = 700  # seconds for the step below; with 2,000 it is half a minute
LARGE: dict[str, Any] = {
    "name": "large",
    "features": FEATURES,
    "budget": {"cost": {"total": 100, "horizon": 1000, "max_cost": 1}},
    "representation": "linear",
    "forget": "never",
}
EMBEDDINGS: tuple[dict[str, Any], ...] = (
    {"kind": "neural", "hidden": 4, "every": 2, "memory": 5},
    {"kind": "trees", "folds": 2, "trees": 2, "least_in_leaf": 1, "first": 2, "memory": 5},
    {"kind": "gradient", "hidden": 4, "every": 2, "memory": 5},
)
SMALL_KEY = (KEY[0], "small")
PATIENCE_S = 60


def test_one_observation_on_a_large_policy_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A first context of 1e6 leaves rank-one updates no digits: every inverse is recomputed, in O(features³)."""
    keys = keys_for(tmp_path, "big", "small")
    with ServiceProcess(tmp_path) as served, ExitStack() as stack:
        big, small, probe = (Client(served.url, key) for key in (keys[0], keys[1], None))
        for client in (big, small, probe):
            stack.callback(client.connection.close)
        assert small.post("/v1/policies", POLICY).status == 201
        going_on = threading.Event()
        going_on.set()
        with ThreadPoolExecutor(2) as threads:
            waits = {
                "decide": threads.submit(latencies, lambda i: small.decide(f"t{i}", force=None), going_on),
                "healthz": threads.submit(latencies, lambda _: probe.get("/healthz"), going_on),
            }
            began = time.perf_counter()
            assert big.post("/v1/policies", LARGE).status == 201
            context = [1e6] * FEATURES
            assert big.decide("t", policy="large", context=context, force="human").status == 201
            outcome = {"task": "t", "rewards": {"human": 1, "model": 0}, "cost": 0.5}
            assert big.post("/v1/policies/large/outcomes", outcome).status == 200
            replied = time.perf_counter() - began
            assert big.decide("u", policy="large", context=context).status == 201  # waits until that is learned
            assert big.post("/v1/policies/large/reset", {"id": "r"}).status == 200
            took = time.perf_counter() - began
            going_on.clear()
    assert replied < took / 2
    for name, future in waits.items():
        found = future.result()
        print(f"{name}: {len(found)} calls, median {median(found):.4f} s, worst {max(found):.4f} s of {took:.2f} s")
        assert median(found) < 0.25
        assert max(found) < max(0.5, took / 4)  # the machine may be busy with other things


def test_a_switch_of_the_link_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Rewards are 0 or 1 for long, then one is 0.5: all outcomes are learned again, with the identity link."""
    keys, tasks = keys_for(tmp_path, "big", "small"), 150
    with ServiceProcess(tmp_path) as served, ExitStack() as stack:
        big, small = (Client(served.url, key) for key in keys)
        for client in (big, small):
            stack.callback(client.connection.close)
        assert small.post("/v1/policies", POLICY).status == 201
        assert big.post("/v1/policies", LARGE | {"features": 400, "forget": "auto"}).json["link"] == "auto"
        rng = np.random.default_rng(0)
        going_on = threading.Event()
        going_on.set()
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(latencies, lambda i: small.decide(f"t{i}", force=None), going_on)
            for i in range(tasks):  # the hundredth decision completes the rank tables: all is learned again
                context = rng.normal(size=400).round(3).tolist()
                assert big.decide(f"t{i}", policy="large", context=context, force="human").status == 201
                outcome = {"task": f"t{i}", "rewards": {"human": i % 2, "model": int(i % 3 > 0)}, "cost": 0.5}
                if i < tasks - 1:
                    assert big.post("/v1/policies/large/outcomes", outcome).status == 200
            began = time.perf_counter()
            assert big.post("/v1/policies/large/outcomes", outcome | {"rewards": {"human": 0.5}}).status == 200
            replied = time.perf_counter() - began
            assert big.decide("u", policy="large", context=context).status == 201  # waits until that is learned
            took = time.perf_counter() - began
            going_on.clear()
    found = waits.result()
    print(f"{len(found)} calls, median {median(found):.4f} s, worst {max(found):.4f} s of {took:.2f} s")
    assert took > 0.5  # else there was nothing to wait for
    assert replied < took / 2
    assert median(found) < 0.25
    assert max(found) < max(0.5, took / 4)


def test_a_retraining_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Networks are retrained with the sixtieth outcome: seconds for the large systems on top of them."""
    keys, tasks, features = keys_for(tmp_path, "big", "small"), 60, 100
    deep = {"kind": "neural", "hidden": 1400, "every": tasks}
    with ServiceProcess(tmp_path) as served, ExitStack() as stack:
        big, small = (Client(served.url, key) for key in keys)
        for client in (big, small):
            stack.callback(client.connection.close)
        assert small.post("/v1/policies", POLICY).status == 201
        policy = {name: value for name, value in LARGE.items() if name not in ("representation", "forget")}
        assert (
            big.post("/v1/policies", policy | {"features": features, "memory": 1000, "embedding": deep}).status == 201
        )
        rng = np.random.default_rng(0)
        going_on = threading.Event()
        going_on.set()
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(latencies, lambda i: small.decide(f"t{i}", force=None), going_on)
            for i in range(tasks):
                context = rng.normal(size=features).round(3).tolist()
                assert big.decide(f"t{i}", policy="large", context=context, force="human").status == 201
                outcome = {"task": f"t{i}", "rewards": {"human": i % 2, "model": int(i % 3 > 0)}, "cost": 0.5}
                if i < tasks - 1:
                    assert big.post("/v1/policies/large/outcomes", outcome).status == 200
            began = time.perf_counter()
            assert big.post("/v1/policies/large/outcomes", outcome).status == 200
            replied = time.perf_counter() - began
            assert big.decide("u", policy="large", context=context).status == 201  # waits for the retraining
            took = time.perf_counter() - began
            going_on.clear()
    found = waits.result()
    print(f"{len(found)} calls, median {median(found):.4f} s, worst {max(found):.4f} s of {took:.2f} s")
    assert took > 0.5  # else there was nothing to wait for
    assert replied < took / 2
    assert median(found) < 0.25
    assert max(found) < max(0.5, took / 4)


async def lives_long(engine: Engine) -> bytes:
    """Decide until the rank tables are complete, with an outcome that was parked for that task, and switch the link."""
    for i in range(110):
        outcome: dict[str, Any] = {"rewards": {"human": float(i % 2), "model": float(i % 3 > 0)}, "cost": 0.25}
        if i == 99:
            await observe(engine, f"t{i}", **outcome, park=True)
        await decide(engine, f"t{i}", context=[1.0, float(i == 40) * 1e4 + i / 7], force="human")
        if i != 99:
            await observe(engine, f"t{i}", **outcome)
    await call(engine, Correct(CorrectionBody(id="a", task="t3", rewards={"human": 0.25})))
    await decide(engine, "last", force="model")
    policy = engine.owned[KEY].policy
    assert policy.learner.link == "identity"
    assert policy.learner.summary().samples["human"] == 110
    assert replay(engine.store, *KEY).faults == []
    return msgspec.msgpack.encode([policy.learner.to_bytes(), policy.accounts, policy.tally])


def test_relearning_in_another_thread_gives_the_same_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = {"cost": msgspec.structs.replace(SPEC.budget["cost"], total=1000, horizon=1000)}
    spec = msgspec.structs.replace(SPEC, budget=budget, representation="linear", outliers="keep")
    steps: list[int] = []
    learn = Policy.learn_deferred

    def count(policy: Policy) -> None:
        steps.append(policy.seq)
        learn(policy)

    monkeypatch.setattr(Policy, "learn_deferred", count)
    at_once = play(Sqlite(str(tmp_path / "a.db")), lives_long, spec=spec)
    assert steps == []
    monkeypatch.setattr(policy_module, "LONG_STEP", 5_000)
    later = play(Sqlite(str(tmp_path / "b.db")), lives_long, spec=spec)
    assert len(steps) == 2  # the hundredth decision with its outcome, and the correction
    assert later == at_once


class Learning:
    """Holds up learners in other threads, until they are let go."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.steps = threading.Event(), threading.Event(), 0

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, PATIENCE_S)


@pytest.fixture
def every_step_is_long(monkeypatch: pytest.MonkeyPatch) -> Learning:
    gate, learn = Learning(), Policy.learn_deferred
    gate.let_go.set()

    def later(policy: Policy) -> None:
        gate.steps += len(policy.deferred)
        gate.begun.set()
        assert gate.let_go.wait(PATIENCE_S)
        learn(policy)

    monkeypatch.setattr(Policy, "learn_deferred", later)
    monkeypatch.setattr(policy_module, "LONG_STEP", -1)
    monkeypatch.setattr(policy_module, "SMALL_STATE", -1)
    return gate


def test_only_its_own_policy_waits_for_a_step(database: Database, every_step_is_long: Learning) -> None:
    gate = every_step_is_long

    async def script(engine: Engine) -> None:
        await engine.create(KEY[0], msgspec.structs.replace(SPEC, name="small"))
        await decide(engine, "t")
        gate.let_go.clear()
        assert (await observe(engine, "t", rewards={"human": 1.0}, cost=0.5))["learned"]  # replied when committed
        await gate.has_begun()
        own = asyncio.create_task(decide(engine, "u"))
        repeated = asyncio.create_task(observe(engine, "t", cost=0.5))
        for i in range(20):
            task = Decide(TaskBody(task=f"t{i}", context=[1.0, 0.5]))
            await asyncio.wait_for(engine.submit(SMALL_KEY, task), PATIENCE_S / 4)
        assert not own.done()
        assert not repeated.done()
        gate.let_go.set()
        await own
        assert not (await repeated)["changed"]
        assert replay(engine.store, *KEY).faults == []

    play(database, script)


async def lives(engine: Engine) -> bytes:
    """Do with a policy what gives each kind of record, and return its state."""
    for i in range(12):
        await decide(engine, f"t{i}", context=[1.0, i / 7], force="human")
    await asyncio.gather(*(observe(engine, f"t{i}", rewards={"human": 1.0, "model": 0.5}, cost=0.25) for i in range(3)))
    await observe(engine, "t3", rewards={"human": 0.5})
    await observe(engine, "t3", cost=3.0)  # more than max_cost: the learner is told of less
    await call(engine, Correct(CorrectionBody(id="a", task="t0", rewards={"human": 0.0}, cost=0.5)))
    await observe(engine, "t4", rewards={"human": 1.0}, cost=100.0)  # above max_reported_cost
    confirmed = CorrectionBody(id="b", task="t4", rewards={"human": 0.25}, cost=0.75)
    await call(engine, Correct(confirmed, unlimited=True))
    await call(engine, Expire("t5"))
    await observe(engine, "early", rewards={"model": 1.0}, park=True)
    batch = DecideMany(BatchBody(tasks=[TaskBody(task=task, context=[0.5, 0.5]) for task in ("early", "v", "w")]))
    results = (await call(engine, batch))["results"]
    assert [each["decision"]["task"] for each in results] == ["early", "v", "w"]
    for each in results:  # so that nothing is reserved when the learner is reset
        if each["decision"]["route"] == "human":
            await call(engine, Expire(each["decision"]["task"]))
    await forget_task(engine, KEY, "t1")
    await decide(engine, "reviewed", reviewers=2)
    while (claimed := await claim(engine))["task"] != "reviewed":
        await call(engine, Expire(claimed["task"]))
    await complete(engine, claimed, rewards={"human": 1.0})
    await call(engine, Expire("reviewed"))  # what is known is learned, then the rest expires
    await call(engine, ResetLearner(ResetBody(id="r")))
    for i in range(3):
        await decide(engine, f"after{i}", context=[1.0, i / 5], force="human")
        await observe(engine, f"after{i}", rewards={"human": 1.0, "model": 0.0}, cost=0.125)
    await decide(engine, "last", force="model")  # waits for what is to be learned before
    account(engine)
    assert replay(engine.store, *KEY).faults == []
    policy = engine.owned[KEY].policy
    return msgspec.msgpack.encode([policy.learner.to_bytes(), policy.accounts, policy.relearned, policy.tally])


@pytest.mark.parametrize("embedding", [None, *EMBEDDINGS], ids=lambda given: "none" if given is None else given["kind"])
def test_what_is_learned_in_another_thread_is_what_is_learned_at_once(
    tmp_path: Path, request: pytest.FixtureRequest, embedding: dict[str, Any] | None
) -> None:
    budget = {"cost": msgspec.structs.replace(SPEC.budget["cost"], total=100)}
    spec = msgspec.structs.replace(SPEC, budget=budget, embedding=embedding)
    at_once = play(Sqlite(str(tmp_path / "a.db")), lives, spec=spec)
    gate: Learning = request.getfixturevalue("every_step_is_long")
    assert play(Sqlite(str(tmp_path / "b.db")), lives, spec=spec) == at_once
    assert gate.steps > 10


@pytest.mark.usefixtures("every_step_is_long")
def test_a_learner_that_fails_is_rebuilt_from_its_log(sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Policy) -> None:
        raise MemoryError

    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        with monkeypatch.context() as patch:
            patch.setattr(Policy, "learn_deferred", fails)
            await observe(engine, "t", rewards={"human": 1.0}, cost=0.5)
            while engine.steps.running:
                await asyncio.sleep(0.001)
        await decide(engine, "u")
        assert engine.owned[KEY].policy.learner.summary().samples["human"] == 1
        assert account(engine).posted == 500_000
        assert replay(engine.store, *KEY).faults == []

    play(sqlite, script)


def test_a_commit_that_fails_leaves_nothing_to_learn(sqlite: Sqlite, every_step_is_long: Learning) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.store, "commit", fail)
            with pytest.raises(Exception, match="Nothing was written"):
                await observe(engine, "t", rewards={"human": 1.0}, cost=0.5)
        assert engine.owned[KEY].policy.deferred == []
        assert every_step_is_long.steps == 0
        await observe(engine, "t", rewards={"human": 0.5}, cost=0.25)
        await decide(engine, "u")
        assert account(engine).posted == 250_000

    play(sqlite, script)


def fail(*_: Any) -> None:
    raise StoreFailed("The disk is full.")


def test_an_engine_that_stops_waits_for_its_learners(sqlite: Sqlite, every_step_is_long: Learning) -> None:
    gate = every_step_is_long

    async def script(engine: Engine) -> Engine:
        await decide(engine, "t")
        gate.let_go.clear()
        await observe(engine, "t", rewards={"human": 1.0}, cost=0.5)
        await gate.has_begun()
        threading.Timer(0.3, gate.let_go.set).start()
        return engine

    engine = play(sqlite, script)
    assert not engine.owned[KEY].policy.deferred
    assert engine.owned[KEY].policy.learner.summary().samples["human"] == 1


def test_what_the_learner_refuses_does_not_get_into_the_log() -> None:
    spec = msgspec.convert(POLICY, PolicySpec)
    policy = Policy(spec)
    policy.append(records.CreatedRecord(spec=spec), 0)
    before = policy.to_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_module, "LONG_STEP", -1)
        with pytest.raises(DeferkitError, match="no decision 7"):
            policy.append(records.ObservedRecord(task="t", id=7, learned=True, rewards={"human": 1.0}), 0, defer=True)
    assert policy.to_bytes() == before
    assert not policy.deferred


def test_steps_of_small_policies_are_not_deferred(sqlite: Sqlite) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        learner = engine.owned[KEY].policy.learner
        assert learner.longest_step(0) < LONG_STEP
        await engine.submit(KEY, Observe(OutcomeBody(task="t", rewards={"human": 1.0})))
        assert learner.summary().samples["human"] == 1
        assert not engine.steps.running

    play(sqlite, script)
