"""Expiry of tasks: the reservation is released, and the model's answer is used."""

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict, unknown
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.rows import MODEL, OPEN, VOID
from deferkit.serve.engine.commands.outcome import book
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.transaction import ReadSet


class ExpirationReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an expiry."""

    task: str
    final: str  # whose answer is used


class Expire:
    """Expire a task."""

    def __init__(self, task: str, why: str = "asked for") -> None:
        self.task = task
        self.why = why

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.task,), seats=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Void the reservation; where some of several reviewers have answered, their answers count."""
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
            log_records.ExpiredRecord(task=row.task, id=row.id, why=self.why, released=row.held or {}),
            now,
            row.task,
        )
        row = row._replace(state=VOID, final=row.final or MODEL)
        work.put_decision(row)
        work.close_seats(owned, row)
        return self._reply(row.final or MODEL)

    def _reply(self, final: str) -> Reply:
        return Reply(200, msgspec.json.encode(ExpirationReply(task=self.task, final=final)))
