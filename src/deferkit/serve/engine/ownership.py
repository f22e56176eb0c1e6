"""Ownership of policies: leases, the guarded clock and the identity of the process."""

import asyncio
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from deferkit.errors import DeferkitError, MissingExtra
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy, PolicyCopy
from deferkit.serve.domain.policy_learner import check_installed
from deferkit.serve.domain.problems import Damaged, Problem, StoreBroken, StoreFailed, unavailable
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.recovery import DamagedLog, Interrupted, recover
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.store import Store
from deferkit.serve.structured_logs import logger


def boot() -> str:
    """Return the boot id of the machine; '' where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def read_uptime() -> tuple[str, int] | None:
    """Return the boot id and the uptime in microseconds, including sleep; None where the system has none."""
    if not boot() or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    try:
        namespace = Path("/proc/self/ns/time").readlink().name  # a container may count from somewhere else
    except OSError:
        namespace = ""
    return f"{boot()}/{namespace}", time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def container() -> str:
    """Return the id of the pid namespace: process numbers are only unique within one."""
    try:
        return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        return ""


def process_start(pid: int) -> str | None:
    """Return the start time of a process, in clock ticks of the system; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def identity(number: int = 0) -> str:
    """Return the unique owner id of this process; `number` distinguishes several owners within it."""
    process = f"{os.getpid()}/{process_start(os.getpid()) or ''}"
    return f"{socket.gethostname()}/{boot()}/{container()}/{process}/{number}"


def is_dead(owner: str, *, shared: bool = False) -> bool:
    """Whether a process is known to be gone: it ran on this machine, and does not any more.

    An SQLite file is used by one machine, so that an owner with the same hostname and another boot or container is
    dead. A shared database is used by many machines, which may have the same hostname: nothing is known then.

    >>> is_dead(identity()), is_dead("elsewhere/12345678/4026531836/1/1/0")
    (False, False)
    """
    host, began, inside, pid, start, *_ = [*owner.split("/"), "", "", "", "", ""]
    if host != socket.gethostname() or not began or not Path("/proc/self/stat").exists():
        return False
    if (began, inside) != (boot(), container()):
        return not shared
    return not pid.isdigit() or process_start(int(pid)) != start


NANOSECONDS = 1000  # of a microsecond


class Clock:
    """Counts from a start time, by the machine's monotonic clock.

    >>> clock = Clock(5_000_000)
    >>> 5_000_000 <= clock.now() < 6_000_000
    True
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._began = time.monotonic_ns()

    def now(self) -> int:
        """Return the time in microseconds."""
        return self._start + (time.monotonic_ns() - self._began) // NANOSECONDS


class StartTime(NamedTuple):
    """The start time of the clock of a service, in microseconds."""

    at: int
    jump: int  # of the machine's clock since an earlier start, where it is not followed; else 0


def start_time(store: Store, *, max_jump_s: float) -> StartTime:
    """Return the wall clock of the database or machine, corrected for a jump of more than `max_jump_s`.

    The uptime of a machine does not depend on its wall clock. Both were stored at an earlier start in the same boot,
    so that a wall clock that was set can be distinguished from a service that was off. After a reboot the wall clock
    is trusted. With `max_jump_s` 0 any jump is followed. The result is later than every record of the logs.
    """
    wall, now = store.database.now(), read_uptime()
    if now is None:
        return StartTime(max(store.last_time() + 1, wall), 0)
    boot, uptime = now
    before = store.clock(boot)
    expected = wall if before is None else before[0] + uptime - before[1]
    jump = wall - expected
    if max_jump_s and abs(jump) > max_jump_s * MICRO:
        logger.error(
            "the clock has jumped and is not followed: set it right, or start with --max-clock-jump-s 0 to follow it",
            extra={"jump_s": jump / MICRO},
        )
        return StartTime(max(store.last_time() + 1, expected), jump)
    try:
        store.put_clock(boot, wall, uptime)
    except StoreFailed as error:  # a full disk: the earlier reading serves as well
        logger.warning("the clock reading was not stored", extra={"error": str(error)})
    return StartTime(max(store.last_time() + 1, wall), 0)


Result = TypeVar("Result")
Key = tuple[str, str]  # tenant, name of the policy
UNAVAILABLE = 503
COPIED_AT_ONCE = 32_000_000  # bytes of a learner's arrays that are copied between two groups: 5 ms
LOADED_AT_ONCE = 2  # tenants whose policies are loaded at the same time


def stop_at_once(error: Exception) -> None:
    """Exit at once without another write, after the disk did not confirm one."""
    logger.critical("the disk did not confirm a write; the process stops", extra={"error": str(error)})
    os._exit(74)


def missing_library(row: PolicyRow) -> str | None:
    """Return the error message about a missing library of a policy; None if all are installed."""
    try:
        check_installed(msgspec.json.decode(row.spec, type=PolicySpec))
    except MissingExtra as error:
        return str(error)
    except msgspec.MsgspecError:  # recovery reports the damaged log
        pass
    return None


class Ownership:
    """The policies that this process owns, and the thread that writes to the store.

    The lock `busy` must be held to change a policy or to write.
    """

    def __init__(
        self,
        store: Store,
        *,
        lease_s: float,
        max_clock_jump_s: float,
        address: str | None,
        broken: Callable[[Exception], None],
        number: int,
    ) -> None:
        self.store = store
        self.owner = identity(number)
        self.address = address
        self.owned: dict[Key, OwnedPolicy] = {}
        self.unloaded: dict[Key, PolicyRow] = {}  # policies of before the start whose turn to be loaded is to come
        self.stopping = threading.Event()  # set when the process stops: policies that are being loaded are given up
        self.loading: dict[int, int] = {}  # epochs of acquired policies that are not yet in memory, by policy
        self.clock = Clock(0)
        self.clock_jump = 0  # microseconds by which the machine's clock has jumped, if that is not followed
        self._max_clock_jump_s = max_clock_jump_s
        self.busy = asyncio.Lock()
        self.store_broken: StoreBroken | None = None  # set after a failed fsync: nothing more is written
        self.failing: str | None = None  # why the last commit failed
        self._lease = int(lease_s * MICRO)
        self.damaged: dict[Key, str] = {}  # policies with a damaged log, and what is wrong with it
        self._load_locks: dict[Key, asyncio.Lock] = {}
        self._dirty: set[Key] = set()  # policies whose state in memory is ahead of their logs
        self._read_only: set[Key] = set()  # policies that were loaded but not acquired: the store could not be written
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._on_broken = broken
        self._renew_at = 0
        self._snapshot: asyncio.Task[None] | None = None  # compresses and writes the snapshot of a large policy

    # --- the store ------------------------------------------------------------------------------------------------

    async def in_thread(self, function: Callable[..., Result], *given: Any, **named: Any) -> Result:
        """Run a function in the writer thread; raise if an earlier write was not confirmed."""

        def do() -> Result:
            if self.store_broken is not None:
                raise self.store_broken
            try:
                return function(*given, **named)
            except StoreBroken as error:  # set before the next function of this thread runs
                self._stop_writing(error)
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, do)

    async def query(self, function: Callable[..., Result], *given: Any) -> Result:
        """Run a query of the store in a thread; raise a 503 if it fails."""
        try:
            return await asyncio.to_thread(function, *given)
        except StoreFailed as error:
            raise unavailable(str(error)) from error

    async def write(self, function: Callable[..., Result], *given: Any, **named: Any) -> Result:
        """Run a function of the store in the writer thread; raise a 503 if the write fails."""
        try:
            return await self.in_thread(function, *given, **named)
        except (StoreFailed, StoreBroken) as error:
            raise unavailable(str(error)) from error

    def _stop_writing(self, error: StoreBroken) -> None:
        """Stop writing after an unconfirmed write (fsync failed)."""
        self.store_broken = error
        self.failing = str(error)
        self._on_broken(error)

    # --- ownership leases -----------------------------------------------------------------------------------------

    def expiry(self) -> int:
        """Return the expiry of a lease taken now."""
        return self.clock.now() + self._lease

    async def open(self) -> None:
        """Migrate the database, and start the clock."""
        await self.in_thread(self.store.database.prepare)
        start = await self.in_thread(start_time, self.store, max_jump_s=self._max_clock_jump_s)
        self.clock, self.clock_jump = Clock(start.at), start.jump

    async def find_policies(self) -> None:
        """Find the policies that are to be loaded; on SQLite, raise if another process owns one."""
        if not await self.in_thread(self.store.database.has_room):
            self.failing = "The disk of the store is full."
            logger.error("the disk of the store is full")
        for row in await self.in_thread(self.store.policies):
            if not self._is_foreign(row):
                self.unloaded[row.tenant, row.name] = row
            elif not self.store.database.shared:
                raise DeferkitError(
                    f"Policy {row.name!r} is owned by another process ({row.owner}). Stop that one, or wait"
                    f" {self._lease / MICRO:g} seconds if it was stopped just now."
                )

    async def load_all(self) -> None:
        """Acquire and load the policies that were found; those of one tenant in turn, tenants with short logs first."""
        by_tenant: dict[str, list[PolicyRow]] = {}
        for row in self.unloaded.values():
            by_tenant.setdefault(row.tenant, []).append(row)
        waiting = deque(sorted(by_tenant.values(), key=lambda rows: sum(row.seq for row in rows)))

        async def load_in_turn() -> None:
            while waiting:
                for row in waiting.popleft():
                    if self.stopping.is_set():
                        return
                    try:
                        await self._adopt_or_log(row)
                    except Exception:  # a bug; the other policies are loaded all the same
                        logger.exception("a policy could not be loaded", extra={"policy": row.id})
                    del self.unloaded[row.tenant, row.name]

        await asyncio.gather(*(load_in_turn() for _ in range(LOADED_AT_ONCE)))

    async def _adopt_or_log(self, row: PolicyRow) -> bool:
        """Acquire a policy as `adopt` does; log it if the policy is damaged or the store fails."""
        try:
            return await self.adopt(row)
        except Damaged as damaged:
            logger.error("a policy is damaged and not served", extra={"policy": row.id, "error": str(damaged)})
            return True
        except Problem as problem:  # the store cannot be written: retried at the next tick
            if problem.status != UNAVAILABLE:
                raise
            self.failing = str(problem)
            logger.error("a policy could not be acquired", extra={"policy": row.id, "error": str(problem)})
            return True

    async def adopt(self, row: PolicyRow) -> bool:
        """Acquire a policy without an owner, and load it; False if another process owns it."""
        key = (row.tenant, row.name)
        if key in self.damaged:
            raise Damaged(self.damaged[key])
        if self._is_foreign(row):
            return False  # decided from the row alone, so that calls for foreign policies do not load the writer thread
        async with self._load_locks.setdefault(key, asyncio.Lock()):
            if key in self.owned:
                return True
            if absent := missing_library(row):  # another process may have it installed
                raise Damaged(f"Policy {row.name!r} cannot be served here: {absent}")
            try:
                async with self.busy:
                    epoch = await self._acquire(row)
            except StoreFailed as error:
                if self.store.database.shared:  # another process may acquire it
                    raise unavailable(str(error)) from error
                return await self._load_read_only(key, row, error)
            except StoreBroken as error:
                raise unavailable(str(error)) from error
            if epoch is None:
                return False
            self.loading[row.id] = epoch
            try:
                return await self._load(key, epoch)
            finally:
                del self.loading[row.id]

    def _is_foreign(self, row: PolicyRow) -> bool:
        """Whether another process owns a policy."""
        return row.owner not in (None, self._dead_owner(row), self.owner) and row.expires >= self.clock.now()

    def _dead_owner(self, row: PolicyRow) -> str | None:
        gone = row.owner is not None and is_dead(row.owner, shared=self.store.database.shared)
        return row.owner if gone else None

    async def _acquire(self, row: PolicyRow) -> int | None:
        now, dead = self.clock.now(), self._dead_owner(row)
        return await self.in_thread(self.store.acquire, row, self.owner, self.address, now, self.expiry(), dead=dead)

    async def _load_read_only(self, key: Key, row: PolicyRow, error: StoreFailed) -> bool:
        """Load a policy read-only, where the store cannot be written and nobody else can own it."""
        logger.error("read-only: the store cannot be written", extra={"policy": row.id, "error": str(error)})
        loaded = await self._load(key, row.epoch)
        if loaded:
            self._read_only.add(key)
        self.failing = str(error)  # after loading: a lease renewal in the meantime clears it, having nothing to write
        return loaded

    async def _acquire_read_only(self) -> None:
        """Acquire the policies that were loaded read-only, if the store can be written again."""
        for key in list(self._read_only):
            row = await self.query(self.store.policy, *key)
            try:
                epoch = None if row is None else await self._acquire(row)
            except StoreFailed as error:
                self.failing = str(error)
                return
            if epoch is None:
                self.lose(self.owned[key].id)
            else:
                self.owned[key].epoch = epoch
                self._read_only.discard(key)
                logger.info("a policy is writable again", extra={"policy": self.owned[key].id, "epoch": epoch})

    async def _load(self, key: Key, epoch: int) -> bool:
        """Load a policy from its log, in another thread."""
        row = await self.query(self.store.policy, *key)
        if row is None:
            return False
        try:
            policy = await self.query(recover, self.store, row, self.stopping)
        except Interrupted:  # another process may load it at once
            async with self.busy:
                await self.write(self.store.release_policy, row.id, self.owner, epoch)
            return False
        except DamagedLog as error:
            self.damaged[key] = str(error)  # until the next start: the log is not read again with every call
            raise Damaged(str(error)) from error
        [last] = await self.query(self.store.log_page, row.id, policy.seq - 1, 1)
        parked_by = await self.query(self.store.parked_by_key, row.id)
        owned = OwnedPolicy(row.id, row.tenant, policy, epoch, row.parked, parked_by)
        owned.snapshot_at = max(await self.query(self.store.snapshot_seqs, row.id), default=0)
        owned.clock_offset = max(0, last.at - self.clock.now())
        self.owned[key] = owned
        logger.info("loaded a policy", extra={"policy": row.id, "epoch": epoch, "records": policy.seq})
        return True

    async def adopt_orphans(self) -> None:
        """Acquire policies whose lease has expired, on a shared database."""
        if self.store.database.shared:
            for row in await asyncio.to_thread(self.store.policies):
                known = self.owned.keys() | self.damaged.keys() | self.unloaded.keys()
                if (row.tenant, row.name) not in known and row.expires < self.clock.now():
                    await self._adopt_or_log(row)

    async def renew_if_due(self) -> None:
        """Renew the ownership leases."""
        now = self.clock.now()
        if now < self._renew_at and not self._read_only:
            return
        async with self.busy:
            await self._acquire_read_only()
            if self._read_only:
                return
            epochs = self.loading | {owned.id: owned.epoch for owned in self.owned.values()}
            for number in await self.in_thread(self.store.renew, epochs, self.owner, self.expiry()):
                self.lose(number)
            if self.failing is not None and await self.in_thread(self.store.database.has_room):
                self.failing = None  # the database accepts writes
        self._renew_at = now + self._lease // 3

    def lose(self, number: int) -> None:
        """Forget a policy that another process has acquired."""
        for key in [key for key, owned in self.owned.items() if owned.id == number]:
            owned = self.owned.pop(key)
            self._dirty.discard(key)
            self._read_only.discard(key)
            logger.warning("lost a policy to another process", extra={"policy": owned.id, "epoch": owned.epoch})

    async def purge(self, number: int) -> None:
        """Delete the rows of a retired policy, in slices between which other commands are committed."""
        more = True
        while more:
            async with self.busy:
                more = await self.write(self.store.delete_slice, number)

    async def release_all(self) -> None:
        """Write snapshots, release the ownership of all policies, and close the store."""
        if self._snapshot is not None:
            await self._snapshot
        for key, owned in list(self.owned.items()):
            if key in self._read_only:
                continue
            try:
                if key not in self._dirty:
                    await self.snapshot(owned)
                await self.in_thread(self.store.release_policy, owned.id, self.owner, owned.epoch)
            except StoreBroken:
                break
            except DeferkitError as error:
                logger.warning("a policy could not be released", extra={"policy": owned.id, "error": str(error)})
        await asyncio.get_running_loop().run_in_executor(self._thread, self.store.close)
        self._thread.shutdown()

    # --- state in memory ------------------------------------------------------------------------------------------

    def is_writable(self, key: Key) -> bool:
        """Whether a policy is loaded, in sync with its log, and acquired for writing."""
        return key in self.owned and key not in self._dirty and key not in self._read_only

    def why_not_writable(self, key: Key) -> str:
        """Return the problem detail for a caller whose policy is not writable."""
        if key in self._read_only:
            return f"Read-only: {self.failing} Reads still work; nothing was written. Try again."
        return "The policy is being recovered, or another process owns it now."

    def mark_dirty(self, work: UnitOfWork) -> None:
        """Mark the policies that a failed group has changed as dirty: they are ahead of their logs."""
        for owned in work.changed.values():
            self.mark_policy_dirty(owned)

    def mark_policy_dirty(self, changed: OwnedPolicy) -> None:
        """Mark a policy as dirty: its state in memory differs from its log, and is rebuilt by `rebuild_dirty`."""
        changed.policy.deferred.clear()
        self._dirty.update(key for key, owned in self.owned.items() if owned.id == changed.id)

    async def rebuild_dirty(self) -> None:
        """Rebuild the dirty policies from their logs, and acquire those that were loaded read-only."""
        await self._acquire_read_only()
        for key in list(self._dirty):
            owned = self.owned[key]
            try:
                if self.store.database.shared:
                    # an unconfirmed commit may still be running on the server: the renewal waits for its row lock
                    await self.in_thread(self.store.renew, {owned.id: owned.epoch}, self.owner, self.expiry())
                row = await asyncio.to_thread(self.store.policy, *key)
                if row is None or row.epoch != owned.epoch or row.owner != self.owner:
                    self.lose(owned.id)
                    continue
                policy = await self.in_thread(recover, self.store, row)
                parked_by = await asyncio.to_thread(self.store.parked_by_key, row.id)
            except DeferkitError as error:  # it stays dirty; the other policies go on
                logger.error("a policy could not be rebuilt", extra={"policy": owned.id, "error": str(error)})
                continue
            owned.policy = policy
            owned.alarms = None  # those of the failed group were not written
            owned.parked = row.parked
            owned.parked_by = Counter(parked_by)
            self._dirty.discard(key)

    async def snapshot(self, owned: OwnedPolicy) -> None:
        """Write a snapshot. A failure is only logged: the policy can be recovered from its log."""
        owned.snapshot_at = owned.policy.seq
        await self._add_snapshot(owned, owned.policy.seq, await self.in_thread(owned.policy.to_bytes))

    async def start_snapshot(self, owned: OwnedPolicy) -> None:
        """Copy a policy for a snapshot, which other threads compress and write.

        Commands of a very large policy are blocked while another thread copies it. One snapshot is made at a time, to
        bound memory: the next one stays due until then.
        """
        if self._snapshot is not None and not self._snapshot.done():
            return
        owned.snapshot_at = owned.policy.seq
        copied = None
        if owned.policy.learner.n_bytes <= COPIED_AT_ONCE:
            copied = owned.policy.copy()
        else:
            owned.copying = True  # blocks its commands before the next group begins
        self._snapshot = asyncio.create_task(self._finish_snapshot(owned, owned.policy, copied))

    async def _finish_snapshot(self, owned: OwnedPolicy, policy: Policy, copied: PolicyCopy | None) -> None:
        try:
            if copied is None:
                try:
                    copied = await asyncio.to_thread(policy.copy)
                finally:
                    owned.copying = False
            data = await asyncio.to_thread(copied.to_bytes)
            async with self.busy:
                # not deleted, not lost to another process, and not replaced by one that has forgotten a task, meanwhile
                if owned in self.owned.values() and owned.policy is policy:
                    await self._add_snapshot(owned, copied.snapshot.seq, data)
        except (StoreBroken, MemoryError) as error:  # StoreBroken also reaches whoever writes next
            logger.warning("a snapshot failed", extra={"policy": owned.id, "error": str(error)})

    async def _add_snapshot(self, owned: OwnedPolicy, seq: int, data: bytes) -> None:
        try:
            await self.in_thread(self.store.add_snapshot, owned.id, seq, data)
        except StoreFailed as error:
            logger.warning("a snapshot failed", extra={"policy": owned.id, "error": str(error)})
