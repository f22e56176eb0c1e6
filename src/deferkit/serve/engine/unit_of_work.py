"""The unit of work of a group of commands, and the outbox of webhooks that it fills."""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from deferkit.serve.api.common import Body, Reply
from deferkit.serve.domain.accounts import MICRO, Account
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.records import AnyRecord, DecidedRecord, ExpiredRecord
from deferkit.serve.domain.rows import (
    CLAIMED,
    CLOSED,
    DONE,
    MODEL,
    VOID,
    WAITING,
    DecisionRow,
    LogRow,
    ParkedRow,
    RequestRow,
    SeatRow,
)
from deferkit.serve.domain.webhook import (
    BUDGET,
    COMPLETED,
    DECIDED,
    EXPIRED,
    EventBody,
    EventRow,
    WebhookRow,
    alarms_of,
    budget_data,
    completed_data,
    decided_data,
    encode_event,
    expired_data,
    new_event_id,
)
from deferkit.serve.storage.connections import QueueQuery, ReadSet, Transaction

MAX_DELIVERIES = 500  # after so many a group begins no more commands: about 5 ms of its commit
WebhooksByTenant = Mapping[str, Sequence[WebhookRow]]
encode_in_one_order = msgspec.json.Encoder(order="deterministic").encode


def digest(body: Body) -> bytes:
    """Return the digest of a body, independent of field order and white space."""
    return hashlib.blake2b(encode_in_one_order(body), digest_size=16).digest()


def events_of_record(
    owned: OwnedPolicy,
    webhooks: Sequence[WebhookRow],
    record: AnyRecord,
    line: LogRow,
    *,
    accounts: Mapping[str, Account],
    row: DecisionRow | None,
) -> list[EventRow]:
    """Return the events of a record: a decision, an expiry, alarms of the budget.

    Args:
        owned: The policy, after the record.
        webhooks: Those of its tenant.
        record: The record.
        line: Its row in the log.
        accounts: The accounts before the record: of budgets that renew, the part of the current period.
        row: The decision that it is about, before the record; None if there is none.
    """
    found: list[EventRow] = []
    if isinstance(record, DecidedRecord):
        notified = [each for each in webhooks if record.route != MODEL or each.models]
        found += events_for(owned, notified, DECIDED, line, decided_data(record))
    elif isinstance(record, ExpiredRecord):
        final = MODEL if row is None or row.final is None else row.final
        found += events_for(owned, webhooks, EXPIRED, line, expired_data(record, final))
    return found + alarms(owned, webhooks, line, accounts)


def events_of_decision(
    owned: OwnedPolicy, webhooks: Sequence[WebhookRow], line: LogRow, *, before: DecisionRow, row: DecisionRow
) -> list[EventRow]:
    """Return the event of a task that was completed: an expert's answer, reward or cost has made it final."""
    if before.final is not None or row.final is None or row.state == VOID:
        return []
    return events_for(owned, webhooks, COMPLETED, line, completed_data(row))


def alarms(
    owned: OwnedPolicy, webhooks: Sequence[WebhookRow], line: LogRow, accounts: Mapping[str, Account]
) -> list[EventRow]:
    """Return the events of alarms that a record has raised."""
    policy = owned.policy
    before = alarms_of(accounts, policy.spec, frozenset()) if owned.alarms is None else owned.alarms
    current = policy.books.current()
    owned.alarms = alarms_of(current, policy.spec, before)
    found = []
    for alarm in sorted(owned.alarms - before, key=str):
        found += events_for(owned, webhooks, BUDGET, line, budget_data(alarm, current))
    return found


def events_for(
    owned: OwnedPolicy, webhooks: Sequence[WebhookRow], event: str, line: LogRow, data: dict[str, Any]
) -> list[EventRow]:
    """Return an event for the webhooks that subscribe to it; nothing if there are none."""
    name = owned.policy.spec.name
    subscribed = tuple(each.id for each in webhooks if each.wants(event, name))
    if not subscribed:
        return []
    number, at = new_event_id(line.at), line.at
    body = encode_event(EventBody(id=number, event=event, at=at / MICRO, policy=name, seq=line.seq, data=data))
    return [EventRow(number, owned.id, event, body, at, subscribed)]


class UnitOfWork(Transaction):
    """Changes to policies and their rows. Every change of a policy goes through `record`, and so into its log.

    Rows that are written without a record (a seat, the reply of an idempotency key) add their policy to `changed` too:
    else a group of only such rows would not be committed, and the policy's fencing token would not be checked.

    Args:
        ends: Deadline of the group by `time.perf_counter`: commands that have not run by then are requeued. None by
            default.
        defers: Whether long steps of learners are deferred to `Policy.learn_deferred`. False by default.
        webhooks: The webhooks that events are delivered to, by tenant. None by default.
    """

    def __init__(
        self, ends: float = math.inf, *, defers: bool = False, webhooks: WebhooksByTenant | None = None
    ) -> None:
        super().__init__()
        self.ends = ends
        self.defers = defers
        self.webhooks = webhooks or {}
        self.deliveries = 0  # that the events of the group need

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline of the group has passed, or writing its deliveries takes long."""
        return time.perf_counter() >= self.ends or self.deliveries >= MAX_DELIVERIES

    def observes(self, reads: ReadSet) -> bool:
        """Whether a command may make the learner observe an outcome: its own, or a parked one."""
        return reads.observes or any(self.parked.get((reads.policy, task)) is not None for task in reads.tasks)

    def record(self, owned: OwnedPolicy, record: AnyRecord, now: int, task: str | None = None) -> None:
        """Apply a record to a policy, and append it to the log."""
        seq = owned.policy.seq
        self.changed[owned.id] = owned
        webhooks = self.webhooks.get(owned.tenant)
        accounts = {} if webhooks is None else owned.policy.books.current()
        body = owned.policy.append(record, now, defer=self.defers)
        if owned.tail is not None:
            owned.tail.append((record, now, body))
        kind = record.__struct_config__.tag
        line = LogRow(owned.id, seq, now, kind, task, body, owned.policy.head)  # type: ignore[arg-type]
        self.log.append(line)
        if webhooks is not None:
            row = None if task is None else self.decisions.get((owned.id, task))
            self.tell(events_of_record(owned, webhooks, record, line, accounts=accounts, row=row))

    def tell(self, events: list[EventRow]) -> None:
        """Write events for webhooks."""
        self.events += events
        self.deliveries += sum(len(event.webhooks) for event in events)

    def put_decision(self, row: DecisionRow) -> None:
        """Write a decision, after the record of its change."""
        key = (row.policy, row.task)
        if self.webhooks and (before := self.decisions.get(key)) is not None:
            owned = self.changed[row.policy]
            if (webhooks := self.webhooks.get(owned.tenant)) is not None:
                self.tell(events_of_decision(owned, webhooks, self.log[-1], before=before, row=row))
        self.decisions[key] = row
        self.changed_decisions[key] = None

    def history(self, policy: int, task: str) -> list[bytes]:
        """Return the observed and corrected records of a task: those of the log, and those of this group."""
        before = self.histories.get((policy, task), [])  # not read if there were none before this group
        return before + [row.body for row in self.log if (row.policy, row.task) == (policy, task)]

    def put_seats(self, owned: OwnedPolicy, rows: list[SeatRow]) -> None:
        """Write the seats of a task."""
        self.changed[owned.id] = owned
        for row in rows:
            self.changed_seats[row.policy, row.task, row.seat] = None
        self.seats[rows[0].policy, rows[0].task] = rows

    def answered_seats(self, row: DecisionRow) -> list[SeatRow]:
        """Return the seats of a task whose reviewers have answered."""
        return [seat for seat in self.seats.get((row.policy, row.task), []) if seat.state == DONE]

    def close_seats(self, owned: OwnedPolicy, row: DecisionRow) -> None:
        """Close the open seats of a task that has ended. Their epochs stay, so that late answers are refused."""
        seats = self.seats.get((row.policy, row.task), [])
        if any(seat.state in (WAITING, CLAIMED) for seat in seats):
            closed = [seat._replace(state=CLOSED) if seat.state in (WAITING, CLAIMED) else seat for seat in seats]
            self.put_seats(owned, closed)

    def park(self, owned: OwnedPolicy, row: ParkedRow) -> None:
        """Park an outcome until its decision comes."""
        key = (row.policy, row.task)
        if (before := self.parked.get(key)) is None:
            owned.parked += 1
        else:
            owned.count_parked(before.key, -1)
        owned.count_parked(row.key, 1)
        self.changed[owned.id] = owned
        self.parked[key] = self.new_parked[key] = row
        self.dropped_parked.pop(key, None)

    def unpark(self, owned: OwnedPolicy, row: ParkedRow) -> None:
        """Delete a parked outcome: its decision has come, or it is dropped."""
        key = (owned.id, row.task)
        owned.parked -= 1
        owned.count_parked(row.key, -1)
        self.changed[owned.id] = owned
        self.parked[key] = None
        self.new_parked.pop(key, None)
        self.dropped_parked[key] = None

    def answer(self, owned: OwnedPolicy, row: RequestRow) -> None:
        """Store a reply under its idempotency key."""
        self.changed[owned.id] = owned
        self.requests[row.policy, row.request] = row
        self.new_requests.append(row)


class Unfinished(NamedTuple):
    """The rest of a command that ran out of time, to be run in a later group."""

    rest: "Command"


class Command(Protocol):
    """A command on one policy."""

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows that must be read first."""
        ...

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply | QueueQuery | Unfinished:
        """Change the policy, or raise a `Problem` before anything was changed."""
        ...
