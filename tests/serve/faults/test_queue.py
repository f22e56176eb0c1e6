"""The review queue, case by case: leases with an epoch, deadlines, several reviewers, tenants."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from deferkit.serve.api.reviews import ClaimBody, EffortBody, ExtendBody, LeaseBody
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.domain.accounts import MAX_AMOUNT, Account
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.rows import DecisionRow
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.lease import Claim, Extend, Release
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine, EngineSettings
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
    replayed,
)

M = 1_000_000
LEASE = msgspec.structs.replace(SPEC, lease_s=300.0)
DEADLINE = msgspec.structs.replace(SPEC, deadline_s=600.0)


def row_of(engine: Engine, task: str) -> DecisionRow:
    row = engine.store.decision(engine.owned[KEY].id, task)
    assert row is not None
    return row


def lease_of(claimed: Any) -> dict[str, Any]:
    return {name: claimed[name] for name in ("task", "seat", "epoch", "token")}


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


async def effort(engine: Engine, claimed: Any, cost: float) -> Any:
    return await call(engine, Effort(EffortBody(**lease_of(claimed), cost=cost)))


def test_a_lease_that_has_lapsed_is_offered_again_and_the_old_epoch_is_refused(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        old = await claim(engine, "ann")
        assert (await problem_of(effort(engine, old, 0.1))).status == 409  # it is not over: complete it
        clock.advance(300)
        assert await claim(engine, "bo") is None
        clock.advance(0.000_001)
        new = await claim(engine, "bo")
        assert (new["task"], new["epoch"]) == ("a", old["epoch"] + 1)
        assert (await problem_of(complete(engine, old, rewards={"human": 1.0}, cost=0.5))).status == 409
        for command in (Extend(ExtendBody(**lease_of(old))), Release(LeaseBody(**lease_of(old)))):
            assert (await engine.submit(KEY, command)).status == 409
        for _ in range(3):
            assert (await effort(engine, old, 0.125))["booked"] == 0.125
        assert (await problem_of(effort(engine, old, 0.25))).status == 409
        assert account(engine) == Account(10 * M, 1 * M, 125_000, 0)
        await complete(engine, new, rewards={"human": 1.0}, cost=0.5)
        assert (await problem_of(effort(engine, new, 0.1))).status == 409
        assert (await effort(engine, old, 0.125))["booked"] == 0.125
        assert account(engine) == Account(10 * M, 0, 625_000, 0)
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script, spec=LEASE)


def test_efforts_of_one_claim_that_come_at_once_are_booked_once(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = await claim(engine, "ann")
        await engine.submit(KEY, Release(LeaseBody(**lease_of(lease))))
        calls = [effort(engine, lease, cost) for cost in (0.125, 0.125, 0.25)]
        first, again, other = await asyncio.gather(*calls, return_exceptions=True)
        assert first == again
        assert isinstance(other, Problem)
        assert other.status == 409
        assert account(engine).posted == 125_000

    play(database, script)


def test_a_refusal_says_what_has_become_of_the_claim(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        old = await claim(engine, "ann")
        for epoch in (0, 2):
            refusal = await problem_of(complete(engine, {**old, "epoch": epoch}, cost=0.5))
            assert (refusal.status, str(refusal)) == (409, f"There was no claim of epoch {epoch} on task 'a'.")
        assert str(await problem_of(effort(engine, old, 0.1))).endswith("is not over: complete it.")
        clock.advance(301)
        new = await claim(engine, "bo")
        assert "has gone to another reviewer" in str(await problem_of(complete(engine, old, cost=0.5)))
        await complete(engine, new, cost=0.5)
        assert str(await problem_of(complete(engine, new, cost=0.25))).endswith("with another body.")
        assert "was completed" in str(await problem_of(effort(engine, new, 0.1)))
        late = await engine.submit(KEY, Extend(ExtendBody(**lease_of(new))))
        assert msgspec.json.decode(late.body)["detail"] == "Epoch 2 of task 'a' is over: it was completed."

    play(database, script, spec=LEASE)


def test_whoever_is_slow_but_not_overtaken_may_still_answer(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        lease = await claim(engine, "ann")
        clock.advance(200)
        assert (await engine.submit(KEY, Extend(ExtendBody(**lease_of(lease))))).status == 200
        clock.advance(299)
        assert await claim(engine, "bo") is None  # it was extended
        clock.advance(1000)
        assert (await complete(engine, lease, rewards={"human": 1.0}, cost=0.5))["finished"] is True

    play(database, script, spec=LEASE)


def test_a_seat_given_back_is_free_at_once_and_its_epoch_is_over(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        old = await claim(engine, "ann")
        assert (await engine.submit(KEY, Release(LeaseBody(**lease_of(old))))).status == 200
        assert (await engine.submit(KEY, Release(LeaseBody(**lease_of(old))))).status == 409
        assert (await problem_of(complete(engine, old, cost=0.5))).status == 409
        assert (await effort(engine, old, 0.25))["booked"] == 0.25
        assert (await claim(engine, "ann"))["epoch"] == 2

    play(database, script)


def test_a_completion_stands_against_a_reaper_that_read_before_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = await claim(engine)
        await complete(engine, lease, answer="spam", rewards={"human": 1.0}, cost=0.5)
        pages = [[(1, "a"), (1, "gone")], []]
        monkeypatch.setattr(engine.store, "overdue", lambda *_: pages.pop(0))
        await engine.maintenance.reap()
        row = row_of(engine, "a")
        assert (row.state, row.final, row.answer) == ("posted", "human", '"spam"')
        assert account(engine) == Account(10 * M, 0, 500_000, 0)

    play(database, script, spec=DEADLINE)


@pytest.mark.parametrize("completes_first", [True, False])
def test_completion_and_expiry_in_one_commit_exclude_each_other(completes_first: bool, database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = await claim(engine)
        both = [complete(engine, lease, cost=0.5), call(engine, Expire("a"))]
        results = await asyncio.gather(*(both if completes_first else reversed(both)), return_exceptions=True)
        assert [isinstance(each, dict) for each in results] == [True, False]
        posted = 500_000 if completes_first else 0
        assert account(engine) == Account(10 * M, 0, posted, 0)

    play(database, script)


def test_a_reaper_that_died_is_succeeded_by_the_next(database: Database) -> None:
    async def dies(engine: Engine) -> int:
        for task in engine._ticking:
            task.cancel()
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        clock.advance(601)
        await decide(engine, "later", force="model")  # so that time is known to have passed
        assert row_of(engine, "a").state == "open"
        return account(engine).reserved

    async def lives(engine: Engine) -> None:
        await until(lambda: row_of(engine, "a").state == "void")
        assert account(engine).reserved == 0

    assert play(database, dies, spec=DEADLINE) == 1 * M
    play(database, lives, spec=None, settings=EngineSettings(tick_s=0.02))


def test_a_reaper_survives_what_nobody_foresaw(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        clock.advance(601)
        overdue = engine.store.overdue
        failures: list[Any] = []

        def fails_twice(*given: Any) -> list[tuple[int, str]]:
            if len(failures) < 2:
                failures.append(given)
                raise RuntimeError("nobody foresaw this")
            return overdue(*given)

        monkeypatch.setattr(engine.store, "overdue", fails_twice)
        await until(lambda: row_of(engine, "a").state == "void")
        assert len(failures) == 2

    play(database, script, spec=DEADLINE, settings=EngineSettings(tick_s=0.02))


def test_two_tabs_make_one_completion(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = await claim(engine)
        answers = [complete(engine, lease, answer="spam", rewards={"human": 1.0}, cost=0.5) for _ in range(3)]
        first, second, third = await asyncio.gather(*answers)
        assert first == second == third
        assert (await problem_of(complete(engine, lease, answer="ham", cost=0.5))).status == 409
        assert await complete(engine, lease, answer="spam", rewards={"human": 1.0}, cost=0.5) == first
        assert account(engine) == Account(10 * M, 0, 500_000, 0)
        assert row_of(engine, "a").answer == '"spam"'

    play(database, script)


def test_two_tabs_of_one_reviewer_do_not_make_two_reviewers(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a", reviewers=2)
        first = await claim(engine, "ann")
        assert await claim(engine, "ann") is None
        second = await claim(engine, "bo")
        assert (first["seat"], second["seat"]) == (0, 1)
        assert await claim(engine, "cy") is None  # no seat is held twice
        reply = await complete(engine, first, answer="spam", rewards={"human": 1.0}, cost=0.25)
        assert (reply["finished"], reply["booked"]) == (False, None)
        assert await claim(engine, "ann") is None
        reply = await complete(engine, second, answer="ham", rewards={"human": 0.5}, cost=0.5)
        assert (reply["finished"], reply["booked"]) == (True, 0.75)
        assert row_of(engine, "a").rewards == {"human": 0.75}  # costs are added up, rewards averaged
        assert account(engine) == Account(10 * M, 0, 750_000, 0)

    play(database, script)


def test_when_the_deadline_has_passed_the_model_answers(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a", model_answer="ham")
        await decide(engine, "b")
        lease = await claim(engine)
        clock.advance(600.000_001)
        assert (await problem_of(complete(engine, lease, cost=0.5))).status == 409  # the reaper was not here yet
        assert await claim(engine, "bo") is None
        await engine.maintenance.reap()
        for task in "ab":
            row = row_of(engine, task)
            assert (row.state, row.final, row.cost) == ("void", "model", None)
        assert account(engine) == Account(10 * M, 0, 0, 0)
        assert (await problem_of(complete(engine, lease, cost=0.5))).status == 409
        assert (await effort(engine, lease, 0.5))["booked"] == 0.5
        assert account(engine) == Account(10 * M, 0, 500_000, 0)

    play(database, script, spec=DEADLINE)


def test_where_tasks_wait_the_deadline_changes_nothing(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a")
        clock.advance(10_000)
        await engine.maintenance.reap()
        assert (await complete(engine, await claim(engine), cost=0.5))["finished"] is True

    play(database, script, spec=msgspec.structs.replace(DEADLINE, after_deadline="wait"))


def test_what_some_of_several_reviewers_have_answered_counts(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = engine.ownership.clock = HandClock(engine)
        await decide(engine, "a", reviewers=3)
        for reviewer, answer in (("ann", "spam"), ("bo", "ham")):
            await complete(engine, await claim(engine, reviewer), answer=answer, rewards={"human": 1.0}, cost=0.5)
        late = await claim(engine, "cy")
        clock.advance(601)
        await engine.maintenance.reap()
        row = row_of(engine, "a")
        assert (row.state, row.final, row.answer, row.cost) == ("posted", "human", '"spam"', {"cost": 1 * M})
        assert (await problem_of(complete(engine, late, cost=0.5))).status == 409
        assert account(engine) == Account(10 * M, 0, 1 * M, 0)

    play(database, script, spec=DEADLINE)


def test_even_the_largest_costs_of_all_reviewers_do_not_hold_a_task_up(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a", reviewers=2)
        leases = [await claim(engine, "ann"), await claim(engine, "bo")]
        for lease in leases:
            await complete(engine, lease, cost=MAX_AMOUNT)
        assert account(engine) == Account(10 * M, 0, 10 * M, 2 * MAX_AMOUNT * M - 10 * M)

    budget = BudgetSpec(total=10, horizon=1000, max_cost=1, max_reported_cost=None)  # no ceiling: all is booked
    play(database, script, spec=msgspec.structs.replace(SPEC, budget={"cost": budget}))


def test_tenants_do_not_meet(database: Database) -> None:
    other = ("other", "p")

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        await decide(engine, "a")
        assert (await engine.submit(other, Claim(ClaimBody(reviewer="eve")))).status == 204  # not its queue to drain
        for command in (Expire("a"), Effort(EffortBody(task="a", epoch=1, cost=0.5))):
            assert (await problem_of(engine.submit(other, command))).status == 404
        lease = await claim(engine)
        for mine in (Extend(ExtendBody(**lease_of(lease))), Release(LeaseBody(**lease_of(lease)))):
            assert (await engine.submit(other, mine)).status == 404
        await observe(engine, "a", cost=0.5)
        assert engine.owned[other].policy.accounts["cost"] == Account(10 * M)
        assert engine.owned[other].policy.seq == 1
        own = await engine.submit(other, Decide(TaskBody(task="a", context=[0.0, 1.0], force="model")))  # its own a
        assert msgspec.json.decode(own.body)["route"] == "model"
        assert (await decide(engine, "a"))["route"] == "human"
        assert (await problem_of(engine.submit(("third", "p"), Expire("a")))).status == 404

    play(database, script)
