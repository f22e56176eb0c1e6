"""Policies whose budgets renew or have an end: bad input and renewals."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from deferkit.serve.api.policies import BudgetBody, ResetBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain import books
from deferkit.serve.domain.accounts import MICRO, Account
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.engine import ownership
from deferkit.serve.engine.commands import upkeep
from deferkit.serve.engine.commands.policy import ChangeBudget
from deferkit.serve.engine.commands.relearn import ResetLearner, forget_task
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.fault_injection import failing_connection
from tests.serve.harness.in_process import (
    HOUR,
    KEY,
    SPEC,
    HandClock,
    abandon,
    account,
    again,
    by_hand,
    call,
    check_booked,
    dated,
    decide,
    observe,
    play,
    problem_of,
    renewals,
    renewing,
    replayed,
    started,
    summary,
)

QUIET = EngineSettings(tick_s=1e9)


def check_whole(engine: Engine) -> None:
    """The log replays to the same policy, and the books of all its periods add up."""
    assert replayed(engine.store) == engine.owned[KEY].policy
    assert replay(engine.store, *KEY).faults == []


# --- what a policy may be -------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an end that is over": ({"until": 1e9}, "The budget of cost would have ended on 2001-09-09 01:46 UTC: it is "),
    "an end that is no time": ({"until": 1e15}, "'until' of a Budget must be seconds since 1970"),
    "no period": ({"every": "0d"}, "'every' of a Budget must be at least a minute. Got '0d'"),
    "a negative period": ({"every": "-7d"}, "'every' of a Budget must be a length such as '7d'"),
    "a short period": ({"every": "5s"}, "'every' of a Budget must be at least a minute. Got '5s'"),
    "a long period": ({"every": "99999999999d"}, "'every' of a Budget must be at most 2,500,000 days. Got '99999"),
    "a period of nothing": ({"every": ""}, "'every' of a Budget must be a length such as '7d'"),
    "an unknown zone": ({"every": "week", "zone": "Mars/Olympus"}, "must be the name of a time zone"),
    "a zone without a calendar": ({"every": "7d", "zone": "UTC"}, "'zone' of a Budget must be left out unless"),
    "carry without a period": ({"horizon": 10, "carry": 1}, "'carry' of a Budget must be left out without `every`"),
    "two of them": ({"every": "7d", "horizon": 10}, "'every' of a Budget must be left out where `horizon` is given"),
    "none of them": ({}, "so it needs a horizon (the number of tasks it must last for), until or every"),
    "an allowance below a review": ({"total": 0.5, "every": "7d"}, "what cost gets in a period is 0.5"),
    "a hold above max_cost": ({"every": "7d", "hold": 2}, "The hold of cost is at most its max_cost, 1. Got 2."),
    "a limit above max_cost": ({"every": "7d", "limit": 2}, "The limit of cost is at most its max_cost, 1. Got 2."),
    "a hold above the limit": ({"every": "7d", "limit": 0.5, "hold": 0.75}, "is at most its limit, 0.5. Got 0.75."),
    "too fine a hold": ({"every": "7d", "hold": 0.1234567}, "The hold of cost has at most 6 decimals"),
    "a period without a total": ({"total": None, "every": "7d"}, "The budget of cost has no total, so it has no every"),
    "a hold without a total": ({"total": None, "hold": "auto"}, "has no total, so it has no hold either"),
}


def test_a_budget_that_makes_no_sense_is_refused_in_one_line(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for case, (wrong, said) in BAD.items():
            budget = BudgetSpec(**{"total": 3, "max_cost": 1} | wrong)
            problem = await problem_of(engine.create("default", msgspec.structs.replace(SPEC, budget={"cost": budget})))
            assert problem.status == 422, case
            assert said in str(problem), case
            assert "\n" not in str(problem), case
        spec = msgspec.structs.replace(renewing(), pacing="adaptive")
        assert "'resolve' where a budget has" in str(await problem_of(engine.create("default", spec)))

    play(database, script, spec=None, settings=QUIET)


def test_budgets_are_kept_as_they_were_given_and_others_have_nothing_new(database: Database) -> None:
    given = {"every": "week", "zone": "Europe/Berlin", "carry": None, "hold": "auto", "start": 1.9e9}

    async def script(engine: Engine) -> None:
        await engine.create("default", msgspec.structs.replace(SPEC, name="plain"))
        row, plain = engine.store.policy(*KEY), engine.store.policy("default", "plain")
        assert row is not None
        assert plain is not None
        kept = msgspec.json.decode(row.spec)["budget"]["cost"]
        assert {name: kept[name] for name in given} == given
        assert set(msgspec.json.decode(plain.spec)["budget"]["cost"]) == {
            *("total", "horizon", "max_cost", "max_reported_cost")
        }
        await engine.create("default", renewing(**given))  # the same again changes nothing
        assert (await problem_of(engine.create("default", renewing(**given | {"carry": 2.0})))).status == 409

    play(database, script, spec=renewing(**given), settings=QUIET)


# --- renewals -------------------------------------------------------------------------------------------------------


def test_a_renewal_comes_before_the_decision_in_the_same_commit(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        for i in range(3):
            await decide(engine, f"t{i}")
        assert (await problem_of(decide(engine, "one too many"))).code == "exhausted"
        await observe(engine, "t0", cost=0.25)
        clock.advance(HOUR)
        groups = engine.groups
        await decide(engine, "next")
        assert engine.groups == groups + 1
        kinds = [row.kind for row in engine.store.log(engine.owned[KEY].id)]
        assert kinds == ["created", "renewed", "decided", "decided", "decided", "observed", "renewed", "decided"]
        first, second = renewals(engine)
        assert (first.granted, first.carried, first.lapsed) == (3_000_000, 0, 0)
        assert (second.start, second.end) == (first.end, first.end + HOUR)
        # of 3: 0.25 spent, 2 held for two reviews that are pending, the rest lapses
        assert (second.granted, second.carried, second.lapsed, second.decisions) == (3_000_000, 0, 750_000, 3)
        assert account(engine) == Account(5_250_000, reserved=3_000_000, posted=250_000)
        period = summary(engine).budget["cost"].period
        assert (period.number, period.total, period.held, period.posted) == (2, 5.0, 2.0, 0.0)
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_a_cost_is_booked_in_the_period_in_which_it_comes(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "slow")
        clock.advance(HOUR)
        await observe(engine, "slow", cost=0.25)  # no task has come in the new period
        assert [each.lapsed for each in renewals(engine)] == [0, 2_000_000]
        period = summary(engine).budget["cost"].period
        assert (period.number, period.total, period.posted) == (2, 4.0, 0.25)
        assert account(engine).free == 3_750_000  # what the hold was too large by is free
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


@pytest.mark.parametrize(("carry", "left"), [(0.0, 3), (0.5, 4.5), (2.0, 9), (1e308, 33), (None, 33)])
def test_after_a_gap_every_period_is_renewed_one_by_one(database: Database, carry: float | None, left: float) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "first", force="model")
        before = summary(engine).budget["cost"]
        clock.advance(10 * HOUR)
        shown = summary(engine).budget["cost"]  # true also while nothing is written
        assert engine.owned[KEY].policy.periods["cost"].number == 1
        assert (shown.period.number, shown.free, shown.period.start) == (11, left, before.period.start + 10 * HOUR)
        await decide(engine, "next", force="model")
        assert len(renewals(engine)) == 11
        after = summary(engine).budget["cost"]
        assert after.free == left
        assert (shown.period.tasks, after.period.tasks, after.period.pace) == (0, 1, 0.0)
        assert msgspec.structs.replace(after.period, tasks=0, tasks_left=None, pace=None) == shown.period
        check_whole(engine)

    play(database, script, spec=renewing(carry=carry), settings=QUIET)


def test_a_gap_of_many_short_periods_is_made_up_for_in_slices(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "AT_ONCE", 7)

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "first", force="model")
        clock.advance(45 * 60.0)
        groups = engine.groups
        await decide(engine, "next", force="model")
        assert engine.groups == groups + 45 // 7 + 1
        assert len(renewals(engine)) == 46
        check_whole(engine)

    play(database, script, spec=renewing(every="1min"), settings=QUIET)


def test_whoever_reads_an_idle_policy_goes_through_few_periods(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "first", force="model")
        for minutes, renewed in ((90, 1), (90, 181), (90, 181), (3000, 3271)):
            clock.advance(minutes * 60.0)
            before = engine.owned[KEY].policy.books_at(clock.at)
            await engine.maintenance.renew_idle()
            assert sum(1 + each.passed for each in renewals(engine)) == renewed
            assert engine.owned[KEY].policy.books_at(clock.at) == before
        check_whole(engine)

    play(database, script, spec=renewing(every="1min", carry=5), settings=QUIET)


@pytest.mark.parametrize("every", ["1min", "1.7h", "day"])
@pytest.mark.parametrize("carry", [0.0, 0.5, 5, 2000, None])
def test_many_periods_without_a_call_have_one_record_and_give_the_same_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carry: float | None, every: str
) -> None:
    """The policy is the one that a record for each of them gives: bit for bit, or to the last bit that has any use."""
    length = {"1min": 60.0, "1.7h": 6120.0, "day": 86_400.0}[every]

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        for i in range(6):
            await decide(engine, f"t{i}", force="human" if i < 3 else "model")
        await observe(engine, "t0", cost=7.5)  # more than three allowances in suspense
        clock.advance(length)
        await decide(engine, "second", force="model")
        policy = engine.owned[KEY].policy
        for periods in (103, 290, 4000):
            at = policy.periods["cost"].end + (periods + 0.5) * length
            copies, counts = [], []
            for most in (books.MAX_RECORDED, 10**9):
                with monkeypatch.context() as patch:
                    patch.setattr(books, "MAX_RECORDED", most)
                    due = books.due_renewals(policy.spec, policy.books, at, decisions=7, begin=False)
                copies.append(Policy.from_bytes(policy.to_bytes()))
                for record in due:
                    copies[-1].apply(record)
                counts.append((len(due), sum(1 + record.passed for record in due)))
            assert copies[0].books == copies[1].books
            assert copies[0] == copies[1] or periods == 4000
            decisions = [copy.learner.propose([0.5, 0.25], at=at).decision for copy in copies]
            assert decisions[0] == decisions[1]
            assert [records for records, _ in counts] == [1, counts[0][1]]
            assert counts[0][1] == pytest.approx(periods + 1, abs=1)
            clock.at = int(at * MICRO)
            shown = summary(engine).budget["cost"].free
            await decide(engine, f"after {periods}", force="model")
            assert summary(engine).budget["cost"].free == shown
            check_whole(engine)

    play(Sqlite(str(tmp_path / "a.db")), script, spec=renewing(every=every, carry=carry), settings=QUIET)


def test_a_clock_that_goes_back_renews_nothing_again(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "a", force="model")
        clock.advance(HOUR)
        await decide(engine, "b", force="model")
        clock.advance(-2 * HOUR)
        await decide(engine, "c", force="model")
        clock.advance(2 * HOUR)
        await decide(engine, "d", force="model")
        assert len(renewals(engine)) == 2
        assert engine.owned[KEY].policy.learner.summary().backwards == 1
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_suspense_is_paid_from_the_next_allowance(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "dear")
        await observe(engine, "dear", cost=4.5)
        assert account(engine) == Account(3_000_000, posted=3_000_000, suspense=1_500_000)
        clock.advance(HOUR)
        assert summary(engine).budget["cost"].free == 1.5
        await decide(engine, "next")
        assert account(engine) == Account(6_000_000, reserved=1_000_000, posted=4_500_000)
        period = summary(engine).budget["cost"].period
        assert (period.total, period.posted) == (3.0, 1.5)
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_a_top_up_is_for_the_current_period(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "a", force="model")
        clock.advance(HOUR)
        await call(engine, ChangeBudget(BudgetBody(id="more", add=2)))
        period = summary(engine).budget["cost"].period
        assert (period.number, period.total, period.changed) == (2, 5.0, 2.0)
        clock.advance(HOUR)
        await decide(engine, "b", force="model")
        assert renewals(engine)[-1].lapsed == 5_000_000
        assert summary(engine).budget["cost"].period.total == 3.0
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_a_top_up_is_possible_however_much_earlier_periods_have_spent(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        for i in range(3):
            await decide(engine, f"t{i}")
            await observe(engine, f"t{i}", cost=3e9)
            clock.advance(HOUR)
        await call(engine, ChangeBudget(BudgetBody(id="more", add=1.5)))
        await call(engine, ChangeBudget(BudgetBody(id="less", add=-0.25)))
        assert summary(engine).budget["cost"].period.total == 3e9 + 1.25
        check_whole(engine)

    play(database, script, spec=renewing(total=3e9, max_cost=3e9), settings=QUIET)


def test_calendar_days_follow_the_clocks_of_their_zone(database: Database) -> None:
    berlin = ZoneInfo("Europe/Berlin")

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        days = [datetime(2028, 2, 28, 9, tzinfo=berlin), datetime(2028, 3, 1, 9, tzinfo=berlin)]
        days += [datetime(2028, 3, 25, 9, tzinfo=berlin), datetime(2028, 3, 27, 0, tzinfo=berlin)]
        for i, day in enumerate(days):
            clock.at = int(day.timestamp()) * MICRO
            await decide(engine, f"t{i}", force="model")
        lengths = [round((each.end - each.start) / HOUR) for each in renewals(engine)]
        dates = [datetime.fromtimestamp(each.start, berlin).strftime("%m-%d %H:%M") for each in renewals(engine)]
        assert dates[:3] == ["02-28 00:00", "02-29 00:00", "03-01 00:00"]  # a leap year
        assert dates[-1] == "03-27 00:00"
        assert lengths == [24] * (len(lengths) - 2) + [23, 24]  # on March 26 clocks go forward
        check_whole(engine)

    play(database, script, spec=renewing(every="day", zone="Europe/Berlin"), settings=QUIET)


def test_nothing_is_spent_before_the_start(database: Database) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC).timestamp()

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        assert summary(engine).budget["cost"].free == 0
        assert (await problem_of(decide(engine, "early"))).code == "exhausted"
        clock.at = int(start) * MICRO
        await decide(engine, "first")
        assert [each.granted for each in renewals(engine)] == [0, 3_000_000]
        check_whole(engine)

    play(database, script, spec=renewing(start=start), settings=QUIET)


def test_the_first_task_begins_the_first_period(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        clock.advance(5.5 * HOUR)
        shown = summary(engine).budget["cost"]
        assert (shown.total, shown.free, shown.period.number) == (3.0, 3.0, 1)  # what a task would find now
        assert engine.owned[KEY].policy.periods == {}
        await call(engine, ChangeBudget(BudgetBody(id="more", add=1)))
        await decide(engine, "first")
        [first] = renewals(engine)
        assert (first.start, first.granted, first.carried) == (clock.at / MICRO, 3_000_000, 1_000_000)
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_after_its_end_a_budget_says_so_and_goes_on(database: Database) -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC).timestamp()

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "in time")
        assert not summary(engine).horizon_over
        clock.at = int(until) * MICRO
        assert summary(engine).horizon_over
        assert summary(engine).budget["cost"].period.over
        await decide(engine, "late")
        assert account(engine) == Account(3_000_000, reserved=2_000_000)
        assert len(renewals(engine)) == 1
        check_whole(engine)

    play(database, script, spec=dated(until), settings=QUIET)


def test_a_first_task_after_the_end_is_decided_all_the_same(database: Database) -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC).timestamp()

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        clock.at = int(until + 99) * MICRO
        assert (await decide(engine, "late"))["route"] == "human"
        check_whole(engine)

    play(database, script, spec=dated(until), settings=QUIET)


def test_a_reset_learner_goes_on_in_the_current_period(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "a")
        clock.advance(1.5 * HOUR)
        await decide(engine, "b")
        await call(engine, ResetLearner(ResetBody(id="r")))
        before = summary(engine).budget["cost"]
        await decide(engine, "c")
        assert summary(engine).budget["cost"].period.start == before.period.start
        clock.advance(HOUR)
        await decide(engine, "d")
        await observe(engine, "a", cost=0.5)
        assert [each.lapsed for each in renewals(engine)] == [0, 2_000_000, 1_000_000]
        check_booked(engine)  # the new learner knows nothing of what was reserved before
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


class HastyClock(HandClock):
    """A clock that goes on by an hour whenever it is read."""

    def now(self) -> int:
        self.advance(HOUR)
        return super().now()


def test_a_task_is_forgotten_while_budgets_are_renewed(database: Database) -> None:
    async def script(engine: Engine) -> None:
        engine.ownership.clock = HastyClock(engine)
        for task in ("a", "b"):
            await decide(engine, task)
            await observe(engine, task, cost=0.5, rewards={"human": 1.0})
        await forget_task(engine, KEY, "a")
        assert engine.owned[KEY].policy.relearned.forgotten == [0]
        await decide(engine, "c")
        assert len(renewals(engine)) > 4
        check_booked(engine)
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_resources_may_have_different_periods(database: Database) -> None:
    budget = {
        "minutes": BudgetSpec(total=3, every="1h", max_cost=1),
        "euros": BudgetSpec(total=9, every="3h", max_cost=2, carry=1.0),
        "calls": BudgetSpec(total=50, horizon=100, max_cost=1),
    }

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        for i in range(8):
            await decide(engine, f"t{i}", force="model")
            clock.advance(HOUR)
        assert [each.resource for each in renewals(engine)].count("euros") == 3
        assert [each.resource for each in renewals(engine)].count("minutes") == 8
        starts = [each.start for each in renewals(engine)]
        assert starts == sorted(starts)
        assert engine.owned[KEY].policy.accounts["calls"].total == 50_000_000
        check_whole(engine)

    play(database, script, spec=msgspec.structs.replace(SPEC, budget=budget), settings=QUIET)


# --- once -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_renewal_whose_commit_fails_happens_once(database: Database, nth: int) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "a")
        clock.advance(HOUR)
        with failing_connection(engine, nth), suppress(Problem):
            await decide(engine, "b")
        await decide(engine, "b")
        assert len(renewals(engine)) == 2
        assert account(engine) == Account(4_000_000, reserved=2_000_000)
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_another_owner_does_not_renew_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "is_dead", lambda *_, **__: True)

    async def script() -> None:
        first = await started(database, spec=renewing(), settings=QUIET)
        clock = by_hand(first)
        await decide(first, "a")
        clock.advance(HOUR)
        await decide(first, "b")
        await abandon(first)
        second = await started(again(database), spec=None, settings=QUIET)
        try:
            await decide(second, "b")  # the same task again
            owned = second.owned[KEY]
            assert len(renewals(second)) == 2
            second.ownership.clock = HandClock(second)
            second.ownership.clock.at = clock.at - owned.clock_offset + int(HOUR * MICRO)
            await decide(second, "c")
            assert [each.lapsed for each in renewals(second)] == [0, 2_000_000, 2_000_000]
            check_whole(second)
        finally:
            await second.stop()

    asyncio.run(script())
