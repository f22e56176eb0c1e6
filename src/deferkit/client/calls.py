"""Calls over HTTP: connections that are kept, and calls that are repeated until they are answered or time is up."""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from deferkit.client.wire import Failures, from_json, is_foreign, problem_of, to_json
from deferkit.errors import InvalidArgument, ServiceError, ServiceUnavailable, expected
from deferkit.http_connections import RETRIED, Connections, pauses
from deferkit.types import number
from deferkit.version import __version__

MIN_S = 0.001  # of a time-out
UNREACHED_S = 1.5  # how long a wrong address is tried again where nothing has ever answered
MAX_SHOWN = 80  # characters of what another protocol says
SECONDS = number("a number of seconds above 0", lambda value: value > 0)


class Calls:
    """Calls of one service. Any number of threads may call at once: each call has a connection to itself.

    Every call can be repeated without harm, because the service knows a task, a correction or a change of the budget by
    its id and gives the reply that it gave before. So a call is repeated, with the same bytes, when a connection
    fails, when nothing comes back within `timeout_s`, and on 429, 502 and 503 (then not before Retry-After); after
    `total_s` it is given up. Where nothing has ever answered, an address that looks wrong is given up after 1.5
    seconds: its name is unknown, nothing listens there, or what listens does not speak HTTP.
    """

    def __init__(
        self, url: str, *, key: str | None, timeout_s: float, total_s: float, context: ssl.SSLContext | None
    ) -> None:
        host, port, self._path, secure = place_of(url)
        if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable() and key):
            raise InvalidArgument("The 'key' of a Client must be one that `deferkit keys create` has printed.")
        for name, value in (("timeout_s", timeout_s), ("total_s", total_s)):
            SECONDS.check(name, "Client", value)
        self.url = url.rstrip("/")
        self.timeout_s, self.total_s = float(timeout_s), float(total_s)
        self._connections = Connections(host, port, (context or ssl.create_default_context()) if secure else None)
        self._reached = False
        self._headers = {"content-type": "application/json", "user-agent": f"deferkit/{__version__}"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"

    def close(self) -> None:
        """Close the connections; a later call opens one anew."""
        self._connections.close()

    def call(self, method: str, path: str, body: Any = None, failures: Failures | None = None) -> Any:
        """Return the reply as plain data, None if there is none; raise what `failures` has for a status."""
        reply = self._answer(method, path, body, failures or {})
        return from_json(reply, self.url) if reply else None

    def fields(self, method: str, path: str, body: Any = None, failures: Failures | None = None) -> dict[str, Any]:
        """Return the fields of a reply, which is an object, like `call`."""
        return dict(self.call(method, path, body, failures))

    def text(self, path: str) -> str:
        """Return the body at a path as text."""
        return self._answer("GET", path, None, {}).decode()

    def _answer(self, method: str, path: str, body: Any, failures: Failures) -> bytes:
        data = None if body is None else to_json(body)
        began = time.monotonic()
        end = began + self.total_s
        for tries, pause in enumerate(pauses(), 1):
            wait, hint = pause, None
            try:
                timeout = max(min(self.timeout_s, end - time.monotonic()), MIN_S)
                answer = self._connections.ask(method, self._path + path, data, self._headers, timeout)
                self._reached = True
                if answer.status not in RETRIED:
                    if 200 <= answer.status < 300:
                        return answer.body
                    if is_foreign(answer.status, answer.body):
                        raise ServiceError(
                            f"What answers at {self.url} is not a deferkit service (status {answer.status})."
                            " Are port and path right?",
                            status=answer.status,
                        )
                    raise problem_of(answer.status, answer.body, failures)
                wait = max(wait, answer.wait_s or 0.0)
                status, why = answer.status, str(problem_of(answer.status, answer.body, {}))
            except (OSError, http.client.HTTPException) as error:
                status, why = None, str(error) or type(error).__name__
                hint = None if self._reached else hint_of(error, self.url)
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise ServiceUnavailable(f"{self.url} is not trusted: {why}.") from error
            after = time.monotonic() + wait
            if hint is not None and after >= began + UNREACHED_S:
                raise ServiceUnavailable(hint)
            if after >= end:
                raise ServiceUnavailable(
                    f"{self.url} cannot be reached or did not do the call within {self.total_s:g} seconds"
                    f" (tries: {tries}). The last try: {why.rstrip('.')}.",
                    status=status,
                )
            time.sleep(wait)
        raise AssertionError  # there is always another pause

    def pages(self, path: str, name: str, cursor: str) -> Iterator[Any]:
        """Yield the items of all pages of a listing.

        Args:
            path: The path of the listing, with a query.
            name: The field of a page that has the items.
            cursor: The parameter that takes `next` of the page before.
        """
        following: Any = None
        while True:
            more = "" if following is None else f"&{cursor}={quote(str(following), safe='')}"
            page = self.call("GET", path + more)
            yield from page[name]
            following = page.get("next")  # an earlier version of the service has all on one page
            if following is None:
                return


def place_of(url: str) -> tuple[str, int | None, str, bool]:
    """Return host, port and path of a service, and whether it is https.

    >>> place_of("https://example.org/deferkit/")
    ('example.org', None, '/deferkit', True)
    """
    wanted = expected("url", "Client", "like http://127.0.0.1:8080 or https://example.org", url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as a connection would
    except (ValueError, AttributeError, TypeError):
        raise wanted from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or not url.isprintable():
        raise wanted
    if not parts.path.isascii() or " " in parts.path:
        raise wanted
    return host, port, parts.path.rstrip("/"), parts.scheme == "https"


def hint_of(error: Exception, url: str) -> str | None:
    """Return a hint on an address that has never answered; None if the error does not tell the cause.

    >>> hint_of(http.client.BadStatusLine("SSH-2.0-OpenSSH_9.2"), "http://a:22")
    "What listens at http://a:22 does not speak HTTP ('SSH-2.0-OpenSSH_9.2'). Is it another port, or https://?"
    """
    secure = url.startswith("https:")
    protocol, other = ("HTTPS", "http://") if secure else ("HTTP", "https://")
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, ConnectionRefusedError):
        return f"Nothing listens at {url} ({error}). Is the service running (`deferkit serve`), on this port?"
    if isinstance(error, socket.gaierror):
        return f"The host name in {url} cannot be resolved ({why}). Is it spelled correctly?"
    if isinstance(error, ConnectionError | ssl.SSLEOFError):  # so does a port of HTTPS that is spoken to in HTTP
        return f"What listens at {url} closes connections without an answer ({why}). Is it another port, or {other}?"
    if isinstance(error, http.client.BadStatusLine | http.client.LineTooLong | http.client.UnknownProtocol):
        return (
            f"What listens at {url} does not speak {protocol} ({str(error).strip()[:MAX_SHOWN]!r})."
            f" Is it another port, or {other}?"
        )
    if isinstance(error, ssl.SSLError) and "ALERT" not in (error.reason or ""):  # who sends an alert speaks TLS
        return f"What listens at {url} does not speak {protocol} ({why}). Is it another port, or {other}?"
    return None
