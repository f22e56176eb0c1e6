"""The engine: the only writer of a process's policies. Lifecycle, and submission of commands."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from deferkit.errors import DeferkitError
from deferkit.serve.api.common import Reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import MEGABYTE, unavailable, unknown
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.disk_quota import DiskQuota
from deferkit.serve.engine.fair_queue import FairQueue
from deferkit.serve.engine.maintenance import Maintenance
from deferkit.serve.engine.ownership import Clock, Key, Ownership, stop_at_once
from deferkit.serve.engine.policy_creation import PolicyCreation, load_libraries
from deferkit.serve.engine.unit_of_work import Command
from deferkit.serve.engine.webhooks import WebhookDelivery
from deferkit.serve.engine.writer import GroupCommit, Job, LearningSteps, PendingFits, size_of
from deferkit.serve.storage.store import Store
from deferkit.serve.structured_logs import logger

if TYPE_CHECKING:
    from deferkit.serve.telemetry import Telemetry


class EngineSettings(NamedTuple):
    """Settings of the engine."""

    queue_limit: int = 1024  # commands that may wait
    tenant_share: float = 0.5  # the part of the queue that one tenant may take
    group_limit: int = 256  # commands in one commit
    group_s: float = 0.025  # seconds of the processor for the commands of one commit
    owner_lease_s: float = 15.0
    max_clock_jump_s: float = 300.0  # larger jumps of the machine's clock are not followed; 0: all are
    snapshot_every: int = 20_000  # records
    tick_s: float = 1.0
    max_policies: int | None = None  # that a tenant may have
    tenant_memory: float | None = None  # MB that the learners of a tenant may take together
    tenant_disk: float = 0  # MB that the policies of a tenant may take in the store; 0: no limit
    address: str | None = None  # URL at which other processes reach this one
    webhook_private: bool = False  # whether webhooks may go to private, loopback and link-local addresses
    webhook_backlog: int = 10_000  # undelivered events of a webhook; of more, the oldest are given up


class Elsewhere(DeferkitError):
    """Another process owns the policy; it answers at this address."""

    def __init__(self, address: str | None) -> None:
        super().__init__("Another process owns the policy.")
        self.address = address


class Engine:
    """Owns policies and changes them."""

    def __init__(
        self,
        store: Store,
        settings: EngineSettings | None = None,
        *,
        broken: Callable[[Exception], None] = stop_at_once,
        number: int = 0,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self.store = store
        self.telemetry = telemetry
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
        self.disk_quota = DiskQuota(self.ownership, int(self.settings.tenant_disk * MEGABYTE))
        self.owned = self.ownership.owned
        self.queue: FairQueue[Job] = FairQueue(limit=self.settings.queue_limit, share=self.settings.tenant_share)
        self.fits: PendingFits[Job] = PendingFits(self.queue, self.owned)
        self.steps = LearningSteps(self.ownership, self.queue.charge)
        self.webhooks = WebhookDelivery(
            self.ownership, private=self.settings.webhook_private, backlog=self.settings.webhook_backlog
        )
        self.group_commit = GroupCommit(
            self.ownership,
            self.queue,
            self.fits,
            self.steps,
            group_s=self.settings.group_s,
            snapshot_every=self.settings.snapshot_every,
            webhooks=self.webhooks,
            telemetry=telemetry,
        )
        self.policy_creation = PolicyCreation(
            self.ownership,
            max_policies=self.settings.max_policies,
            tenant_memory=self.settings.tenant_memory,
            check_quota=self.disk_quota.check,
        )
        self.forgetting: dict[Key, Any] = {}  # tasks that wait to be forgotten together, by policy
        self.forget_locks: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)  # one rebuild of a policy each
        self._serving = False
        self._at_work = False  # a group was taken from the queue and is not committed yet
        self._writing: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._ticking: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether commands are accepted."""
        return self._serving and not self.ownership.store_broken

    @property
    def loading(self) -> bool:
        """Whether policies of before the start are still to be loaded."""
        return bool(self.ownership.unloaded)

    @property
    def failing(self) -> str | None:
        """Why the last commit failed, if it did."""
        return self.ownership.failing

    @property
    def groups(self) -> int:
        """Groups of commands committed."""
        return self.group_commit.groups

    @property
    def commands(self) -> int:
        """Commands in the groups committed."""
        return self.group_commit.commands

    @property
    def clock(self) -> Clock:
        """The clock that timestamps every record."""
        return self.ownership.clock

    # --- lifecycle ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Migrate the database, acquire and load the policies that have no owner, and start the writer."""
        await self.begin()
        await self.wait_loaded(None)

    async def begin(self) -> None:
        """Start; policies are loaded in the background, and calls for those that are not loaded yet get 503."""
        await self.ownership.open()
        await self.webhooks.reload()
        await self.ownership.find_policies()
        self._loading = asyncio.create_task(self._load())
        self._writing = asyncio.create_task(self._write())
        jobs = (
            self.ownership.renew_if_due,
            self.maintenance.reap,
            self.maintenance.drop_old_parked,
            self.maintenance.erase_expired,
            self.maintenance.renew_idle,
            self.maintenance.finish_deletions,
            self.disk_quota.measure,
            self.ownership.adopt_orphans,
        )
        self._ticking = [asyncio.create_task(self._regularly(job)) for job in jobs]
        self._ticking += [asyncio.create_task(self.webhooks.run()), self._loading]
        self._serving = True

    async def wait_loaded(self, seconds: float | None) -> None:
        """Wait until all policies are loaded, or so many seconds have passed."""
        if self._loading is not None:
            await asyncio.wait([self._loading], timeout=seconds)

    async def _load(self) -> None:
        if self.store.database.shared:  # before calls for the policies of another process come here
            await asyncio.to_thread(load_libraries)
        await self.ownership.load_all()
        if not self.ownership.stopping.is_set():
            logger.info("ready", extra={"policies": len(self.owned), "owner": self.ownership.owner})

    async def stop(self) -> None:
        """Drain the queue, write snapshots, release the ownership of all policies."""
        self._serving = False
        self._stopping.set()
        self.ownership.stopping.set()
        self.webhooks.stop()
        # not cancelled: their reads in other threads would go on after the store is closed
        await asyncio.gather(*self._ticking, return_exceptions=True)
        if self._writing is not None:
            while (
                self.queue.length
                or self._at_work
                or self.steps.running
                or self.ownership.busy.locked()
                or self.ownership.loading
            ):
                await asyncio.sleep(0.005)
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        self.steps.close()
        await self.ownership.release_all()
        logger.info("stopped")

    # --- submission of commands -----------------------------------------------------------------------------------

    async def create(self, tenant: str, spec: PolicySpec) -> Reply:
        """Create a policy; the same one again changes nothing."""
        return await self.policy_creation.create(tenant, spec)

    def submit(self, key: Key, command: Command) -> Coroutine[Any, Any, Reply]:
        """Queue a command; return its reply after the durable commit."""
        # not `async`: an extra coroutine for every decision would cost time
        if self.telemetry is None:
            return self._submit(key, command)
        return self._submit_traced(self.telemetry, key, command)

    async def _submit_traced(self, telemetry: "Telemetry", key: Key, command: Command) -> Reply:
        with telemetry.command(command, *key) as span:
            reply = await self._submit(key, command, span)
            telemetry.describe_reply(span, command, reply.body)
            return reply

    def span(self, key: Key, command: Command) -> AbstractContextManager[Any]:
        """Return the span of a command that is run without being submitted."""
        return nullcontext() if self.telemetry is None else self.telemetry.command(command, *key)

    async def _submit(self, key: Key, command: Command, span: Any = None) -> Reply:
        if not self.ready:
            raise unavailable("The service is starting or stopping.")
        await self.holding(key)
        if not self.ready:  # by now
            raise unavailable("The service is stopping.")
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.queue.add(key[0], Job(key, command, done, span))
        return await done

    async def holding(self, key: Key) -> OwnedPolicy:
        """Return a policy that this process owns; raise if it does not exist or another process owns it."""
        owned = self.owned.get(key)
        if owned is not None:
            return owned
        if key in self.ownership.unloaded:
            raise unavailable("The policy is being loaded. Try again.")
        row = await self.ownership.query(self.store.policy, *key)
        if row is None:
            raise unknown("policy", key[1])
        if not await self.ownership.adopt(row):
            if self.ownership.stopping.is_set():
                raise unavailable("The service is stopping.")
            raise Elsewhere(row.address)
        return self.owned[key]

    # --- periodic jobs --------------------------------------------------------------------------------------------

    async def _regularly(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run `job` every tick."""
        while not self.ownership.store_broken:
            try:
                await asyncio.wait_for(self._stopping.wait(), self.settings.tick_s)
                return
            except TimeoutError:
                pass
            try:
                await job()
            except (DeferkitError, OSError) as error:
                logger.warning("a tick failed", extra={"error": str(error)})
            except Exception:  # a bug in one tick must not stop the job for good
                logger.exception("a tick failed")

    # --- writing --------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        while True:
            group = await self.queue.take(self.settings.group_limit, size_of)
            self._at_work = True
            while group:
                async with self.ownership.busy:
                    group = await self.group_commit.attempt(group)
            self._at_work = False
