"""Reviews are claimed by any process of a shared database: each seat goes to one reviewer, whoever asks at once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from deferkit.serve.api.reviews import ClaimBody, ExtendBody, LeaseBody
from deferkit.serve.domain.problems import Problem, StoreFailed
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.lease import Claim, Extend, LeaseCommand, Release
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    add,
    again,
    call,
    claim,
    complete,
    decide,
    observe,
    play,
    problem_of,
    seat,
    write,
)

NOW = 1_000_000_000
RICH = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=1000, horizon=1000, max_cost=1)})
NINE = msgspec.structs.replace(SPEC, lease_s=9.0)
LAPSED = 1e-6  # a lease that is over as soon as it is given


def ask(store: Store, policy: int, command: LeaseCommand, now: int = NOW, spec: PolicySpec = SPEC) -> Any:
    """Ask the queue, as a process that does not own the policy does."""
    reply = store.in_own_transaction(command.query(policy, spec, now).run)
    return msgspec.json.decode(reply.body) if reply.body else None


def take(store: Store, policy: int, reviewer: str, now: int = NOW, spec: PolicySpec = SPEC, **given: Any) -> Any:
    return ask(store, policy, Claim(ClaimBody(reviewer=reviewer, **given)), now, spec)


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make calls at the same time, each in a thread of its own; return what came of each."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        gate.wait()
        try:
            results[place] = calls[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_each_seat_is_claimed_once(postgres: Postgres) -> None:
    postgres.prepare()
    stores = [Store(again(postgres)) for _ in range(6)]
    owned = add(stores[0])

    def fill(work: Any) -> None:
        for i in range(30):
            work.put_seats(owned, [seat(owned, f"t{i}", priority=i / 30)])

    write(stores[0], owned, fill=fill)

    def until_empty(store: Store, reviewer: str) -> list[Any]:
        taken = []
        while (one := take(store, owned.id, reviewer)) is not None:
            taken.append(one)
        return taken

    done = at_once([lambda s=store, i=i: until_empty(s, f"r{i}") for i, store in enumerate(stores)])  # type: ignore[misc]
    claimed = Counter((one["task"], one["seat"], one["epoch"]) for each in done for one in each)
    assert claimed == Counter((f"t{i}", 0, 1) for i in range(30))
    for each in done:  # what is worth most comes first
        assert [one["priority"] for one in each] == sorted((one["priority"] for one in each), reverse=True)
    for i in range(30):
        [row] = stores[0].claims(owned.id, f"t{i}")
        assert row.reviewer == stores[0].seats(owned.id, f"t{i}")[0].reviewer
    for store in stores:
        store.close()


def test_a_reviewer_with_many_tabs_gets_one_seat_at_a_task(postgres: Postgres) -> None:
    postgres.prepare()
    stores = [Store(again(postgres)) for _ in range(4)]
    owned = add(stores[0])
    for i in range(8):
        seats = [seat(owned, f"t{i}", number) for number in range(3)]
        write(stores[0], owned, fill=lambda work, seats=seats: work.put_seats(owned, seats))  # type: ignore[misc]
        done = at_once([lambda s=store: take(s, owned.id, "ann") for store in stores])  # type: ignore[misc]
        assert sum(one is not None for one in done) == 1, done
    for store in stores:
        store.close()


def test_a_seat_that_is_locked_is_passed_over_and_not_waited_for(postgres: Postgres) -> None:
    postgres.prepare()
    owner, other = Store(postgres), Store(again(postgres))
    owned = add(owner)
    write(owner, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "best", priority=2.0)]))
    write(owner, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "good", priority=1.0)]))
    owner.writer.begin()
    owner.writer.run("seats", policy=owned.id, keys=["best"])
    assert take(other, owned.id, "ann")["task"] == "good"
    assert take(other, owned.id, "bo") is None
    owner.rollback()
    assert take(other, owned.id, "bo")["task"] == "best"
    for store in (owner, other):
        store.close()


def test_who_waits_for_a_lock_too_long_is_told_to_try_again(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deferkit.serve.storage.postgres.SETTINGS", "SET lock_timeout = '50ms'")
    postgres.prepare()
    owner, other = Store(postgres), Store(again(postgres))
    owned = add(owner)
    write(owner, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "t")]))
    lease = take(other, owned.id, "ann")
    body = LeaseBody(task="t", seat=0, epoch=lease["epoch"], token=lease["token"])
    owner.writer.begin()
    owner.writer.run("seats", policy=owned.id, keys=["t"])
    with pytest.raises(StoreFailed, match="lock timeout"):
        ask(other, owned.id, Release(body))
    owner.rollback()
    assert ask(other, owned.id, Release(body))["lease_until"] is None
    for store in (owner, other):
        store.close()


def test_a_lease_is_used_by_its_epoch_only(database: Database) -> None:
    database.prepare()
    store = Store(database)
    owned = add(store)
    write(store, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "t", deadline=NOW + 50)]))
    first = take(store, owned.id, "ann", lease_s=LAPSED)
    second = take(store, owned.id, "bo", now=NOW + 2)
    assert (first["epoch"], second["epoch"]) == (1, 2)
    old, new = (ExtendBody(task="t", seat=0, epoch=one["epoch"], token=one["token"]) for one in (first, second))
    assert ask(store, owned.id, Extend(old), spec=NINE)["status"] == 409
    assert ask(store, owned.id, Release(old))["status"] == 409
    assert ask(store, owned.id, Release(LeaseBody(task="t", seat=3, epoch=1)))["status"] == 404
    assert ask(store, owned.id, Extend(new), spec=NINE)["lease_until"] == NOW / 1e6 + 9
    assert take(store, owned.id, "cy", now=NOW + 3) is None
    assert ask(store, owned.id, Release(new))["lease_until"] is None
    assert take(store, owned.id, "cy", now=NOW + 51) is None  # its deadline has passed
    assert take(store, owned.id, "cy", now=NOW + 50)["epoch"] == 3
    store.close()


def test_an_answer_and_a_claim_of_the_same_seat_do_not_both_win(postgres: Postgres) -> None:
    async def script(engine: Engine) -> Counter[bool]:
        other = Store(again(postgres))
        won: Counter[bool] = Counter()
        for i in range(20):
            await decide(engine, f"t{i}")
            lease = await claim(engine, "ann", lease_s=LAPSED)
            now = engine.clock.now() + 1000
            answered: Any
            taken: Any
            answered, taken = await asyncio.gather(
                complete(engine, lease, rewards={"human": 1.0}, cost=0.5),
                asyncio.to_thread(take, other, engine.owned[KEY].id, "bo", now),
                return_exceptions=True,
            )
            if taken is None:
                assert answered["finished"]
            else:
                assert isinstance(answered, Problem)
                assert (answered.status, taken["epoch"]) == (409, 2)
                assert (await complete(engine, taken, rewards={"human": 1.0}, cost=0.5))["finished"]
            won[taken is None] += 1
            [row] = other.seats(engine.owned[KEY].id, f"t{i}")
            assert row.state == "done"
        await asyncio.to_thread(other.close)
        assert engine.owned[KEY].policy.accounts["cost"].posted == 20 * 500_000
        return won

    assert sum(play(postgres, script, spec=RICH).values()) == 20


def test_a_task_that_is_closed_is_not_claimed(postgres: Postgres) -> None:
    async def script(engine: Engine) -> None:
        other = Store(again(postgres))
        policy = engine.owned[KEY].id
        for i in range(20):
            await decide(engine, f"t{i}")
            ends = call(engine, Expire(f"t{i}")) if i % 2 else observe(engine, f"t{i}", cost=0.25)
            await asyncio.gather(ends, asyncio.to_thread(take, other, policy, "bo", engine.clock.now()))
            [row] = other.seats(policy, f"t{i}")
            assert row.state == "closed"
        assert await asyncio.to_thread(take, other, policy, "cy", engine.clock.now() + 10**9) is None
        await asyncio.to_thread(other.close)

    play(postgres, script, spec=RICH)


def test_who_stands_for_several_experts_gets_what_is_worth_most_of_all_of_theirs(database: Database) -> None:
    database.prepare()
    store = Store(database)
    owned = add(store)
    worth = {"clerk": 1.0, "human": 2.0, "lawyer": 3.0}
    three = msgspec.structs.replace(SPEC, experts=[*worth])
    for expert, priority in worth.items():
        one = seat(owned, expert, expert=expert, priority=priority)
        write(store, owned, fill=lambda work, one=one: work.put_seats(owned, [one]))  # type: ignore[misc]
    assert take(store, owned.id, "ann", spec=three, experts=["clerk", "human"])["task"] == "human"
    assert take(store, owned.id, "ann", spec=three, experts=["clerk", "human"])["task"] == "clerk"
    assert take(store, owned.id, "ann", spec=three, experts=["clerk", "human"]) is None
    assert take(store, owned.id, "ann")["task"] == "lawyer"
    store.close()


def test_a_claim_for_an_expert_that_there_is_not_is_refused(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        problem = await problem_of(claim(engine, "ann", experts=["human", "humann"]))
        assert (problem.status, str(problem)) == (422, "There is no expert 'humann'. There is human.")
        assert (await claim(engine, "ann", experts=["human"]))["task"] == "a"

    play(database, script)
