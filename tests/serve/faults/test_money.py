"""Money, case by case: every cost is booked exactly once, and nothing is promised that is not there."""

import asyncio
import math
from typing import Any

import pytest

from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.domain.accounts import MAX_AMOUNT, Account
from deferkit.serve.domain.problems import Problem
from deferkit.serve.engine.commands.policy import ChangeBudget
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import (
    KEY,
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
    small,
)

M = 1_000_000


@pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf, 1e-7, MAX_AMOUNT * 2, True, "1", {"euros": 1.0}])
def test_what_is_no_cost_is_refused(cost: Any, database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = await claim(engine)
        for doing in (
            observe(engine, "a", cost=cost),
            complete(engine, lease, cost=cost),
            observe(engine, "x", cost=cost),
        ):
            assert (await problem_of(doing)).status == 422
        assert (await problem_of(decide(engine, "b", cost=cost, force=None))).status == 422
        assert (await problem_of(call(engine, ChangeBudget(BudgetBody(id="1", total=cost))))).status == 422
        assert records(engine) == 2

    play(database, script)


def test_a_cost_above_the_reservation_takes_what_is_free_and_then_stands_in_suspense(
    database: Database,
) -> None:
    """3 in all, 1 held for each of a and b. a costs 2.5: 2 are free with its own, so that 0.5 stand in suspense."""

    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await decide(engine, "b")
        await observe(engine, "a", rewards={"human": 1.0, "model": 0.0}, cost=2.5)
        assert account(engine) == Account(3 * M, 1 * M, 2 * M, 500_000)
        assert engine.owned[KEY].policy.frozen
        reply = await decide(engine, "c", force=None)
        assert (reply["route"], reply["reason"]) == ("model", "budget")
        assert (await decide(engine, "d", force=None, cost=0.0))["reason"] == "budget"  # not even what costs nothing
        assert (await problem_of(decide(engine, "e"))).status == 409
        assert (await problem_of(decide(engine, "e", cost=0.0))).status == 409
        await observe(engine, "b", cost=0.25)  # 0.75 come free and pay 0.5
        assert account(engine) == Account(3 * M, 0, 2_750_000, 0)
        assert not engine.owned[KEY].policy.frozen
        assert (await decide(engine, "f", force=None, cost=0.25))["reason"] != "budget"
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script, spec=small(3))


def test_two_reservations_race_for_the_last_unit(database: Database) -> None:
    async def script(engine: Engine) -> None:
        tried = await asyncio.gather(*(decide(engine, f"t{i}") for i in range(20)), return_exceptions=True)
        won = [each for each in tried if isinstance(each, dict)]
        lost = [each.status for each in tried if isinstance(each, Problem)]
        assert (len(won), lost) == (3, [409] * 17)
        assert account(engine) == Account(3_500_000, 3 * M, 0, 0)

    play(database, script, spec=small(3.5))


def test_without_budget_nobody_is_asked_and_the_reply_says_why(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(5):
            reply = await decide(engine, f"t{i}", force=None)
            assert (reply["route"], reply["reason"], reply["propensity"]) == ("model", "budget", 1.0)
        assert (await problem_of(decide(engine, "x"))).status == 409
        await call(engine, ChangeBudget(BudgetBody(id="1", add=1.0)))
        assert (await decide(engine, "x"))["route"] == "human"

    play(database, script, spec=small(0))


def test_posted_is_not_void_and_void_is_not_open(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await observe(engine, "a", cost=0.4)
        assert (await problem_of(call(engine, Expire("a")))).status == 409
        await decide(engine, "b")
        lease = await claim(engine)
        for _ in range(2):
            assert await call(engine, Expire("b")) == {"task": "b", "final": "model"}
        assert engine.owned[KEY].policy.tally.expired == 1
        assert (await problem_of(complete(engine, lease, rewards={"human": 1.0}, cost=0.5))).status == 409
        assert account(engine) == Account(10 * M, 0, 400_000, 0)
        late = await observe(engine, "b", rewards={"human": 1.0}, cost=0.5)  # a late answer is booked to what is free
        assert (late["learned"], late["booked"]) == (True, 0.5)
        assert account(engine) == Account(10 * M, 0, 900_000, 0)
        assert (await problem_of(call(engine, Expire("b")))).status == 409
        row = engine.store.decision(engine.owned[KEY].id, "b")
        assert row is not None
        assert (row.state, row.final) == ("posted", "model")
        await decide(engine, "m", force="model")
        assert (await problem_of(call(engine, Expire("m")))).status == 409

    play(database, script)


def test_a_late_answer_after_a_void_goes_to_suspense_if_nothing_is_free(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await call(engine, Expire("a"))
        await decide(engine, "b")
        await observe(engine, "a", cost=0.75)
        assert account(engine) == Account(1 * M, 1 * M, 0, 750_000)
        await call(engine, Expire("b"))
        assert account(engine) == Account(1 * M, 0, 750_000, 0)
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script, spec=small(1))


def test_the_model_costs_nothing(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "m", force="model")
        wrong = await problem_of(observe(engine, "m", rewards={"model": 1.0}, cost=0.5))
        assert (wrong.status, str(wrong)) == (422, "The model decided task 'm': there is no cost to book.")
        assert (await observe(engine, "m", rewards={"model": 1.0}, cost=0.0))["booked"] is None
        await observe(engine, "early", cost=0.5)  # it was taken before anybody knew who would decide
        await decide(engine, "early", force="model")
        assert account(engine) == Account(10 * M, 0, 0, 0)
        for cost in (0.5, 0.25):
            assert (await problem_of(observe(engine, "early", cost=cost))).status == 422
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script)


def test_a_top_up_happens_once_and_a_cut_leaves_what_is_used(database: Database) -> None:
    async def script(engine: Engine) -> None:
        up = ChangeBudget(BudgetBody(id="up", add=5.0))
        replies = await asyncio.gather(*(engine.submit(KEY, ChangeBudget(up.body)) for _ in range(5)))
        await decide(engine, "a")
        assert await engine.submit(KEY, up) == replies[0]
        assert len(set(replies)) == 1
        assert account(engine).total == 15 * M
        assert (await problem_of(call(engine, ChangeBudget(BudgetBody(id="up", add=6.0))))).status == 409
        await observe(engine, "a", cost=0.4)
        await decide(engine, "b")
        for given in ({"total": 1.3}, {"add": -13.7}, {"add": -16.0}):
            problem = await problem_of(call(engine, ChangeBudget(BudgetBody(id="down", **given))))
            assert problem.status == 409
        wrong: list[Any] = [{}, {"total": 1.0, "add": 1.0}, {"add": 1e-7}, {"total": {"euros": 1.0}}, {"add": 1e10}]
        for each in wrong:
            problem = await problem_of(call(engine, ChangeBudget(BudgetBody(id="wrong", **each))))
            assert problem.status == 422
        await call(engine, ChangeBudget(BudgetBody(id="down", total=1.4)))
        assert account(engine) == Account(1_400_000, 1 * M, 400_000, 0)

    play(database, script)


def test_a_top_up_pays_what_stands_in_suspense(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await observe(engine, "a", cost=3.0)
        assert account(engine) == Account(1 * M, 0, 1 * M, 2 * M)
        reply = await call(engine, ChangeBudget(BudgetBody(id="1", add=1.0)))
        assert reply["budget"]["cost"] == {"total": 2.0, "reserved": 0.0, "posted": 2.0, "suspense": 1.0, "free": 0.0}
        assert (await decide(engine, "b", force=None))["reason"] == "budget"
        await call(engine, ChangeBudget(BudgetBody(id="2", add=2.0)))
        assert account(engine) == Account(4 * M, 0, 3 * M, 0)
        assert (await decide(engine, "c"))["route"] == "human"
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script, spec=small(1))
