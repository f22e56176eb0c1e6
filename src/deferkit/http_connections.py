"""HTTP connections that are kept and replaced: for a client of the service, and for calls between its processes.

Of the standard library alone, because a client needs nothing else.
"""

import http.client
import os
import random
import socket
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

RETRIED = (429, 502, 503)  # the service did nothing, or it does no harm to ask again
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0


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
    longest = FIRST_WAIT_S
    while True:
        yield random.uniform(0.5, 1.0) * longest
        longest = min(2 * longest, LONGEST_WAIT_S)


class Connections:
    """Connections to one server. Any number of threads may ask at once: each call has a connection to itself.

    Args:
        host: The name or address of the server.
        port: Its port; None takes that of the scheme.
        context: For https; None is http.
    """

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext | None = None) -> None:
        self._host, self._port, self._context = host, port, context
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._asked: set[http.client.HTTPConnection] = set()
        self._asked_lock = threading.Lock()
        self._process = os.getpid()
        weakref.finalize(self, close_all, self._idle)

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float) -> Answer:
        """Return what comes back; raise OSError or HTTPException if nothing does.

        A kept connection that the server has closed meanwhile is replaced; nothing else is tried again.
        """
        while True:
            connection, kept = self._connection(timeout_s)
            with self._asked_lock:
                self._asked.add(connection)
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                answer = Answer(response.status, response.read(), response.headers.get("Retry-After"))
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not kept or isinstance(error, TimeoutError):
                    raise
            except BaseException:
                connection.close()  # nobody waits for its answer any more
                raise
            else:
                self._idle.append(connection)
                return answer
            finally:
                with self._asked_lock:
                    self._asked.discard(connection)

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer, on a connection that is open."""
        with self._asked_lock:
            return sum(each.sock is not None for each in self._asked)

    def close(self) -> None:
        """Close the connections that no call is using; a later call opens one anew."""
        close_all(self._idle)

    def abort(self) -> None:
        """Close all connections: calls that wait for an answer fail."""
        self.close()
        with self._asked_lock:
            for each in self._asked:
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
