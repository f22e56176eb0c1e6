"""ASGI middleware: request size limit, request counters and tracing (timeouts: server.py)."""

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from deferkit.serve.domain.api_keys import Caller
from deferkit.serve.domain.problems import Problem
from deferkit.serve.http.connection import NO_STORE
from deferkit.serve.structured_logs import access_logger

if TYPE_CHECKING:
    from deferkit.serve.telemetry import Telemetry


BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Traffic:
    """What has gone through."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, path and status
        self.durations = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. The path is that of the route, so that metrics contain no input of callers."""
        self.requests[method, path, status] += 1
        self.durations[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


STOPS = b'{"status":503,"code":"unavailable","detail":"The service stops. Try again."}'


def too_large(max_body: int) -> Problem:
    """Return the problem that a request is too large."""
    return Problem(413, "too_large", f"A request has at most {max_body:,} bytes.")


def limit_body(receive: Receive, declared: int, max_body: int) -> Receive:
    """Wrap a receive function so that it raises as soon as the body, or its declared size, is too large."""
    size = 0

    async def receive_within() -> Any:
        nonlocal size
        if declared > max_body:
            raise too_large(max_body)
        message = await receive()
        size += len(message["body"]) if message["type"] == "http.request" else 0
        if size > max_body:
            raise too_large(max_body)
        return message

    return receive_within


def log_access(scope: HTTPScope, path: str, status: int, seconds: float) -> None:
    """Log a request by its route, without anything that a caller has sent."""
    caller: Caller | None = scope.get("caller")  # type: ignore[assignment]
    access_logger.info(
        "request",
        extra={
            "method": scope["method"],
            "path": path,
            "status": status,
            "ms": round(1000 * seconds, 3),
            "tenant": caller and caller.tenant,
            "key": caller and caller.key,
        },
    )


def limit_requests(app: ASGIApp, *, max_body: int, traffic: Traffic, access_log: bool = False) -> ASGIApp:
    """Return the application behind a limit: a body that is too large is refused before it is read."""

    async def within_limits(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        began = time.monotonic()
        length = None
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
                break
        if length is None or not length.isdigit() or int(length) > max_body:  # the server holds others to their word
            declared = 0 if length is None else int(length) if length.isdigit() else max_body + 1
            receive = limit_body(receive, declared, max_body)
        status = 0

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                if NO_STORE not in headers and not any(name == NO_STORE[0] for name, _ in headers):
                    message = {**message, "headers": [*headers, NO_STORE]}  # not cacheable unless the handler says so
                if status == 413:  # the rest of the body is not read, so the connection is of no more use
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        try:
            await app(scope, receive, send_counted)
        except asyncio.CancelledError:
            # the service stops, and has waited long enough; what the engine has taken in it still finishes
            if not status:
                headers = [(b"content-type", b"application/json"), (b"retry-after", b"1"), (b"connection", b"close")]
                await send_counted({"type": "http.response.start", "status": 503, "headers": headers})
                await send_counted({"type": "http.response.body", "body": STOPS, "more_body": False})
        finally:
            path = scope.get("path_template") or "unknown"
            seconds = time.monotonic() - began
            traffic.count(scope["method"], path, status or 500, seconds)
            if access_log:
                log_access(scope, path, status or 500, seconds)

    return within_limits


def trace_requests(app: ASGIApp, telemetry: "Telemetry") -> ASGIApp:
    """Return the application with a span for each request, named by its route: nothing of a caller's is in it.

    Args:
        app: The application.
        telemetry: Where spans go.
    """

    async def within_span(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        status = 500

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with telemetry.request(scope) as span:
            try:
                await app(scope, receive, send_noted)
            finally:
                route = scope.get("path_template") or "unknown"
                telemetry.describe_request(span, scope["method"], route, status)

    return within_span
