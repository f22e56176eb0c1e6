"""HTTP connections that are kept and replaced: for a client of the service, and for calls between its processes.

Of the standard library alone, because a client needs nothing else.
"""

import http.client
import os
import random
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

RETRIED = (429, 502, 503)  # the service did nothing, or it does no harm to ask again
FIRST_WAIT_S, MAX_WAIT_S = 0.05, 2.0


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None

    @property
    def wait_s(self) -> float | None:
        """Seconds that the service wants to be left alone; None if it does not say.

        >>> Answer(503, b"", "2").wait_s
        2.0
        """
        return float(self.retry_after) if self.retry_after is not None and self.retry_after.isdigit() else None


def pauses() -> Iterator[float]:
    """Yield seconds to wait between tries: they double, and are random so that callers do not come back together.

    >>> all(0.025 <= next(pauses()) <= 0.05 for _ in range(100))
    True
    """
    for tries in count():
        yield pause_after(tries, first_s=FIRST_WAIT_S, longest_s=MAX_WAIT_S)


def pause_after(tries: int, *, first_s: float, longest_s: float) -> float:
    """Return seconds to wait after a number of tries, before the last one that failed.

    Args:
        tries: 0 after the first one.
        first_s: The longest wait after the first try; it doubles with each.
        longest_s: The longest wait of all.

    >>> all(4 <= pause_after(3, first_s=1.0, longest_s=60.0) <= 8 for _ in range(100))
    True
    """
    return random.uniform(0.5, 1.0) * min(first_s * 2.0 ** min(tries, 64), longest_s)


class PinnedConnection(http.client.HTTPConnection):
    """A connection to one of some addresses, whatever the name of the host means by now.

    Args:
        host: The name that requests and the certificate have.
        port: The port.
        context: For https; None is http.
        addresses: The IP addresses to connect to, tried in turn.
        timeout_s: For each of them, and for each answer.
    """

    def __init__(
        self, host: str, port: int | None, context: ssl.SSLContext | None, addresses: Sequence[str], timeout_s: float
    ) -> None:
        self.default_port = http.client.HTTP_PORT if context is None else http.client.HTTPS_PORT
        super().__init__(host, port, timeout=timeout_s)
        self._pinned, self._secure = addresses, context

    def connect(self) -> None:
        """Connect to the first address that answers."""
        for place, address in enumerate(self._pinned, 1):
            try:
                self.sock = socket.create_connection((address, self.port), self.timeout)
                break
            except OSError:
                if place == len(self._pinned):
                    raise
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._secure is not None:
            self.sock = self._secure.wrap_socket(self.sock, server_hostname=self.host)


class Connections:
    """Connections to one server. Any number of threads may ask at once: each call has a connection to itself.

    Args:
        host: The name or address of the server.
        port: Its port; None takes that of the scheme.
        context: For https; None is http.
        addresses: The IP addresses to connect to; by default, those that the host name resolves to.
    """

    def __init__(
        self,
        host: str,
        port: int | None,
        context: ssl.SSLContext | None = None,
        *,
        addresses: Sequence[str] | None = None,
    ) -> None:
        self._host, self._port, self._context, self._addresses = host, port, context, addresses
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._asked: dict[http.client.HTTPConnection, float] = {}  # since when
        self._asked_lock = threading.Lock()
        self._process = os.getpid()
        weakref.finalize(self, close_all, self._idle)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        timeout_s: float,
        *,
        most: int | None = None,
    ) -> Answer:
        """Return the answer to a request; raise OSError or HTTPException if there is none.

        A kept connection that the server has closed meanwhile is replaced; nothing else is tried again.
        """
        while True:
            connection, kept = self._connection(timeout_s)
            with self._asked_lock:
                self._asked[connection] = time.monotonic()
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                answer = Answer(response.status, response.read(most), response.headers.get("Retry-After"))
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not kept or isinstance(error, TimeoutError):
                    raise
            except BaseException:
                connection.close()  # nobody waits for its answer any more
                raise
            else:
                if response.isclosed():
                    self._idle.append(connection)
                else:
                    connection.close()  # there is more that nobody reads
                return answer
            finally:
                with self._asked_lock:
                    self._asked.pop(connection, None)

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer, on a connection that is open."""
        with self._asked_lock:
            return sum(each.sock is not None for each in self._asked)

    def close(self) -> None:
        """Close the connections that no call is using; a later call opens one anew."""
        close_all(self._idle)

    def abort(self, *, older_than_s: float = 0.0) -> None:
        """Close all connections: calls that have waited for an answer for so long fail."""
        self.close()
        before = time.monotonic() - older_than_s
        with self._asked_lock:
            for each in [each for each, since in self._asked.items() if since <= before]:
                with suppress(OSError, AttributeError):  # there is no socket, or it was closed in this moment
                    each.sock.shutdown(socket.SHUT_RDWR)

    def _connection(self, timeout_s: float) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection for one call, and whether it was used before."""
        if self._process != os.getpid():  # after a fork the connections are the parent's
            close_all(self._idle)
            self._process = os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            if self._addresses is not None:
                return PinnedConnection(self._host, self._port, self._context, self._addresses, timeout_s), False
            if self._context is None:
                return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s), False
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context), False
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection, True


def close_all(connections: deque[http.client.HTTPConnection]) -> None:
    """Close connections that no call is using."""
    while connections:
        connections.pop().close()
