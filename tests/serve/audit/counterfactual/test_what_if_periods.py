"""What another budget would have done, for budgets that renew or have an end."""

import math
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit.errors import InvalidArgument
from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.tasks import OutcomeBody, TaskBody
from deferkit.serve.audit.counterfactual.estimate import DecisionLog, Feedback, ImputedOutcome, feedback_of
from deferkit.serve.audit.counterfactual.scenario import Alternative, Scenario, logged_budgets, scenario_of
from deferkit.serve.audit.counterfactual.what_if import what_if
from deferkit.serve.audit.replay import logged_records, replay
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetPlan, BudgetSpec, PolicyChange, PolicySpec
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.policy import ChangeBudget, ChangePolicy
from deferkit.serve.engine.commands.upkeep import renew
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.audit.counterfactual.test_estimate import decided
from tests.serve.audit.counterfactual.test_what_if import asked_of
from tests.serve.domain.test_books import PlainBooks
from tests.serve.harness.in_process import HOUR, by_hand, call, dated, decide, observe, play, renewing, small
from tests.serve.harness.policy_histories import World, simulate, spec_of

QUIET = EngineSettings(tick_s=1e9)
UNTIL = 2.0e9
NOTHING = ImputedOutcome({}, {})
PAID = {"human": {"cost": 100_000}}
AT_ONCE = Feedback({"model": 0, "human": 0}, {"model": (), "human": ()}, {"model": 0.0, "human": 0.0})


def gone_through(spec: PolicySpec, scenario: Scenario, log: Any, feedback: Feedback = AT_ONCE) -> Alternative:
    """Let a policy with another budget go through the records after the first."""
    other = Alternative(spec, scenario, feedback)
    for at, record in log:
        if isinstance(record, records.DecidedRecord):
            other.decide(record, NOTHING, at)
        else:
            other.see(record)
    return other


# --- the budget that was --------------------------------------------------------------------------------------------

PLANS: dict[str, tuple[PolicySpec, dict[str, Any]]] = {
    "lapses": (renewing(), {"allowance": 4.5}),
    "carries": (renewing(carry=1.5), {"allowance": 2.25}),
    "carries all": (renewing(carry=None, start=UNTIL - 3.5 * HOUR), {"allowance": 4}),
    "until": (dated(UNTIL), {"until": UNTIL + HOUR}),
    "horizon": (small(14), {"horizon": 20}),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_budget_that_was_is_the_policy_that_was(database: Database, name: str) -> None:
    """Renewals, another plan, top-ups and late costs across periods: bit for bit."""
    spec, plan = PLANS[name]

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        clock.at = int((UNTIL - 4 * HOUR) * 1e6)
        for i in range(24):
            await decide(engine, f"t{i}", context=[1.0, i / 24], force="human" if i % 7 == 6 else None)
            if i >= 2 and i % 3:
                row = engine.store.decision(1, f"t{i - 2}")
                assert row is not None
                cost = {} if row.route == "model" else {"cost": 0.125 + i / 32}
                await observe(engine, f"t{i - 2}", rewards={"human": 0.75, "model": i % 2}, **cost)
            if i in (6, 15):
                await call(engine, ChangeBudget(BudgetBody(id=f"b{i}", add=1.5 if i == 6 else -0.25)))
            if i == 9:
                await call(engine, ChangePolicy(PolicyChange(budget={"cost": BudgetPlan(**plan)}, reviewers=2)))
            clock.advance(HOUR * (0.05 if i % 3 else 0.5))
            if i == 18:
                clock.advance(1.5 * HOUR)  # a period without a task

    play(database, script, spec=spec, settings=QUIET)
    store, decision_log = Store(database), DecisionLog()
    report = replay(store, "default", "p", watch=decision_log.see)
    policy = report.policy
    assert policy is not None
    assert report.faults == []
    logged = logged_budgets(policy.spec, policy.accounts)
    same = scenario_of("1x", logged)
    (_, created), *log = logged_records(store, report.row)
    assert sum(isinstance(record, records.RenewedRecord) for _, record in log) >= 5 * (
        spec.budget["cost"].every is not msgspec.UNSET
    )
    assert isinstance(created, records.CreatedRecord)
    spec = same.spec(created.spec, decisions=24, max_logged_cost={"cost": 1.0})
    assert spec == created.spec
    other = gone_through(spec, same, log, feedback_of(decision_log, decision_log.facts())).policy
    assert (other.accounts, other.periods, other.spec) == (policy.accounts, policy.periods, policy.spec)
    assert other.learner == policy.learner
    found = what_if(logged_records(store, report.row), policy, decision_log, [same, scenario_of("2x", logged)])
    assert found.rows[1].spent == found.rows[0].spent
    assert found.rows[1].totals == found.rows[0].totals == {"cost": (logged["cost"] or 0) / MICRO}
    assert any("what each period gets" in said for said in found.remarks) == (
        spec.budget["cost"].every is not msgspec.UNSET
    )


def test_reviews_that_can_be_stopped_are_refused() -> None:
    for spec in (
        renewing(hold=0.5),
        msgspec.structs.replace(small(9), budget={"cost": BudgetSpec(total=9, horizon=9, limit=1)}),
    ):
        with pytest.raises(
            InvalidArgument, match="where reviews can be stopped .hold or limit of cost.: it would have"
        ):
            logged_budgets(spec, Policy(spec).accounts)


# --- another budget, against plain books ----------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["decide", "decide", "observe", "wait", "top up"]), st.integers(1, 1_000_000), st.integers(0, 5)
    ),
    min_size=8,
    max_size=30,
)


def recorded(spec: PolicySpec, steps: Any) -> tuple[list[tuple[int, records.AnyRecord]], Policy]:
    """Return the log of a policy whose callers always ask the human, for a cost that is known beforehand."""
    owned, work = OwnedPolicy(1, "default", Policy(spec), 1, 0), UnitOfWork()
    work.record(owned, records.CreatedRecord(spec=owned.policy.spec), 0)
    now, tasks, pending = 0, 0, []
    for what, micro, place in [("decide", 1, 0), *steps]:
        if what == "wait":
            now += int(micro * 2.5 * HOUR)
            continue
        renew(owned, work, now, begin=what == "decide")
        if what == "decide":
            name = f"t{tasks}"
            work.decisions[1, name] = None
            try:
                Decide(TaskBody(task=name, context=[1.0, 0.5], force="human", cost=micro / MICRO)).run(owned, work, now)
            except Problem:
                continue
            tasks += 1
            pending.append(name)
        elif what == "observe" and pending:
            name = pending.pop(place % len(pending))
            work.seats.setdefault((1, name), [])
            Observe(OutcomeBody(task=name, cost=2 * micro / MICRO)).run(owned, work, now)
        elif what == "top up":
            work.requests[1, f"budget {len(work.log)}"] = None
            ChangeBudget(BudgetBody(id=f"{len(work.log)}", add=micro / MICRO)).run(owned, work, now)
    return [(line.at, records.decode(line.body)) for line in work.log], owned.policy


def share(part: int, of: int, wanted: int) -> int:
    return round(Fraction(part * wanted, of))


@settings(max_examples=60, deadline=None)
@given(
    steps=steps,
    carry=st.sampled_from([None, 0.0, 0.3, 1.0, math.inf]),
    amount=st.integers(1_000_000, 4_000_000),
    factor=st.sampled_from([0.0, 0.37, 0.5, 1.0, 1.7, 4.0]),
)
def test_the_money_of_another_budget_is_that_of_plain_books(
    steps: Any, carry: float | None, amount: int, factor: float
) -> None:
    """Without a carry it is a budget until a time: one period, and a total that grows with its top-ups."""
    ends = carry is None
    if carry is None:
        spec = dated(1e9, total=amount / MICRO)
    else:
        spec = renewing(total=amount / MICRO, carry=None if math.isinf(carry) else carry, start=0.0)
    log, policy = recorded(spec, steps)
    logged = logged_budgets(policy.spec, policy.accounts)
    last = logged["cost"] or 0
    wanted = round(factor * last)
    scenario = scenario_of(f"{wanted / MICRO:.6f}", logged)
    assert scenario.totals == {"cost": wanted}
    other = Alternative(scenario.spec(spec, decisions=9, max_logged_cost={"cost": 1.0}), scenario, AT_ONCE)
    plain = PlainBooks(0 if ends else wanted, 0.0 if carry is None else carry)
    plain.free = Fraction(share(amount, last, wanted) if ends else 0)
    total, own, periods = amount if ends else 0, plain.free, 0
    for at, record in log[1:]:
        match record:
            case records.RenewedRecord():
                plain.renew(first=not periods)
                periods, total = periods + 1, total + record.granted - record.lapsed
            case records.BudgetChangedRecord(totals={"cost": int(grown)}):
                more = share(grown, last, wanted) - own if ends else share(grown - total, last, wanted)
                plain.free, total, own = plain.free + more, grown, own + more
            case records.DecidedRecord(held={"cost": held}) if plain.free >= held:
                plain.held[record.task] = Fraction(held)
                plain.free -= held
            case records.ObservedRecord(cost={"cost": cost}) if record.task in plain.held:
                plain.free += plain.held.pop(record.task) - cost
                plain.spent += cost
        if isinstance(record, records.DecidedRecord):
            other.decide(record, NOTHING, at)
        else:
            other.see(record)
        account = other.policy.accounts["cost"]
        assert (account.free or 0) - account.suspense == plain.free
        assert account.reserved == sum(plain.held.values())
        assert account.posted + account.suspense == plain.spent
    assert other.policy.periods["cost"].end == policy.periods["cost"].end
    assert other.policy.periods["cost"].number == periods


def test_what_is_due_is_heard_before_the_period_ends() -> None:
    """The log asked nobody; by lot the other one asks every second time, and hears of it before the next task."""
    spec = msgspec.structs.replace(renewing(total=90, start=0.0), features=1, warm_up=90)
    heard = Feedback({"model": 0, "human": 0}, {"model": ("model",), "human": ("human",)}, {"model": 0.0, "human": 0.0})
    other = Alternative(spec, scenario_of("1x", {"cost": 90_000_000}), heard)
    other.see(records.RenewedRecord(resource="cost", start=0.0, end=HOUR, granted=90_000_000, carried=0, lapsed=0))
    number = 0
    while number < 3 or not other.policy.learner.summary().pending:
        other.decide(
            decided(number, "model", 0.5), ImputedOutcome({"model": 0.25, "human": 0.75}, PAID), number * MICRO
        )
        number += 1
    later: dict[str, Any] = {
        "start": HOUR,
        "end": 2 * HOUR,
        "granted": 90_000_000,
        "carried": 0,
        "lapsed": 0,
        "decisions": number,
    }
    other.see(records.RenewedRecord(resource="cost", **later))
    period = other.policy.periods["cost"]
    assert (period.held, period.decisions_before) == (0, number)
    assert period.posted_before == other.policy.learner.summary().routes["human"] * 100_000


def test_a_renewing_budget_without_end_and_an_unlimited_one_with_one() -> None:
    life = simulate(renewing_world(), World.draw(4, 120), every_s=60.0)
    free, none = asked_of(life, "inf", "0").rows[1:]
    assert (free.totals, none.totals) == ({"cost": None}, {"cost": 0})
    assert free.asked > life.policy.learner.summary().deferral_rate
    assert (none.asked, none.spent["cost"]) == (0, 0)
    unlimited = simulate(spec_of(120, 0.5, budget={"cost": BudgetSpec(max_cost=1)}), World.draw(4, 120))
    assert asked_of(unlimited, "20").rows[1].spent["cost"] <= 20


# --- another budget, against worlds in which it is tried ------------------------------------------------------------


def renewing_world(factor: float = 1.0, **given: Any) -> PolicySpec:
    """Return a policy whose budget renews every hour: sixty tasks, of which about a quarter can be asked about."""
    budget: dict[str, Any] = {"total": 7.5 * factor, "every": "1h", "start": 0.0, "max_cost": 1}
    return spec_of(1, 1.0, budget={"cost": BudgetSpec(**budget | given)})


def dated_world(factor: float = 1.0) -> PolicySpec:
    """Return a policy with as much, but for the whole of five hours."""
    return spec_of(1, 1.0, budget={"cost": BudgetSpec(total=37.5 * factor, until=5 * HOUR, max_cost=1)})


@pytest.mark.parametrize("made", [renewing_world, dated_world])
def test_many_tasks_are_decided_as_they_were(made: Any) -> None:
    life = simulate(made(), World.draw(3, 300), feedback="bandit", delay=7, every_s=60.0)
    done, same = asked_of(life, "1x").rows
    assert same._replace(budget="as it was") == done


@pytest.mark.parametrize("made", [renewing_world, lambda factor: renewing_world(factor, carry=1.0), dated_world])
def test_estimates_are_within_their_error_of_what_another_budget_does(made: Any) -> None:
    off, stated, spent = [], [], []
    for seed in range(10):
        world = World.draw(seed, 300, bent=0.3)
        life = simulate(msgspec.structs.replace(made(1.0), seed=seed), world, feedback="bandit", every_s=60.0)
        rows = asked_of(life, "0.5x", "2x").rows
        assert rows[0].totals == {"cost": made(1.0).budget["cost"].total}
        for factor, row in zip((0.5, 2.0), rows[1:], strict=True):
            tried = simulate(msgspec.structs.replace(made(factor), seed=seed), world, feedback="bandit", every_s=60.0)
            assert row.reward is not None
            off.append(row.reward.mean - tried.reward)
            stated.append(row.reward.se)
            spent.append(row.spent["cost"] / tried.spent())
    assert (np.abs(off) <= 2 * np.array(stated)).mean() >= 0.85
    assert abs(np.mean(off)) <= 3 * np.std(off) / len(off) ** 0.5
    assert np.mean(stated) < 2 * np.sqrt(np.mean(np.square(off)))
    assert np.mean(spent) == pytest.approx(1.0, abs=0.03)
