"""Server process: uvicorn with limits and a graceful shutdown."""

import asyncio
import errno
import gc
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from deferkit.errors import DeferkitError
from deferkit.serve.http.application import application
from deferkit.serve.http.connection import BACKLOG, LimitedConnection, WaitingConnections
from deferkit.serve.service_settings import ServiceSettings
from deferkit.serve.storage.open_store import database_of, redact_store
from deferkit.serve.storage.store import Store
from deferkit.serve.structured_logs import log_to_stderr, logger, release

if TYPE_CHECKING:
    from deferkit.serve.telemetry import Telemetry

# on every response, also those that uvicorn gives by itself: a reply is what it says it is
HEADERS = [("x-content-type-options", "nosniff")]
OTHER_FILES = 512  # of databases, of calls that are passed on, and connections that are being refused


class Server(uvicorn.Server):
    """Serves an application; reports its URL as soon as it listens, and the error if it cannot start."""

    def __init__(
        self,
        settings: ServiceSettings,
        store: Store,
        listening: Callable[[str], None],
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self.failure: Exception | None = None
        self._listening = listening
        self._slow_s = settings.body_timeout_s
        self._waiting = WaitingConnections(settings.max_connections, settings.max_connections_per_address)
        super().__init__(
            uvicorn.Config(
                application(settings, store, failed=self._keep_failure, telemetry=telemetry),
                host=settings.host,
                port=settings.port,
                loop="auto",
                http=type(
                    "Connection", (LimitedConnection,), {"max_body": settings.max_body, "waiting": self._waiting}
                ),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # nothing here asks where a call came from
                headers=HEADERS,
                ssl_certfile=settings.tls_cert or None,
                ssl_keyfile=settings.tls_key or None,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=max(1, round(settings.stop_s)),
                backlog=BACKLOG,
            )
        )

    def _keep_failure(self, error: Exception) -> None:
        self.failure = error

    async def on_tick(self, counter: int) -> bool:
        """Run uvicorn's periodic step (ten times a second), and end slow connections."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, LimitedConnection):
                connection.end_if_slow(now, self._slow_s)
        self._waiting.make_room(self.server_state.connections)
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report it."""
        # connections begin TLS themselves
        self._waiting.tls, self.config.ssl = self.config.ssl, None
        await super().startup(sockets)
        # What is there by now stays: the collector of cycles need not look at compilers and libraries again and again.
        # Requests leave no cycles behind, so that young objects need not be looked at after every few of them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        # a thread that fits trees lets the event loop go on after half a millisecond of Python, not after five
        sys.setswitchinterval(0.0005)

        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._listening(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully. uvicorn would raise the signal again at the end, as after a failure."""
        super().handle_exit(sig, frame)
        self._captured_signals.clear()


def check_access(settings: ServiceSettings, store: Store) -> bool:
    """Return whether the service needs no key; raise if it needs none on an address that others can reach."""
    if any(key.revoked is None for key in store.keys()):  # noqa: SIM118  keys of tenants, not of a dict
        return False
    if not settings.loopback:
        raise DeferkitError(
            f"{settings.host} can be reached from elsewhere, and there are no keys."
            f" Make one first: deferkit keys create --store {redact_store(settings.store)} --tenant NAME"
        )
    return not store.keys()


def warn_without_address(settings: ServiceSettings) -> None:
    """Log a warning if the database is shared but other processes cannot reach this one."""
    if not settings.address:
        logger.warning(
            "without --address, other processes on this database answer 503 to calls for the policies of this one"
        )


def check_address(host: str, port: int) -> None:
    """Raise if an address cannot be listened on."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise DeferkitError(f"There is no address {host!r} to listen on.") from None
    errors = [error for family, _, _, _, address in found if (error := bind_error(family, address)) is not None]
    taken = [error for error in errors if error.errno in (errno.EADDRINUSE, errno.EACCES)]
    if taken or len(errors) == len(found):
        reason = (taken or errors)[0]
        way_out = " Another port, or any that is free: --port 0." if reason.errno == errno.EADDRINUSE else ""
        raise DeferkitError(f"{host}:{port} cannot be listened on: {reason.strerror}.{way_out}")


def check_certificate(certificate: str, key: str) -> None:
    """Raise if a certificate cannot be served, because a file is missing or the two do not belong together."""
    if not certificate:
        raise DeferkitError("A private key (--tls-key) needs its certificate: --tls-cert.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise DeferkitError(f"The certificate {certificate} cannot be used: {why}.") from error


def bind_error(family: int, address: Any) -> OSError | None:
    """Return the error of binding a socket to an address; None if it can be bound."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def allow_open_files(wanted: int) -> None:
    """Raise the limit of open files as far as the system allows; beyond it, connections cannot even be refused."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415  Windows has no such module, and no such limit

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def telemetry_of(settings: ServiceSettings) -> "Telemetry | None":
    """Return the exporter of spans and metrics, None if disabled; raise if its extra is missing."""
    if not settings.otel:
        return None
    from deferkit.serve.telemetry import Telemetry  # noqa: PLC0415  needs the extra, and takes its time

    return Telemetry.from_environment()


def serve(settings: ServiceSettings, listening: Callable[[str, bool], None]) -> int:
    """Serve until stopped; return the exit code. `listening` is called with the URL, and whether it needs no keys."""
    log_to_stderr(settings.log_level)
    try:
        return serve_logged(settings, listening)
    finally:
        release()


def serve_logged(settings: ServiceSettings, listening: Callable[[str, bool], None]) -> int:
    """Serve, with a log that is held back until the address is printed."""
    allow_open_files(settings.max_connections + 2 * BACKLOG + OTHER_FILES)
    telemetry = telemetry_of(settings)
    database = database_of(settings.store)
    if settings.tls_cert or settings.tls_key:
        check_certificate(settings.tls_cert, settings.tls_key)
    check_address(settings.host, settings.port)  # nothing is made where nothing can be served
    database.occupy()  # first: nothing is brought up to date under a process that serves
    database.prepare()
    store = Store(database)
    is_open = check_access(settings, store)
    if database.shared:
        warn_without_address(settings)

    def say(url: str) -> None:
        listening(url, is_open)
        release()
        logger.info("listening", extra={"url": url, "open": is_open})

    server = Server(settings, store, say, telemetry)
    try:
        server.run()
    except SystemExit as error:
        reason = server.failure or f"{settings.host}:{settings.port} cannot be listened on."
        raise DeferkitError(str(reason)) from error
    return 0
