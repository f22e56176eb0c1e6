"""Commands of maintenance: renewal of budgets, expiry of tasks, erasure of payloads."""

import math
from typing import Any

import msgspec

from deferkit.periods import SHORTEST
from deferkit.serve.api.common import Reply
from deferkit.serve.api.policies import EraseBody, EraseReply
from deferkit.serve.api.tasks import ExpirationReply
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.books import due_renewals
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import conflict, invalid, unknown
from deferkit.serve.domain.rows import MODEL, OPEN, VOID
from deferkit.serve.engine.commands.outcome import book
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.connections import QueueQuery, ReadSet
from deferkit.serve.storage.database import Connection

ALL = 2**31 - 1
ERASED_AT_ONCE = 1000  # seats that retention erases in one commit: other callers wait for it


class Erase:
    """Erase payload and model answer, of one task or of all ended tasks above an age."""

    def __init__(self, body: EraseBody) -> None:
        self.body = body

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, () if self.body.task is None else (self.body.task,))

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> QueueQuery:
        """Erase it, and record that it was."""
        task, age = self.body.task, self.body.older_than_s
        if (task is None) == (age is None):
            raise invalid("An erasure needs either a 'task' or 'older_than_s'.")
        if task is not None and work.decisions[owned.id, task] is None:
            raise unknown("task", task)
        if task is not None:
            work.record(owned, records.ErasedRecord(task=task), now, task)
            return erasure(owned, work, "erase_payload", task=task)
        return erase_old(owned, work, now, now - int((age or 0) * MICRO), ALL)


class EraseExpired:
    """Erase payloads and model answers of ended tasks decided before a time, up to `ERASED_AT_ONCE` seats."""

    def __init__(self, before: int) -> None:
        self.before = before

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> QueueQuery:
        """Erase it, and record that it was."""
        return erase_old(owned, work, now, self.before, ERASED_AT_ONCE)


def erase_old(owned: OwnedPolicy, work: UnitOfWork, now: int, before: int, limit: int) -> QueueQuery:
    """Record the erasure, and erase the payloads of at most `limit` seats of ended tasks decided before a time."""
    work.record(owned, records.ErasedRecord(before=before), now)
    return erasure(owned, work, "erase_old_payloads", before=before, limit=limit)


def erasure(owned: OwnedPolicy, work: UnitOfWork, query: str, **values: Any) -> QueueQuery:
    """Queue a named query that erases; its reply counts the erased seats."""

    def execute(connection: Connection) -> Reply:
        found = connection.run(query, policy=owned.id, **values)
        return Reply(200, msgspec.json.encode(EraseReply(erased=len(found))))

    queued = QueueQuery(execute)
    work.queue_queries.append(queued)
    return queued


AT_ONCE = 1000  # renewals of one policy in a group: after many short periods without calls, other callers do not wait
MAX_DUE = 100  # due renewals from which on maintenance renews an idle policy: every read computes all that are due


class RenewIdle:
    """Record the renewals that are due, as before any command."""

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:  # noqa: ARG002
        """Do nothing: `renew` has run before."""
        return Reply(200, b"")


def renew(owned: OwnedPolicy, work: UnitOfWork, now: int, *, begin: bool = False) -> bool:
    """Record the renewals that are due; return False if there are more of them.

    Args:
        owned: The policy, which has a budget that renews or has an end.
        work: Where they are recorded.
        now: The time of the policy, in microseconds.
        begin: Whether a task has come, which begins the first period. False by default.
    """
    policy = owned.policy
    is_first = begin and any(each.is_timed and name not in policy.periods for name, each in policy.spec.budget.items())
    if not is_first and now / MICRO < next_renewal(policy):
        return True
    decisions = policy.counts().decisions
    due = due_renewals(policy.spec, policy.books, now / MICRO, decisions=decisions, begin=begin, most=AT_ONCE)
    for record in due:
        work.record(owned, record, now)
    return len(due) < AT_ONCE


def next_renewal(policy: Policy) -> float:
    """Return the earliest end of a policy's renewing periods, in seconds since 1970; infinity if none renews."""
    renewing = (each for name, each in policy.periods.items() if policy.spec.budget[name].every is not msgspec.UNSET)
    return min((period.end for period in renewing), default=math.inf)


def has_many_due(owned: OwnedPolicy, now: int) -> bool:
    """Whether at least `MAX_DUE` renewals of a policy are due."""
    policy = owned.policy
    if not policy.is_timed or now / MICRO < next_renewal(policy) + MAX_DUE * SHORTEST:
        return False
    due = due_renewals(policy.spec, policy.books, now / MICRO, decisions=0, begin=False, most=MAX_DUE)
    return sum(1 + record.passed for record in due) >= MAX_DUE


class Expire:
    """Expire a task."""

    def __init__(self, task: str, why: str = "asked for") -> None:
        self.task = task
        self.why = why

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.task,), seats=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Void the reservation; answers of some of several reviewers count."""
        row = work.decisions[owned.id, self.task]
        if row is None:
            raise unknown("task", self.task)
        if row.state == VOID:
            return self._reply(row.final or MODEL)
        if row.state != OPEN:
            what = "its cost is booked" if row.route != MODEL else "the model decided it"
            raise conflict(f"Nothing is reserved for task {self.task!r}: {what}.")
        done = [] if row.task in owned.policy.unconfirmed else work.answered_seats(row)
        if any(row.final is None or seat.cost is not None for seat in done):
            book(owned, work, now, row, {}, None, ends=True)
            row = work.decisions[owned.id, self.task] or row
            if row.state != OPEN:
                return self._reply(row.route)
        work.record(
            owned,
            records.ExpiredRecord(task=row.task, id=row.id, why=self.why, released=row.held or {}),
            now,
            row.task,
        )
        row = row._replace(state=VOID, final=row.final or MODEL)
        work.put_decision(row)
        work.close_seats(owned, row)
        return self._reply(row.final or MODEL)

    def _reply(self, final: str) -> Reply:
        return Reply(200, msgspec.json.encode(ExpirationReply(task=self.task, final=final)))
