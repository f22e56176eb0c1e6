"""A log is replayed: what is whole is found whole, and whatever was changed is named."""

import asyncio
from typing import Any

import pytest

from deferkit.errors import InvalidArgument
from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.reviews import EffortBody
from deferkit.serve.api.tasks import CorrectionBody
from deferkit.serve.audit.replay import Report, replay
from deferkit.serve.domain.spec import PolicyChange
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.policy import ChangeBudget, ChangePolicy
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import call, claim, complete, decide, observe, play

OFTEN = EngineSettings(snapshot_every=8)


async def eventful(engine: Engine) -> None:
    """Let everything happen that a log can hold."""
    for i in range(6):
        await decide(engine, f"asked-{i}", context=[1.0, i / 10])
        await decide(engine, f"left-{i}", context=[0.5, i / 10], force="model")
        await observe(engine, f"left-{i}", rewards={"model": 0.5})
    await observe(engine, "early", rewards={"model": 0.25})
    await decide(engine, "early", force=None, cost=0.5, available=[])
    await observe(engine, "asked-0", rewards={"human": 1.0, "model": 0.0}, cost=0.25)
    await observe(engine, "asked-1", rewards={"human": 1.0})
    await observe(engine, "asked-1", cost=1.5)  # more than was held
    await call(engine, Correct(CorrectionBody(id="c", task="asked-0", rewards={"human": 0.5}, cost=0.5)))
    await call(engine, Expire("asked-2"))
    await decide(engine, "kept")
    await observe(engine, "kept", rewards={"human": 0.5})
    await call(engine, Expire("kept"))  # the answer is there, only its cost never came
    await call(engine, ChangeBudget(BudgetBody(id="b", add=5)))
    await observe(engine, "asked-2", cost=0.75)  # late, but paid
    taken = await claim(engine)
    await complete(engine, taken, answer={"label": "spam"}, rewards={"human": 0.75}, cost=0.5)
    await call(engine, ChangePolicy(PolicyChange(reviewers=2, learning_window_s=1e-6)))
    await decide(engine, "two", context=[9.0, 9.0])
    while (one := await claim(engine, "ann"))["task"] != "two":
        pass
    other = await claim(engine, "bo")
    await complete(engine, one, answer="ham", rewards={"human": 0.5}, cost=0.25)
    await call(engine, Expire(one["task"]))
    lease = {name: other[name] for name in ("seat", "epoch", "token")}
    await call(engine, Effort(EffortBody(task="two", **lease, cost=0.125)))


def again(database: Database) -> Report:
    return replay(Store(database), "default", "p")


def test_everything_that_can_happen_is_found_whole(database: Database) -> None:
    play(database, eventful, settings=OFTEN)
    report = again(database)
    assert report.faults == []
    kinds = [line.kind for line in Store(database).log(1)]
    assert set(kinds) == {
        "created",
        "changed",
        "decided",
        "observed",
        "answered",
        "corrected",
        "expired",
        "effort",
        "budget",
    }
    assert report.policy is not None
    assert (report.rows, report.snapshots) == (len(kinds), 3)
    assert report.policy.tally.outcomes == kinds.count("observed")
    assert report.policy.accounts == Store(database).budgets(1)


def test_restarts_leave_a_log_that_is_whole(database: Database) -> None:
    """Snapshots of a policy that was itself read from a snapshot are those of a policy that never stopped."""

    async def some(engine: Engine) -> None:
        start = engine.owned["default", "p"].policy.seq
        for i in range(start, start + 5):
            await decide(engine, f"t{i}", force=None, context=[1.0, i / 100])
            await observe(engine, f"t{i}", rewards={"model": 0.5})

    for _ in range(4):
        play(database, some, settings=EngineSettings(snapshot_every=3))
        report = again(database)
        assert report.faults == []
        assert report.snapshots > 0


def test_a_service_may_be_running(database: Database) -> None:
    """Decisions and outcomes come in all the while: nothing that was written in the meantime looks wrong."""

    async def busy(engine: Engine) -> list[Report]:
        done = asyncio.Event()

        async def traffic(name: str) -> None:
            i = 0
            while not done.is_set():
                await decide(engine, f"{name}{i}", force=None, context=[1.0, (i % 10) / 10])
                await observe(engine, f"{name}{i}", rewards={"model": 0.5})
                i += 1

        writers = [asyncio.create_task(traffic(name)) for name in "abc"]
        reports = []
        for _ in range(5):
            before = engine.commands
            while engine.commands < before + 10:
                await asyncio.sleep(0.01)
            reports.append(await asyncio.to_thread(again, database))
        done.set()
        await asyncio.gather(*writers)
        return reports

    reports = play(database, busy, settings=EngineSettings(snapshot_every=50))
    assert [report.faults for report in reports] == [[]] * 5
    assert reports[0].rows < reports[-1].rows


def test_a_policy_and_its_budgets_are_of_one_moment(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def between(engine: Engine) -> list[str]:
        await decide(engine, "a")
        loop = asyncio.get_running_loop()
        store = Store(database)
        plain, asked = store.budgets, iter("bcd")

        def later(policy: int) -> Any:
            if task := next(asked, None):
                asyncio.run_coroutine_threadsafe(decide(engine, task), loop).result(30)
            return plain(policy)

        monkeypatch.setattr(store, "budgets", later)
        report = await asyncio.to_thread(replay, store, "default", "p")
        assert report.rows == 5
        return report.faults

    assert play(database, between) == []


def test_what_looks_wrong_is_looked_at_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome between the reading of a page and of its log is no fault."""

    async def between(engine: Engine) -> list[str]:
        await decide(engine, "a")
        await decide(engine, "b")
        loop = asyncio.get_running_loop()

        def watched() -> list[str]:
            reader = database.reader()
            plain = reader.run
            asked: list[str] = []

            def later(name: str, /, **values: Any) -> Any:
                rows = plain(name, **values)
                if name == "decisions_after" and not asked:
                    asked.append(name)
                    asyncio.run_coroutine_threadsafe(observe(engine, "a", cost=0.5), loop).result(30)
                    asyncio.run_coroutine_threadsafe(decide(engine, "ab"), loop).result(30)
                return rows

            monkeypatch.setattr(reader, "run", later)
            faults = again(database).faults
            assert asked
            return faults

        return await asyncio.to_thread(watched)

    assert play(database, between) == []


def test_unknown_policies_are_listed(database: Database) -> None:
    database.prepare()
    with pytest.raises(InvalidArgument, match="no policy 'p' of tenant 'default'. There are no policies."):
        again(database)
    play(database, eventful)
    for tenant, name in (("default", "q"), ("acme", "p")):
        with pytest.raises(InvalidArgument, match=f"{name}' of tenant '{tenant}'. There is p of default."):
            replay(Store(database), tenant, name)
