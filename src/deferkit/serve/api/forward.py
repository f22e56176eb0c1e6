"""A call for a policy that another process owns is passed on to that process."""

import asyncio
import http.client
import threading
from typing import Any
from urllib.parse import urlsplit

import msgspec
from litestar import Request

from deferkit.serve.problems import Problem, unavailable
from deferkit.serve.work import Reply

PASSED_ON = "x-deferkit-passed-on"
TIMEOUT_S = 10.0
_connections = threading.local()


async def forward(request: Request[Any, Any, Any], address: str | None) -> Reply:
    """Return the reply of the owner of a policy. A call is passed on once: who owns it may have changed by then."""
    if not address or request.headers.get(PASSED_ON):
        raise unavailable("Another process owns the policy, or is about to.")
    headers = {"content-type": "application/json", PASSED_ON: "1"}
    if (key := request.headers.get("authorization")) is not None:
        headers["authorization"] = key
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    body = await request.body()
    return await asyncio.to_thread(call, address, request.method, path, body, headers)


def call(address: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    """Return what a process answers. A connection that has gone stale is opened again, once."""
    kept: dict[str, http.client.HTTPConnection] = _connections.__dict__.setdefault("kept", {})
    fresh = address not in kept
    if fresh:
        parts = urlsplit(address)
        kept[address] = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        kept[address].request(method, path, body, headers)
        response = kept[address].getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        kept.pop(address).close()
        if not fresh:
            return call(address, method, path, body, headers)
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
