"""The one writer of a process's policies: a group of commands, one durable commit, then the replies.

The commands of a group run one after the other on the policies in memory. No reply leaves before the commit. If the
commit fails, the policies that the group has touched are thrown away and rebuilt from their logs, which is what
happens at every start, and all callers are told to try again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain import log_records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import remark_on, with_defaults
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.problems import (
    Fenced,
    Problem,
    StoreBroken,
    StoreFailed,
    Unconfirmed,
    conflict,
    invalid,
    unavailable,
    unknown,
)
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.rows import LogRow
from deferkit.serve.engine.clock import Clock
from deferkit.serve.engine.fair_queue import FairQueue
from deferkit.serve.engine.maintenance import Maintenance
from deferkit.serve.engine.ownership import Key, Ownership, stop_at_once
from deferkit.serve.engine.pending_fits import PendingFits
from deferkit.serve.engine.unit_of_work import Command, UnitOfWork
from deferkit.serve.storage.store import Store
from deferkit.serve.storage.transaction import QueueQuery
from deferkit.serve.structured_logs import logger


class EngineSettings(NamedTuple):
    """How the engine goes about it."""

    queue_limit: int = 1024  # commands that may wait
    tenant_share: float = 0.5  # the part of the queue that one tenant may take
    group_limit: int = 256  # commands in one commit
    owner_lease_s: float = 15.0
    max_clock_jump_s: float = 300.0  # 0: any jump is followed
    snapshot_every: int = 20_000  # records
    tick_s: float = 1.0
    address: str | None = None  # where other processes find this one


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


class Elsewhere(DeferkitError):
    """Another process owns the policy; it answers at this address."""

    def __init__(self, address: str | None) -> None:
        super().__init__("Another process owns the policy.")
        self.address = address


def made_of(spec: PolicySpec) -> Policy:
    """Return a new policy, with what it leaves to the service."""
    return Policy(with_defaults(spec))


class Engine:
    """Owns policies and changes them."""

    def __init__(
        self,
        store: Store,
        settings: EngineSettings | None = None,
        *,
        broken: Callable[[Exception], None] = stop_at_once,
        number: int = 0,
    ) -> None:
        self.store = store
        self.settings = settings or EngineSettings()
        self.ownership = Ownership(
            store,
            lease_s=self.settings.owner_lease_s,
            max_clock_jump_s=self.settings.max_clock_jump_s,
            address=self.settings.address,
            broken=broken,
            number=number,
        )
        self.maintenance = Maintenance(self.ownership, self.submit)
        self.owned = self.ownership.owned
        self.groups = 0
        self.commands = 0
        self.queue: FairQueue[Job] = FairQueue(limit=self.settings.queue_limit, share=self.settings.tenant_share)
        self.fits: PendingFits[Job] = PendingFits(self.queue, self.owned)
        self._serving = False
        self._at_work = False  # a group was taken and is not answered yet
        self._writing: asyncio.Task[None] | None = None
        self._ticking: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether commands are taken."""
        return self._serving and not self.ownership.over

    @property
    def failing(self) -> str | None:
        """Why the last commit failed, if it did."""
        return self.ownership.failing

    @property
    def clock(self) -> Clock:
        """The time that everything happens at."""
        return self.ownership.clock

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring the database up to date, own what nobody owns, and begin to write."""
        await self.ownership.open()
        # what is owned stays so while other policies are read, however long that takes
        self._ticking = [asyncio.create_task(self._regularly(self.ownership.renew_if_due))]
        try:
            await self.ownership.adopt_all()
        except BaseException:
            self._stopping.set()
            await asyncio.gather(*self._ticking)
            raise
        self._writing = asyncio.create_task(self._write())
        jobs = (self.maintenance.reap, self.maintenance.make_room, self.ownership.adopt_orphans)
        self._ticking += [asyncio.create_task(self._regularly(job)) for job in jobs]
        self._serving = True
        logger.info("ready", extra={"policies": len(self.owned), "owner": self.ownership.owner})

    async def stop(self) -> None:
        """Finish what waits, keep snapshots, give up what is owned."""
        self._serving = False
        self._stopping.set()
        # not cancelled: what they read in other threads would go on, beyond the end of the store
        await asyncio.gather(*self._ticking, return_exceptions=True)
        if self._writing is not None:
            while self.queue.length or self._at_work or self.ownership.busy.locked() or self.ownership.coming:
                await asyncio.sleep(0.005)
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self.ownership.put_away()
        logger.info("stopped")

    # --- what callers want ----------------------------------------------------------------------------------------

    async def create(self, tenant: str, spec: PolicySpec) -> Reply:
        """Make a policy; the same one again changes nothing."""
        try:
            # a large one takes a second, and others wait for answers
            policy = await asyncio.to_thread(made_of, spec)
        except DeferkitError as error:
            raise invalid(str(error)) from error
        async with self.ownership.busy:
            now = self.clock.now()
            first = log_records.Created(spec=policy.spec)
            body = policy.append(first, now)
            row = LogRow(0, 0, now, "created", None, body, policy.head)
            number = await self.ownership.stored(
                self.store.add_policy,
                tenant,
                policy,
                row,
                self.ownership.owner,
                self.settings.address,
                self.ownership.expiry(),
            )
            if number is not None:
                self.owned[tenant, spec.name] = OwnedPolicy(number, tenant, policy, 1, 0)
                if remark := remark_on(spec, policy.spec):
                    logger.warning(remark, extra={"policy": number})
                return Reply(201, msgspec.json.encode(policy.spec))
        return Reply(201, msgspec.json.encode(await self._check_same(tenant, spec)))

    async def _check_same(self, tenant: str, spec: PolicySpec) -> PolicySpec:
        """Return the policy of this name, or raise if it was made with other settings, whatever was changed since."""
        there = await self.ownership.read(self.store.policy, tenant, spec.name)
        if there is None:
            raise conflict(f"There is another policy {spec.name!r}.")
        [first] = await self.ownership.read(self.store.log_page, there.id, 0, 1)
        made = log_records.decode(bytes(first.body))
        if not isinstance(made, log_records.Created):
            raise conflict(f"There is another policy {spec.name!r}.")
        wanted = spec.as_before(made.spec)
        if made.spec != wanted:
            others = [name for name in spec.__struct_fields__ if getattr(made.spec, name) != getattr(wanted, name)]
            raise conflict(f"There is another policy {spec.name!r}, made with other settings: {', '.join(others)}.")
        return wanted

    async def submit(self, key: Key, command: Command) -> Reply:
        """Have a command done; return its reply when that is on the disk."""
        if not self.ready:
            raise unavailable("The service is starting or stopping.")
        await self.holding(key)
        if not self.ready:  # by now
            raise unavailable("The service is stopping.")
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.queue.put(key[0], Job(key, command, done))
        return await done

    async def holding(self, key: Key) -> OwnedPolicy:
        """Return a policy that this process owns; raise if there is none, or if another process owns it."""
        owned = self.owned.get(key)
        if owned is not None:
            return owned
        row = await self.ownership.read(self.store.policy, *key)
        if row is None:
            raise unknown("policy", key[1])
        if not await self.ownership.adopt(row):
            raise Elsewhere(row.address)
        return self.owned[key]

    # --- time -----------------------------------------------------------------------------------------------------

    async def _regularly(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run `job` every tick."""
        while not self.ownership.over:
            try:
                await asyncio.wait_for(self._stopping.wait(), self.settings.tick_s)
                return
            except TimeoutError:
                pass
            try:
                await job()
            except (DeferkitError, OSError) as error:
                logger.warning("a tick failed", extra={"error": str(error)})
            except Exception:  # whatever it was, the next deadline must not wait for ever
                logger.exception("a tick failed")

    # --- writing --------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        while True:
            group = await self.queue.take(self.settings.group_limit, size_of)
            self._at_work = True
            async with self.ownership.busy:
                while group:
                    group = await self._try(group)
            self._at_work = False

    async def _try(self, group: list[Job]) -> list[Job]:
        """Do a group; return what is left to be done, without the policy of a command that has failed."""
        try:
            await self._do(group)
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
                    await self._try([job])
        return []

    async def _do(self, group: list[Job]) -> None:
        """Run a group of commands in one transaction, and reply when it is committed."""
        if self.ownership.over:
            self._refuse(group, unavailable("The disk did not confirm a write; nothing more is written."))
            return
        await self.ownership.mend()
        able = [self.ownership.able(job.key) for job in group]
        jobs = [job for job, can in zip(group, able, strict=True) if can]
        away = [job for job, can in zip(group, able, strict=True) if not can]
        for job in away:
            self._refuse([job], unavailable(self.ownership.why_unable(job.key)))
        if not jobs:
            return
        owned = [self.owned[job.key] for job in jobs]
        reads = [job.command.reads(each) for job, each in zip(jobs, owned, strict=True)]
        try:
            work = await self.ownership.in_thread(self.store.begin, reads, UnitOfWork())
        except StoreFailed as error:
            await self._fail(jobs, None, error)
            return
        results: list[tuple[Job, Reply | QueueQuery | Problem]] = []
        try:
            now = self.clock.now()
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
                await self.ownership.in_thread(self.store.rollback)
            else:
                await self.ownership.in_thread(self.store.commit, work, self.ownership.owner, self.ownership.expiry())
        except (StoreFailed, Fenced) as error:
            await self._fail(group, work, error)
            return
        except StoreBroken:
            raise  # not even a rollback goes to the disk now
        except BaseException:
            self.ownership.spoil(work)
            await self.ownership.in_thread(self.store.rollback)
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
        if owned.policy.seq - owned.snapshot_at >= self.settings.snapshot_every and not owned.policy.learner.fitting:
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
            await self.ownership.in_thread(self.store.rollback)
        except StoreFailed:
            logger.warning("a rollback failed")
        if isinstance(error, Fenced):
            self.ownership.lose(error.policy)
        await self.ownership.mend()
        certain = "" if isinstance(error, Unconfirmed) else "Nothing was written: "
        self._refuse(jobs, unavailable(f"{certain}{error} Try again."))
