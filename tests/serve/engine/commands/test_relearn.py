"""`reset` and `forget a task` are records of the log: replayed bit for bit, and without touching the money."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from deferkit import Client
from deferkit.errors import ServiceError
from deferkit.serve.api.policies import ResetBody
from deferkit.serve.api.reports import SummaryReply
from deferkit.serve.api.tasks import CorrectionBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.relearn import ResetLearner, forget_task
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.reports.summary import summary_of
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.fault_injection import failing_connection
from tests.serve.harness.in_process import (
    KEY,
    POLICY,
    SPEC,
    account,
    call,
    check_booked,
    decide,
    observe,
    play,
    replayed,
    running,
)

M = 1_000_000
RICH = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=1000, horizon=1000, max_cost=1)}, warm_up=5)
TREES = msgspec.structs.replace(RICH, representation="auto", forget="auto", link="logistic")


def summary(engine: Engine) -> SummaryReply:
    owned = engine.owned[KEY]
    return summary_of(owned, engine.store.queue(owned.id), engine.clock.now())


def check_replay(engine: Engine) -> None:
    policy = engine.owned[KEY].policy
    assert replayed(engine.store) == policy == Policy.from_bytes(policy.to_bytes())
    assert replay(engine.store, *KEY).faults == []


async def live(engine: Engine, first: int, last: int, *, without: int = -1, seed: int = 0) -> None:
    """Decide and observe tasks; the outcome of one of them is kept from the learner, where asked for.

    With the rule of December 2026 so is its context: it has that of the task before.
    """
    for i in range(first, last):
        rng = np.random.default_rng([seed, i])
        context = rng.random(2).tolist()
        if i == without and engine.owned[KEY].policy.spec.defaults_used == "2026.12":
            context = np.random.default_rng([seed, i - 1]).random(2).tolist()
        await decide(engine, f"t{i}", context=context, force="human" if i % 3 else "model")
        given: dict[str, Any] = {"rewards": {"model": float(rng.integers(2)), "human": float(rng.integers(2))}}
        if i % 3:
            given["cost"] = round(float(rng.random()), 6)
        if i != without:
            await observe(engine, f"t{i}", **given)


def test_reset_starts_the_learner_anew_and_leaves_the_money(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 40)
        for task in ("open", "void"):
            await decide(engine, task)
        before, accounts = summary(engine), account(engine)
        reply = await call(engine, ResetLearner(ResetBody(id="r")))
        assert reply == {"id": "r", "decisions": 42}
        assert await call(engine, ResetLearner(ResetBody(id="r"))) == reply  # once for each id
        after = summary(engine)
        assert engine.owned[KEY].policy.accounts["cost"] == accounts
        assert (after.decisions, after.routes, after.pending) == (before.decisions, before.routes, before.pending)
        assert after.deferral_rate == before.deferral_rate
        assert set(after.samples.values()) == {0}
        check_replay(engine)
        # what is open is booked when its cost comes, and not learned from; the learner gets what comes free
        observed = await observe(engine, "open", rewards={"human": 1.0}, cost=0.25)
        assert (observed["learned"], observed["late"]) == (False, "the learner remembers the decision no longer")
        await call(engine, Expire("void"))
        assert summary(engine).pending == 0
        check_booked(engine)
        owned = engine.owned[KEY].policy
        assert owned.learner.summary().left == pytest.approx((owned.accounts["cost"].free or 0) / M, abs=1e-9)
        await call(engine, Correct(CorrectionBody(id="c", task="open", cost=0.5)))
        reply = await decide(engine, "next")
        assert reply["id"] == 42
        assert (await observe(engine, "next", rewards={"human": 1.0}, cost=0.5))["learned"]
        assert summary(engine).samples["human"] == 1
        await live(engine, 40, 60)
        await call(engine, ResetLearner(ResetBody(id="again")))
        await live(engine, 60, 80)
        assert summary(engine).decisions == 83
        check_booked(engine)
        check_replay(engine)

    play(database, script, spec=RICH)


@pytest.mark.parametrize("defaults", ["2026.11", "2026.12"])
@pytest.mark.parametrize("spec", [RICH, TREES], ids=["linear", "trees"])
def test_a_forgotten_task_is_in_no_estimate(spec: PolicySpec, defaults: str, tmp_path: Path) -> None:
    """The learner is the one that was never told, but for what it counts of budgets, and so are later decisions."""
    tasks = 60
    spec = msgspec.structs.replace(spec, defaults=defaults)

    async def script(engine: Engine, *, without: int) -> Any:
        await live(engine, 0, tasks, without=without)
        if without == -1:
            reply = await forget_task(engine, KEY, "t20")
            assert msgspec.json.decode(reply.body) == {"task": "t20", "forgotten": True}
            again = await forget_task(engine, KEY, "t20")
            assert msgspec.json.decode(again.body) == {"task": "t20", "forgotten": False}
        scores = engine.owned[KEY].policy.learner.score([[0.25, 0.75], [0.9, 0.1]])
        samples = summary(engine).samples
        if without == -1:
            check_replay(engine)
            check_booked(engine)
        return scores, samples

    scores, samples = play(Sqlite(str(tmp_path / "a.db")), lambda e: script(e, without=-1), spec=spec)
    wanted, known = play(Sqlite(str(tmp_path / "b.db")), lambda e: script(e, without=20), spec=spec)
    told, _ = play(Sqlite(str(tmp_path / "c.db")), lambda e: script(e, without=-2), spec=spec)
    assert samples == known
    for name in wanted._fields if hasattr(wanted, "_fields") else range(len(wanted)):
        one, other = (getattr(s, name) if isinstance(name, str) else s[name] for s in (scores, wanted))
        assert str(one) == str(other)
    assert str(scores) != str(told)  # it had made a difference


NAMED = FeatureSpec(numbers=["amount", "age"], categories={"city": 4})
MARK, PLACE = 456.789, "a place that nobody else lives in"


def traces(policy: Policy) -> list[str]:
    """Return the names of the parts of a policy that hold a value of the forgotten task."""
    components = policy.learner._components
    arrays = dict(components.ledger.arrays)
    if components.representation is not None:
        arrays |= components.representation.state()
    found = [name for name, array in arrays.items() if array.dtype.kind == "f" and (np.abs(array) == MARK).any()]
    texts = {"encoder": components.contexts.encoder and components.contexts.encoder.to_dict(), "scales": policy.scales}
    return found + [name for name, text in texts.items() if PLACE in str(text) or str(MARK) in str(text)]


@pytest.mark.parametrize("features", [2, NAMED], ids=["plain", "named"])
@pytest.mark.parametrize("representation", ["linear", "auto"])
@pytest.mark.parametrize("place", [0, 5, 90, 120])
def test_no_value_of_a_forgotten_context_stays(
    features: int | FeatureSpec, representation: str, place: int, tmp_path: Path
) -> None:
    """Neither as it is, nor in anything computed from it: with another context the learner would be the same."""
    spec = msgspec.structs.replace(RICH, features=features, representation=representation, outliers="keep", warm_up=0)

    async def script(engine: Engine, mark: float, city: str) -> Any:
        def context(i: int) -> Any:
            amount, age = np.random.default_rng(i).random(2).tolist()
            amount = mark if i == place else amount
            named = {"amount": amount, "age": age, "city": city if i == place else "a"}
            return [amount, age] if features == 2 else named

        for i in range(130):
            await decide(engine, f"t{i}", context=context(i), force="human")
            await observe(engine, f"t{i}", rewards={"human": float(i % 2), "model": 1.0}, cost=0.25)
        owned = engine.owned[KEY]
        assert engine.store.snapshot_seqs(owned.id)
        if mark == MARK and place < (100 if features == 2 else 16):  # later ones are cut, or encoded with frozen scales
            assert traces(owned.policy)
        await forget_task(engine, KEY, f"t{place}")
        assert traces(owned.policy) == []
        n = owned.policy.seq
        await decide(engine, "next", context=context(place + 1))
        for seq, data in engine.store.snapshots(owned.id):
            assert seq >= n  # those of before are deleted
            assert traces(Policy.from_bytes(data)) == []
        check_replay(engine)
        return owned.policy.learner.score(
            [[0.25, 0.75], [0.9, 0.1]] if features == 2 else [{"amount": 0.5, "city": "a"}]
        )

    settings = EngineSettings(snapshot_every=100)
    marks = {"a": (MARK, PLACE), "b": (0.5, "b")}
    scores = [
        play(Sqlite(str(tmp_path / name)), partial(script, mark=mark, city=city), spec=spec, settings=settings)
        for name, (mark, city) in marks.items()
    ]
    assert str(scores[0].estimates) == str(scores[1].estimates)
    assert str(scores[0].widths) == str(scores[1].widths)


def test_outcomes_that_come_after_it_are_booked_and_not_learned(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 10)
        await decide(engine, "a")
        await observe(engine, "a", rewards={"human": 1.0})
        await forget_task(engine, KEY, "a")
        samples = summary(engine).samples
        late = await observe(engine, "a", rewards={"model": 0.0}, cost=0.5)
        assert (late["learned"], late["late"], late["booked"]) == (False, "the task was forgotten", 0.5)
        await call(engine, Correct(CorrectionBody(id="c", task="a", rewards={"human": 0.0}, cost=0.75)))
        assert summary(engine).samples == samples
        check_booked(engine)
        check_replay(engine)
        await call(engine, ResetLearner(ResetBody(id="r")))
        await forget_task(engine, KEY, "t1")
        await live(engine, 10, 20)
        check_replay(engine)

    play(database, script, spec=RICH)


def test_decisions_go_on_while_a_task_is_forgotten(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 30)
        await asyncio.gather(forget_task(engine, KEY, "t4"), live(engine, 30, 90))
        assert summary(engine).decisions == 90
        check_booked(engine)
        check_replay(engine)

    play(database, script, spec=RICH)


def test_a_task_can_be_forgotten_after_the_store_has_failed(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 3)
        for nth in range(1, 20):  # calls of the database: the group that begins fails, then the one that ends it
            with failing_connection(engine, nth):
                doing = (forget_task(engine, KEY, "t1"), decide(engine, f"u{nth}"))
                done, _ = await asyncio.gather(*doing, return_exceptions=True)
            assert engine.owned[KEY].tail is None
            assert not engine.owned[KEY].relearning
            if not isinstance(done, Exception):
                break
            assert "There is no room" in str(done)
        assert nth > 5
        check_replay(engine)

    play(database, script, spec=RICH, settings=EngineSettings(tick_s=1e9))


def test_a_call_that_was_given_up_before_its_turn_collects_nothing(tmp_path: Path) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 3)
        async with engine.ownership.busy:  # nothing is committed meanwhile
            caller = asyncio.create_task(forget_task(engine, KEY, "t1"))
            await asyncio.sleep(0.01)
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
        await decide(engine, "next")
        assert engine.owned[KEY].tail is None

    play(Sqlite(str(tmp_path / "a.db")), script, spec=RICH)


def test_a_restart_gives_the_same_policy(database: Database) -> None:
    async def first(engine: Engine) -> bytes:
        await live(engine, 0, 20)
        await forget_task(engine, KEY, "t4")
        await call(engine, ResetLearner(ResetBody(id="r")))
        await live(engine, 20, 30)
        await forget_task(engine, KEY, "t25")
        await live(engine, 30, 35)
        return engine.owned[KEY].policy.to_bytes()

    async def second(engine: Engine) -> bytes:
        return engine.owned[KEY].policy.to_bytes()

    assert play(database, first, spec=RICH) == play(database, second, spec=None)


def test_policies_that_never_forgot_have_the_snapshots_they_had() -> None:
    assert b"relearned" not in Policy(SPEC).to_bytes()


def test_reset_and_forget_over_http_need_the_scope_admin(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        keys = {scope: service.key("acme", scope) for scope in ("observe", "decide")}
        owner = service.client("acme")
        assert owner.post("/v1/policies", POLICY).status == 201
        owner.decide("a")
        owner.post("/v1/policies/p/outcomes", {"task": "a", "rewards": {"human": 1.0}, "cost": 0.5})
        for key in keys.values():
            with Client(service.url, policy="p", key=key) as client:
                for forbidden in (client.reset, lambda client=client: client.forget("a")):
                    with pytest.raises(ServiceError) as caught:
                        forbidden()
                    assert caught.value.status == 403
        key = owner.headers["authorization"].removeprefix("Bearer ")
        with Client(service.url, policy="p", key=key) as client:
            assert client.summary().samples["human"] == 1
            assert client.forget("a")
            assert not client.forget("a")
            assert (client.summary().samples["human"], client.summary().spent) == (0, 0.5)
            client.reset(id="r")
            client.reset(id="r")
            assert client.summary().decisions == 1
            assert [row["kind"] for row in owner.get("/v1/policies/p/log").json["rows"]] == [
                "created", "decided", "observed", "forgotten", "reset",
            ]  # fmt: skip
