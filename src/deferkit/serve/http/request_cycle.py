"""One request and its reply on a connection: what the application receives and sends, as ASGI messages.

Uvicorn's own cycle writes the head of a reply and its body to the socket one after the other, checks each header with
two regular expressions, and starts a timer at the end of each. Here a short reply is one write, and the line of a
header that was sent before is taken from a cache.
"""

from functools import lru_cache
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

CHUNKED = b"transfer-encoding: chunked\r\n"
CLOSE = b"connection: close\r\n"
WITHOUT_BODY = (204, 304)


@lru_cache(maxsize=4096)
def header_line(name: bytes, value: bytes) -> bytes:
    r"""Return the line of a header; raise if it would be more than one line.

    >>> header_line(b"Content-Length", b"2")
    b'content-length: 2\r\n'
    >>> header_line(b"location", b"/\r\nset-cookie: a=b")
    Traceback (most recent call last):
    RuntimeError: Invalid HTTP header value.
    """
    if HEADER_RE.search(name):
        raise RuntimeError("Invalid HTTP header name.")
    if HEADER_VALUE_RE.search(value):
        raise RuntimeError("Invalid HTTP header value.")
    return b"%b: %b\r\n" % (name.lower(), value)


class RequestCycle(RequestResponseCycle):
    """A request and its reply, whose head is held back until the first part of its body."""

    head: bytes | None = None  # made, and not written yet

    async def send(self, message: Any) -> None:
        """Send the head of the reply, or a part of its body."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            if message["type"] != "http.response.start":
                raise RuntimeError(f"Expected ASGI message 'http.response.start', but got '{message['type']}'.")
            self.head = self._head(message["status"], message.get("headers", []))
            self.response_started = True
            self.waiting_for_100_continue = False
        elif not self.response_complete:
            if message["type"] != "http.response.body":
                raise RuntimeError(f"Expected ASGI message 'http.response.body', but got '{message['type']}'.")
            self._send_body(message.get("body", b""), bool(message.get("more_body", False)))
        else:
            raise RuntimeError(f"Unexpected ASGI message '{message['type']}' sent, after response already completed.")

    def _head(self, status: int, headers: Any) -> bytes:
        lines = [STATUS_LINE[status], *[header_line(name, value) for name, value in self.default_headers]]
        says_close = False
        for given, value in headers:
            lines.append(header_line(given, value))
            name = given.lower()
            if name == b"content-length" and self.chunked_encoding is None:
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                self.expected_content_length = 0
                self.chunked_encoding = True
            elif name == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                self.keep_alive = False
                says_close = True
        if not self.keep_alive and not says_close:
            lines.append(CLOSE)
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in WITHOUT_BODY:
            self.chunked_encoding = True
            lines.append(CHUNKED)
        lines.append(b"\r\n")
        return b"".join(lines)

    def _send_body(self, body: bytes, more_body: bool) -> None:
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            body = b""
        elif self.chunked_encoding:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more_body else b"0\r\n\r\n")
        elif len(body) > self.expected_content_length:
            raise RuntimeError("Response content longer than Content-Length")
        else:
            self.expected_content_length -= len(body)
        if not more_body and self.expected_content_length != 0:
            raise RuntimeError("Response content shorter than Content-Length")
        written = body if self.head is None else self.head + body
        self.head = None
        if written:
            self.transport.write(written)
        if not more_body:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            cast("Any", self).on_response()
