"""An HTTP server whose only service is to set an event: for webhooks that are hints to look, and nothing more."""

import threading
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_READ = 1_000_000  # bytes of a request
SLOW_S = 10.0


class WakeUpServer(AbstractContextManager["WakeUpServer"]):
    """Sets `wake` when anything is posted to it. Nothing that is posted is trusted, or even read.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one.

    Raises:
        OSError: If it cannot be listened on.

    >>> import urllib.request
    >>> with WakeUpServer("127.0.0.1", 0) as server:
    ...     with urllib.request.urlopen(server.url, data=b"{}") as response:
    ...         print(response.status, server.wake.is_set())
    204 True
    """

    def __init__(self, host: str, port: int) -> None:
        self.wake = threading.Event()
        wake = self.wake

        class Hint(BaseHTTPRequestHandler):
            """One call of a webhook."""

            timeout = SLOW_S

            def do_POST(self) -> None:
                """Set the event."""
                length = self.headers.get("content-length", "0")
                self.rfile.read(min(int(length) if length.isdigit() else 0, MAX_READ))
                wake.set()
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((host, port), Hint)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
