"""A receiver of webhooks over a real socket: it checks every signature by itself, and knows events by their ids."""

import hashlib
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


def hmac_sha256(key: bytes, message: bytes) -> str:
    """Return an HMAC as RFC 2104 defines it, without the library that the service uses.

    >>> hmac_sha256(b"Jefe", b"what do ya want for nothing?")[:16]  # RFC 4231, test case 2
    '5bdcc146bf60754e'
    """
    key = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in key) + inner).hexdigest()


class Received(NamedTuple):
    """A call of a webhook."""

    id: str
    headers: dict[str, str]
    body: bytes
    path: str

    @property
    def event(self) -> Any:
        """The event as plain data."""
        return json.loads(self.body)

    def is_signed(self, secret: str) -> bool:
        """Whether it is signed with a secret, just now."""
        at, _, signature = self.headers["deferkit-signature"].partition(",v1=")
        at = at.removeprefix("t=")
        recent = abs(time.time() - int(at)) < 60
        return recent and signature == hmac_sha256(secret.encode(), f"{at}.".encode() + self.body)


class Receiver(ThreadingHTTPServer):
    """Takes calls; the first ones are answered with `statuses`, all others with 204. While it is closed, none is."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *statuses: int, port: int = 0, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.statuses = list(statuses)
        self.headers = headers
        self.calls: list[Received] = []
        self.open = threading.Event()
        self.open.set()
        self.at_once = 0  # calls that are being answered
        self.most_at_once = 0
        self.turn = threading.Lock()
        super().__init__(("127.0.0.1", port), ReceiverHandler)
        self.port: int = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?a=1"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def events(self, kind: str | None = None) -> list[Any]:
        """Return the events that have come so far, of one kind if that is given: each once."""
        found = {call.id: call.event for call in list(self.calls)}
        return [event for event in found.values() if kind in (None, event["event"])]

    def times(self) -> Counter[str]:
        """Return how often each event has come."""
        return Counter(call.id for call in list(self.calls))

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a service that is killed is part of the play."""

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class ReceiverHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        """Take a call."""
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the service was killed while it sent this: no call of a webhook
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        server = self.server
        with server.turn:
            server.calls.append(Received(headers.get("deferkit-event", ""), headers, body, self.path))
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            status = server.statuses.pop(0) if server.statuses else 204
        server.open.wait(60)
        with server.turn:
            server.at_once -= 1
        self.send_response(status)
        for name, value in server.headers:
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
