"""What must hold of a store after anything, given what clients were told."""

from collections import Counter

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.request_bodies import TaskBody
from deferkit.serve.domain.rows import OPEN, PolicyRow
from deferkit.serve.engine.commands.decide import propose
from deferkit.serve.engine.recovery import after, following, recover, roll_on, snapshot_at
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.processes.crowd import TOTAL, Crowd

KEY = ("default", "p")


def audit(database: Database, crowd: Crowd) -> int:
    """Check everything; return how many decisions there are."""
    store = Store(database)
    row = store.policy(*KEY)
    assert row is not None
    tasks = check_log(store, row)
    check_decisions(store, row, tasks, crowd)
    check_money(store, row, tasks, crowd)
    check_state(store, row)
    return len(tasks)


def check_log(store: Store, row: PolicyRow) -> list[str]:
    """The log is one story: ids are contiguous, times do not go back, nothing is decided twice.

    And the random stream went on as if nothing had happened: a learner that is given the same tasks in the same order
    would decide the same, down to the last bit. Returns the tasks.
    """
    policy: Policy | None = None
    tasks: list[str] = []
    latest = 0
    for line in store.log(row.id):
        assert line.at >= latest, f"Time goes back at row {line.seq}."
        latest = line.at
        record = following(policy, row, line)
        if isinstance(record, log_records.DecidedRecord):
            assert policy is not None
            assert record.id == len(tasks), f"Decision {record.id} comes at the place of {len(tasks)}."
            tasks.append(record.task)
            event, owned = propose(OwnedPolicy(1, "", policy, 1, 0), TaskBody(task=record.task, context=record.context))
            assert event.decision == record.decision
            assert owned == record.held
            assert 0 < record.propensity <= 1
        policy = after(policy, row, line, record, store)
    assert len(set(tasks)) == len(tasks)
    return tasks


def check_decisions(store: Store, row: PolicyRow, tasks: list[str], crowd: Crowd) -> None:
    """Every decision that was acknowledged is there, with the very same reply; what was logged is what was replied."""
    replies = {}
    for number, task in enumerate(tasks):
        decision = store.decision(row.id, task)
        assert decision is not None
        assert decision.id == number
        replies[task] = bytes(decision.reply)
        [first, *_] = store.log_of_task(row.id, task, 1)
        logged = msgspec.json.decode(first.body)
        said = msgspec.json.decode(decision.reply)
        assert {name: logged[name] for name in said} == said
    lost = [task for task in crowd.decisions if task not in replies]
    assert not lost, f"{len(lost)} acknowledged decisions are lost: {lost[:3]}"
    for task, reply in crowd.decisions.items():
        assert replies[task] == reply


def check_money(store: Store, row: PolicyRow, tasks: list[str], crowd: Crowd) -> None:
    """Every cost and every top-up is booked once; what is reserved is what open decisions hold."""
    account = store.budgets(row.id)["cost"]
    assert account.posted + account.suspense == crowd.spent
    assert account.total == TOTAL * 1_000_000 + crowd.topped_up
    found = [store.decision(row.id, task) for task in tasks]
    owned = [each.held["cost"] for each in found if each is not None and each.state == OPEN and each.held]
    assert account.reserved == sum(owned)
    assert account.reserved + account.posted <= account.total
    costs = [each.cost["cost"] for each in found if each is not None and each.cost is not None]
    assert sum(costs) == crowd.spent
    booked: Counter[str] = Counter()
    for line in store.log(row.id):
        record = log_records.decode(bytes(line.body))
        if isinstance(record, log_records.ObservedRecord) and record.cost is not None:
            booked[record.task] += 1
    assert set(booked.values()) <= {1}


def check_state(store: Store, row: PolicyRow) -> None:
    """A replay of the whole log gives what a start gives, bit for bit; so do the snapshots that are kept."""
    whole = roll_on(store, row, None)
    assert recover(store, row).to_bytes() == whole.to_bytes()
    assert (whole.seq, whole.head) == (row.seq, bytes(row.head))
    for seq, data in store.snapshots(row.id):
        snapshot = snapshot_at(store, row, seq, data)
        assert snapshot is not None
        assert roll_on(store, row, snapshot).to_bytes() == whole.to_bytes()


def check_last_snapshot(database: Database) -> None:
    """What a process had in memory when it stopped in order is what its log says, bit for bit."""
    store = Store(database)
    row = store.policy(*KEY)
    assert row is not None
    seq, data = next(store.snapshots(row.id))
    assert seq == row.seq
    assert data == roll_on(store, row, None).to_bytes()
