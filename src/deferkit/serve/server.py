"""A process that serves: uvicorn around the application, with time limits and an orderly end."""

import asyncio
import gc
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deferkit.errors import DeferkitError
from deferkit.serve.api.app import application
from deferkit.serve.logs import log_to_stderr, logger
from deferkit.serve.settings import Settings
from deferkit.serve.store import Store
from deferkit.serve.stores import database_of


class TimedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, that knows since when a request is on its way: uvicorn would wait for ever.

    A look at all connections now and then costs next to nothing; a timer for each request does not.
    """

    since: float | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the rest of a request, if this is the first of it."""
        if self.since is None and (self.cycle is None or self.cycle.response_complete):
            self.since = self.loop.time()
        super().data_received(data)

    def on_message_complete(self) -> None:
        """Wait no longer."""
        self.since = None
        super().on_message_complete()

    def end_if_slow(self, before: float) -> None:
        """End a connection whose request was begun before this time and has not arrived."""
        if self.since is not None and self.since < before and not self.transport.is_closing():
            if self.cycle is None or not self.cycle.response_started:
                self.transport.write(TOO_SLOW)
            self.transport.close()


TOO_SLOW_BODY = b'{"status":408,"code":"too_slow","detail":"The request did not arrive in time."}'
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(TOO_SLOW_BODY), TOO_SLOW_BODY)
)


class Server(uvicorn.Server):
    """Says where it listens as soon as it does."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[str], None], slow_s: float) -> None:
        super().__init__(config)
        self._listening = listening
        self._slow_s = slow_s

    async def on_tick(self, counter: int) -> bool:
        """Do what uvicorn does ten times a second, and end what is too slow."""
        before = asyncio.get_running_loop().time() - self._slow_s
        for connection in list(self.server_state.connections):
            if isinstance(connection, TimedProtocol):
                connection.end_if_slow(before)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order; uvicorn would raise the signal again afterwards, and the process would seem to have failed."""
        super().handle_exit(sig, frame)
        self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        # What is there by now stays: the collector of cycles need not look at compilers and libraries again and again.
        gc.collect()
        gc.freeze()
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
    database.occupy()  # first: nothing is brought up to date under a process that serves
    database.prepare()
    store = Store(database)
    is_open = check_access(settings, store)
    config = uvicorn.Config(
        application(settings, store),
        host=settings.host,
        port=settings.port,
        loop="auto",
        http=TimedProtocol,
        ws="none",
        proxy_headers=False,
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

    server = Server(config, say, settings.body_timeout_s)
    server.run()
    return 0 if server.started else 3
