"""The one writer of a process's policies: a group of commands, one durable commit, then the replies.

The commands of a group run one after the other on the policies in memory. No reply leaves before the commit. If the
commit fails, the policies that the group has touched are thrown away and rebuilt from their logs, which is what
happens at every start, and all callers are told to try again.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve import owner, records
from deferkit.serve.clock import Clock
from deferkit.serve.commands.expire import Expire
from deferkit.serve.fair_queue import FairQueue
from deferkit.serve.logs import logger
from deferkit.serve.money import MICRO
from deferkit.serve.policy import Policy
from deferkit.serve.problems import (
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
from deferkit.serve.recover import recover
from deferkit.serve.rows import LogRow, PolicyRow
from deferkit.serve.spec import PolicySpec
from deferkit.serve.store import Store
from deferkit.serve.work import Command, Held, Question, Reply, Work

Result = TypeVar("Result")
Key = tuple[str, str]  # tenant, name of the policy
OVERDUE_AT_ONCE = 100


class EngineSettings(NamedTuple):
    """How the engine goes about it."""

    queue_limit: int = 1024  # commands that may wait
    tenant_share: float = 0.5  # the part of the queue that one tenant may take
    group_limit: int = 256  # commands in one commit
    owner_lease_s: float = 15.0
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


def stop_at_once(error: Exception) -> None:
    """Leave without another word to the disk: what it did not confirm must not be built upon."""
    logger.critical("the disk did not confirm a write; the process stops", extra={"error": str(error)})
    os._exit(74)


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
        self.owner = owner.identity(number)
        self.held: dict[Key, Held] = {}
        self.clock = Clock(0)
        self.ready = False
        self.failing: str | None = None  # why the last commit failed
        self.groups = 0
        self.commands = 0
        self.queue: FairQueue[Job] = FairQueue(limit=self.settings.queue_limit, share=self.settings.tenant_share)
        self._dirty: set[Key] = set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._broken = broken
        self._over = False  # the disk did not confirm a write: nothing more goes to it
        self._at_work = False  # a group was taken and is not answered yet
        self._tasks: list[asyncio.Task[None]] = []
        self._renew_at = 0
        self._busy = asyncio.Lock()
        self._stopping = asyncio.Event()

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring the database up to date, own what nobody owns, and begin to write."""
        await self._in_thread(self.store.database.prepare)
        last = await self._in_thread(self.store.last_time)
        self.clock = Clock(max(last + 1, await self._in_thread(self.store.database.now)))
        for row in await self._in_thread(self.store.policies):
            if not await self._adopt(row) and not self.store.database.shared:
                raise DeferkitError(
                    f"Policy {row.name!r} is owned by another process ({row.owner}). Stop that one, or wait"
                    f" {self.settings.owner_lease_s:g} seconds if it was stopped just now."
                )
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._tick())]
        self.ready = True
        logger.info("ready", extra={"policies": len(self.held), "owner": self.owner})

    async def stop(self) -> None:
        """Finish what waits, keep snapshots, give up what is owned."""
        self.ready = False
        if self._tasks:
            self._stopping.set()
            # not cancelled: what it reads in another thread would go on, beyond the end of the store
            await asyncio.wait([self._tasks[1]])
            while self.queue.length or self._at_work or self._busy.locked():
                await asyncio.sleep(0.005)
            self._tasks[0].cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for key, held in list(self.held.items()):
            if self._over:
                break
            try:
                if key not in self._dirty:
                    await self._snapshot(held)
                await self._in_thread(self.store.disown, held.id, self.owner, held.epoch)
            except StoreBroken as error:
                self._give_up(error)
            except DeferkitError as error:
                logger.warning("a policy could not be put away", extra={"policy": held.id, "error": str(error)})
        await self._in_thread(self.store.close)
        self._thread.shutdown()
        logger.info("stopped")

    # --- what callers want ----------------------------------------------------------------------------------------

    async def create(self, tenant: str, spec: PolicySpec) -> Reply:
        """Make a policy; the same one again changes nothing."""
        try:
            policy = await asyncio.to_thread(Policy, spec)  # a large one takes a second, and others wait for answers
        except DeferkitError as error:
            raise invalid(str(error)) from error
        async with self._busy:
            now = self.clock.now()
            first = records.Created(spec=policy.spec)
            body = policy.append(first, now)
            row = LogRow(0, 0, now, "created", None, body, policy.head)
            number = await self._stored(
                self.store.add_policy, tenant, policy, row, self.owner, self.settings.address, self._expiry()
            )
            if number is not None:
                self.held[tenant, spec.name] = Held(number, tenant, policy, 1, 0)
                return Reply(201, msgspec.json.encode(policy.spec))
        row_there = await self._read(self.store.policy, tenant, spec.name)
        if row_there is None or msgspec.json.decode(row_there.spec, type=PolicySpec) != policy.spec:
            raise conflict(f"There is another policy {spec.name!r}.")
        return Reply(201, msgspec.json.encode(policy.spec))

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

    async def holding(self, key: Key) -> Held:
        """Return a policy that this process owns; raise if there is none, or if another process owns it."""
        held = self.held.get(key)
        if held is not None:
            return held
        row = await self._read(self.store.policy, *key)
        if row is None:
            raise unknown("policy", key[1])
        if not await self._adopt(row):
            raise Elsewhere(row.address)
        return self.held[key]

    # --- owning ---------------------------------------------------------------------------------------------------

    def _expiry(self) -> int:
        return self.clock.now() + int(self.settings.owner_lease_s * MICRO)

    async def _adopt(self, row: PolicyRow) -> bool:
        """Own a policy if nobody else does, and bring it into memory."""
        key = (row.tenant, row.name)
        dead = (
            row.owner if row.owner is not None and owner.is_dead(row.owner, shared=self.store.database.shared) else None
        )
        if row.owner not in (None, dead, self.owner) and row.expires >= self.clock.now():
            return False  # without a word to the writer: it has better things to do than to ask on behalf of others
        async with self._busy:
            if key in self.held:
                return True
            now = self.clock.now()
            epoch = await self._stored(
                self.store.acquire, row, self.owner, self.settings.address, now, self._expiry(), dead=dead
            )
            if epoch is None:
                return False
            fresh = await self._read(self.store.policy, *key)
            if fresh is None:
                return False
            policy = await self._stored(recover, self.store, fresh)
            [last] = await self._read(self.store.log_page, row.id, policy.seq - 1, 1)
            self.clock.reach(last.at)  # the owner before may have been ahead of this process
            self.held[key] = Held(row.id, row.tenant, policy, epoch, fresh.parked)
            logger.info("owns a policy", extra={"policy": row.id, "epoch": epoch, "records": policy.seq})
            return True

    async def _tick(self) -> None:
        """Do what time brings: leases, deadlines, policies that nobody owns."""
        while not self._over:
            try:
                await asyncio.wait_for(self._stopping.wait(), self.settings.tick_s)
                return
            except TimeoutError:
                pass
            try:
                await self._renew()
                await self._reap()
                if self.store.database.shared:
                    for row in await asyncio.to_thread(self.store.policies):
                        if (row.tenant, row.name) not in self.held and row.expires < self.clock.now():
                            await self._adopt(row)
            except StoreBroken as error:
                self._give_up(error)
            except (DeferkitError, OSError) as error:
                logger.warning("a tick failed", extra={"error": str(error)})
            except Exception:  # whatever it was, the next deadline must not wait for ever
                logger.exception("a tick failed")

    async def _renew(self) -> None:
        now = self.clock.now()
        if now < self._renew_at:
            return
        async with self._busy:
            epochs = {held.id: held.epoch for held in self.held.values()}
            lost = await self._in_thread(self.store.renew, epochs, self.owner, self._expiry())
            for key in [key for key, held in self.held.items() if held.id in lost]:
                self._lose(key)
        self._renew_at = now + int(self.settings.owner_lease_s * MICRO / 3)

    def _lose(self, key: Key) -> None:
        held = self.held.pop(key, None)
        self._dirty.discard(key)
        if held is not None:
            logger.warning("lost a policy to another process", extra={"policy": held.id, "epoch": held.epoch})

    async def _reap(self) -> None:
        """Give up waiting where the deadline has passed."""
        now = self.clock.now()
        for key, held in list(self.held.items()):
            if held.policy.spec.after_deadline == "model":
                tasks = await asyncio.to_thread(self.store.overdue, held.id, now, OVERDUE_AT_ONCE)
                calls = [self.submit(key, Expire(task, "its deadline has passed")) for task in tasks]
                for result in await asyncio.gather(*calls, return_exceptions=True):
                    # a problem is no matter: it was answered in the meantime, or there is no room now
                    if isinstance(result, BaseException) and not isinstance(result, Problem):
                        raise result

    # --- writing --------------------------------------------------------------------------------------------------

    async def _in_thread(self, function: Callable[..., Result], *given: Any, **named: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*given, **named))

    async def _read(self, function: Callable[..., Result], *given: Any) -> Result:
        """Read something from the store; if it fails, say that it may work later."""
        try:
            return await asyncio.to_thread(function, *given)
        except StoreFailed as error:
            raise unavailable(str(error)) from error

    async def _stored(self, function: Callable[..., Result], *given: Any, **named: Any) -> Result:
        """Do something with the store; if it fails, say that it may work later."""
        try:
            return await self._in_thread(function, *given, **named)
        except StoreFailed as error:
            raise unavailable(str(error)) from error
        except StoreBroken as error:
            self._give_up(error)
            raise unavailable(str(error)) from error

    def _give_up(self, error: StoreBroken) -> None:
        """Write nothing more: what the disk did not confirm may be lost, and what is built upon it with it."""
        self._over = True
        self.ready = False
        self.failing = str(error)
        self._broken(error)

    async def _write(self) -> None:
        while True:
            group = await self.queue.take(self.settings.group_limit, size_of)
            self._at_work = True
            async with self._busy:
                while group:
                    group = await self._try(group)
            self._at_work = False

    async def _try(self, group: list[Job]) -> list[Job]:
        """Do a group; return what is left to be done, without the policy of a command that has failed."""
        try:
            await self._do(group)
        except StoreBroken as error:
            self._give_up(error)
            self._refuse(group, unavailable(str(error)))
        except Failed as failed:
            logger.error("a command failed", exc_info=failed.error)
            self._refuse([failed.job], Problem(500, "internal", f"The call failed: {type(failed.error).__name__}."))
            key = failed.job.key
            self._refuse([job for job in group if job.key == key], unavailable("Nothing was written. Try again."))
            return [job for job in group if job.key != key]
        except Exception as error:
            logger.exception("a group failed")
            self._refuse(group, Problem(500, "internal", f"The call failed: {type(error).__name__}."))
        return []

    async def _do(self, group: list[Job]) -> None:
        """Run a group of commands in one transaction, and reply when it is committed."""
        if self._over:
            self._refuse(group, unavailable("The disk did not confirm a write; nothing more is written."))
            return
        await self._mend()
        able = [job.key in self.held and job.key not in self._dirty for job in group]
        jobs = [job for job, can in zip(group, able, strict=True) if can]
        away = [job for job, can in zip(group, able, strict=True) if not can]
        self._refuse(away, unavailable("The policy is being recovered, or has gone elsewhere."))
        held = [self.held[job.key] for job in jobs]
        try:
            work = await self._in_thread(
                self.store.begin, [job.command.needs(each) for job, each in zip(jobs, held, strict=True)]
            )
        except StoreFailed as error:
            await self._fail(jobs, None, error)
            return
        results: list[Reply | Question | Problem] = []
        try:
            now = self.clock.now()
            for job, each in zip(jobs, held, strict=True):
                try:
                    results.append(job.command.run(each, work, now))
                except Problem as problem:
                    results.append(problem)
                except Exception as error:
                    raise Failed(job, error) from error
                if size_of(job) > 1:
                    await asyncio.sleep(0)  # it took long, and others wait for answers that need no commit
            if work.empty:
                await self._in_thread(self.store.rollback)
            else:
                await self._in_thread(self.store.commit, work, self.owner, self._expiry())
        except (StoreFailed, Fenced) as error:
            await self._fail(jobs, work, error)
            return
        except StoreBroken:
            raise  # not even a rollback goes to the disk now
        except BaseException:
            self._spoil(work)
            await self._in_thread(self.store.rollback)
            raise
        self.failing = None
        self.groups += 1
        self.commands += len(jobs)
        for job, result in zip(jobs, results, strict=True):
            self._answer(job, result)
        for each in work.changed.values():
            if each.policy.seq - each.snapshot_at >= self.settings.snapshot_every:
                await self._snapshot(each)

    def _answer(self, job: Job, result: Reply | Question | Problem) -> None:
        if job.done.done():
            return  # the caller has gone; what was decided stands
        if isinstance(result, Problem):
            job.done.set_exception(result)
        else:
            reply = result.reply if isinstance(result, Question) else result
            job.done.set_result(reply)  # type: ignore[arg-type]

    def _refuse(self, jobs: list[Job], problem: Problem) -> None:
        for job in jobs:
            self._answer(job, problem)

    async def _fail(self, jobs: list[Job], work: Work | None, error: Exception) -> None:
        """Undo a group that could not be committed."""
        self.failing = str(error)
        logger.error("a commit failed", extra={"error": str(error), "commands": len(jobs)})
        if work is not None:
            self._spoil(work)
        try:
            await self._in_thread(self.store.rollback)
        except StoreFailed:
            logger.warning("a rollback failed")
        if isinstance(error, Fenced):
            for key, held in list(self.held.items()):
                if held.id == error.policy:
                    self._lose(key)
        await self._mend()
        certain = "" if isinstance(error, Unconfirmed) else "Nothing was written: "
        self._refuse(jobs, unavailable(f"{certain}{error} Try again."))

    def _spoil(self, work: Work) -> None:
        """Remember which policies in memory are ahead of their logs."""
        for key, held in self.held.items():
            if held.id in work.changed:
                self._dirty.add(key)

    async def _mend(self) -> None:
        """Rebuild what a failed group has spoiled."""
        for key in list(self._dirty):
            held = self.held[key]
            try:
                if self.store.database.shared:
                    # a commit that was not confirmed may still be on its way; to renew is to wait for it
                    await self._in_thread(self.store.renew, {held.id: held.epoch}, self.owner, self._expiry())
                row = await asyncio.to_thread(self.store.policy, *key)
                if row is None or row.epoch != held.epoch or row.owner != self.owner:
                    self._lose(key)
                    continue
                policy = await self._in_thread(recover, self.store, row)
            except DeferkitError as error:  # the others can go on
                logger.error("a policy could not be rebuilt", extra={"policy": held.id, "error": str(error)})
                continue
            held.policy = policy
            held.parked = row.parked
            held.snapshot_at = policy.seq
            self._dirty.discard(key)

    async def _snapshot(self, held: Held) -> None:
        """Keep a snapshot. Nothing is lost if that fails: the log has it all."""
        held.snapshot_at = held.policy.seq
        try:
            data = await self._in_thread(held.policy.to_bytes)
            await self._in_thread(self.store.add_snapshot, held.id, held.policy.seq, data)
        except StoreFailed as error:
            logger.warning("a snapshot failed", extra={"policy": held.id, "error": str(error)})
