"""A reported cost above `max_reported_cost`: the answer is kept, the cost waits for somebody to confirm it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from deferkit import Budget, Client
from deferkit.errors import InvalidArgument, ServiceError
from deferkit.serve.api.reviews import EffortBody, LeaseBody
from deferkit.serve.api.tasks import CorrectionBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.accounts import Account
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import with_defaults
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.lease import Release
from deferkit.serve.engine.commands.review import Effort
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.reports.summary import summary_of
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
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
    running,
)

M = 1_000_000
HUGE = 4e9


def unconfirmed(engine: Engine) -> int:
    owned = engine.owned[KEY]
    return summary_of(owned, engine.store.queue(owned.id), engine.clock.now()).unconfirmed_costs


def samples(engine: Engine) -> dict[str, int]:
    return engine.owned[KEY].policy.learner.summary().samples


def correction(number: str, task: str, cost: float, *, admin: bool = True) -> Correct:
    return Correct(CorrectionBody(id=number, task=task, cost=cost), unlimited=admin)


def check_replay(engine: Engine) -> None:
    """The log alone gives the policy, and the decisions beside it agree."""
    policy = engine.owned[KEY].policy
    assert replayed(engine.store) == policy
    assert Policy.from_bytes(policy.to_bytes()) == policy
    assert replay(engine.store, *KEY).faults == []


def test_a_completion_with_a_cost_of_four_billion_is_not_booked(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        before = samples(engine)
        reply = await complete(engine, await claim(engine), answer="ham", rewards={"human": 1.0}, cost=HUGE)
        assert (reply["finished"], reply["learned"], reply["booked"], reply["unconfirmed"]) == (True, True, None, HUGE)
        # the answer and the reward are kept and learned, the cost is neither booked nor learned; nobody is frozen out
        assert account(engine) == Account(10 * M, reserved=1 * M)
        assert not engine.owned[KEY].policy.frozen
        assert samples(engine) == before | {"human": before["human"] + 1}
        row = engine.store.decision(engine.owned[KEY].id, "a")
        assert row is not None
        assert (row.state, row.final, row.answer, row.cost) == ("open", "human", '"ham"', None)
        assert unconfirmed(engine) == 1
        check_replay(engine)
        assert (await call(engine, correction("c", "a", 0.75)))["learned"]
        assert account(engine) == Account(10 * M, posted=750_000)
        assert samples(engine)["cost of human"] == before["cost of human"] + 1
        assert unconfirmed(engine) == 0
        assert (await call(engine, correction("c", "a", 0.75)))["learned"]  # the same again changes nothing
        assert account(engine) == Account(10 * M, posted=750_000)
        check_replay(engine)

    play(database, script)


def test_a_person_confirms_a_cost_above_the_ceiling_with_the_scope_admin(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        assert (await observe(engine, "a", rewards={"model": 0.5}, cost=25))["unconfirmed"] == 25
        assert not (await observe(engine, "a", cost=25))["changed"]  # the same report again
        assert (await problem_of(observe(engine, "a", cost=2))).status == 409
        refused = await problem_of(call(engine, correction("c", "a", 25, admin=False)))
        assert (refused.status, refused.code) == (403, "forbidden")
        await call(engine, correction("c", "a", 25))
        assert account(engine) == Account(10 * M, posted=10 * M, suspense=15 * M)
        assert not (await observe(engine, "a", cost=25))["changed"]
        # a booked cost is not corrected to one above the ceiling by just anybody either
        assert (await problem_of(call(engine, correction("d", "a", 30, admin=False)))).status == 403
        await call(engine, correction("d", "a", 1.5, admin=False))
        assert account(engine) == Account(10 * M, posted=1_500_000)
        check_replay(engine)

    play(database, script)


def test_a_cost_that_waits_does_not_hold_its_reservation_for_ever(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await complete(engine, await claim(engine), answer="ham", rewards={"human": 1.0}, cost=HUGE)
        before = records(engine)
        assert (await call(engine, Expire("a")))["final"] == "human"  # as its deadline does; the answer stands
        assert records(engine) == before + 1
        assert account(engine) == Account(10 * M)
        assert unconfirmed(engine) == 1
        check_replay(engine)
        await call(engine, correction("c", "a", 0.5))
        assert account(engine) == Account(10 * M, posted=500_000)
        assert unconfirmed(engine) == 0
        check_replay(engine)

    play(database, script)


def test_the_ceiling_is_for_each_of_several_reviewers(database: Database) -> None:
    """Three reviewers, three costs: 19 each with a ceiling of 20 are booked as 57."""

    async def script(engine: Engine) -> None:
        await decide(engine, "a", reviewers=3)
        for reviewer in ("ann", "bo", "cy"):
            done = await complete(engine, await claim(engine, reviewer), answer="ham", cost=19)
        assert (done["finished"], done["booked"], done["unconfirmed"]) == (True, 57, None)
        assert account(engine) == Account(10 * M, posted=10 * M, suspense=47 * M)
        check_replay(engine)

    play(database, script)


def test_one_of_several_reviewers_reports_too_much(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a", reviewers=2)
        await decide(engine, "b", reviewers=2)
        for reviewer in ("ann", "bo"):
            for _ in range(2):
                one = await claim(engine, reviewer)
                if (one["task"], reviewer) != ("b", "bo"):
                    await complete(
                        engine, one, answer="x", rewards={"human": 1.0}, cost=HUGE if reviewer == "ann" else 1
                    )
        assert engine.owned[KEY].policy.unconfirmed == {"a": {"cost": 4_000_000_001 * M}}
        await call(engine, Expire("b"))  # settled with what was answered by then
        assert unconfirmed(engine) == 2
        assert account(engine) == Account(10 * M, reserved=1 * M)
        check_replay(engine)
        await call(engine, correction("1", "a", 2))
        await call(engine, correction("2", "b", 1))
        assert account(engine) == Account(10 * M, posted=3 * M)
        check_replay(engine)

    play(database, script)


def test_an_effort_above_the_ceiling_is_refused(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = {
            name: value for name, value in (await claim(engine)).items() if name in ("task", "seat", "epoch", "token")
        }
        await engine.submit(KEY, Release(LeaseBody(**lease)))
        assert (await problem_of(call(engine, Effort(EffortBody(**lease, cost=20.000001))))).status == 422
        assert (await call(engine, Effort(EffortBody(**lease, cost=20))))["booked"] == 20

    play(database, script)


async def lapsed_claim(engine: Engine, reviewer: str = "ann") -> dict[str, Any]:
    """Return a lease that was claimed and released."""
    claimed = await claim(engine, reviewer)
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
    await engine.submit(KEY, Release(LeaseBody(**lease)))
    return lease


def test_the_efforts_of_one_task_are_together_below_the_ceiling(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a", reviewers=2)
        leases = [await lapsed_claim(engine, reviewer) for reviewer in ("ann", "bo", "cy", "ann", "bo")]
        assert (await call(engine, Effort(EffortBody(**leases[0], cost=12))))["booked"] == 12
        refused = await problem_of(call(engine, Effort(EffortBody(**leases[1], cost=8.000001))))
        assert refused.status == 422
        assert "together at most max_reported_cost" in str(refused)
        assert (await call(engine, Effort(EffortBody(**leases[1], cost=8))))["booked"] == 8
        assert (await call(engine, Effort(EffortBody(**leases[0], cost=12))))["booked"] == 12  # again: not once more
        for lease in leases[2:]:
            assert (await problem_of(call(engine, Effort(EffortBody(**lease, cost=0.000001))))).status == 422
            assert (await call(engine, Effort(EffortBody(**lease, cost=0))))["booked"] == 0
        posted = engine.owned[KEY].policy.accounts["cost"]
        assert posted.posted + posted.suspense == 20 * M
        # the rest is a cost of the task, which waits to be confirmed if it is large
        assert (await observe(engine, "a", cost=25))["unconfirmed"] == 25
        await call(engine, correction("c", "a", 25))
        posted = engine.owned[KEY].policy.accounts["cost"]
        assert posted.posted + posted.suspense == 45 * M
        check_replay(engine)

    play(database, script)


def test_a_cost_parked_before_its_decision_has_the_same_ceiling(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await observe(engine, "a", cost=HUGE)
        await decide(engine, "a")
        assert account(engine) == Account(10 * M, reserved=1 * M)
        assert unconfirmed(engine) == 1
        check_replay(engine)

    play(database, script)


def test_the_ceiling_of_a_policy(database: Database) -> None:
    assert with_defaults(SPEC).budget["cost"].max_reported_cost == 20
    large = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=10, horizon=9, max_cost=3e9)})
    assert with_defaults(large).budget["cost"].max_reported_cost == HUGE
    without = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec()})
    assert with_defaults(without).budget["cost"].max_reported_cost is msgspec.UNSET
    low = msgspec.structs.replace(
        SPEC, budget={"cost": BudgetSpec(total=10, horizon=9, max_cost=3, max_reported_cost=2)}
    )
    with pytest.raises(InvalidArgument, match="max_reported_cost of cost is at least its max_cost, 3"):
        Policy(low)
    none = msgspec.structs.replace(
        SPEC, budget={"cost": BudgetSpec(total=10, horizon=1000, max_cost=1, max_reported_cost=None)}
    )

    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        assert (await observe(engine, "a", cost=HUGE))["booked"] == HUGE
        assert (await engine.create(KEY[0], SPEC)).status == 201  # left open, so as it was made
        assert (await problem_of(engine.create(KEY[0], with_defaults(SPEC)))).status == 409

    play(database, script, spec=none)


def test_logs_from_before_there_was_a_ceiling_have_none() -> None:
    """Their first record does not have the field: what they booked is booked again, and their snapshots are equal."""
    text = msgspec.json.encode(SPEC)
    assert b"max_reported_cost" not in text
    policy = Policy(msgspec.json.decode(text, type=PolicySpec))
    assert not policy.exceeds_ceiling({"cost": 4_000_000_000 * M})
    assert b"unconfirmed" not in policy.to_bytes()


def test_costs_are_listed_and_confirmed_over_http(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        keys = {scope: service.key("acme", scope) for scope in ("observe", "review", "decide")}
        keys["admin"] = service.key("acme", "admin", "observe")
        admin = Client(service.url, policy="p", key=keys["admin"])
        admin.create(features=2, budget=Budget(10, horizon=1000, max_cost=1), warm_up=0)
        Client(service.url, policy="p", key=keys["decide"]).decide([1.0, 0.5], task="a", force="human")
        reviews = Client(service.url, policy="p", key=keys["review"]).reviews
        review = reviews.claim("ann")
        assert review is not None
        assert reviews.complete(review, "ham", cost=HUGE)
        assert (admin.summary().unconfirmed_costs, admin.summary().reserved) == (1, 1.0)
        assert admin.unconfirmed_costs() == {"a": HUGE}
        text = service.client(key=keys["admin"]).get("/metrics").body.decode()
        assert 'deferkit_unconfirmed_costs{policy="p"} 1.0' in text
        observer = Client(service.url, policy="p", key=keys["observe"])
        for forbidden in (observer.unconfirmed_costs, lambda: observer.correct("a", cost=HUGE)):
            with pytest.raises(ServiceError) as caught:
                forbidden()
            assert caught.value.status == 403
        admin.correct("a", cost=21)
        assert (admin.summary().spent, admin.summary().overrun, admin.unconfirmed_costs()) == (10.0, 11.0, {})
        other = Client(service.url, policy="q", key=keys["admin"])
        made = other.create(features=2, budget=Budget(1, horizon=9, max_cost=1), max_reported_cost=3)
        assert made["budget"]["cost"]["max_reported_cost"] == 3
