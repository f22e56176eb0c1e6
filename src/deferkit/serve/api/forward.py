"""A call for a policy that another process owns is passed on to that process."""

import asyncio
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec
from litestar import Request

from deferkit.serve.api.headers import header
from deferkit.serve.problems import Problem, unavailable
from deferkit.serve.work import Reply

PASSED_ON = b"x-deferkit-passed-on"
TIMEOUT_S = 10.0
# threads of their own: while an owner does not answer, others must still be able to read, and to take over from it
_callers = ThreadPoolExecutor(max_workers=64, thread_name_prefix="passes-on")
_connections = threading.local()


async def forward(request: Request[Any, Any, Any], address: str | None) -> Reply:
    """Return the reply of the owner of a policy. A call is passed on once: who owns it may have changed by then."""
    if not address or header(request.scope, PASSED_ON):
        raise unavailable("Another process owns the policy, or is about to.")
    headers = {"content-type": "application/json", PASSED_ON.decode(): "1"}
    if key := header(request.scope, b"authorization"):
        headers["authorization"] = key.decode("latin-1")
    path = request.scope["raw_path"].decode("ascii")  # no call that is passed on has a query
    body = await request.body()
    patience = min(TIMEOUT_S, request.app.state.engine.settings.owner_lease_s)  # by then it is another's
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_callers, call, address, request.method, path, body, headers, patience)


def call(address: str, method: str, path: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Reply:
    """Return what a process answers. A connection that has gone stale is opened again, once."""
    kept: dict[str, http.client.HTTPConnection] = _connections.__dict__.setdefault("kept", {})
    fresh = address not in kept
    if fresh:
        parts = urlsplit(address)
        kept[address] = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        kept[address].request(method, path, body, headers)
        response = kept[address].getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        kept.pop(address).close()
        if not fresh and not isinstance(error, TimeoutError):
            return call(address, method, path, body, headers, timeout_s)
        raise unavailable(f"The process that owns the policy does not answer ({type(error).__name__}).") from error
    if response.status >= 400:
        raise problem_of(response.status, answer, response.headers.get("Retry-After"))
    return Reply(response.status, answer)


def problem_of(status: int, answer: bytes, retry: str | None) -> Problem:
    """Return the problem that a process has replied with."""
    try:
        said = msgspec.json.decode(answer, type=dict[str, Any])
    except msgspec.MsgspecError:
        said = {}
    wait = float(retry) if retry is not None and retry.isdigit() else None
    return Problem(status, str(said.get("code", "failed")), str(said.get("detail", "")), retry_after=wait)
