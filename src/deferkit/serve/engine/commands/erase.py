"""Erasure of payloads; deletion of policies and tenants."""

import asyncio

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem, conflict, invalid, unavailable, unknown
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import EraseBody
from deferkit.serve.engine.engine import Elsewhere, Engine
from deferkit.serve.engine.ownership import Key
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Connection
from deferkit.serve.storage.transaction import QueueQuery, ReadSet

PAGE = 100


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
        before = None if age is None else now - int(age * MICRO)

        def ask(connection: Connection) -> Reply:
            if task is not None:
                found = connection.run("erase_payload", policy=owned.id, task=task)
            else:
                found = connection.run("erase_old_payloads", policy=owned.id, before=before)
            return Reply(200, msgspec.json.encode(EraseReply(erased=len(found))))

        work.record(owned, log_records.ErasedRecord(task=task, before=before), now, task)
        question = QueueQuery(ask)
        work.queue_queries.append(question)
        return question


async def delete_policy(engine: Engine, key: Key) -> None:
    """Delete a policy with its log, decisions, reviews and snapshots; raise if there is none.

    It is gone for its tenant at once. Its rows are deleted in slices, between which others are served; what a crash
    leaves of them, maintenance deletes.
    """
    owned = await engine.holding(key)
    ownership = engine.ownership
    async with ownership.busy:
        if ownership.owned.get(key) is not owned:
            raise unavailable("The policy has gone elsewhere.")
        if not await ownership.stored(engine.store.retire_policy, owned.id, ownership.owner, owned.epoch):
            ownership.lose(owned.id)
            raise unavailable("The policy has gone elsewhere.")
        del ownership.owned[key]
    await ownership.purge(owned.id)


async def delete_tenant(engine: Engine, tenant: str) -> None:
    """Delete all policies of a tenant, and revoke its keys."""
    while rows := await asyncio.to_thread(engine.store.policies_of, tenant, "", PAGE):
        for row in rows:
            try:
                await delete_policy(engine, (tenant, row.name))
            except Elsewhere:
                raise conflict(f"Another process owns policy {row.name!r}: delete it first, then the tenant.") from None
            except Problem as problem:
                if problem.status != 404:  # somebody else has just deleted it
                    raise
    # not in the thread that writes: a transaction may be open there
    await engine.ownership.read(engine.store.revoke_keys_of, tenant, engine.clock.now())
