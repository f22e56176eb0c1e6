"""A process that serves: uvicorn around the application, with time limits and an orderly end."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deferkit.errors import DeferkitError
from deferkit.serve.api.app import application
from deferkit.serve.logs import log_to_stderr, logger
from deferkit.serve.settings import Settings
from deferkit.serve.store import Store
from deferkit.serve.stores import database_of


def timed_protocol(seconds: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol, but with a time limit for the head of a request: uvicorn would wait for ever."""

    class TimedProtocol(HttpToolsProtocol):
        head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.head = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            if self.head is None and (self.cycle is None or self.cycle.response_complete):
                self.head = self.loop.call_later(seconds, self.transport.close)
            super().data_received(data)

        def on_headers_complete(self) -> None:
            self._arrived()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._arrived()
            super().connection_lost(exc)

        def _arrived(self) -> None:
            if self.head is not None:
                self.head.cancel()
                self.head = None

    return TimedProtocol


class Server(uvicorn.Server):
    """Says where it listens as soon as it does."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[str], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._listening(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def check_access(settings: Settings, store: Store) -> bool:
    """Return whether the service is open to everyone; raise if it would be, on an address that others can reach."""
    if any(key.revoked is None for key in store.keys()):  # noqa: SIM118  keys of tenants, not of a dict
        return False
    if not settings.loopback:
        raise DeferkitError(
            f"{settings.host} can be reached from elsewhere, and there are no keys."
            f" Make one first: deferkit keys create --store {settings.store} --tenant NAME"
        )
    return not store.keys()


def serve(settings: Settings, listening: Callable[[str, bool], None]) -> int:
    """Serve until told to stop; return the exit code. `listening` is called with the URL, and whether it is open."""
    log_to_stderr(settings.log_level)
    database = database_of(settings.store)
    database.prepare()
    store = Store(database)
    is_open = check_access(settings, store)
    config = uvicorn.Config(
        application(settings, store),
        host=settings.host,
        port=settings.port,
        loop="auto",
        http=timed_protocol(settings.body_timeout_s),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.stop_s)),
        backlog=2048,
    )

    def say(url: str) -> None:
        logger.info("listening", extra={"url": url, "open": is_open})
        listening(url, is_open)

    server = Server(config, say)
    server.run()
    return 0 if server.started else 3
