"""A cost and the decision of the model's that it is reported for, in both orders: it is booked in neither."""

import logging
from pathlib import Path

import msgspec
import pytest

from deferkit.serve.api.common import Reply
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.accounts import Account
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.commands.outcome import book
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.connections import ReadSet
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.cli.test_replay import Run, run
from tests.serve.harness.in_process import KEY, POLICY, account, decide, observe, play, problem_of, running

__all__ = ["run"]

M = 1_000_000


def test_a_cost_parked_before_its_decision_is_not_booked_if_the_model_decides(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(engine: Engine) -> None:
        reply = await observe(engine, "before", rewards={"model": 0.5}, cost=0.4)
        assert reply["parked"] is True
        await observe(engine, "cost only", cost=0.4)
        await observe(engine, "free", cost=0.0)
        await observe(engine, "asked", cost=0.4)
        with caplog.at_level(logging.WARNING, "deferkit.serve"):
            for task in ("before", "cost only", "free", "after"):
                assert (await decide(engine, task, force="model"))["route"] == "model"
        await decide(engine, "asked")
        await observe(engine, "after", rewards={"model": 0.5})
        for task in ("before", "cost only", "free", "after"):
            refused = await problem_of(observe(engine, task, cost=0.4))
            assert (refused.status, "there is no cost to book" in str(refused)) == (422, True)
        owned = engine.owned[KEY]
        rows = [engine.store.decision(owned.id, task) for task in ("before", "after")]
        assert [(row.rewards, row.cost, row.state) for row in rows if row] == [({"model": 0.5}, None, "model")] * 2
        assert account(engine) == Account(10 * M, 0, 400_000, 0)  # of the one that was asked
        assert (owned.parked, owned.dropped_costs) == (0, 2)
        assert [each.message for each in caplog.records] == ["a parked cost was dropped: the model decided"] * 2

    play(database, script)
    report = replay(Store(database), *KEY)
    assert (report.faults, report.remarks) == ([], ())


class BookAsBefore:
    """Book a cost for a decision of the model's, as a parked one was booked before it was refused."""

    def __init__(self, task: str) -> None:
        self.task = task

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        return ReadSet(owned.id, (self.task,), seats=True, observes=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        row = work.decisions[owned.id, self.task]
        assert row is not None
        return Reply(200, msgspec.json.encode(book(owned, work, now, row, {}, {"cost": 400_000})))


def test_replay_notices_a_log_that_books_a_cost_for_a_decision_of_the_models(sqlite: Sqlite, run: Run) -> None:
    async def before(engine: Engine) -> None:
        for i in range(12):
            await decide(engine, f"t{i:02}", force="model")
            await engine.submit(KEY, BookAsBefore(f"t{i:02}"))

    async def after(engine: Engine) -> None:
        assert account(engine).posted == 12 * 400_000  # what was legal then stands
        assert (await observe(engine, "t00", cost=0.4))["changed"] is False
        await decide(engine, "more")

    play(sqlite, before)
    play(sqlite, after, spec=None)
    report = replay(Store(sqlite), *KEY)
    assert report.faults == []
    assert report.remarks[0] == "A cost is booked for task 't00', which the model decided: 0.4."
    assert (len(report.remarks), report.remarks[-1]) == (11, "2 more such costs are booked.")
    sqlite.close()
    code, _, err = run("replay", KEY[1], "--store", sqlite.path)
    assert code == 0
    assert "warning: A cost is booked for task 't00'" in err


def test_dropped_costs_are_counted(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        client.post("/v1/policies", POLICY)
        assert client.post("/v1/policies/p/outcomes", {"task": "a", "cost": 0.5}).status == 202
        assert client.decide("a", force="model").status == 201
        assert b'deferkit_parked_costs_dropped_total{policy="p"} 1.0' in client.get("/metrics").body
