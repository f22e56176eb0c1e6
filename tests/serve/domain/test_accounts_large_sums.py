"""Sums: what a database cannot hold is refused before anything is changed, and JSON shows every micro-unit."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.serve.api.reviews import EffortBody
from deferkit.serve.api.tasks import CorrectionBody, OutcomeBody, TaskBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.accounts import MAX_AMOUNT, MAX_SUM, MICRO, Account, in_reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import Command, UnitOfWork
from deferkit.serve.reports.budgets import budget_states
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import KEY, SPEC, account, call, claim, complete, decide, observe, play, problem_of

MOST = MAX_SUM * MICRO
ENDLESS = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec()})
FULL = MAX_SUM // MAX_AMOUNT  # costs of the largest amount until an account is full


def exactly(text: bytes) -> Any:
    """Return JSON with its numbers as they are written."""
    return json.loads(text, parse_float=Decimal)


def test_sums_above_2_to_the_63_are_refused_at_the_door(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for start in range(0, FULL, 250):
            tasks = [f"t{i}" for i in range(start, min(FULL, start + 250))]
            await asyncio.gather(*(decide(engine, task) for task in tasks))
            await asyncio.gather(*(observe(engine, task, cost=MAX_AMOUNT) for task in tasks))
        assert account(engine) == Account(None, 0, MOST, 0)
        assert (await decide(engine, "more", force=None))["route"] == "model"
        refused = await problem_of(decide(engine, "forced", cost=1.0))
        assert (refused.status, refused.code) == (409, "exhausted")
        assert account(engine) == Account(None, 0, MOST, 0)

    play(database, script, spec=ENDLESS)
    report = replay(Store(database), *KEY)
    assert report.faults == []


def nearly_full(engine: Engine, room: int) -> None:
    """Leave this many micro-units of room, as if much had happened before."""
    accounts = engine.owned[KEY].policy.accounts
    accounts["cost"] = Account(None, 0, MOST - room, 0)


def test_every_way_to_book_a_cost_keeps_to_the_limit(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await observe(engine, "parked", cost=3.0, rewards={"human": 1.0})
        for task in ("a", "b", "c", "late"):
            await decide(engine, task, reviewers=2 if task == "c" else 1)
        await observe(engine, "b", cost=1.0)
        claims = [await claim(engine, "ann", lease_s=0.001)]
        claims += [await claim(engine, name) for name in ("bo", "cy", "di")]
        nearly_full(engine, 2 * MICRO)
        calls = [observe(engine, "a", cost=2.000001)]
        calls += [call(engine, Correct(CorrectionBody(id="x", task="b", cost=3.000001)))]
        calls += [complete(engine, each, cost=2.000001) for each in claims[1:]]
        for refused in [await problem_of(each) for each in calls]:
            assert refused.status in (409, 422), refused
        await decide(engine, "parked")
        row = engine.store.decision(engine.owned[KEY].id, "parked")
        assert row is not None
        assert (row.cost, row.rewards) == (None, {"human": 1.0})  # as if it had come later
        assert engine.owned[KEY].policy.accounts["cost"].posted == MOST - 2 * MICRO

    play(database, script, spec=ENDLESS)


amounts = st.integers(0, MAX_AMOUNT * MICRO)
tasks = st.sampled_from("abc")
doings = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), tasks, amounts),
        st.tuples(st.just("correct"), tasks, amounts),
        st.tuples(st.just("expire"), tasks, amounts),
        st.tuples(st.just("park"), st.sampled_from("def"), amounts),
        st.tuples(st.just("decide"), st.sampled_from("abcdef"), amounts),
    ),
    max_size=30,
)


@given(st.one_of(st.none(), st.just(MAX_AMOUNT)), st.integers(0, 3 * MAX_AMOUNT * MICRO), doings)
def test_no_sequence_of_costs_passes_the_limit(
    total: int | None, room: int, doings: list[tuple[str, str, int]]
) -> None:
    """Whatever is decided, booked and corrected close to the limit: sums fit, and are shown exactly."""
    budget = BudgetSpec() if total is None else BudgetSpec(total=total, horizon=1000, max_cost=total / 10)
    owned = OwnedPolicy(1, "default", Policy(msgspec.structs.replace(SPEC, budget={"cost": budget})), 1, 0)
    suspense = MOST - room - MAX_AMOUNT * MICRO
    start = Account(None, 0, MOST - room) if total is None else Account(total * MICRO, 0, total * MICRO, suspense)
    owned.policy.accounts["cost"] = start
    work = UnitOfWork()
    for number, (what, task, micro) in enumerate(doings):
        work.decisions.setdefault((1, task), None)
        work.parked.setdefault((1, task), None)
        work.requests[1, f"correction {number}"] = None
        commands: dict[str, Command] = {
            "decide": Decide(TaskBody(task=task, context=[1.0, 0.5], force="human" if total is None else None)),
            "observe": Observe(OutcomeBody(task=task, cost=micro / MICRO, park=False)),
            "park": Observe(OutcomeBody(task=task, cost=micro / MICRO)),
            "correct": Correct(CorrectionBody(id=str(number), task=task, cost=micro / MICRO)),
            "expire": Expire(task),
        }
        before = owned.policy.accounts["cost"]
        try:
            commands[what].run(owned, work, number)
        except Problem:
            assert owned.policy.accounts["cost"] == before
        after = owned.policy.accounts["cost"]
        assert after.reserved + after.posted + after.suspense <= MOST < 2**63
        shown = exactly(msgspec.json.encode(budget_states(owned, 0)["cost"]))
        for name in ("reserved", "posted", "suspense"):
            assert shown[name] * MICRO == getattr(after, name)


@given(st.integers(0, 2**63 - 1))
def test_amounts_in_json_are_exact(micro: int) -> None:
    text = msgspec.json.encode(in_reply(micro))
    assert exactly(text) * MICRO == micro
    assert msgspec.json.decode(text) == micro / MICRO  # a reader of doubles gets the next one


def test_an_effort_keeps_to_the_limit(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lapsed = await claim(engine, "ann", lease_s=0.001)
        await asyncio.sleep(0.01)
        assert (await claim(engine, "bo"))["epoch"] == 2
        nearly_full(engine, MICRO)
        lease = {name: lapsed[name] for name in ("task", "seat", "epoch", "token")}
        refused = await problem_of(call(engine, Effort(EffortBody(**lease, cost=1.000001))))
        assert "9,000,000,000,000" in str(refused)
        assert refused.status == 422
        assert engine.owned[KEY].policy.accounts["cost"].posted == MOST - MICRO

    play(database, script, spec=ENDLESS)


@pytest.mark.parametrize("micro", [2**53 + 1, 2**53 - 1, MAX_AMOUNT * MICRO + 1])
def test_a_sum_that_no_double_is_equal_to_is_shown_to_the_last_digit(database: Database, micro: int) -> None:
    async def script(engine: Engine) -> None:
        engine.owned[KEY].policy.accounts["cost"] = Account(None, 0, micro, 0)
        assert exactly(msgspec.json.encode(budget_states(engine.owned[KEY], 0)))["cost"]["posted"] * MICRO == micro

    play(database, script, spec=ENDLESS)
