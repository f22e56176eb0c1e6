"""The books of each period of a budget that renews: they add up, in the engine, in replay and as a table."""

import math
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.tasks import OutcomeBody, TaskBody
from deferkit.serve.audit.renewal_history import RenewalHistory
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MAX_SUM, MICRO, Account
from deferkit.serve.domain.books import carried_of, due_renewals, grantable, idle_periods
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.records import RenewedRecord
from deferkit.serve.engine.commands import upkeep
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.policy import ChangeBudget
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.export import HEADER, ledger_table
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import (
    HOUR,
    KEY,
    account,
    by_hand,
    call,
    decide,
    observe,
    play,
    renewing,
)

QUIET = EngineSettings(tick_s=1e9)


class PlainBooks:
    """The money of a renewing budget as fractions, each period by itself."""

    def __init__(self, allowance: int, carry: float) -> None:
        self.allowance = Fraction(allowance)
        self.carry = carry
        self.free = Fraction(0)
        self.held: dict[str, Fraction] = {}
        self.lapsed = Fraction(0)
        self.spent = Fraction(0)

    def renew(self, *, first: bool) -> None:
        owed = max(-self.free, Fraction(0))
        carries_all = first or math.isinf(self.carry)
        most = self.free if carries_all else min(self.free, Fraction(self.carry) * self.allowance)
        kept = max(Fraction(int(most)), Fraction(0))
        self.lapsed += max(self.free, Fraction(0)) - kept
        self.free = kept + self.allowance - owed


steps = st.lists(
    st.tuples(
        st.sampled_from(["decide", "observe", "expire", "wait", "top up"]),
        st.integers(0, 1_000_000),
        st.integers(0, 5),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps, carry=st.sampled_from([0.0, 0.3, 1.0, 2.5, math.inf]), allowance=st.integers(1_000_000, 4_000_000))
def test_the_books_of_each_period_add_up(steps: Any, carry: float, allowance: int) -> None:
    spec = renewing(total=allowance / MICRO, carry=None if math.isinf(carry) else carry, start=0.0)
    owned, work = OwnedPolicy(1, "default", Policy(spec), 1, 0), UnitOfWork()
    work.record(owned, records.CreatedRecord(spec=owned.policy.spec), 0)
    plain, now, periods, tasks, begun = PlainBooks(allowance, carry), 0, 0, 0, 0
    for what, micro, place in steps:
        names = list(plain.held)
        if what == "wait":
            now += int(micro / MICRO * 2.5 * HOUR * MICRO)
            continue
        if tasks or what == "decide":
            hours = now // int(HOUR * MICRO)
            begun = begun if tasks else hours
            while periods < hours - begun + 1:
                plain.renew(first=not periods)
                periods += 1
            upkeep.renew(owned, work, now, begin=what == "decide")
        if what == "decide":
            name = f"t{tasks}"
            tasks += 1
            work.decisions[1, name] = None
            cost = micro / MICRO
            fits = plain.free >= micro
            try:
                Decide(TaskBody(task=name, context=[1.0, 0.5], force="human", cost=cost)).run(owned, work, now)
            except Problem:
                assert not fits or not plain.free
                continue
            assert fits
            plain.held[name] = Fraction(micro)
            plain.free -= micro
        elif what == "observe" and names:
            name = names[place % len(names)]
            work.seats.setdefault((1, name), [])
            Observe(OutcomeBody(task=name, cost=2 * micro / MICRO)).run(owned, work, now)
            plain.free += plain.held.pop(name) - 2 * micro
            plain.spent += 2 * micro
        elif what == "expire" and names:
            name = names[place % len(names)]
            Expire(name).run(owned, work, now)
            plain.free += plain.held.pop(name)
        elif what == "top up":
            work.requests[1, f"budget {len(work.log)}"] = None
            ChangeBudget(BudgetBody(id=f"{len(work.log)}", add=micro / MICRO)).run(owned, work, now)
            plain.free += micro
        if periods:
            found = owned.policy.accounts["cost"]
            assert (found.free or 0) - found.suspense == plain.free
            assert found.reserved == sum(plain.held.values())
            assert found.posted + found.suspense == plain.spent
    log = [records.decode(line.body) for line in work.log]
    history = RenewalHistory()
    for record in log:
        history.see(record)
    assert history.faults == []
    assert sum(each.lapsed for each in log if isinstance(each, RenewedRecord)) == plain.lapsed
    again_ = Policy(spec)
    for line, record in zip(work.log, log, strict=True):
        again_.take(record, line.at, line.body)
    assert again_ == owned.policy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lapsed": 749_999}, "carries 0 and lets 749999 lapse; 750000 were free"),
        ({"lapsed": 0, "carried": 750_000}, "carries 750000 micro-units over, in place of 0"),
        ({"granted": 3_000_001}, "grants 3000001 micro-units, in place of 3000000"),
        ({"start": 3_601.0}, "does not begin where the period before it ends"),
        ({"end": 7_300.0}, "which is not its end"),
    ],
)
def test_a_renewal_that_does_not_add_up_is_found(change: dict[str, Any], said: str) -> None:
    spec = renewing()
    history = RenewalHistory()
    history.see(records.CreatedRecord(spec=spec))
    history.see(RenewedRecord(resource="cost", start=0.0, end=3_600.0, granted=3_000_000, carried=0, lapsed=0))
    effort = records.EffortRecord(task="t", id=0, seat=0, epoch=1, reviewer="ann", cost={"cost": 2_250_000})
    history.see(effort)
    good = RenewedRecord(resource="cost", start=3_600.0, end=7_200.0, granted=3_000_000, carried=0, lapsed=750_000)
    history.see(msgspec.structs.replace(good, **change))
    assert said in history.faults[0]


@given(
    used=st.one_of(st.integers(0, 60), st.integers(0, 60).map(lambda n: MAX_SUM * MICRO - n)),
    free=st.integers(-99, 60),
    reserved=st.integers(0, 20),
    allowance=st.sampled_from([0, 1, 7, 10**6, 5 * 10**15]),
    carry=st.sampled_from([0.0, 0.5, 1.0, 2.7, 30.0, 1e308, math.inf]),
    n=st.integers(0, 150),
)
def test_periods_without_a_call_add_up_to_what_each_of_them_does(
    used: int, free: int, reserved: int, allowance: int, carry: float, n: int
) -> None:
    reserved = min(reserved, used)
    room = min(max(free, 0), MAX_SUM * MICRO - used)
    account = Account(used + room, reserved, used - reserved, max(-free, 0))
    together = idle_periods(account, allowance, carry, n)
    granted = lapsed = 0
    for _ in range(n):
        carried = carried_of(account.free or 0, allowance, carry)
        more = grantable(allowance, carried + account.reserved + account.posted)
        granted, lapsed = granted + more, lapsed + (account.free or 0) - carried
        account = account.begin_period(more, (account.free or 0) - carried)
    assert together == (account, granted, lapsed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"passed_granted": 1_499_999_999}, "says that 1499999999 micro-units were granted"),
        ({"passed_lapsed": 1_497_749_999}, "and 1497749999 lapsed before it, in place of 1500000000 and 1497750000"),
        ({"passed": 499}, "in place of 1497000000"),
        ({"passed": 501, "passed_granted": 1_503_000_000, "passed_lapsed": 1_500_750_000}, "another number of periods"),
        ({"start": 503 * 3_600.0}, "another number of periods than the 500"),
    ],
)
def test_a_renewal_after_many_periods_that_does_not_add_up_is_found(change: dict[str, Any], said: str) -> None:
    spec = renewing()
    effort = records.EffortRecord(task="t", id=0, seat=0, epoch=1, reviewer="ann", cost={"cost": 2_250_000})
    first = RenewedRecord(resource="cost", start=0.0, end=3_600.0, granted=3_000_000, carried=0, lapsed=0)
    for changed in ({}, change):
        history = RenewalHistory()
        policy = Policy(spec)
        for record in (records.CreatedRecord(spec=spec), first, effort):
            history.see(record)
            policy.apply(record)
        [good] = due_renewals(spec, policy.books, 501.5 * 3_600.0, decisions=0, begin=False)
        assert (good.passed, good.passed_granted, good.passed_lapsed) == (500, 1_500_000_000, 1_497_750_000)
        history.see(msgspec.structs.replace(good, **changed))
        assert (said in " ".join(history.faults)) if changed else history.faults == []


def test_the_ledger_of_many_periods_without_a_call_adds_up_to_the_total(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "a")
        clock.advance(500 * HOUR)
        await decide(engine, "b")
        rows = [dict(zip(HEADER, row, strict=True)) for row in ledger_table(engine.store, engine.owned[KEY].id)]
        granted, lapsed = (sum(Fraction(str(row[name])) for row in rows) for name in ("granted", "lapsed"))
        assert (granted - lapsed) * MICRO == account(engine).total
        assert granted == 3 * 501

    play(database, script, spec=renewing(), settings=QUIET)


def test_the_ledger_as_a_table_adds_up_to_the_total(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        for i in range(5):
            await decide(engine, f"t{i}")
            await observe(engine, f"t{i}", cost=0.3)
            clock.advance(HOUR / 2)
        await call(engine, ChangeBudget(BudgetBody(id="more", add=2)))
        rows = [dict(zip(HEADER, row, strict=True)) for row in ledger_table(engine.store, engine.owned[KEY].id)]
        granted, lapsed = (sum(Fraction(str(row[name])) for row in rows) for name in ("granted", "lapsed"))
        total = account(engine).total
        assert total is not None
        assert (granted - lapsed) * MICRO == total
        assert lapsed > 0

    play(database, script, spec=renewing(), settings=QUIET)
