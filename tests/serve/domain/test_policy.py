"""A policy: what is live is the fold of its log, bit for bit, and the learner has the account's budget."""

import asyncio
import warnings

import msgspec
import pytest

from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.reviews import EffortBody
from deferkit.serve.api.tasks import BatchBody, CorrectionBody, TaskBody
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicyChange, PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.decide import DecideMany
from deferkit.serve.engine.commands.policy import ChangeBudget, ChangePolicy
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    call,
    check_booked,
    check_in_step,
    claim,
    decide,
    observe,
    play,
    replayed,
)
from tests.serve.harness.policy_histories import RandomHistory

ONE = {"cost": BudgetSpec(total=6, horizon=80, max_cost=1)}
TWO = {"minutes": BudgetSpec(total=6, horizon=90, max_cost=1), "euros": BudgetSpec(total=4, horizon=80, max_cost=1)}
NAMED = FeatureSpec(numbers=["age", "amount"], categories={"kind": ["a", "b"], "city": 2})
SPECS = {
    "plain": PolicySpec(name="p", features=3, budget=ONE),
    "experts and resources": PolicySpec(name="p", features=2, budget=TWO, experts=["ann", "bo"], explore_floor=0.2),
    "without end": PolicySpec(name="p", features=2, budget={"cost": BudgetSpec()}),
    "one with, one without": PolicySpec(
        name="p", features=2, budget={"minutes": BudgetSpec(max_cost=2), "euros": TWO["euros"]}, pacing="adaptive"
    ),
    "named": PolicySpec(name="p", features=NAMED, budget=ONE),
    "logistic": PolicySpec(name="p", features=2, budget=ONE, link="logistic", cost_link="logistic", warm_up=3),
    "gradient": PolicySpec(name="p", features=2, budget=TWO, pacing="gradient", reviewers=2),
    "paper": PolicySpec(name="p", features=2, budget=ONE, pacing="paper", warm_up=0),
}


def policy_of(engine: Engine) -> Policy:
    return engine.owned[KEY].policy


@pytest.mark.parametrize("name", SPECS)
def test_the_learner_keeps_step_and_the_log_folds_to_what_is_live(name: str, database: Database) -> None:
    spec = SPECS[name]
    life = RandomHistory(7, spec)

    async def first(engine: Engine) -> bytes:
        for _ in range(100):
            await life.step(engine)
            check_in_step(policy_of(engine))
        check_booked(engine)
        assert replayed(engine.store) == policy_of(engine)
        return policy_of(engine).to_bytes()

    async def second(engine: Engine) -> None:
        assert policy_of(engine).to_bytes() == before
        for _ in range(30):
            await life.step(engine)
            check_in_step(policy_of(engine))
        check_booked(engine)
        assert replayed(engine.store) == policy_of(engine)

    before = play(database, first, spec=spec)
    play(database, second, spec=None)


@pytest.mark.parametrize("name", ["plain", "experts and resources", "gradient"])
def test_whatever_shares_a_commit_is_done_one_after_the_other(name: str, database: Database) -> None:
    # a fit that has to be waited for, or a switch of the link, would divide a group
    spec = msgspec.structs.replace(SPECS[name], link="identity", representation="linear")
    life = RandomHistory(5, spec)

    async def script(engine: Engine) -> None:
        for size in range(2, 26):
            await asyncio.gather(*(life.step(engine) for _ in range(size)))
            check_in_step(policy_of(engine))
        assert engine.groups == 24
        check_booked(engine)
        assert replayed(engine.store) == policy_of(engine)

    # time enough for each group, however busy the machine is
    play(database, script, spec=spec, settings=EngineSettings(group_s=60.0))


def test_the_lives_meet_everything(database: Database) -> None:
    """What the test above is worth: overruns, suspense, lateness, corrections and expiry all happen in such a life."""
    seen: set[str] = set()
    spec = msgspec.structs.replace(SPECS["plain"], defaults="2026.11")  # which asks enough to come into suspense

    async def script(engine: Engine) -> None:
        life = RandomHistory(23, spec)
        for _ in range(600):
            await life.step(engine)
            if policy_of(engine).frozen:
                seen.add("suspense")
        for row in engine.store.log(engine.owned[KEY].id):
            record = records.decode(bytes(row.body))
            seen.add(row.kind)
            if isinstance(record, records.ObservedRecord) and record.cost != record.told:
                seen.add("beyond the cap")
            if isinstance(record, records.ObservedRecord) and record.cost is not None and record.released is None:
                seen.add("late cost")

    play(database, script, spec=spec)
    wanted = {"suspense", "beyond the cap", "late cost", "decided", "observed", "corrected", "expired", "effort"}
    assert seen >= wanted | {"budget", "answered", "created"}


def test_a_cost_beyond_the_cap_by_hand(database: Database) -> None:
    """10 are there and 1 is held; 2.5 are booked, of which the learner is told 1: it has 7.5 left all the same."""

    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await observe(engine, "a", cost=2.5)
        summary = policy_of(engine).learner.summary()
        assert (summary.spent, summary.left) == (1.0, 7.5)
        assert policy_of(engine).accounts["cost"] == (10_000_000, 0, 2_500_000, 0)
        await call(engine, Correct(CorrectionBody(id="1", task="a", cost=0.25)))
        summary = policy_of(engine).learner.summary()
        assert (summary.spent, summary.left) == (0.25, 9.75)

    play(database, script)


def test_what_the_learner_is_never_told_of_takes_budget_from_it(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = await claim(engine)
        await call(engine, Expire("a"))
        await call(engine, Effort(EffortBody(task="a", seat=0, epoch=lease["epoch"], token=lease["token"], cost=3.0)))
        summary = policy_of(engine).learner.summary()
        assert (summary.spent, summary.left) == (0.0, 7.0)
        await call(engine, ChangeBudget(BudgetBody(id="1", add=-6.5)))
        assert policy_of(engine).learner.summary().left == 0.5
        reply = await decide(engine, "b", force=None)
        assert (reply["route"], reply["reason"], reply["budget_left"]) == ("model", "budget", 0.5)

    play(database, script)


def test_a_cut_to_exactly_what_is_used_is_possible_though_sums_of_decimals_are_more(database: Database) -> None:
    """0.1 + 0.2 is more than 0.3 in doubles; the account says what is left, and that is nothing."""

    async def script(engine: Engine) -> None:
        for task, cost in (("a", 0.1), ("b", 0.2)):
            await decide(engine, task)
            await observe(engine, task, cost=cost)
        await call(engine, ChangeBudget(BudgetBody(id="1", total=0.3)))
        check_in_step(policy_of(engine))
        assert policy_of(engine).accounts["cost"].free == 0
        assert (await decide(engine, "c", force=None))["reason"] == "budget"
        assert replayed(engine.store) == policy_of(engine)

    play(database, script)


def test_decisions_that_are_forgotten_are_booked_and_not_learned(database: Database) -> None:
    spec = msgspec.structs.replace(SPEC, memory=1000, budget={"cost": BudgetSpec(total=10, horizon=3000, max_cost=1)})

    async def script(engine: Engine) -> None:
        await decide(engine, "held")
        await decide(engine, "settled")
        await observe(engine, "settled", cost=0.5)
        await decide(engine, "given up")
        await call(engine, Expire("given up"))
        batch = [TaskBody(task=f"t{i}", context=[1.0, 0.0], force="model") for i in range(1000)]
        await call(engine, DecideMany(BatchBody(tasks=batch)))
        batch = [TaskBody(task=f"u{i}", context=[0.0, 1.0], available=[]) for i in range(50)]
        await call(engine, DecideMany(BatchBody(tasks=batch)))
        learner = policy_of(engine).learner
        assert [learner.remembers(i) for i in range(3)] == [True, False, False]  # what holds budget is kept
        late = await observe(engine, "settled", rewards={"human": 1.0})
        assert (late["learned"], late["late"]) == (False, "the learner remembers the decision no longer")
        late = await observe(engine, "given up", rewards={"model": 1.0}, cost=0.25)
        assert (late["learned"], late["booked"]) == (False, 0.25)
        reply = await call(engine, Correct(CorrectionBody(id="1", task="settled", cost=0.75)))
        assert reply["learned"] is False
        check_in_step(policy_of(engine))
        assert (await observe(engine, "held", rewards={"human": 1.0}, cost=0.5))["learned"] is True
        assert learner.remembers(0) is False
        assert (await observe(engine, "held", rewards={"model": 0.5}))["learned"] is False
        assert policy_of(engine).accounts["cost"] == (10_000_000, 0, 1_500_000, 0)
        check_in_step(policy_of(engine))
        check_booked(engine)
        assert replayed(engine.store) == policy_of(engine)

    play(database, script, spec=spec)


def test_the_end_of_the_horizon_is_no_warning_to_anyone(database: Database) -> None:
    spec = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=1, horizon=3, max_cost=1)})

    async def script(engine: Engine) -> None:
        for i in range(6):
            await decide(engine, f"t{i}", force=None)
        assert replayed(engine.store) == policy_of(engine)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        play(database, script, spec=spec)
    assert [str(each.message) for each in caught] == []


def test_changed_settings_are_in_the_log_too(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await call(engine, ChangePolicy(PolicyChange(lease_s=7.0, deadline_s=None, after_deadline="wait")))
        assert policy_of(engine).spec.lease_s == 7.0
        assert replayed(engine.store) == policy_of(engine)

    play(database, script)


def test_a_snapshot_is_the_policy_and_holds_no_more_than_data() -> None:
    policy = Policy(SPECS["named"])
    policy.append(records.CreatedRecord(spec=SPECS["named"]), at=0)
    data = policy.to_bytes()
    again = Policy.from_bytes(data)
    assert again == policy
    again.append(records.BudgetChangedRecord(request="1", totals={"cost": 9 * MICRO}), at=1)
    assert again != policy
    assert policy != "a policy"
