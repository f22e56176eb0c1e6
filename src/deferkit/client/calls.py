"""Calls over HTTP: connections that are kept, and calls that are repeated until they are answered or time is up."""

import http.client
import os
import random
import ssl
import time
import weakref
from collections import deque
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from deferkit.client.wire import Failures, from_json, problem_of, to_json
from deferkit.errors import InvalidArgument, ServiceUnavailable, expected
from deferkit.types import is_number
from deferkit.version import __version__

AGAIN = (429, 502, 503)  # the service did nothing, or it does no harm to ask again
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0
LEAST_S = 0.001  # of a time-out


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None

    @property
    def wait_s(self) -> float:
        """How long the service wants to be left alone."""
        return float(self.retry_after) if self.retry_after is not None and self.retry_after.isdigit() else 0.0


class Calls:
    """Calls of one service. Any number of threads may call at once: each call has a connection to itself.

    Every call can be repeated without harm, because the service knows a task, a correction or a change of the budget by
    its id and gives the reply that it gave before. So a call is repeated, with the same bytes, when a connection
    fails, when nothing comes back within `timeout_s`, and on 429, 502 and 503 (then not before Retry-After); after
    `total_s` it is given up.
    """

    def __init__(
        self, url: str, *, key: str | None, timeout_s: float, total_s: float, context: ssl.SSLContext | None
    ) -> None:
        self._host, self._port, self._path, secure = place_of(url)
        if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable() and key):
            raise InvalidArgument("The 'key' of a Client must be one that `deferkit keys create` has printed.")
        for name, value in (("timeout_s", timeout_s), ("total_s", total_s)):
            if not is_number(value) or not value > 0:
                raise expected(name, "Client", "a number of seconds above 0", value)
        self.url = url.rstrip("/")
        self.timeout_s, self.total_s = float(timeout_s), float(total_s)
        self._context = (context or ssl.create_default_context()) if secure else None
        self._headers = {"content-type": "application/json", "user-agent": f"deferkit/{__version__}"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._process = os.getpid()
        weakref.finalize(self, close_all, self._idle)

    def close(self) -> None:
        """Close the connections; a later call opens one anew."""
        close_all(self._idle)

    def call(self, method: str, path: str, body: Any = None, failures: Failures | None = None) -> Any:
        """Return the reply as plain data, None if there is none; raise what `failures` has for a status."""
        data = None if body is None else to_json(body)
        end = time.monotonic() + self.total_s
        pause, tries = FIRST_WAIT_S, 0
        while True:
            tries += 1
            wait = random.uniform(0.5, 1.0) * pause
            try:
                timeout = max(min(self.timeout_s, end - time.monotonic()), LEAST_S)
                answer = self._answer(method, self._path + path, data, timeout)
                if answer.status not in AGAIN:
                    return self._read(answer, failures or {})
                wait = max(wait, answer.wait_s)
                status, why = answer.status, str(problem_of(answer.status, answer.body, {}))
            except (OSError, http.client.HTTPException) as error:
                status, why = None, str(error) or type(error).__name__
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise ServiceUnavailable(f"{self.url} is not trusted: {why}.") from error
            if time.monotonic() + wait >= end:
                raise ServiceUnavailable(
                    f"{self.url} cannot be reached or did not do the call within {self.total_s:g} seconds"
                    f" (tries: {tries}). The last try: {why.rstrip('.')}.",
                    status=status,
                )
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_WAIT_S)

    def _read(self, answer: Answer, failures: Failures) -> Any:
        if 200 <= answer.status < 300:
            return from_json(answer.body, self.url) if answer.body else None
        raise problem_of(answer.status, answer.body, failures)

    def _answer(self, method: str, path: str, data: bytes | None, timeout: float) -> Answer:
        """Return what comes back. A kept connection that the service has closed meanwhile is replaced."""
        while True:
            connection, kept = self._connection(timeout)
            try:
                connection.request(method, path, data, self._headers)
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

    def _connection(self, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection for one call, and whether it was used before."""
        if self._process != os.getpid():  # after a fork the connections are the parent's
            close_all(self._idle)
            self._process = os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            if self._context is None:
                return http.client.HTTPConnection(self._host, self._port, timeout=timeout), False
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context), False
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection, True


def place_of(url: str) -> tuple[str, int | None, str, bool]:
    """Return host, port and path of a service, and whether it is https.

    >>> place_of("https://example.org/deferkit/")
    ('example.org', None, '/deferkit', True)
    """
    wanted = expected("url", "Client", "like http://127.0.0.1:8080 or https://example.org", url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        raise wanted from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or not url.isprintable():
        raise wanted
    return host, port, parts.path.rstrip("/"), parts.scheme == "https"


def close_all(connections: deque[http.client.HTTPConnection]) -> None:
    """Close connections that no call is using."""
    while connections:
        connections.pop().close()
