"""Reviews that can be stopped: less than max_cost is held for them, which is extended while there is room."""

from typing import Any

import msgspec
import pytest

from deferkit.serve.api.reviews import EffortBody, ExtendBody
from deferkit.serve.api.tasks import CorrectionBody, HoldBody, StopBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain import records as log_records
from deferkit.serve.domain.accounts import MICRO, Account
from deferkit.serve.domain.spec import BudgetPlan, BudgetSpec, PolicyChange, PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.hold import ExtendHold, ExtendReview, StopReview
from deferkit.serve.engine.commands.policy import ChangePolicy
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.reports.history import LogFold
from deferkit.serve.reports.summary import why_empty
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.listing import ReviewerQueue
from tests.serve.harness.in_process import (
    HOUR,
    KEY,
    SPEC,
    account,
    by_hand,
    call,
    claim,
    complete,
    dated,
    decide,
    observe,
    play,
    problem_of,
    records,
    renewals,
    renewing,
    replayed,
    summary,
)

QUIET = EngineSettings(tick_s=1e9)


def stoppable(**given: Any) -> PolicySpec:
    """Return a policy of whose 10 units 1 is held for a review that may cost 6."""
    budget = BudgetSpec(**{"total": 10, "horizon": 1000, "max_cost": 6, "hold": 1} | given)
    return msgspec.structs.replace(SPEC, budget={"cost": budget})


def check_whole(engine: Engine) -> None:
    assert replayed(engine.store) == engine.owned[KEY].policy
    assert replay(engine.store, *KEY).faults == []


async def extend(engine: Engine, task: str, amount: float, number: str = "h") -> Any:
    return await call(engine, ExtendHold(HoldBody(id=number, task=task, amount=amount)))


async def stop(engine: Engine, task: str, cost: float, **given: Any) -> Any:
    return await call(engine, StopReview(StopBody(task=task, cost=cost, **given)))


async def progress(engine: Engine, claimed: Any, cost: float) -> Any:
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
    return await call(engine, ExtendReview(ExtendBody(**lease, cost=cost)))


def test_a_hold_is_extended_while_there_is_room(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "long")
        assert account(engine) == Account(10_000_000, reserved=1_000_000)
        assert await extend(engine, "long", 2.5) == {"task": "long", "granted": 2.5, "hold": 3.5}
        assert await extend(engine, "long", 2.5) == {"task": "long", "granted": 2.5, "hold": 3.5}  # the same id
        assert await extend(engine, "long", 9, "h2") == {"task": "long", "granted": 2.5, "hold": 6.0}  # max_cost
        for i in range(4):
            await decide(engine, f"short {i}")
        assert (await extend(engine, "short 0", 2, "h3"))["granted"] == 0.0  # nothing is left
        assert account(engine) == Account(10_000_000, reserved=10_000_000)
        assert (await problem_of(decide(engine, "no room"))).code == "exhausted"
        await observe(engine, "long", cost=5.25)
        assert account(engine) == Account(10_000_000, reserved=4_000_000, posted=5_250_000)
        await call(engine, Expire("short 0"))
        assert account(engine).reserved == 3_000_000
        assert engine.owned[KEY].policy.holds.extended == 2
        check_whole(engine)

    play(database, script, spec=stoppable(), settings=QUIET)


def test_a_review_that_is_stopped_leaves_the_models_answer(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        done = await stop(engine, "t", 1.0, rewards={"model": 0.5})
        assert (done["booked"], done["learned"]) == (1.0, True)
        row = engine.store.decision(engine.owned[KEY].id, "t")
        assert row is not None
        assert (row.state, row.final, row.cost, row.rewards) == ("posted", "model", {"cost": 1_000_000}, {"model": 0.5})
        assert [seat.state for seat in engine.store.seats(engine.owned[KEY].id, "t")] == ["closed"]
        assert not (await stop(engine, "t", 1.0))["changed"]
        assert (await problem_of(stop(engine, "t", 2.0))).status == 409
        assert (await problem_of(extend(engine, "t", 2.0))).status == 409
        assert engine.owned[KEY].policy.learner.summary().stopped == 1
        assert summary(engine).stopped == 1
        await observe(engine, "t", rewards={"human": 1.0})  # what becomes known later is learned
        assert account(engine) == Account(10_000_000, posted=1_000_000)
        fold = LogFold(lambda *_: [])
        for line in engine.store.log(engine.owned[KEY].id):
            fold.apply(line.at, log_records.decode(bytes(line.body)))
        assert fold.gain.value == 0  # the expert has earned nothing
        check_whole(engine)

    play(database, script, spec=stoppable(), settings=QUIET)


def test_the_lease_extends_the_hold_and_stops_the_review(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "t")
        ann = await claim(engine)
        clock.advance(10)
        told = await progress(engine, ann, 0.5)
        assert (told["hold"], told["lease_until"]) == (1.5, clock.at / 1e6 + 300)
        [seat] = engine.store.seats(engine.owned[KEY].id, "t")
        assert seat.lease_until == clock.at + 300_000_000
        assert (await progress(engine, ann, 0.5))["hold"] == 1.5  # again: nothing more is needed
        for cost in (1.5, 2.5, 3.5, 4.5, 5.5):
            assert (await progress(engine, ann, cost))["hold"] == min(cost + 1, 6)
        told = await progress(engine, ann, 6.0)
        assert (told["stopped"], told["lease_until"]) == (True, None)
        assert await progress(engine, ann, 6.0) == told  # the reply was lost
        assert account(engine) == Account(10_000_000, posted=6_000_000)
        late = await problem_of(complete(engine, ann, answer="too late", cost=7.0))
        assert late.status == 409
        assert "was stopped: the model's answer is used" in str(late)
        lease = {name: ann[name] for name in ("task", "seat", "epoch", "token")}
        await call(engine, Effort(EffortBody(**lease, cost=0.5)))  # who went on
        assert account(engine) == Account(10_000_000, posted=6_500_000)
        check_whole(engine)

    play(database, script, spec=stoppable(), settings=QUIET)


def test_a_lease_is_extended_where_the_hold_need_not_grow(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "t")
        ann = await claim(engine)
        for _ in range(5):  # the third time, the lease of the claim itself would be over
            clock.advance(0.4 * SPEC.lease_s)
            told = await progress(engine, ann, 0.5)
            [seat] = engine.store.seats(engine.owned[KEY].id, "t")
            assert seat.lease_until == round(told["lease_until"] * MICRO) == clock.at + int(SPEC.lease_s * MICRO)
        assert await claim(engine, "bo") is None
        check_whole(engine)

    play(database, script, spec=stoppable(), settings=QUIET)


def test_a_hold_that_nothing_was_left_for_is_not_extended_when_the_request_is_repeated(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for task in ("a", "b"):
            await decide(engine, task)
        refused = await extend(engine, "a", 1)
        assert refused == {"task": "a", "granted": 0.0, "hold": 1.0}
        await call(engine, Expire("b"))  # there is room now
        assert await extend(engine, "a", 1) == refused
        assert (await problem_of(extend(engine, "a", 0.5))).status == 409  # the id is taken
        assert (await extend(engine, "a", 1, "another"))["granted"] == 1.0
        check_whole(engine)

    play(database, script, spec=stoppable(total=2), settings=QUIET)


def test_a_limit_stops_every_review(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        assert account(engine).reserved == 2_000_000
        ann = await claim(engine)
        assert (await progress(engine, ann, 1.99))["hold"] == 2.0
        assert (await progress(engine, ann, 2.0))["stopped"]
        check_whole(engine)

    play(database, script, spec=stoppable(max_cost=None, hold=msgspec.UNSET, limit=2), settings=QUIET)


def test_a_review_is_stopped_when_nothing_is_left(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(3):
            await decide(engine, f"t{i}")
        ann = await claim(engine)
        assert "stopped" not in await progress(engine, ann, 0.999)
        assert (await progress(engine, ann, 1.0))["stopped"]
        assert account(engine) == Account(3_000_000, reserved=2_000_000, posted=1_000_000)
        check_whole(engine)

    play(database, script, spec=stoppable(total=3, max_cost=2), settings=QUIET)


def test_where_reviews_cannot_be_stopped_the_lease_alone_is_extended(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        ann = await claim(engine)
        assert (await progress(engine, ann, 0.75))["hold"] == 1.0
        assert "has a hold or a limit" in str(await problem_of(extend(engine, "t", 1)))
        assert "has a hold or a limit" in str(await problem_of(stop(engine, "t", 1)))
        assert account(engine).reserved == 1_000_000

    play(database, script, settings=QUIET)


def test_a_reviewer_who_does_not_stop_is_an_overrun(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        ann = await claim(engine)
        await complete(engine, ann, answer="at last", cost=5.5)
        shown = summary(engine)
        assert (shown.overruns, shown.beyond_holds, shown.stopped) == (1, 4.5, 0)
        assert account(engine) == Account(4_000_000, posted=4_000_000, suspense=1_500_000)
        assert shown.frozen
        check_whole(engine)

    play(database, script, spec=stoppable(total=4), settings=QUIET)


def test_where_others_have_answered_a_stop_leaves_their_answer(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", reviewers=2)
        ann, bo = await claim(engine), await claim(engine, "bo")
        await complete(engine, ann, answer="yes", rewards={"human": 1.0}, cost=0.5)
        assert (await progress(engine, bo, 1.5))["stopped"]
        row = engine.store.decision(engine.owned[KEY].id, "t")
        assert row is not None
        assert (row.final, row.answer, row.cost) == ("human", '"yes"', {"cost": 2_000_000})
        check_whole(engine)

    play(database, script, spec=stoppable(total=2, max_cost=2), settings=QUIET)


def test_a_stop_is_repeated_where_others_have_answered(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for task in ("a", "b"):
            await decide(engine, task, reviewers=2)
            ann, bo = await claim(engine), await claim(engine, "bo")
            await complete(engine, ann, answer="yes", rewards={"human": 1.0}, cost=0.5)
        told = await progress(engine, bo, 1.5)
        assert told["stopped"]
        assert await progress(engine, bo, 1.5) == told
        await stop(engine, "a", 0.25)
        before = records(engine)
        assert not (await stop(engine, "a", 0.25))["changed"]
        assert (await problem_of(stop(engine, "a", 0.5))).status == 409
        assert records(engine) == before
        assert (await stop(engine, "a", 0.25, rewards={"model": 0.5}))["learned"]  # what was not known then
        assert (await problem_of(stop(engine, "a", 0.25, rewards={"model": 1.0}))).status == 409
        assert summary(engine).stopped == 2
        check_whole(engine)

    play(database, script, spec=stoppable(total=3, max_cost=2), settings=QUIET)


@pytest.mark.parametrize("answered", [False, True], ids=["alone", "answered"])
def test_a_stop_with_a_cost_that_must_be_confirmed_stays_one(database: Database, answered: bool) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", reviewers=1 + answered)
        claimed = [await claim(engine, name) for name in ("ann", "bo")[: 1 + answered]]
        if answered:
            await complete(engine, claimed[0], answer="yes")
        told = await progress(engine, claimed[-1], 25)
        assert told["stopped"]
        before = records(engine)
        assert await progress(engine, claimed[-1], 25) == told
        assert not (await stop(engine, "t", 25))["changed"]
        assert records(engine) == before
        await call(engine, Correct(CorrectionBody(id="c", task="t", cost=3), unlimited=True))
        row = engine.store.decision(engine.owned[KEY].id, "t")
        assert row is not None
        assert (row.state, row.final) == ("posted", "human" if answered else "model")
        policy, fold = engine.owned[KEY].policy, LogFold(lambda *_: [])
        assert (policy.learner.summary().stopped, policy.holds.stopped) == (1, 1)  # a cost that is a lower bound
        for line in engine.store.log(engine.owned[KEY].id):
            fold.apply(line.at, log_records.decode(bytes(line.body)))
        assert (fold._tasks[0].answered_task() is not None) == answered
        assert account(engine) == Account(10_000_000, posted=3_000_000)
        check_whole(engine)

    play(database, script, spec=stoppable(max_reported_cost=20), settings=QUIET)


def test_an_automatic_hold_is_booked_in_whole_micro_units(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(30):
            told = await decide(engine, f"t{i}", context=[1.0, i / 30])
            await observe(engine, f"t{i}", cost=round(0.1 + i / 97, 6), rewards={"human": 1.0})
            assert told["reserved"] == round(told["reserved"], 6)
        assert told["reserved"] < 1
        account(engine)
        check_whole(engine)

    play(database, script, spec=stoppable(total=100, hold="auto"), settings=QUIET)


def test_a_hold_goes_along_to_the_next_period_and_is_extended_there(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "t")
        ann = await claim(engine)
        clock.advance(HOUR)
        assert (await progress(engine, ann, 1.0))["hold"] == 2.0
        assert [each.lapsed for each in renewals(engine)] == [0, 3_000_000]
        assert account(engine) == Account(5_000_000, reserved=2_000_000)
        check_whole(engine)

    play(database, script, spec=renewing(total=4, max_cost=3, hold=1), settings=QUIET)


# --- another end, horizon or allowance ------------------------------------------------------------------------------


async def change(engine: Engine, **plan: Any) -> Any:
    return await call(engine, ChangePolicy(PolicyChange(budget={"cost": BudgetPlan(**plan)})))


@pytest.mark.parametrize("first", [False, True])
def test_the_end_of_a_budget_can_be_moved(database: Database, first: bool) -> None:
    until = 1.9e9

    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        if first:
            await decide(engine, "first")
        clock.at = int((until + 9) * 1e6)
        assert summary(engine).horizon_over
        assert "would have ended on" in str(await problem_of(change(engine, until=until + 5)))
        await change(engine, until=until + HOUR)
        assert not summary(engine).horizon_over
        await decide(engine, "second")
        assert engine.owned[KEY].policy.learner.summary().periods["cost"].end == until + HOUR
        assert summary(engine).budget["cost"].period.end == until + HOUR
        row = engine.store.policy(*KEY)
        assert row is not None
        assert msgspec.json.decode(row.spec)["budget"]["cost"]["until"] == until + HOUR
        check_whole(engine)

    play(database, script, spec=dated(until), settings=QUIET)


def test_another_allowance_is_for_the_periods_to_come(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "a")
        await change(engine, allowance=5)
        assert account(engine).total == 3_000_000
        clock.advance(HOUR)
        await decide(engine, "b")
        assert renewals(engine)[-1].granted == 5_000_000
        assert "Nobody can be asked" in str(await problem_of(change(engine, allowance=0.5)))
        check_whole(engine)

    play(database, script, spec=renewing(), settings=QUIET)


def test_an_allowance_of_nothing_leaves_what_is_carried_over(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "a")
        await change(engine, allowance=0)
        clock.advance(2 * HOUR)
        assert summary(engine).budget["cost"].free == 2.0
        await decide(engine, "b")
        assert [(each.granted, each.carried) for each in renewals(engine)[1:]] == [(0, 2_000_000)] * 2
        check_whole(engine)

    play(database, script, spec=renewing(carry=None), settings=QUIET)


def test_another_horizon_is_what_the_budget_is_to_last_for(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(3):
            await decide(engine, f"t{i}", force="model")
        await change(engine, horizon=3)
        assert summary(engine).horizon_over
        await change(engine, horizon=50)
        assert not summary(engine).horizon_over
        check_whole(engine)

    play(database, script, settings=QUIET)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"until": 2e9}, "The budget of cost has horizon, and no until to change."),
        ({"allowance": 2}, "The budget of cost has horizon, and no allowance to change."),
        ({"allowance": 2, "horizon": 5}, "and no allowance to change."),
    ],
)
def test_a_budget_is_changed_in_what_it_has(database: Database, plan: dict[str, Any], said: str) -> None:
    async def script(engine: Engine) -> None:
        assert said in str(await problem_of(change(engine, **plan)))
        wrong = PolicyChange(budget={"euros": BudgetPlan(horizon=5)})
        assert "There is no resource 'euros'" in str(await problem_of(call(engine, ChangePolicy(wrong))))

    play(database, script, settings=QUIET)


@pytest.mark.parametrize(
    ("budget", "free", "why"),
    [
        ({"max_cost": 10, "hold": 1}, 5_000_000, "nothing_deferred"),  # one more review fits
        ({"max_cost": 10, "hold": 1}, 999_999, "budget_exhausted"),
        ({"max_cost": 10}, 5_000_000, "budget_exhausted"),
        ({"max_cost": 10, "hold": "auto"}, 1, "nothing_deferred"),
        ({"max_cost": 10, "hold": "auto"}, 0, "budget_exhausted"),
    ],
)
def test_a_budget_is_exhausted_for_reviewers_when_no_hold_fits(budget: dict[str, Any], free: int, why: str) -> None:
    made = {"name": "p", "features": 1, "budget": {"cost": {"total": 100, "horizon": 10, **budget}}}
    spec = msgspec.convert(made, PolicySpec)
    accounts = {"cost": Account(free)}
    assert why_empty(ReviewerQueue(0, 0, None, 0, 0), accounts, spec) == why


def test_two_reviewers_of_a_stopped_review_have_both_costs_booked(database: Database) -> None:
    """Whoever reaches the hold ends it for both: what the other has reported is counted, and its reply says so."""

    async def script(engine: Engine) -> None:
        await decide(engine, "t", reviewers=2)
        ann, bo = await claim(engine, "ann"), await claim(engine, "bo")
        assert (await progress(engine, ann, 1.5))["hold"] == 2.5
        assert (await progress(engine, bo, 2.0))["hold"] == 4.5  # both costs so far, and the hold of before
        stopped = await progress(engine, ann, 4.5)  # 6.5 of 6 that it may cost
        assert (stopped["stopped"], stopped["booked"], stopped["lease_until"]) == (True, 4.5, None)
        assert account(engine) == Account(10_000_000, posted=6_500_000)
        told = await progress(engine, bo, 2.5)
        assert (told["stopped"], told["booked"]) == (True, 2.0)
        assert (await progress(engine, ann, 5.0))["booked"] == 4.5
        lease = {name: bo[name] for name in ("task", "seat", "epoch", "token")}
        await call(engine, Effort(EffortBody(**lease, cost=0.5)))  # what it has cost since
        assert account(engine) == Account(10_000_000, posted=7_000_000)
        check_whole(engine)

    play(database, script, spec=stoppable(), settings=QUIET)


def test_a_reviewer_who_has_reported_nothing_is_told_that_nothing_is_booked(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", reviewers=2)
        ann, bo = await claim(engine, "ann"), await claim(engine, "bo")
        assert (await progress(engine, ann, 6.0))["booked"] == 6.0
        told = await progress(engine, bo, 2.5)
        assert told["stopped"]
        assert "booked" not in told
        lease = {name: bo[name] for name in ("task", "seat", "epoch", "token")}
        await call(engine, Effort(EffortBody(**lease, cost=2.5)))
        assert account(engine) == Account(10_000_000, posted=8_500_000)
        check_whole(engine)

    play(database, script, spec=stoppable(), settings=QUIET)


def test_the_cost_of_a_claim_that_lapsed_is_not_that_of_the_next(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        await decide(engine, "t")
        ann = await claim(engine, "ann")
        await progress(engine, ann, 2.0)
        clock.advance(engine.owned[KEY].policy.spec.lease_s + 1)
        bo = await claim(engine, "bo")
        assert (await progress(engine, bo, 0.5))["hold"] == 3.0
        assert (await progress(engine, bo, 6.0))["booked"] == 6.0
        assert account(engine) == Account(10_000_000, posted=6_000_000)
        check_whole(engine)

    play(database, script, spec=stoppable(), settings=QUIET)


def test_each_cost_so_far_is_below_the_ceiling(database: Database) -> None:
    """The ceiling is for each report: two of 4 are no cost of 8 that must be confirmed, one of 7 is."""

    async def script(engine: Engine) -> None:
        for task, costs, booked in (("a", (4.0, 4.0), 4.0), ("b", (7.0, 1.0), None)):
            await decide(engine, task, reviewers=2)
            first, second = await claim(engine, "ann"), await claim(engine, "bo")
            await progress(engine, second, costs[1])
            told = await progress(engine, first, costs[0])
            assert (told["stopped"], told.get("booked")) == (True, booked)
        assert engine.owned[KEY].policy.unconfirmed == {"b": {"cost": 8_000_000}}
        check_whole(engine)

    play(database, script, spec=stoppable(total=100, max_reported_cost=6), settings=QUIET)
