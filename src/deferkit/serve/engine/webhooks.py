"""Webhooks: delivery with retries, and sending over HTTP."""

import asyncio
import http.client
import ipaddress
import socket
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

from deferkit.errors import DeferkitError, InvalidArgument
from deferkit.http_connections import Answer, Connections, pause_after
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.webhook import (
    DEAD,
    DEAD_AFTER_S,
    DELIVERED,
    NOT_PUBLIC,
    UNDELIVERED,
    Attempt,
    DeliveryRow,
    EventRow,
    WebhookRow,
    destination_of,
    permitted_addresses,
)
from deferkit.serve.engine.ownership import Ownership
from deferkit.serve.storage.webhook_store import PRUNED_AT_ONCE, WebhookStore
from deferkit.serve.structured_logs import logger
from deferkit.version import __version__
from deferkit.webhook_signature import signature_of

THREADS = 4  # attempts at a time
TIMEOUT_S = 5.0
FIRST_PAUSE_S, MAX_PAUSE_S = 2.0, 3600.0  # the longest; half of it is the shortest
MAX_READ = 65_536  # bytes of a reply
MAX_ERROR = 200

ssl_context = cache(ssl.create_default_context)


class WebhookSender:
    """Sends the deliveries of one webhook.

    Args:
        webhook: Where to.
        private: Whether private, loopback and link-local addresses are allowed.
        now: Returns the time in microseconds.
        done: Called with the result of each attempt, in the thread that made it.
    """

    def __init__(
        self, webhook: WebhookRow, *, private: bool, now: Callable[[], int], done: Callable[[Attempt], None]
    ) -> None:
        self.webhook = webhook
        self.in_flight: set[str] = set()  # events handed to `send`, until their results are written
        self.failures = 0  # attempts that failed since the last good one
        self.probe_at = 0.0  # when a receiver that is down is asked again, by the clock of the event loop
        self._private = private
        self._now = now
        self._done = done
        self._queue: deque[DeliveryRow] = deque()
        self._threads = 0
        self._lock = threading.Lock()
        self._connections: tuple[list[str], Connections] | None = None  # addresses, and connections to them

    def send(self, rows: Iterable[DeliveryRow]) -> None:
        """Queue deliveries, and start threads for them."""
        for row in rows:
            self.in_flight.add(row.id)
            with self._lock:
                self._queue.append(row)
                if self._threads == THREADS:
                    continue
                self._threads += 1
            threading.Thread(target=self._work, name="webhook", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether an attempt is being made."""
        return self._threads > 0

    def abort(self, *, older_than_s: float = 0.0) -> None:
        """Abort attempts that are older than a time: socket timeouts do not end a reply that trickles in."""
        with self._lock:
            if self._connections is not None:
                self._connections[1].abort(older_than_s=older_than_s)

    def close(self) -> None:
        """Start no more attempts: drop the queue."""
        with self._lock:
            self._queue.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    if not self._threads and self._connections is not None:
                        self._connections[1].close()
                    return
                row = self._queue.popleft()
            self._done(self._attempt(row))

    def _attempt(self, row: DeliveryRow) -> Attempt:
        status, error, wait_s = None, None, 0.0
        try:
            answer = self._post(row)
            status, wait_s = answer.status, answer.wait_s or 0.0
            if not 200 <= status < 300:
                error = f"The receiver answered {status}."
        except InvalidArgument as refused:
            error = str(refused)
        except (OSError, http.client.HTTPException, UnicodeError) as failed:
            reason = getattr(failed, "strerror", None) or str(failed) or type(failed).__name__
            error = f"No answer: {reason}"[:MAX_ERROR]
        except Exception as failed:  # a bug here must not lose the delivery: it is retried
            logger.exception("an attempt at a delivery failed", extra={"webhook": self.webhook.id})
            error = f"No answer: {type(failed).__name__}"
        now, last = self._now(), row.created + int(DEAD_AFTER_S * MICRO)
        if error is None:
            return Attempt(DELIVERED, row.due, status, None, now, row.webhook, row.id, row.created)
        if now >= last:
            logger.warning("a delivery was given up", extra={"webhook": row.webhook, "policy": row.policy})
            return Attempt(DEAD, row.due, status, error, now, row.webhook, row.id, row.created)
        pause_s = pause_after(row.attempts, first_s=FIRST_PAUSE_S, longest_s=MAX_PAUSE_S)
        due = now + int(max(pause_s, min(wait_s, MAX_PAUSE_S)) * MICRO)
        return Attempt(UNDELIVERED, min(due, last), status, error, None, row.webhook, row.id, row.created)

    def _post(self, row: DeliveryRow) -> Answer:
        destination = destination_of(self.webhook.url, private=self._private)
        addresses = permitted_addresses(addresses_of(destination.host, destination.port), private=self._private)
        if not addresses:
            raise InvalidArgument(f"The url leads to {NOT_PUBLIC}.")
        with self._lock:
            if self._connections is None or self._connections[0] != sorted(addresses):
                context = ssl_context() if destination.secure else None
                connections = Connections(destination.host, destination.port, context, addresses=addresses)
                self._connections = sorted(addresses), connections
            connections = self._connections[1]
        headers = {
            "content-type": "application/json",
            "user-agent": f"deferkit/{__version__}",
            "deferkit-event": row.id,
            "deferkit-signature": signature_of(row.body, self.webhook.secret, self._now() // MICRO),
        }
        return connections.ask("POST", destination.path, row.body, headers, TIMEOUT_S, most=MAX_READ)


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host, without the zones of IPv6."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(ipaddress.ip_address(str(address[0]).partition("%")[0])) for *_, address in found]


TICK_S = 1.0  # seconds between two polls of the store for webhooks and due deliveries
PRUNE_S = 600.0
IN_FLIGHT = 32  # deliveries that are handed to a sender at a time
FAILED, DROPPED = "failed", "dropped"  # an attempt that is retried; an event that was given up because too many waited
GIVEN_UP_AT_ONCE = 250  # deliveries in one transaction: other callers wait for it
DOWN_AFTER = 2 * IN_FLIGHT  # failures in a row after which a receiver gets one event a tick, until it takes one
DRAIN_S = 1.0  # seconds that running attempts get when the service stops


class WebhookDelivery:
    """Delivers the events of the policies that this process owns to the webhooks of their tenants.

    Args:
        ownership: The policies of this process, and the thread that writes.
        private: Whether private, loopback and link-local addresses are allowed.
        backlog: How many events may wait for a webhook; of more, the oldest are given up.
    """

    def __init__(self, ownership: Ownership, *, private: bool, backlog: int) -> None:
        self.ownership = ownership
        self.private = private
        self.backlog = backlog
        self.store = WebhookStore(ownership.store)
        self.by_tenant: dict[str, list[WebhookRow]] = {}
        self.attempts: Counter[tuple[int, str]] = Counter()  # by policy and result
        self._growing: set[str] = set()  # webhooks with new events since they were counted
        self._policies: dict[tuple[str, str], int] = {}  # of deliveries in flight, by webhook and event
        self._senders: dict[str, WebhookSender] = {}
        self._results: deque[Attempt] = deque()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._read_at = self._pruned_at = 0.0

    def wake(self, events: Iterable[EventRow] = ()) -> None:
        """Poll for due deliveries now: these events were just written."""
        self._growing.update(webhook for event in events for webhook in event.webhooks)
        self._wake.set()

    async def reload(self) -> None:
        """Reload the webhooks from the store."""
        found: dict[str, list[WebhookRow]] = {}
        rows = await asyncio.to_thread(self.store.webhooks)
        for row in rows:
            found.setdefault(row.tenant, []).append(row)
        known = {row.id for rows in self.by_tenant.values() for row in rows}
        self._growing |= {row.id for row in rows} - known
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
            await self.reload()
            for sender in self._senders.values():
                sender.abort(older_than_s=TIMEOUT_S)
            if self.by_tenant:
                await self._bound_backlogs()
                await self._move_old()
        if self.by_tenant:
            await self._send()
        if self.by_tenant and now - self._pruned_at >= PRUNE_S:
            policies = self._policies_with_webhooks()
            async with self.ownership.busy:
                pruned = await self.ownership.in_thread(self.store.prune, self.ownership.clock.now(), policies)
            if pruned < PRUNED_AT_ONCE:  # else there may be more
                self._pruned_at = now

    async def _bound_backlogs(self) -> None:
        """Give up the oldest events of webhooks for which more than `backlog` wait."""
        growing, self._growing = self._growing, set()  # they may grow meanwhile
        try:
            for webhook, waiting in (await asyncio.to_thread(self.store.count_waiting, growing)).items():
                for excess in range(waiting - self.backlog, 0, -GIVEN_UP_AT_ONCE):
                    await self._give_up(webhook, min(excess, GIVEN_UP_AT_ONCE))
        except BaseException:
            self._growing |= growing
            raise

    async def _give_up(self, webhook: str, events: int) -> None:
        """Give up the oldest undelivered events of a webhook."""
        async with self.ownership.busy:
            dropped = await self.ownership.in_thread(self.store.drop_oldest, webhook, events)
        logger.warning("undelivered events were given up", extra={"webhook": webhook, "events": dropped.total()})
        for policy, n in dropped.items():
            self.attempts[policy, DROPPED] += n

    async def _move_old(self) -> None:
        """Move what a process of the version before has left undelivered of the policies of this process."""
        policies = self._policies_with_webhooks()
        if await asyncio.to_thread(self.store.has_old, policies):
            async with self.ownership.busy:
                await self.ownership.in_thread(self.store.move_old, policies)
            self._read_at = 0.0  # there may be more
            self._wake.set()

    def _policies_with_webhooks(self) -> list[int]:
        """Return the policies of this process whose tenants have webhooks."""
        return [owned.id for owned in self.ownership.owned.values() if owned.tenant in self.by_tenant]

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
            sender, now = self._senders[webhook.id], asyncio.get_running_loop().time()
            in_flight = len(sender.in_flight)
            if sender.failures >= DOWN_AFTER:
                if not in_flight and now >= sender.probe_at:
                    limits[webhook.id] = 1
                    sender.probe_at = now + TICK_S
            elif in_flight <= IN_FLIGHT // 2:
                limits[webhook.id] = in_flight + IN_FLIGHT  # those in flight are still due in the store
        if limits:
            policies = {number: owned[self._senders[number].webhook.tenant] for number in limits}
            rows = await asyncio.to_thread(self.store.due_deliveries, limits, policies, self.ownership.clock.now())
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
                sender.failures = 0 if each.state == DELIVERED else sender.failures + 1

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
