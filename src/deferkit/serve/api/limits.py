"""What stands before the application: sizes, times and counts of requests."""

import asyncio
import time
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from deferkit.serve.problems import Problem
from deferkit.serve.traffic import Traffic


def limited(app: ASGIApp, *, max_body: int, timeout_s: float, traffic: Traffic) -> ASGIApp:
    """Return the application behind limits: a body that is too large or too slow is not waited for."""

    async def within_limits(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        began = time.monotonic()
        deadline = began + timeout_s
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        too_large = not declared.isdigit() or int(declared) > max_body
        size = 0
        more = True
        status = 500

        async def receive_within() -> Any:
            nonlocal size, more
            if too_large:
                raise Problem(413, "too_large", f"A request has at most {max_body:,} bytes.")
            if not more:
                return await receive()
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, "too_slow", f"The request did not arrive within {timeout_s:g} seconds.") from None
            if message["type"] == "http.request":
                more = message.get("more_body", False)
                size += len(message.get("body", b""))
                if size > max_body:
                    raise Problem(413, "too_large", f"A request has at most {max_body:,} bytes.")
            return message

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status in (408, 413):  # the rest of the body is not read, so the connection is of no more use
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        try:
            await app(scope, receive_within, send_counted)
        finally:
            path = str(scope.get("path_template") or "unknown")
            traffic.count(str(scope.get("method")), path, status, time.monotonic() - began)

    return within_limits
