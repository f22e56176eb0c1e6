"""The writer: group commit of commands, and learning steps that run in threads."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from deferkit.errors import DeferkitError
from deferkit.serve.api.common import Reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import (
    Fenced,
    Problem,
    StoreBroken,
    StoreFailed,
    Unconfirmed,
    unavailable,
)
from deferkit.serve.engine.commands.upkeep import renew
from deferkit.serve.engine.fair_queue import FairQueue, Item
from deferkit.serve.engine.ownership import Key, Ownership
from deferkit.serve.engine.unit_of_work import Command, Unfinished, UnitOfWork
from deferkit.serve.engine.webhooks import WebhookDelivery
from deferkit.serve.storage.connections import QueueQuery, ReadSet
from deferkit.serve.structured_logs import logger

if TYPE_CHECKING:
    from deferkit.serve.telemetry import Telemetry


POLL_S = 0.002  # seconds between two polls of a fit


class PendingFits(Generic[Item]):
    """Blocks commands in the queue, and unblocks them when their policy is free."""

    def __init__(self, queue: FairQueue[Item], owned: Mapping[Key, OwnedPolicy]) -> None:
        self.queue = queue
        self.owned = owned
        self._polling: set[asyncio.Task[None]] = set()

    def must_wait(self, owned: OwnedPolicy, reads: ReadSet, work: UnitOfWork) -> bool:
        """Whether a command with this read set may wait for a fit, or change a policy that another thread uses."""
        if reads.replaces:
            return False
        return owned.blocked or (owned.policy.learner.awaits_fit and work.observes(reads))

    def block(self, key: Key, item: Item) -> None:
        """Block a command until its policy is fitted, copied or has learned."""
        if key not in self.queue.blocked:
            task = asyncio.create_task(self._unblock_when_free(key))
            self._polling.add(task)
            task.add_done_callback(self._polling.discard)
        self.queue.block(key, item)

    async def _unblock_when_free(self, key: Key) -> None:
        while (owned := self.owned.get(key)) is not None and (owned.blocked or owned.policy.learner.awaits_fit):
            await asyncio.sleep(POLL_S)
        self.queue.unblock(key)


MAX_THREADS = 32  # in the pool: the steps of more tenants wait for each other


class LearningSteps:
    """Runs deferred steps of learners, of each tenant one at a time.

    Args:
        ownership: The policies of this process; one whose step fails is rebuilt from its log.
        charge: Called with the tenant and the seconds of each run.
    """

    def __init__(self, ownership: Ownership, charge: Callable[[str, float], None]) -> None:
        self.ownership = ownership
        self.charge = charge
        self._threads = ThreadPoolExecutor(max_workers=MAX_THREADS, thread_name_prefix="learner")
        self._tenant_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by tenant
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Whether deferred steps are queued or running."""
        return bool(self._running)

    def start(self, owned: OwnedPolicy, then: Callable[[OwnedPolicy], Awaitable[None]]) -> None:
        """Run the deferred steps of a policy after its commit, and `then` the callback."""
        task = asyncio.create_task(self._run(owned, then))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, owned: OwnedPolicy, then: Callable[[OwnedPolicy], Awaitable[None]]) -> None:
        async with self._tenant_locks[owned.tenant]:
            began = time.perf_counter()
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, owned.policy.learn_deferred)
            except Exception:
                logger.exception("a learner failed; it is rebuilt from its log", extra={"policy": owned.id})
                self.ownership.mark_policy_dirty(owned)
                return
            finally:
                self.charge(owned.tenant, time.perf_counter() - began)
        await then(owned)

    def close(self) -> None:
        """Shut down the thread pool, when nothing is running."""
        self._threads.shutdown()


class Job(NamedTuple):
    """A queued command, and the future of its reply."""

    key: Key
    command: Command
    done: "asyncio.Future[Reply]"
    span: Any = None  # of OpenTelemetry


Result: TypeAlias = Reply | QueueQuery | Unfinished | Problem
"""The result of a command."""


class Failed(DeferkitError):
    """A command raised an unexpected error; the rest of its group is run again without it."""

    def __init__(self, job: Job, error: Exception) -> None:
        super().__init__(f"A command has failed: {type(error).__name__}.")
        self.job = job
        self.error = error


def size_of(job: Job) -> int:
    """Return the number of tasks of a command."""
    return getattr(job.command, "size", 1)


class GroupCommit:
    """Runs groups of commands, each in one transaction.

    Args:
        ownership: The policies of this process, and the thread that writes.
        queue: Where commands come from; those that a group had no time for are requeued.
        fits: Blocks commands whose policy is fitting trees or is used by another thread.
        steps: Runs deferred steps of learners, after their commit.
        group_s: Seconds of a group after which no more of its commands are run: every other caller waits as long.
        snapshot_every: Records of a policy's log between two snapshots.
        webhooks: The webhooks: events for them are written in the same transaction (outbox).
        telemetry: Where commits are recorded; None: nowhere.
    """

    def __init__(
        self,
        ownership: Ownership,
        queue: FairQueue[Job],
        fits: PendingFits[Job],
        steps: LearningSteps,
        *,
        group_s: float,
        snapshot_every: int,
        webhooks: WebhookDelivery,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self.ownership = ownership
        self.queue = queue
        self.fits = fits
        self.steps = steps
        self.group_s = group_s
        self.snapshot_every = snapshot_every
        self.webhooks = webhooks
        self.telemetry = telemetry
        self.groups = 0  # committed
        self.commands = 0  # in those groups

    async def attempt(self, group: list[Job]) -> list[Job]:
        """Commit a group; return the commands that form the next group.

        Those are the commands that take long, if there are others, who need not wait for them; and after a failed
        command, the commands of other policies, to be run again.
        """
        group, long = self._quick_first(group)
        try:
            await self._commit(group)
        except StoreBroken as error:
            self._refuse(group, unavailable(str(error)))
        except Failed as failed:
            logger.error("a command failed", exc_info=failed.error)
            self._refuse([failed.job], Problem(500, "internal", f"The call failed: {type(failed.error).__name__}."))
            key = failed.job.key
            self._refuse([job for job in group if job.key == key], unavailable("Nothing was written. Try again."))
            return [job for job in group if job.key != key] + long
        except Exception as error:
            logger.exception("a group failed")
            if len(group) == 1:
                self._refuse(group, Problem(500, "internal", f"The call failed: {type(error).__name__}."))
            else:  # retry each command by itself, so that only the faulty one fails
                for job in group:
                    await self.attempt([job])
        return long

    def _quick_first(self, group: list[Job]) -> tuple[list[Job], list[Job]]:
        """Split a group into the commands to run now and the slow ones, unless all are slow."""
        long = [job for job in group if self.queue.takes_long(job.key[0])]
        if not long or len(long) == len(group):
            return group, []
        return [job for job in group if not self.queue.takes_long(job.key[0])], long

    async def _commit(self, group: list[Job]) -> None:
        """Run a group of commands in one transaction, and reply when it is committed."""
        if self.ownership.store_broken:
            self._refuse(group, unavailable("The disk did not confirm a write; nothing more is written."))
            return
        await self.ownership.rebuild_dirty()
        writable = [self.ownership.is_writable(job.key) for job in group]
        jobs = [job for job, can in zip(group, writable, strict=True) if can]
        not_writable = [job for job, can in zip(group, writable, strict=True) if not can]
        for job in not_writable:
            self._refuse([job], unavailable(self.ownership.why_not_writable(job.key)))
        group[:] = jobs  # who was refused is not run again if another command fails
        if not jobs:
            return
        began = 0 if self.telemetry is None else time.time_ns()
        owned = [self.ownership.owned[job.key] for job in jobs]
        reads = [job.command.reads(each) for job, each in zip(jobs, owned, strict=True)]
        try:
            work = await self.ownership.in_thread(
                self.ownership.store.begin, reads, UnitOfWork(defers=True, webhooks=self.webhooks.by_tenant)
            )
        except StoreFailed as error:
            await self._fail(jobs, None, error, began)
            return
        results: list[tuple[Job, Result]] = []
        try:
            now = self.ownership.clock.now()
            work.ends = time.perf_counter() + self.group_s
            for index, (job, policy, read_set) in enumerate(zip(jobs, owned, reads, strict=True)):
                if results and work.out_of_time:
                    self._requeue(group, jobs[index:])
                    break
                if self.fits.must_wait(policy, read_set, work):
                    group.remove(job)
                    self.fits.block(job.key, job)
                    continue
                results.append((job, self._run(job, policy, read_set, work, policy.time(now))))
            if work.empty:
                await self.ownership.in_thread(self.ownership.store.rollback)
            else:
                await self.ownership.in_thread(
                    self.ownership.store.commit, work, self.ownership.owner, self.ownership.expiry()
                )
        except (StoreFailed, Fenced) as error:
            await self._fail(group, work, error, began)
            return
        except StoreBroken:
            raise  # no rollback: nothing more is written after a failed fsync
        except BaseException:
            self.ownership.mark_dirty(work)
            await self.ownership.in_thread(self.ownership.store.rollback)
            raise
        self._count_commit(results, began)
        if work.events:
            self.webhooks.wake(work.events)
        for each in work.changed.values():
            if each.policy.deferred:
                self.steps.start(each, self._follow_up_on_step)
            else:
                await self._follow_up(each)

    def _count_commit(self, results: list[tuple[Job, Result]], began: int) -> None:
        """Count a committed group, and send its replies."""
        self.ownership.failing = None
        self.groups += 1
        self.commands += len(results)
        if self.telemetry is not None:
            self.telemetry.record_commit(began, [job.span for job, _ in results])
        for job, result in results:
            self._answer(job, result)

    def _run(self, job: Job, owned: OwnedPolicy, read_set: ReadSet, work: UnitOfWork, now: int) -> Result:
        """Run a command after the renewals that are due, and charge its tenant with the time that it took."""
        began = time.perf_counter()
        try:
            if owned.policy.is_timed and not read_set.replaces and not renew(owned, work, now):
                return Unfinished(job.command)
            return job.command.run(owned, work, now)
        except Problem as problem:
            return problem
        except Exception as error:
            raise Failed(job, error) from error
        finally:
            self.queue.charge(job.key[0], time.perf_counter() - began)

    def _requeue(self, group: list[Job], late: list[Job]) -> None:
        """Requeue commands that the group has no time for, at the front of the queue."""
        requeued = {id(job) for job in late}
        group[:] = [job for job in group if id(job) not in requeued]
        by_tenant: dict[str, list[Job]] = {}
        for job in late:
            by_tenant.setdefault(job.key[0], []).append(job)
        for tenant, jobs in reversed(by_tenant.items()):
            self.queue.put_first(tenant, jobs)

    async def _follow_up(self, owned: OwnedPolicy) -> None:
        """Log new drifts, and write a snapshot if one is due and no fit is running."""
        for drift in owned.new_drifts():
            logger.warning("drifted", extra={"policy": owned.id, **drift._asdict()})
        if owned.policy.seq - owned.snapshot_at >= self.snapshot_every and not owned.policy.learner.fitting:
            await self.ownership.start_snapshot(owned)

    async def _follow_up_on_step(self, owned: OwnedPolicy) -> None:
        async with self.ownership.busy:
            if self.ownership.owned.get((owned.tenant, owned.policy.spec.name)) is owned and not owned.blocked:
                await self._follow_up(owned)

    def _answer(self, job: Job, result: Result) -> None:
        if job.done.done():
            return  # the caller has disconnected: committed decisions stand, the rest of a batch is dropped
        if isinstance(result, Problem):
            job.done.set_exception(result)
        elif isinstance(result, Unfinished):
            self.queue.put_last(job.key[0], job._replace(command=result.rest))
        else:
            reply = result.reply if isinstance(result, QueueQuery) else result
            job.done.set_result(reply)  # type: ignore[arg-type]

    def _refuse(self, jobs: list[Job], problem: Problem) -> None:
        for job in jobs:
            self._answer(job, problem)

    async def _fail(self, jobs: list[Job], work: UnitOfWork | None, error: Exception, began: int) -> None:
        """Roll back a group whose commit failed, rebuild its policies, and reply 503."""
        if not isinstance(error, Fenced):
            self.ownership.failing = str(error)
        logger.error("a commit failed", extra={"error": str(error), "commands": len(jobs)})
        if self.telemetry is not None:
            self.telemetry.record_commit(began, [job.span for job in jobs], error)
        if work is not None:
            self.ownership.mark_dirty(work)
        try:
            await self.ownership.in_thread(self.ownership.store.rollback)
        except StoreFailed:
            logger.warning("a rollback failed")
        if isinstance(error, Fenced):
            self.ownership.lose(error.policy)
        await self.ownership.rebuild_dirty()
        certain = "" if isinstance(error, Unconfirmed) else "Nothing was written: "
        self._refuse(jobs, unavailable(f"{certain}{error} Try again."))
