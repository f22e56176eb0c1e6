"""Reset of a learner, and its rebuild without the outcome of one task."""

import asyncio

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain import log_records
from deferkit.serve.domain.log_records import AnyRecord
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import unavailable, unknown
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import ResetBody, digest
from deferkit.serve.domain.rows import PolicyRow, RequestRow
from deferkit.serve.engine.commands.idempotency import idempotent_reply
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.ownership import Key
from deferkit.serve.engine.recovery import rebuild_without
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Connection
from deferkit.serve.storage.transaction import QueueQuery, ReadSet

SNAPSHOT_DUE = -(2**53)  # `snapshot_at` of a policy whose next snapshot is due, however many records it has
RECOVERED = "The policy was recovered while it was rebuilt. Try again."


class ResetReply(msgspec.Struct, frozen=True, kw_only=True):
    """The learner was reset."""

    id: str
    decisions: int  # that were made before, and are not learned from any more


class ForgetReply(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the task is in no estimate any more."""

    task: str
    forgotten: bool  # False: it had been forgotten before


class ResetLearner:
    """Reset the learner; once for each id."""

    def __init__(self, body: ResetBody) -> None:
        self.body = body
        self.digest = digest(body)
        self.request = f"reset {body.id}"

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, request=self.request)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Reset the learner: costs of open decisions are still booked, but not learned."""
        if (done := idempotent_reply(work, owned, self.request, self.digest)) is not None:
            return done
        decisions = owned.policy.counts().decisions
        work.record(owned, log_records.ResetRecord(request=self.body.id), now)
        reply = msgspec.json.encode(ResetReply(id=self.body.id, decisions=decisions))
        work.answer(owned, RequestRow(owned.id, self.request, self.digest, reply))
        return Reply(200, reply)


class BeginForgetting:
    """Start to collect new records in `tail`, while the policy is rebuilt from its log."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.seq = 0  # where the rebuild ends, and the kept records begin
        self.forgotten: set[int] | None = None  # decisions whose outcomes are left out; None: forgotten already
        self.owned: OwnedPolicy | None = None  # whose records are collected
        self._given_up = False

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.task,))

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:  # noqa: ARG002
        """Set `seq` and `forgotten`, and start to collect records; raise if another task is being forgotten."""
        row = work.decisions[owned.id, self.task]
        if row is None:
            raise unknown("task", self.task)
        forgotten = owned.policy.relearned.forgotten
        if row.id not in forgotten:
            if owned.tail is not None or self._given_up:
                raise unavailable("Another task of the policy is being forgotten.")
            self.seq, self.forgotten = owned.policy.seq, {*forgotten, row.id}
            self.owned, owned.tail = owned, []
        return Reply(200, b"")

    def end(self) -> None:
        """Stop collecting, and unblock the commands of the policy; also if the group failed or has not run yet."""
        self._given_up = True
        if self.owned is not None:
            self.owned.tail, self.owned.relearning = None, False


class FinishForgetting:
    """Replace the policy by the rebuilt one; its commands have been blocked (`relearning`) since that caught up."""

    def __init__(self, task: str, policy: Policy) -> None:
        self.task = task
        self.policy = policy

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.task,), replaces=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> QueueQuery:
        """Replace the policy, then forget, also in snapshots: those of before are deleted, and a new one is due."""
        row = work.decisions[owned.id, self.task]
        if row is None:
            raise unknown("task", self.task)
        if self.policy.head != owned.policy.head:  # a commit failed, or another process owned the policy, meanwhile
            raise unavailable(RECOVERED)
        owned.policy = self.policy
        owned.tail = None
        work.record(owned, log_records.ForgottenRecord(task=row.task, id=row.id), now, row.task)
        work.put_decision(row._replace(told=""))
        return drop_snapshots(owned, work, Reply(200, msgspec.json.encode(ForgetReply(task=self.task, forgotten=True))))


def drop_snapshots(owned: OwnedPolicy, work: UnitOfWork, reply: Reply) -> QueueQuery:
    """Queue the deletion of all snapshots of a policy, whose reply is `reply`; a new one is due after the commit."""

    def execute(connection: Connection) -> Reply:
        connection.run("drop_snapshots", policy=owned.id, keep=0)
        return reply

    owned.snapshot_at = SNAPSHOT_DUE
    queued = QueueQuery(execute)
    work.queue_queries.append(queued)
    return queued


async def forget_task(engine: Engine, key: Key, task: str) -> Reply:
    """Remove the outcome of a task from the estimates: rebuild the policy from its log without it.

    The log is replayed in another thread, while decisions go on. Commands are blocked only while the last records of
    the meantime are applied.
    """
    begin = BeginForgetting(task)
    try:
        await engine.submit(key, begin)
        owned = begin.owned
        if owned is None or begin.forgotten is None:
            return Reply(200, msgspec.json.encode(ForgetReply(task=task, forgotten=False)))
        policy = await asyncio.to_thread(rebuild, engine, key, begin.seq, begin.forgotten)
        await asyncio.to_thread(catch_up, policy, owned.tail or [], begin.seq)
        owned.relearning = True  # nothing more is recorded from now on
        await asyncio.to_thread(catch_up, policy, owned.tail or [], begin.seq)
        return await engine.submit(key, FinishForgetting(task, policy))
    finally:
        begin.end()


def catch_up(policy: Policy, tail: list[tuple[AnyRecord, int, bytes]], first: int) -> None:
    """Apply those records of `tail`, which begins at number `first`, that a rebuilt policy has not seen yet."""
    try:
        for record, at, body in tail[policy.seq - first :]:
            policy.take(record, at, body)
    except DeferkitError as error:  # a commit failed meanwhile: not all of these are in the log
        raise unavailable(RECOVERED) from error


def rebuild(engine: Engine, key: Key, seq: int, forgotten: set[int]) -> Policy:
    """Return the policy after so many rows of its log, without the outcomes of some decisions."""
    row: PolicyRow | None = engine.store.policy(*key)
    if row is None:
        raise unknown("policy", key[1])
    return rebuild_without(engine.store, row, seq, forgotten)
