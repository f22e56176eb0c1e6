"""Erasure of what reviewers were shown: payloads, and the model's answers."""

from typing import Any

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import invalid, unknown
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import EraseBody
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Connection
from deferkit.serve.storage.transaction import QueueQuery, ReadSet

ALL = 2**31 - 1
ERASED_AT_ONCE = 1000  # seats that retention erases in one commit: other callers wait for it


class EraseReply(msgspec.Struct, frozen=True, kw_only=True):
    """How many seats had a payload or a model's answer that is erased now."""

    erased: int


class Erase:
    """Erase payload and model's answer: of one task, or of all that ended and are older than a time."""

    def __init__(self, body: EraseBody) -> None:
        self.body = body

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, () if self.body.task is None else (self.body.task,))

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> QueueQuery:
        """Erase it, and record that it was."""
        task, age = self.body.task, self.body.older_than_s
        if (task is None) == (age is None):
            raise invalid("An erasure is of a 'task', or of what ended and is 'older_than_s'.")
        if task is not None and work.decisions[owned.id, task] is None:
            raise unknown("task", task)
        if task is not None:
            work.record(owned, log_records.ErasedRecord(task=task), now, task)
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
    work.record(owned, log_records.ErasedRecord(before=before), now)
    return erasure(owned, work, "erase_old_payloads", before=before, limit=limit)


def erasure(owned: OwnedPolicy, work: UnitOfWork, query: str, **values: Any) -> QueueQuery:
    """Queue a named query that erases; its reply counts the erased seats."""

    def execute(connection: Connection) -> Reply:
        found = connection.run(query, policy=owned.id, **values)
        return Reply(200, msgspec.json.encode(EraseReply(erased=len(found))))

    queued = QueueQuery(execute)
    work.queue_queries.append(queued)
    return queued
