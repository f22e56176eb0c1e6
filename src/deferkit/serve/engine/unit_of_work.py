"""The unit of work of a group of commands: what they read and change, written in one transaction."""

import math
import time
from typing import NamedTuple, Protocol

from deferkit.serve.domain.log_records import AnyRecord
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.rows import (
    CLAIMED,
    CLOSED,
    DONE,
    WAITING,
    DecisionRow,
    LogRow,
    ParkedRow,
    RequestRow,
    SeatRow,
)
from deferkit.serve.engine.webhook_outbox import WebhooksByTenant, events_of_decision, events_of_record
from deferkit.serve.storage.transaction import QueueQuery, ReadSet, Transaction


class UnitOfWork(Transaction):
    """Changes to policies and their rows. Every change of a policy goes through `record`, and so into its log.

    Rows that are written without a record (a seat, the reply of an idempotency key) add their policy to `changed` too:
    else a group of only such rows would not be committed, and the policy's fencing token would not be checked.

    Parameters
    ----------
    ends
        Deadline of the group by `time.perf_counter`: commands that have not run by then are requeued. Never unless
        given.
    defers
        Whether long steps of learners are deferred to `Policy.learn_deferred`. False unless given.
    webhooks
        The webhooks that events are delivered to, by tenant. None unless given.
    """

    def __init__(
        self, ends: float = math.inf, *, defers: bool = False, webhooks: WebhooksByTenant | None = None
    ) -> None:
        super().__init__()
        self.ends = ends
        self.defers = defers
        self.webhooks = webhooks or {}

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline of the group has passed."""
        return time.perf_counter() >= self.ends

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
            self.deliveries += events_of_record(owned, webhooks, record, line, accounts=accounts, row=row)

    def put_decision(self, row: DecisionRow) -> None:
        """Write a decision, after the record of its change."""
        key = (row.policy, row.task)
        if self.webhooks and (before := self.decisions.get(key)) is not None:
            owned = self.changed[row.policy]
            if (webhooks := self.webhooks.get(owned.tenant)) is not None:
                self.deliveries += events_of_decision(owned, webhooks, self.log[-1], before=before, row=row)
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
