"""Delivery of events to webhooks, from the store, by the process that owns the policy.

At-least-once delivery: a delivery is in the store until its receiver has answered. After a crash, one that was sent and
not written as delivered is sent again, under the same id.
"""

import asyncio
from collections import Counter, deque
from contextlib import suppress

from deferkit.errors import DeferkitError
from deferkit.serve.domain.webhook import UNDELIVERED, Attempt, WebhookRow
from deferkit.serve.engine.ownership import Ownership
from deferkit.serve.engine.webhook_sender import TIMEOUT_S, WebhookSender
from deferkit.serve.storage.webhook_store import PRUNED_AT_ONCE, WebhookStore
from deferkit.serve.structured_logs import logger

TICK_S = 1.0  # seconds between two polls of the store for webhooks and due deliveries
PRUNE_S = 600.0
IN_FLIGHT = 32  # deliveries that are handed to a sender at a time
FAILED = "failed"  # an attempt that is retried
DRAIN_S = 1.0  # seconds that running attempts get when the service stops


class WebhookDelivery:
    """Delivers the events of the policies that this process owns to the webhooks of their tenants.

    Parameters
    ----------
    ownership
        The policies of this process, and the thread that writes.
    private
        Whether private, loopback and link-local addresses are allowed.
    """

    def __init__(self, ownership: Ownership, *, private: bool) -> None:
        self.ownership = ownership
        self.private = private
        self.store = WebhookStore(ownership.store)
        self.by_tenant: dict[str, list[WebhookRow]] = {}
        self.attempts: Counter[tuple[int, str]] = Counter()  # by policy and result
        self._policies: dict[tuple[str, str], int] = {}  # of deliveries in flight, by webhook and event
        self._senders: dict[str, WebhookSender] = {}
        self._results: deque[Attempt] = deque()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._read_at = self._pruned_at = 0.0

    def wake(self) -> None:
        """Poll for due deliveries now: some were just written."""
        self._wake.set()

    async def read(self) -> None:
        """Reload the webhooks from the store."""
        found: dict[str, list[WebhookRow]] = {}
        rows = await asyncio.to_thread(self.store.webhooks)
        for row in rows:
            found.setdefault(row.tenant, []).append(row)
        self.by_tenant = found
        for number in self._senders.keys() - {row.id for row in rows}:
            self._senders.pop(number).close()
        self._read_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Deliver until `stop`, or until the store is broken: results of attempts could not be written then."""
        self._loop = asyncio.get_running_loop()
        while not self._stopping and not self.ownership.store_broken:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TICK_S)
            self._wake.clear()
            try:
                await self._round()
            except Exception as error:  # retried at the next tick
                if isinstance(error, DeferkitError | OSError):
                    logger.warning("webhooks are not delivered", extra={"error": str(error)})
                else:
                    logger.exception("webhooks are not delivered")
                await asyncio.sleep(TICK_S)
        await self._drain()

    def stop(self) -> None:
        """Start no more attempts; `run` drains the running ones and returns."""
        self._stopping = True
        self._wake.set()

    async def _round(self) -> None:
        now = asyncio.get_running_loop().time()
        await self._write_results()
        if now - self._read_at >= TICK_S:
            await self.read()
            for sender in self._senders.values():
                sender.abort(older_than_s=TIMEOUT_S)
        if self.by_tenant:
            await self._send()
        if self.by_tenant and now - self._pruned_at >= PRUNE_S:
            async with self.ownership.busy:
                pruned = await self.ownership.in_thread(self.store.prune, self.ownership.clock.now())
            if pruned < PRUNED_AT_ONCE:  # else there may be more
                self._pruned_at = now

    async def _send(self) -> None:
        """Hand due deliveries to the senders of their webhooks."""
        owned: dict[str, list[int]] = {}
        for (tenant, _), each in self.ownership.owned.items():
            owned.setdefault(tenant, []).append(each.id)
        limits: dict[str, int] = {}
        for webhook in (each for tenant in owned for each in self.by_tenant.get(tenant, [])):
            if webhook.id not in self._senders:
                self._senders[webhook.id] = WebhookSender(
                    webhook, private=self.private, now=self.ownership.clock.now, done=self._on_attempt
                )
            in_flight = len(self._senders[webhook.id].in_flight)
            if in_flight <= IN_FLIGHT // 2:
                limits[webhook.id] = in_flight + IN_FLIGHT  # those in flight are still due in the store
        if limits:
            policies = {number: owned[self._senders[number].webhook.tenant] for number in limits}
            rows = await asyncio.to_thread(self.store.due, limits, policies, self.ownership.clock.now())
            for row in rows:
                sender = self._senders[row.webhook]
                if row.id not in sender.in_flight:
                    self._policies[row.webhook, row.id] = row.policy
                    sender.send([row])

    def _on_attempt(self, attempt: Attempt) -> None:
        """Queue the result of an attempt; called in a thread of a sender."""
        self._results.append(attempt)
        with suppress(RuntimeError):  # the event loop is closed: the next process sends it again
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    async def _write_results(self) -> None:
        if not self._results:
            return
        results = [*self._results]
        async with self.ownership.busy:
            await self.ownership.in_thread(self.store.end_attempts, results)
        for each in results:
            self._results.popleft()
            policy = self._policies.pop((each.webhook, each.id))
            self.attempts[policy, FAILED if each.state == UNDELIVERED else each.state] += 1
            if (sender := self._senders.get(each.webhook)) is not None:
                sender.in_flight.discard(each.id)

    async def _drain(self) -> None:
        """Wait up to `DRAIN_S` for running attempts, abort the others, and write the results."""
        for sender in self._senders.values():
            sender.close()
        end = asyncio.get_running_loop().time() + DRAIN_S
        while asyncio.get_running_loop().time() < end and any(each.busy for each in self._senders.values()):
            await asyncio.sleep(0.02)
        for sender in self._senders.values():
            sender.abort()
        with suppress(DeferkitError):
            await self._write_results()
