"""What a store promises, on both databases."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from deferkit.serve.domain import records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Fenced, StoreFailed
from deferkit.serve.domain.rows import ClaimRow, KeyRow, ParkedRow, PolicyRow, RequestRow
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.connections import ReadSet, decision_values, seat_values
from deferkit.serve.storage.database import Connection, Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import NAME, add, decision, seat, write


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    database.prepare()
    made = Store(database)
    yield made
    made.close()


def row_of(store: Store, owned: OwnedPolicy) -> PolicyRow:
    found = store.policy(owned.tenant, owned.policy.spec.name)
    assert found is not None
    return found


def test_a_new_policy_is_owned_and_its_log_begins(store: Store) -> None:
    owned = add(store)
    row = row_of(store, owned)
    assert row[:3] + row[4:] == (1, "default", "p", 1, owned.policy.head, 5, "a", "here:1", 1, 100, 0)
    assert [line.seq for line in store.log(owned.id)] == [0]
    assert store.budgets(owned.id) == owned.policy.accounts
    assert store.last_time() == 5


def test_a_name_is_taken_within_its_tenant_only(store: Store) -> None:
    owned = add(store)
    assert store.add_policy("default", owned.policy, next(store.log(owned.id)), "b", None, 100) is None
    assert row_of(store, owned).owner == "a"
    assert add(store, tenant="other").id == 2
    assert [row.name for row in store.policies_of("default", "", 10)] == ["p"]
    assert [(row.tenant, row.name) for row in store.policies()] == [("default", "p"), ("other", "p")]


def test_rows_come_back_as_they_were(store: Store) -> None:
    owned = add(store)
    decided = decision(owned, NAME)
    seats = [seat(owned, NAME), seat(owned, NAME, 1, state="claimed", reviewer=NAME, deadline=2**62, priority=-0.5)]
    parked = ParkedRow(owned.id, "early", bytes(range(256)), 9)
    request = RequestRow(owned.id, "budget 1", b"\x00", b"{}")

    def fill(work: UnitOfWork) -> None:
        work.record(owned, records.ChangedRecord(spec=owned.policy.spec), 11, NAME)
        work.put_decision(decided)
        work.put_seats(owned, seats)
        work.park(owned, parked)
        work.answer(owned, request)

    write(store, owned, ReadSet(owned.id, (NAME, "early"), parked=True), fill=fill)
    assert store.decision(owned.id, NAME) == decided
    assert store.seats(owned.id, NAME) == seats
    assert store.queue(owned.id) == (1, 1, 7)
    assert [(line.seq, line.at, line.kind) for line in store.log_of_task(owned.id, NAME, 10)] == [(1, 11, "changed")]
    assert row_of(store, owned)[4:] == (2, owned.policy.head, 5, "a", "here:1", 1, 200, 1)
    reads = ReadSet(owned.id, (NAME, "early", "new"), parked=True, seats=True, claims=True, request="budget 1")
    work = store.begin([reads, ReadSet(owned.id, ("new",), request="budget 2")], UnitOfWork())
    store.rollback()
    assert work.decisions == {(owned.id, NAME): decided, (owned.id, "early"): None, (owned.id, "new"): None}
    assert work.seats == {(owned.id, NAME): seats, (owned.id, "early"): [], (owned.id, "new"): []}
    assert work.parked == {(owned.id, NAME): None, (owned.id, "early"): parked, (owned.id, "new"): None}
    assert work.requests == {(owned.id, "budget 1"): request, (owned.id, "budget 2"): None}
    assert {type(each) for row in (*work.requests.values(), *work.parked.values()) for each in row or ()} == {
        int,
        str,
        bytes,
    }


def test_a_group_reads_of_each_policy_its_own(store: Store) -> None:
    one, two = add(store, "p"), add(store, "q")
    for owned in (one, two):
        rows = [decision(owned, f"t{i}", at=i + owned.id) for i in range(300)]

        def fill(work: UnitOfWork, rows: Any = rows) -> None:
            for row in rows:
                work.put_decision(row)

        write(store, owned, fill=fill)
    work = store.begin([ReadSet(owned.id, (f"t{i}", "none")) for i in range(300) for owned in (one, two)], UnitOfWork())
    store.rollback()
    assert len(work.decisions) == 602
    assert all(row is None or row.at == int(key[1][1:]) + key[0] for key, row in work.decisions.items())


def test_what_was_decided_stands_and_what_became_known_changes(store: Store) -> None:
    owned = add(store)
    write(store, owned, fill=lambda work: work.put_decision(decision(owned, "t")))
    later = decision(owned, "t", state="posted", cost={"cost": 3}, rewards={"human": 1.0}, final="human", told="human")
    write(store, owned, fill=lambda work: work.put_decision(later._replace(reply=b"other", digest=b"other")))
    assert store.decision(owned.id, "t") == later


def test_a_parked_outcome_goes_when_its_decision_comes(store: Store) -> None:
    owned = add(store)
    row = ParkedRow(owned.id, "t", b"{}", 1)
    reads = ReadSet(owned.id, ("t",), parked=True)
    write(store, owned, reads, fill=lambda work: work.park(owned, row))
    write(store, owned, reads, fill=lambda work: work.park(owned, row._replace(body=b"[]")))
    assert row_of(store, owned).parked == 1
    write(store, owned, reads, fill=lambda work: work.unpark(owned, row))
    assert row_of(store, owned).parked == 0
    work = store.begin([reads], UnitOfWork())
    store.rollback()
    assert work.parked == {(owned.id, "t"): None}


def test_a_claim_and_its_effort(store: Store) -> None:
    owned = add(store)
    write(store, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "t")]))
    claim = {"policy": owned.id, "task": "t", "seat": 0, "epoch": 1}
    token = {"token": b"\x00\x01", "visible": 1}
    store.in_own_transaction(
        lambda connection: connection.run("add_claim", reviewer="ann", at=5, origin=None, **token, **claim)
    )
    assert store.claims(owned.id, "t") == [ClaimRow(owned.id, "t", 0, 1, "ann", 5, None, b"\x00\x01", True)]
    for cost in (7, 8):  # it is set once
        write(store, owned, fill=lambda work, cost=cost: work.efforts.append(claim | {"effort": {"cost": cost}}))  # type: ignore[misc]
    assert store.claims(owned.id, "t")[0].effort == {"cost": 7}


BUDGET = {"resource": "cost", "total": 10, "reserved": 0, "posted": 0, "suspense": 0}


def test_the_database_refuses_a_budget_that_is_overspent(store: Store) -> None:
    owned = add(store)
    for given in (
        {"reserved": 6, "posted": 5},
        {"reserved": -1},
        {"posted": -1},
        {"total": -1},
        {"suspense": 1},
        {"posted": 10, "suspense": -1},
    ):
        values = BUDGET | given | {"policy": owned.id}
        with pytest.raises(StoreFailed):
            store.in_own_transaction(lambda connection, values=values: connection.run("set_budget", **values))  # type: ignore[misc]
        assert store.budgets(owned.id) == owned.policy.accounts, given


def test_a_budget_may_be_spent_to_the_end_and_have_none(store: Store) -> None:
    owned = add(store)
    for given in ({"posted": 10, "suspense": 3}, {"total": None, "posted": 10**15}):
        store.in_own_transaction(
            lambda connection, given=given: connection.run("set_budget", policy=owned.id, **BUDGET | given)  # type: ignore[misc]
        )
        assert dict(store.budgets(owned.id)["cost"]._asdict(), resource="cost") == BUDGET | given


def test_the_database_refuses_a_row_that_cannot_be(store: Store) -> None:
    owned = add(store)
    write(store, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "t", state="claimed", reviewer="ann")]))
    decisions = [
        decision(owned, "new", state="lost", answer=NAME),
        decision(owned, "new", state="posted", answer=NAME),
        decision(owned, ""),
        decision(owned, "x" * 129),
        decision(owned, "new", policy=99),
    ]
    seats = [
        seat(owned, "t", 5, state="lost", answer=NAME),
        seat(owned, "t", 5, state="claimed"),
        seat(owned, "t", -1),
        seat(owned, "t", 5, epoch=-1),
        seat(owned, "t", 5, state="done", reviewer="ann"),  # who has a seat there
    ]
    rows = [("put_decision", decision_values(row)) for row in decisions]
    for name, row in [*rows, *(("put_seat", seat_values(row)) for row in seats)]:
        with pytest.raises(StoreFailed) as caught:
            store.in_own_transaction(lambda connection, name=name, row=row: connection.write_all({name: [row]}))  # type: ignore[misc]
        assert "宠" not in str(caught.value) + str(
            caught.value.__cause__
        )  # errors are logged, what people wrote is not
        assert (store.decision(owned.id, row[1]), len(store.seats(owned.id, "t"))) == (None, 1), row


def test_a_log_has_one_row_for_each_number(store: Store) -> None:
    owned = add(store)
    first = next(store.log(owned.id))
    with pytest.raises(StoreFailed):
        store.in_own_transaction(lambda connection: connection.write_all({"add_log": [first]}))


def test_one_owner_at_a_time(store: Store) -> None:
    owned = add(store, expires=100)
    row = row_of(store, owned)
    assert store.acquire(row, "b", None, 100, 300, dead=None) is None
    assert store.acquire(row, "b", None, 50, 300, dead="c") is None
    assert store.acquire(row, "b", "there:2", 101, 300, dead=None) == 2
    assert store.acquire(row, "c", None, 500, 600, dead="b") is None  # what was read is old
    row = row_of(store, owned)
    assert (row.owner, row.address, row.epoch, row.expires) == ("b", "there:2", 2, 300)
    assert store.acquire(row, "c", None, 200, 400, dead="b") == 3
    assert store.acquire(row_of(store, owned), "c", None, 200, 400, dead=None) == 4  # it has it, but not in memory


def test_a_lease_is_renewed_by_its_owner_only(store: Store) -> None:
    one, two = add(store, "p"), add(store, "q", owner="b")
    assert store.renew({one.id: 1, two.id: 1}, "a", 900) == {two.id}
    assert store.renew({one.id: 2}, "a", 950) == {one.id}
    assert store.renew({}, "a", 950) == set()
    assert [row.expires for row in store.policies()] == [900, 100]
    store.release_policy(two.id, "a", 1)
    assert row_of(store, two).owner == "b"
    store.release_policy(two.id, "b", 1)
    row = row_of(store, two)
    assert (row.owner, row.address, row.expires, row.epoch) == (None, None, 0, 1)
    assert store.acquire(row, "a", None, 0, 10, dead=None) == 2


def test_a_takeover_gives_reviewers_their_time_again(store: Store) -> None:
    owned = add(store)
    seats = [
        seat(owned, "t"),
        seat(owned, "t", 1, state="claimed", reviewer="ann", lease_until=5),
        seat(owned, "t", 2, state="done", reviewer="bo", lease_until=5),
    ]
    write(store, owned, fill=lambda work: work.put_seats(owned, seats))
    assert store.acquire(row_of(store, owned), "b", None, 1000, 2000, dead=None) == 2
    lease = int(owned.policy.spec.lease_s * 1e6)
    assert [each.lease_until for each in store.seats(owned.id, "t")] == [0, 1000 + lease, 5]


@pytest.mark.parametrize(("owner", "epoch"), [("a", 2), ("b", 1)])
def test_who_does_not_own_a_policy_writes_nothing(store: Store, owner: str, epoch: int) -> None:
    owned = add(store)
    stale = OwnedPolicy(owned.id, "default", owned.policy, epoch, 0)

    def fill(work: UnitOfWork) -> None:
        work.record(stale, records.ChangedRecord(spec=owned.policy.spec), 11)
        work.put_decision(decision(owned, "t"))

    with pytest.raises(Fenced):
        write(store, stale, fill=fill, owner=owner)
    assert (row_of(store, owned).seq, store.decision(owned.id, "t")) == (1, None)
    assert len(list(store.log(owned.id))) == 1


def test_three_snapshots_are_kept_and_a_damaged_one_is_passed_over(store: Store) -> None:
    owned = add(store)
    for seq in (1, 5, 7, 9, 9):
        store.add_snapshot(owned.id, seq, b"\x00state %d" % seq)
    assert list(store.snapshots(owned.id)) == [(9, b"\x00state 9"), (7, b"\x00state 7"), (5, b"\x00state 5")]
    values = {"policy": owned.id, "seq": 9, "sha256": hashlib.sha256(b"\x00state 9").digest(), "data": b"\x01state 9"}
    store.in_own_transaction(lambda connection: connection.run("add_snapshot", **values))
    assert [seq for seq, _ in store.snapshots(owned.id)] == [7, 5]


def test_keys(store: Store) -> None:
    keys = [
        KeyRow("k1", "default", b"\x00\x01", "decide review", NAME, 1, None),
        KeyRow("k2", "b", b"", "", "", 2, None, reviewer="ann"),
    ]
    for key in keys:
        store.add_key(key)
    assert store.keys() == keys
    assert (store.revoke_key("k1", 9), store.revoke_key("k1", 10), store.revoke_key("k3", 10)) == (True, False, False)
    assert [each.revoked for each in list(store.keys())] == [9, None]


def test_a_question_that_fails_leaves_nothing(store: Store) -> None:
    owned = add(store)

    def ask(connection: Connection) -> None:
        connection.write_all({"put_seat": [seat_values(seat(owned, "t"))]})
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.in_own_transaction(ask)
    assert store.seats(owned.id, "t") == []


def test_a_page_of_the_log_and_of_what_is_overdue(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deferkit.serve.storage.store.PAGE", 3)
    owned = add(store)

    def fill(work: UnitOfWork) -> None:
        for i in range(7):
            work.record(owned, records.ChangedRecord(spec=owned.policy.spec), 20 + i, f"t{i}")
            work.put_decision(decision(owned, f"t{i}", state="void" if i == 1 else "open"))
            work.put_seats(owned, [seat(owned, f"t{i}", deadline=i % 3), seat(owned, f"t{i}", 1, deadline=i % 3)])

    write(store, owned, fill=fill)
    assert [line.seq for line in store.log(owned.id, 2)] == [2, 3, 4, 5, 6, 7]
    overdue = [(0, "t0"), (0, "t3"), (0, "t6"), (1, "t4")]
    assert store.overdue(owned.id, 2, (-1, ""), 10) == overdue
    assert store.overdue(owned.id, 2, (0, "t3"), 1) == overdue[2:3]
    assert store.overdue(owned.id, 2, (0, "t6"), 2) == overdue[3:]
    assert store.last_time() == 26
