"""Delivery of events to webhooks, from the store, by the process that owns the policy.

A delivery is in the store until its receiver has answered, so that none is lost: what was sent before a crash and not
written as delivered is sent again, under the same id.
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

TICK_S = 1.0  # how often webhooks are read anew, and deliveries that are due looked for
PRUNE_S = 600.0
AT_ONCE = 32  # deliveries that a sender holds
FAILED = "failed"  # an attempt, that is followed by another
STOP_S = 1.0  # what attempts get when the service stops


class WebhookDelivery:
    """Knows the webhooks of all tenants, and delivers the events of the policies that this process owns.

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
        self.attempts: Counter[tuple[int, str]] = Counter()  # by policy, and what came of them
        self._policies: dict[tuple[str, str], int] = {}  # of deliveries that were handed to senders
        self._senders: dict[str, WebhookSender] = {}
        self._results: deque[Attempt] = deque()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._read_at = self._pruned_at = 0.0

    def wake(self) -> None:
        """Look for deliveries at once: some were written."""
        self._wake.set()

    async def read(self) -> None:
        """Read the webhooks anew."""
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
            except Exception as error:  # the store may be there again at the next tick
                if isinstance(error, DeferkitError | OSError):
                    logger.warning("webhooks are not delivered", extra={"error": str(error)})
                else:
                    logger.exception("webhooks are not delivered")
                await asyncio.sleep(TICK_S)
        await self._end()

    def stop(self) -> None:
        """Begin no more attempts."""
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
        """Hand deliveries that are due to the senders of their webhooks."""
        owned: dict[str, list[int]] = {}
        for (tenant, _), each in self.ownership.owned.items():
            owned.setdefault(tenant, []).append(each.id)
        wanted: dict[str, int] = {}
        for webhook in (each for tenant in owned for each in self.by_tenant.get(tenant, [])):
            if webhook.id not in self._senders:
                self._senders[webhook.id] = WebhookSender(
                    webhook, private=self.private, now=self.ownership.clock.now, done=self._attempted
                )
            held = len(self._senders[webhook.id].held)
            if held <= AT_ONCE // 2:
                wanted[webhook.id] = held + AT_ONCE  # those that it holds are still due
        if wanted:
            policies = {number: owned[self._senders[number].webhook.tenant] for number in wanted}
            rows = await asyncio.to_thread(self.store.due, wanted, policies, self.ownership.clock.now())
            for row in rows:
                sender = self._senders[row.webhook]
                if row.id not in sender.held:
                    self._policies[row.webhook, row.id] = row.policy
                    sender.send([row])

    def _attempted(self, attempt: Attempt) -> None:
        """Take what came of an attempt, in the thread of a sender."""
        self._results.append(attempt)
        with suppress(RuntimeError):  # the loop has ended: it is sent again by the next process
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
                sender.held.discard(each.id)

    async def _end(self) -> None:
        """Wait for attempts for a moment, and write what came of them."""
        for sender in self._senders.values():
            sender.close()
        end = asyncio.get_running_loop().time() + STOP_S
        while asyncio.get_running_loop().time() < end and any(each.busy for each in self._senders.values()):
            await asyncio.sleep(0.02)
        for sender in self._senders.values():
            sender.abort()
        with suppress(DeferkitError):
            await self._write_results()
