"""HTTP attempts at the deliveries of one webhook: in threads of its own, to checked addresses, without redirects."""

import http.client
import ipaddress
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache

from deferkit.errors import InvalidArgument
from deferkit.http_connections import Answer, Connections, pause_after
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.webhook import DEAD, DEAD_AFTER_S, DELIVERED, UNDELIVERED, Attempt, DeliveryRow, WebhookRow
from deferkit.serve.domain.webhook_address import NOT_PUBLIC, allowed, destination_of
from deferkit.serve.structured_logs import logger
from deferkit.version import __version__
from deferkit.webhook_signature import signature_of

THREADS = 4  # attempts at a time
TIMEOUT_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 3600.0  # the longest; half of it is the shortest
MOST_READ = 65_536  # bytes of a reply
LONGEST_ERROR = 200

ssl_context = cache(ssl.create_default_context)


class WebhookSender:
    """Sends the deliveries of one webhook.

    Parameters
    ----------
    webhook
        Where to.
    private
        Whether private, loopback and link-local addresses are allowed.
    now
        Returns the time in microseconds.
    done
        Called with the result of each attempt, in the thread that made it.
    """

    def __init__(
        self, webhook: WebhookRow, *, private: bool, now: Callable[[], int], done: Callable[[Attempt], None]
    ) -> None:
        self.webhook = webhook
        self.in_flight: set[str] = set()  # events handed to `send`, until their results are written
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
            error = f"No answer: {reason}"[:LONGEST_ERROR]
        except Exception as failed:  # a bug here must not lose the delivery: it is retried
            logger.exception("an attempt at a delivery failed", extra={"webhook": self.webhook.id})
            error = f"No answer: {type(failed).__name__}"
        now, last = self._now(), row.created + int(DEAD_AFTER_S * MICRO)
        if error is None:
            return Attempt(DELIVERED, row.due, status, None, now, row.webhook, row.id)
        if now >= last:
            logger.warning("a delivery was given up", extra={"webhook": row.webhook, "policy": row.policy})
            return Attempt(DEAD, row.due, status, error, now, row.webhook, row.id)
        pause_s = pause_after(row.attempts, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
        due = now + int(max(pause_s, min(wait_s, LONGEST_PAUSE_S)) * MICRO)
        return Attempt(UNDELIVERED, min(due, last), status, error, None, row.webhook, row.id)

    def _post(self, row: DeliveryRow) -> Answer:
        destination = destination_of(self.webhook.url, private=self._private)
        addresses = allowed(addresses_of(destination.host, destination.port), private=self._private)
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
        return connections.ask("POST", destination.path, row.body, headers, TIMEOUT_S, most=MOST_READ)


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host, without the zones of IPv6."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(ipaddress.ip_address(str(address[0]).partition("%")[0])) for *_, address in found]
