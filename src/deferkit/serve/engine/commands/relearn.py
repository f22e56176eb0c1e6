"""Reset of a learner, and rebuild without the outcome of a task or with other defaults."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.api.common import Reply
from deferkit.serve.api.policies import ForgetReply, ResetBody, ResetReply, UpgradeBody
from deferkit.serve.domain import records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import check_installed, check_size, memory_of, upgraded_spec
from deferkit.serve.domain.problems import TooMuchMemory, invalid, unavailable, unknown
from deferkit.serve.domain.records import AnyRecord
from deferkit.serve.domain.rows import PolicyRow, RequestRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.commands.outcome import idempotent_reply
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.ownership import Key
from deferkit.serve.engine.recovery import rebuild
from deferkit.serve.engine.unit_of_work import Command, UnitOfWork, digest
from deferkit.serve.storage.connections import QueueQuery, ReadSet
from deferkit.serve.storage.database import Connection

SNAPSHOT_DUE = -(2**53)  # `snapshot_at` of a policy whose next snapshot is due, however many records it has
MAX_FORGOTTEN = 500  # tasks that one rebuild forgets
RECOVERED = "The policy was recovered while it was rebuilt. Try again."
GIVEN_UP = "The call that rebuilt the policy was given up. Try again."


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
        work.record(owned, records.ResetRecord(request=self.body.id), now)
        reply = msgspec.json.encode(ResetReply(id=self.body.id, decisions=decisions))
        work.answer(owned, RequestRow(owned.id, self.request, self.digest, reply))
        return Reply(200, reply)


class BeginRebuild:
    """Start to collect new records in `tail`, while the policy is rebuilt from its log."""

    def __init__(self) -> None:
        self.seq = 0  # where the rebuild ends, and the kept records begin
        self.forgotten: set[int] = set()  # decisions whose outcomes are left out
        self.releases = True  # whether the learner releases those that expire
        self.spec: PolicySpec | None = None  # the policy, with the settings that its learner gets
        self.owned: OwnedPolicy | None = None  # whose records are collected; None if nothing is to be done
        self._given_up = False

    def collect(self, owned: OwnedPolicy, spec: PolicySpec, forgotten: set[int]) -> Reply:
        """Start to collect records; raise if the policy is being rebuilt already."""
        if owned.tail is not None or self._given_up:
            raise unavailable("The policy is being rebuilt: a task is forgotten, or it is upgraded.")
        self.seq, self.spec, self.forgotten = owned.policy.seq, spec, forgotten
        self.owned, owned.tail = owned, []
        return Reply(200, b"")

    def end(self) -> None:
        """Stop collecting, and unblock the commands of the policy; also if the group failed or has not run yet."""
        self._given_up = True
        if self.owned is not None:
            self.owned.tail, self.owned.relearning = None, False


class BeginForgetting(BeginRebuild):
    """Start a rebuild without the outcomes of tasks, unless all of them are forgotten already."""

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__()
        self.tasks = tuple(tasks)
        self.unknown: set[str] = set()
        self.found: list[str] = []  # tasks that are to be forgotten

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, self.tasks)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:  # noqa: ARG002
        """Start to collect records, unless there is nothing to forget."""
        forgotten = set(owned.policy.relearned.forgotten)
        rows = {task: work.decisions[owned.id, task] for task in self.tasks}
        self.unknown = {task for task, row in rows.items() if row is None}
        new = {task: row.id for task, row in rows.items() if row is not None and row.id not in forgotten}
        self.found = [*new]
        return self.collect(owned, owned.policy.spec, {*forgotten, *new.values()}) if new else Reply(200, b"")


class BeginUpgrade(BeginRebuild):
    """Start a rebuild with other defaults, unless the policy has them already.

    Args:
        body: The version of the defaults.
        created: The policy as it was created.
    """

    def __init__(self, body: UpgradeBody, created: PolicySpec) -> None:
        super().__init__()
        self.body = body
        self.created = created

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:  # noqa: ARG002
        """Start to collect records, unless the policy has these defaults already."""
        before = owned.policy.spec
        try:
            spec = upgraded_spec(self.created, before, self.body.defaults, self.body.confidence)
            check_size(spec)
            check_installed(spec)
        except DeferkitError as error:
            raise invalid(str(error)) from error
        self.releases = owned.policy.relearned.releases
        return Reply(200, b"") if spec == before else self.collect(owned, spec, set(owned.policy.relearned.forgotten))


class FinishForgetting:
    """Replace the policy by the rebuilt one; its commands have been blocked (`relearning`) since that caught up."""

    def __init__(self, tasks: Sequence[str], policy: Policy) -> None:
        self.tasks = tuple(tasks)
        self.policy = policy

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, self.tasks, replaces=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> QueueQuery:
        """Replace the policy, then record what is forgotten; old snapshots are deleted, and a new one is due."""
        rows = [row for task in self.tasks if (row := work.decisions[owned.id, task]) is not None]
        replace_policy(owned, self.policy)
        for row in rows:
            work.record(owned, records.ForgottenRecord(task=row.task, id=row.id, releases=True), now, row.task)
            work.put_decision(row._replace(told=""))
        return drop_snapshots(owned, work, Reply(200, b""))


def drop_snapshots(owned: OwnedPolicy, work: UnitOfWork, reply: Reply) -> QueueQuery:
    """Queue the deletion of all snapshots of a policy, whose reply is `reply`; a new one is due after the commit."""

    def execute(connection: Connection) -> Reply:
        connection.run("drop_snapshots", policy=owned.id, keep=0)
        return reply

    owned.snapshot_at = SNAPSHOT_DUE
    queued = QueueQuery(execute)
    work.queue_queries.append(queued)
    return queued


class FinishUpgrade:
    """Replace the policy by the one that was rebuilt with other defaults; its commands have been blocked since then."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id, replaces=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Replace the policy, and record its new settings."""
        replace_policy(owned, self.policy)
        work.record(owned, records.UpgradedRecord(spec=self.policy.spec), now)
        owned.snapshot_at = SNAPSHOT_DUE  # else the next start would rebuild it once more
        return Reply(200, msgspec.json.encode(self.policy.spec))


def replace_policy(owned: OwnedPolicy, policy: Policy) -> None:
    """Replace a policy by its rebuilt one; raise if that has not seen the same records."""
    if policy.head != owned.policy.head:  # a commit failed, or another process owned the policy, meanwhile
        raise unavailable(RECOVERED)
    owned.policy, owned.tail = policy, None


class ForgetBatch(NamedTuple):
    """Tasks of a policy that one rebuild forgets; `done` has its result."""

    tasks: dict[str, None]
    done: asyncio.Future[BeginForgetting]


async def forget_task(engine: Engine, key: Key, task: str) -> Reply:
    """Remove the outcome of a task from the estimates: rebuild the policy from its log without it.

    Calls that come while a policy is rebuilt wait for that, then share one rebuild.
    """
    batch: ForgetBatch | None = engine.forgetting.get(key)
    if batch is None or len(batch.tasks) == MAX_FORGOTTEN:
        batch = engine.forgetting[key] = ForgetBatch({task: None}, asyncio.get_running_loop().create_future())
        begin = await forget_batch(engine, key, batch)
    else:
        batch.tasks[task] = None
        begin = await asyncio.shield(batch.done)
    if task in begin.unknown:
        raise unknown("task", task)
    return Reply(200, msgspec.json.encode(ForgetReply(task=task, forgotten=task in begin.found)))


async def forget_batch(engine: Engine, key: Key, batch: ForgetBatch) -> BeginForgetting:
    """Forget the tasks that have come by the time at which no other rebuild of this kind runs."""
    try:
        try:
            async with engine.forget_locks[key]:
                if engine.forgetting.get(key) is batch:
                    del engine.forgetting[key]
                begin = BeginForgetting([*batch.tasks])
                await rebuild_policy(engine, key, begin, lambda policy: FinishForgetting(begin.found, policy))
        finally:
            if engine.forgetting.get(key) is batch:
                del engine.forgetting[key]
    except BaseException as error:  # the caller of the first may have given up
        batch.done.set_exception(error if isinstance(error, DeferkitError) else unavailable(GIVEN_UP))
        batch.done.exception()  # nobody may wait for it
        raise
    batch.done.set_result(begin)
    return begin


async def upgrade_policy(engine: Engine, key: Key, body: UpgradeBody) -> Reply:
    """Give a policy another version of the default rule: rebuild it from its log with that, and record it.

    The reply is the policy with all its settings.
    """
    row = await asyncio.to_thread(engine.store.policy, *key)
    if row is None:
        raise unknown("policy", key[1])
    [first] = await asyncio.to_thread(engine.store.log_page, row.id, 0, 1)
    created = records.decode(bytes(first.body))
    assert isinstance(created, records.CreatedRecord)
    begin = BeginUpgrade(body, created.spec)
    reply = await rebuild_policy(engine, key, begin, FinishUpgrade)
    engine.store.forget_memory(key[0])
    return reply or Reply(200, msgspec.json.encode(engine.owned[key].policy.spec))


async def rebuild_policy(
    engine: Engine, key: Key, begin: BeginForgetting | BeginUpgrade, finish: Callable[[Policy], Command]
) -> Reply | None:
    """Rebuild a policy from its log; return the reply of `finish`, or None if there is nothing to do.

    The log is replayed in another thread, while decisions go on. Commands are blocked only while the last records of
    the meantime are applied.
    """
    try:
        await engine.submit(key, begin)
        owned = begin.owned
        if owned is None or begin.spec is None:
            return None
        await asyncio.to_thread(check_memory, engine, key[0], owned.policy.spec, begin.spec)
        policy = await asyncio.to_thread(rebuild_from_log, engine, key, begin)
        await asyncio.to_thread(catch_up, policy, owned.tail or [], begin.seq)
        owned.relearning = True  # nothing more is recorded from now on
        await asyncio.to_thread(catch_up, policy, owned.tail or [], begin.seq)
        return await engine.submit(key, finish(policy))
    finally:
        begin.end()


def check_memory(engine: Engine, tenant: str, before: PolicySpec, spec: PolicySpec) -> None:
    """Raise if a policy with other settings needs more memory than its tenant has left."""
    most = engine.policy_creation.most_memory
    if most is None or (needed := memory_of(spec) - memory_of(before)) <= 0:
        return
    if (taken := engine.store.memory_taken(tenant)) + needed > most:
        raise TooMuchMemory(needed, taken, most)


def catch_up(policy: Policy, tail: list[tuple[AnyRecord, int, bytes]], first: int) -> None:
    """Apply those records of `tail`, which begins at number `first`, that a rebuilt policy has not seen yet."""
    try:
        for record, at, body in tail[policy.seq - first :]:
            policy.take(record, at, body)
    except DeferkitError as error:  # a commit failed meanwhile: not all of these are in the log
        raise unavailable(RECOVERED) from error


def rebuild_from_log(engine: Engine, key: Key, begin: BeginRebuild) -> Policy:
    """Return the policy as it was when a rebuild began, with its settings and without the forgotten outcomes."""
    row: PolicyRow | None = engine.store.policy(*key)
    if row is None:
        raise unknown("policy", key[1])
    assert begin.spec is not None
    return rebuild(engine.store, row, begin.seq, begin.spec, begin.forgotten, releases=begin.releases)
