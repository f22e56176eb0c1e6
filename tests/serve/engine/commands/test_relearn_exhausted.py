"""`forget` where the budget was taken exactly: the rebuilt learner's sums differ from the log's in the last bit."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit.serve.api.tasks import OutcomeBody, TaskBody
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.relearn import forget_task
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import KEY, SPEC, call, check_booked, check_in_step, decide, observe, play, replayed

RESOURCES = (("cost",), ("cost", "euros"))


def exhausting_spec(rng: np.random.Generator) -> PolicySpec:
    """Return a policy whose budget is some whole maximum costs."""
    names = RESOURCES[int(rng.integers(4)) // 3]
    cap = round(float(rng.uniform(0.06, 3)), int(rng.integers(1, 4)))
    total = round(cap * int(rng.integers(2, 9)), 6)
    budgets = {name: BudgetSpec(total=total, horizon=500, max_cost=cap) for name in names}
    if rng.random() < 0.3:
        budgets = {name: msgspec.structs.replace(each, hold=round(cap / 3, 6)) for name, each in budgets.items()}
    return msgspec.structs.replace(SPEC, budget=budgets)


def exhausting_log(seed: int, n: int = 40) -> list[tuple[records.AnyRecord, int]]:
    """Return the log of a policy whose budget is taken exactly: the last cost is all that is left."""
    rng = np.random.default_rng(seed)
    work, owned = UnitOfWork(), OwnedPolicy(1, "default", Policy(exhausting_spec(rng)), 1, 0)
    work.record(owned, records.CreatedRecord(spec=owned.policy.spec), 0)
    caps = {name: each.max_cost or 0.0 for name, each in owned.policy.spec.budget.items()}

    def amount(part: float) -> Any:
        costs = {name: round(cap * part, 6) for name, cap in caps.items()}
        return costs if len(costs) > 1 else next(iter(costs.values()))

    for i in range(n):
        key = (1, f"t{i}")
        work.decisions[key] = None
        work.seats[key] = []
        task: dict[str, Any] = {"task": key[1], "context": rng.random(2).tolist(), "force": "human"}
        free = {name: account.free or 0 for name, account in owned.policy.accounts.items()}
        if rng.random() < 0.4:  # announced: all that is left, a part of a maximum, or nothing
            exact = {name: min(free[name] / MICRO, cap) for name, cap in caps.items()}
            given = [amount(float(rng.random())), amount(0), exact if len(caps) > 1 else exact["cost"]]
            task["cost"] = given[int(rng.integers(3))]
        try:
            Decide(TaskBody(**task)).run(owned, work, i)
        except Problem:
            continue
        if rng.random() < 0.1:
            Expire(key[1]).run(owned, work, i)
        elif rng.random() < 0.9:
            part = float(rng.choice([rng.random(), 1]))
            cost = task["cost"] if "cost" in task and rng.random() < 0.5 else amount(part)
            Observe(OutcomeBody(task=key[1], rewards={"human": 1.0}, cost=cost)).run(owned, work, i)
    return [(records.decode(row.body), row.at) for row in work.log]


def rebuilt(log: list[tuple[records.AnyRecord, int]], forgotten: set[int]) -> Policy:
    """Return the policy that a log gives without the outcomes of some decisions."""
    created = log[0][0]
    assert isinstance(created, records.CreatedRecord)
    policy = Policy(created.spec, forgotten=forgotten, releases=True)
    for record, at in log:
        policy.apply(record, at)
    return policy


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.data())
def test_a_rebuild_takes_every_decision_of_an_exhausted_budget(seed: int, data: st.DataObject) -> None:
    log = exhausting_log(seed)
    decided = [record.id for record, _ in log if isinstance(record, records.DecidedRecord)]
    live = rebuilt(log, set())
    forgotten = data.draw(st.sets(st.sampled_from(decided), min_size=1))
    policy = rebuilt(log, forgotten)
    assert policy.accounts == live.accounts
    check_in_step(policy)
    assert Policy.from_bytes(policy.to_bytes()) == policy


@pytest.mark.parametrize("seed", [4, 7])
def test_forget_answers_200_where_the_budget_was_taken_exactly(seed: int, database: Database) -> None:
    async def script(engine: Engine) -> None:
        rng = np.random.default_rng(seed)
        tasks = 0
        while (free := engine.owned[KEY].policy.accounts["cost"].free or 0) > 0:
            cost = min(free, int(rng.integers(100_000, 700_000))) / MICRO
            try:
                await decide(engine, f"t{tasks}", cost=cost, context=rng.random(2).tolist())
            except Problem:  # the learner's own sums have a little less
                break
            await observe(engine, f"t{tasks}", rewards={"human": 1.0}, cost=cost)
            tasks += 1
        for i in (0, tasks // 2, tasks - 1):
            assert (await forget_task(engine, KEY, f"t{i}")).status == 200
            check_in_step(engine.owned[KEY].policy)
            check_booked(engine)
            assert replayed(engine.store) == engine.owned[KEY].policy

    spec = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=2.8, horizon=500, max_cost=1)})
    play(database, script, spec=spec)


def test_a_forgotten_task_that_expires_releases_its_budget(database: Database) -> None:
    """Also in the learner, which asks nobody for what it takes to be reserved."""

    async def script(engine: Engine) -> None:
        for i in range(4):
            await decide(engine, f"t{i}")
        assert (await forget_task(engine, KEY, "t1")).status == 200
        await call(engine, Expire("t1"))
        await call(engine, Expire("t2"))
        check_in_step(engine.owned[KEY].policy)
        assert (await forget_task(engine, KEY, "t2")).status == 200
        check_in_step(engine.owned[KEY].policy)
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script)


def test_a_log_from_before_replays_as_it_did() -> None:
    """Its `forgotten` records do not say that the learner releases what expires; state and decisions stay."""
    before, after = (
        rebuilt_with(records.decode(body))
        for body in (
            b'{"kind":"forgotten","task":"t0","id":0}',
            b'{"kind":"forgotten","task":"t0","id":0,"releases":true}',
        )
    )
    assert (before.learner.summary().left, after.learner.summary().left) == (9.0, 10.0)
    assert Policy.from_bytes(before.to_bytes()) == before
    assert Policy.from_bytes(after.to_bytes()) == after


def rebuilt_with(record: records.AnyRecord) -> Policy:
    """Return a policy whose only task was forgotten by this record, and expired."""
    assert isinstance(record, records.ForgottenRecord)
    work, owned = UnitOfWork(), OwnedPolicy(1, "default", Policy(SPEC, forgotten={0}, releases=record.releases), 1, 0)
    work.decisions[1, "t0"], work.seats[1, "t0"] = None, []
    Decide(TaskBody(task="t0", context=[1.0, 0.5], force="human")).run(owned, work, 1)
    Expire("t0").run(owned, work, 2)
    return owned.policy
