"""Forwarding of requests to the process that owns a policy, and their headers."""

import asyncio
import http.client
import ipaddress
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
from litestar.datastructures import State
from litestar.types import HTTPScope

from deferkit.http_connections import Answer, Connections
from deferkit.serve.api.common import Reply
from deferkit.serve.domain.problems import Problem, unavailable


def header(scope: Mapping[str, Any], name: bytes) -> bytes:
    """Return a header; nothing if it was not sent, and nothing if it was sent twice with different values.

    >>> header({"headers": [(b"host", b"a"), (b"accept", b"*")]}, b"host")
    b'a'
    """
    found = b""
    for each, value in scope["headers"]:
        if each == name:
            if found and found != value:
                return b""
            found = value
    return found


@lru_cache(maxsize=64)
def is_this_machine(host: bytes) -> bool:
    """Whether a Host header is a loopback name, which DNS cannot rebind.

    >>> is_this_machine(b"localhost:8080"), is_this_machine(b"127.0.0.1"), is_this_machine(b"[::1]:80")
    (True, True, True)
    >>> is_this_machine(b"evil.example:8080"), is_this_machine(b"")
    (False, False)
    """
    name, _, port = host.decode("latin-1").rpartition(":")
    if not port.isdigit() or not name:
        name = host.decode("latin-1")
    name = name.removeprefix("[").removesuffix("]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


PASSED_ON = b"x-deferkit-passed-on"
TIMEOUT_S = 10.0
THREADS = 64
MOST = 256  # calls that are passed on or wait for it; more get 503


async def forward(state: State, scope: HTTPScope, body: bytes, address: str | None) -> Reply:
    """Return the reply of the owner of a policy to a call."""
    path = scope["raw_path"].decode("ascii")
    if scope["query_string"]:
        path += "?" + scope["query_string"].decode("latin-1")
    return await ask_owner(state, scope, path, body, address)


async def ask_owner(state: State, scope: HTTPScope, path: str, body: bytes, address: str | None) -> Reply:
    """Return the reply of a policy's owner at a path, on behalf of the caller of a request.

    A call is forwarded once: the policy may have another owner by then.
    """
    if not address or header(scope, PASSED_ON):
        raise unavailable("Another process owns the policy, or is about to.")
    headers = {"content-type": "application/json", PASSED_ON.decode(): "1"}
    for name in ("authorization", "cookie", "traceparent", "tracestate"):
        if value := header(scope, name.encode()):
            headers[name] = value.decode("latin-1")
    patience = min(TIMEOUT_S, state.engine.settings.owner_lease_s)  # by then it is another's
    messenger: Messenger = state.messenger
    return await messenger.ask(address, scope["method"], path, body, headers, patience)


class Messenger:
    """Asks other processes.

    It has threads of its own: while an owner does not answer, others must still be able to read, and to take over from
    it.

    Args:
        certificate: A file with certificates (PEM) to trust beside those of the system; '' is none.
    """

    def __init__(self, certificate: str = "") -> None:
        self._certificate = certificate
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="passes-on")
        self._servers: dict[str, Connections] = {}
        self._opening = threading.Lock()
        self._asked = 0
        self._closed = False

    async def ask(
        self, address: str, method: str, path: str, body: bytes, headers: dict[str, str], timeout_s: float
    ) -> Reply:
        """Send a call to a process and return the reply; raise if too many calls wait already."""
        if self._asked >= MOST:
            raise unavailable("Too many calls wait for the process that owns the policy.")
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._call, address, method, path, body, headers, timeout_s
            )
        finally:
            self._asked -= 1

    def close(self) -> None:
        """Close all connections and cancel pending calls."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._opening:
            for each in self._servers.values():
                each.abort()

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer, on a connection that is open."""
        return sum(each.waiting for each in list(self._servers.values()))

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._certificate:
            context.load_verify_locations(self._certificate)
        return context

    def _call(
        self, address: str, method: str, path: str, body: bytes, headers: dict[str, str], timeout_s: float
    ) -> Reply:
        """Send a call to a process and return the reply, without a retry: the caller may find another owner."""
        with self._opening:
            if address not in self._servers:
                parts = urlsplit(address)
                context = self._context() if parts.scheme == "https" else None
                self._servers[address] = Connections(parts.hostname or "", parts.port, context)
        try:
            if self._closed:
                raise ConnectionAbortedError
            answer = self._servers[address].ask(method, path, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            raise unavailable(f"The process that owns the policy does not answer ({type(error).__name__}).") from error
        if answer.status >= 400:
            raise problem_of(answer)
        return Reply(answer.status, answer.body)


def problem_of(answer: Answer) -> Problem:
    """Return the problem that a process has replied with."""
    try:
        said = msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.MsgspecError:
        said = {}
    code, detail = str(said.get("code", "failed")), str(said.get("detail", ""))
    return Problem(answer.status, code, detail, retry_after=answer.wait_s)
