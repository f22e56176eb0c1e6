"""A server that answers what it is told to: the ways in which a network fails, one after the other."""

import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

CERTIFICATE = Path(__file__).parent / "localhost.pem"


class Reply(NamedTuple):
    """An answer; status 0 closes the connection without one."""

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    then_close: bool = False  # without saying so


class Pretender(ThreadingHTTPServer):
    """Answers with the replies in order, the last one for ever; keeps what was asked."""

    daemon_threads = True

    def __init__(self, *replies: Reply, secure: bool = False, port: int = 0) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, str, bytes, float]] = []  # method, path, body, when
        self.keys: list[str | None] = []
        self.connections = 0
        self.turn = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)
        if secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if secure else 'http'}://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away is part of the play."""

    def __enter__(self) -> "Pretender":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Pretender

    def setup(self) -> None:
        """Count the connection."""
        super().setup()
        self.server.connections += 1

    def answer(self) -> None:
        """Give the reply whose turn it is."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        server = self.server
        with server.turn:
            server.asked.append((self.command, self.path, body, time.monotonic()))
            server.keys.append(self.headers.get("authorization"))
            reply = server.replies.pop(0) if len(server.replies) > 1 else server.replies[0]
        time.sleep(reply.wait_s)
        self.close_connection = reply.status == 0 or reply.then_close
        if reply.status:
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(reply.body)), **dict(reply.headers)}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""
