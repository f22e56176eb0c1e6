"""Group commit: a group of commands runs on the policies in memory, one durable commit, then the replies.

The commands of a group run one after the other. No reply leaves before the commit. If the commit fails, the policies
that the group has changed are thrown away and rebuilt from their logs, which is what happens at every start, and all
callers are told to try again.
"""

import asyncio
from typing import NamedTuple

from deferkit.errors import DeferkitError
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import (
    Fenced,
    Problem,
    StoreBroken,
    StoreFailed,
    Unconfirmed,
    unavailable,
)
from deferkit.serve.domain.reply import Reply
from deferkit.serve.engine.ownership import Key, Ownership
from deferkit.serve.engine.pending_fits import PendingFits
from deferkit.serve.engine.unit_of_work import Command, UnitOfWork
from deferkit.serve.storage.transaction import QueueQuery
from deferkit.serve.structured_logs import logger


class Job(NamedTuple):
    """A command and who waits for it."""

    key: Key
    command: Command
    done: "asyncio.Future[Reply]"


class Failed(DeferkitError):
    """A command has failed in a way that nobody thought of; the others of its group are not to suffer for it."""

    def __init__(self, job: Job, error: Exception) -> None:
        super().__init__(f"A command has failed: {type(error).__name__}.")
        self.job = job
        self.error = error


def size_of(job: Job) -> int:
    """Return how many tasks a command is about: one tenant's batches are not to make a group of minutes."""
    return getattr(job.command, "size", 1)


class GroupCommit:
    """Runs groups of commands, each in one transaction.

    Parameters
    ----------
    ownership
        The policies of this process, and the thread that writes.
    fits
        Where commands wait whose policy is fitting trees.
    snapshot_every
        Records of a policy's log between two snapshots.
    """

    def __init__(self, ownership: Ownership, fits: PendingFits[Job], *, snapshot_every: int) -> None:
        self.ownership = ownership
        self.fits = fits
        self.snapshot_every = snapshot_every
        self.groups = 0  # committed
        self.commands = 0  # in those groups

    async def attempt(self, group: list[Job]) -> list[Job]:
        """Do a group; return what is left to be done, without the policy of a command that has failed."""
        try:
            await self._commit(group)
        except StoreBroken as error:
            self._refuse(group, unavailable(str(error)))
        except Failed as failed:
            logger.error("a command failed", exc_info=failed.error)
            self._refuse([failed.job], Problem(500, "internal", f"The call failed: {type(failed.error).__name__}."))
            key = failed.job.key
            self._refuse([job for job in group if job.key == key], unavailable("Nothing was written. Try again."))
            return [job for job in group if job.key != key]
        except Exception as error:
            logger.exception("a group failed")
            if len(group) == 1:
                self._refuse(group, Problem(500, "internal", f"The call failed: {type(error).__name__}."))
            else:  # one of them is to blame, and the others are not to suffer for it
                for job in group:
                    await self.attempt([job])
        return []

    async def _commit(self, group: list[Job]) -> None:
        """Run a group of commands in one transaction, and reply when it is committed."""
        if self.ownership.over:
            self._refuse(group, unavailable("The disk did not confirm a write; nothing more is written."))
            return
        await self.ownership.mend()
        able = [self.ownership.able(job.key) for job in group]
        jobs = [job for job, can in zip(group, able, strict=True) if can]
        away = [job for job, can in zip(group, able, strict=True) if not can]
        self._refuse(away, unavailable("The policy is being recovered, or has gone elsewhere."))
        owned = [self.ownership.owned[job.key] for job in jobs]
        reads = [job.command.reads(each) for job, each in zip(jobs, owned, strict=True)]
        try:
            work = await self.ownership.in_thread(self.ownership.store.begin, reads, UnitOfWork())
        except StoreFailed as error:
            await self._fail(jobs, None, error)
            return
        results: list[tuple[Job, Reply | QueueQuery | Problem]] = []
        try:
            now = self.ownership.clock.now()
            for job, each, need in zip(jobs, owned, reads, strict=True):
                if self.fits.must_wait(each, need, work):
                    group.remove(job)
                    self.fits.put_aside(job.key, job)
                    continue
                try:
                    results.append((job, job.command.run(each, work, each.time(now))))
                except Problem as problem:
                    results.append((job, problem))
                except Exception as error:
                    raise Failed(job, error) from error
                if size_of(job) > 1:
                    await asyncio.sleep(0)  # it took long, and others wait for answers that need no commit
            if work.empty:
                await self.ownership.in_thread(self.ownership.store.rollback)
            else:
                await self.ownership.in_thread(
                    self.ownership.store.commit, work, self.ownership.owner, self.ownership.expiry()
                )
        except (StoreFailed, Fenced) as error:
            await self._fail(group, work, error)
            return
        except StoreBroken:
            raise  # not even a rollback goes to the disk now
        except BaseException:
            self.ownership.spoil(work)
            await self.ownership.in_thread(self.ownership.store.rollback)
            raise
        self.ownership.failing = None
        self.groups += 1
        self.commands += len(results)
        for job, result in results:
            self._answer(job, result)
        for each in work.changed.values():
            await self._follow_up(each)

    async def _follow_up(self, owned: OwnedPolicy) -> None:
        """Say what has drifted, and keep a snapshot if one is due and would not wait for a fit."""
        for drift in owned.new_drifts():
            logger.warning("drifted", extra={"policy": owned.id, **drift._asdict()})
        if owned.policy.seq - owned.snapshot_at >= self.snapshot_every and not owned.policy.learner.fitting:
            await self.ownership.snapshot(owned)

    def _answer(self, job: Job, result: Reply | QueueQuery | Problem) -> None:
        if job.done.done():
            return  # the caller has gone; what was decided stands
        if isinstance(result, Problem):
            job.done.set_exception(result)
        else:
            reply = result.reply if isinstance(result, QueueQuery) else result
            job.done.set_result(reply)  # type: ignore[arg-type]

    def _refuse(self, jobs: list[Job], problem: Problem) -> None:
        for job in jobs:
            self._answer(job, problem)

    async def _fail(self, jobs: list[Job], work: UnitOfWork | None, error: Exception) -> None:
        """Undo a group that could not be committed."""
        if not isinstance(error, Fenced):
            self.ownership.failing = str(error)
        logger.error("a commit failed", extra={"error": str(error), "commands": len(jobs)})
        if work is not None:
            self.ownership.spoil(work)
        try:
            await self.ownership.in_thread(self.ownership.store.rollback)
        except StoreFailed:
            logger.warning("a rollback failed")
        if isinstance(error, Fenced):
            self.ownership.lose(error.policy)
        await self.ownership.mend()
        certain = "" if isinstance(error, Unconfirmed) else "Nothing was written: "
        self._refuse(jobs, unavailable(f"{certain}{error} Try again."))
