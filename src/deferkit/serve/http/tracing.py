"""Spans of requests, around the application: only where OpenTelemetry is switched on."""

from typing import TYPE_CHECKING

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from deferkit.serve.telemetry import Telemetry


def traced(app: ASGIApp, telemetry: "Telemetry") -> ASGIApp:
    """Return the application with a span for each request, named by its route: nothing of a caller's is in it.

    Parameters
    ----------
    app
        The application.
    telemetry
        Where spans go.
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
