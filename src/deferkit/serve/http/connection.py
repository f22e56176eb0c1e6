"""HTTP connections: limits, eviction of idle ones, and the cycle of one request."""

import asyncio
import re
import select
import ssl
from collections import Counter, OrderedDict
from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address
from itertools import islice
from typing import Any, cast
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

CHUNKED = b"transfer-encoding: chunked\r\n"
CLOSE = b"connection: close\r\n"
WITHOUT_BODY = (204, 304)


@lru_cache(maxsize=4096)
def header_line(name: bytes, value: bytes) -> bytes:
    r"""Return the line of a header; raise if it has a line break.

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
    """A request and its reply. The reply's head is delayed until the first part of its body."""

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


MAX_HEAD = 65_536  # bytes of a request line and its headers
UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
CHUNKING = 6  # a body of chunks of one byte each is six times as long as what it carries
NO_STORE = (b"cache-control", b"no-store")
TLS_CLOSE_S = 5.0  # that a client may take to answer the end of TLS
SLICE = 2048  # bytes that are parsed at a time: bounds the pipelined requests that wait parsed, at 3 KB each


class RequestFlow(FlowControl):
    """Flow control that does not resume reading while received bytes are still unparsed."""

    holding = False

    def resume_reading(self) -> None:
        """Resume reading from the socket, unless received bytes wait to be parsed."""
        if not self.holding:
            super().resume_reading()


Queue = OrderedDict["LimitedConnection", None]
NEW_SHARE = 8  # an eighth of the connections may be new before idle ones stay: a first request takes time to arrive
BACKLOG = 2048  # connections that wait to be accepted
MAX_TRIES = 16  # connections that are asked whether bytes of theirs wait to be read


class WaitingConnections:
    """Connections that wait for their clients, each kind in the order of waiting. All others run a request.

    Args:
        most: How many connections there may be.
        most_of_address: How many of one address; 0 for any number.
    """

    def __init__(self, most: int, most_of_address: int = 0) -> None:
        self.most = most
        self.most_of_address = most_of_address
        self.tls: ssl.SSLContext | None = None
        self.new: Queue = OrderedDict()  # owe the rest of a request, and have sent none with a valid key
        self.unread: Queue = OrderedDict()  # do not read their replies, and have sent no request with a valid key
        self.strangers: Queue = OrderedDict()  # are idle, and have sent none with a valid key
        self.partial: Queue = OrderedDict()  # owe the rest of a request
        self.idle: Queue = OrderedDict()
        self.by_address: Counter[bytes] = Counter()

    def make_room(self, connections: Collection[object]) -> bool:
        """Close the connections that are most likely of no use; return False if there are none to close.

        So nobody can keep others from the service by connections that are kept open. After a long turn of the event
        loop hundreds are accepted at once: those whose bytes wait to be read stay for another turn.
        """
        while len(connections) > self.most:
            others = (self.unread, self.strangers, self.partial, self.idle)
            queues = (self.new, *others) if len(self.new) > self.most // NEW_SHARE else (*others, self.new)
            queue = next(filter(None, queues), None)
            if queue is None:
                return False
            for each in list(islice(queue, MAX_TRIES)):
                if queue is self.unread or not each.has_unread() or len(connections) > self.most + BACKLOG:
                    each.give_way()
                    break
                queue.move_to_end(each)
            else:
                return True
        return True


class LimitedConnection(HttpToolsProtocol):
    """Uvicorn's protocol with limits on the arrival time and the size of a request, which uvicorn does not have.

    A look at all connections now and then costs next to nothing; a timer for each request does not. How large a body
    may be the application knows (`deferkit.serve.http.middleware`); here is only the end of all chunks and trailers.

    Pipelined requests: uvicorn parses all that was received, and reads on after each reply, so that its queue of parsed
    requests grows without bound. Here nothing is parsed while a parsed request waits, and nothing is read from the
    socket while received bytes wait to be parsed: at most one read (256 KB) and the requests of one slice are held.

    TLS: the handshake begins here, because asyncio passes on a connection only after it. Connections without a complete
    handshake would be neither counted nor evicted.
    """

    max_body = 1_000_000  # the class that is made for a server has its own
    waiting = WaitingConnections(1000)  # likewise
    flow: RequestFlow
    cycle: RequestCycle
    address = b""  # of the client, if the connections of each are counted
    unparsed = b""
    known = False  # a request had a valid key
    queue: Queue | None = None  # in which it waits for its client; None while it runs a request
    since = 0.0  # when it began to wait
    begun = False  # a request is here in part
    in_body = False
    size = 0  # bytes since the last part of a request was complete
    unread = 0  # bytes of replies that wait for the client
    unread_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request; refuse it if there are too many connections."""
        super().connection_made(transport)
        self.flow = RequestFlow(transport)
        waiting = self.waiting
        if waiting.most_of_address and self.client is not None:
            self.address = ip_address(self.client[0]).packed[:8]  # of IPv6 the network: a client has all of it
            waiting.by_address[self.address] += 1
            if waiting.by_address[self.address] > waiting.most_of_address:
                return self.refuse(
                    503, "unavailable", f"There are {waiting.most_of_address:,} connections of this address."
                )
        if not waiting.make_room(self.connections):
            return self.refuse(503, "unavailable", f"There are {waiting.most:,} connections. Try again.")
        self._wait_in(waiting.new)
        return None if waiting.tls is None else self._begin_tls(waiting.tls)

    def _begin_tls(self, tls: ssl.SSLContext) -> None:
        """Begin the handshake at once. A task would begin after the first bytes were read, which are part of it."""
        steps: Any = self.loop.start_tls(self.transport, self, tls, server_side=True, ssl_shutdown_timeout=TLS_CLOSE_S)
        steps.send(None).add_done_callback(lambda _: self._finish_tls(steps))

    def _finish_tls(self, steps: Any) -> None:
        """Go on with the secure transport, and with what was received since."""
        bare, secure = self.transport, None
        try:
            steps.send(None)
        except StopIteration as done:
            secure = done.value
        except (OSError, RuntimeError, asyncio.CancelledError):
            pass
        if secure is None or bare.is_closing():
            return self.connection_lost(None)
        self.transport, self.flow, self.scheme = secure, RequestFlow(secure), "https"
        self.since = self.loop.time()
        return self._parse()

    def _is_bare(self) -> bool:
        return self.waiting.tls is not None and self.scheme == "http"

    def _wait_in(self, queue: Queue | None) -> None:
        if self.queue is not None:
            del self.queue[self]
        self.queue = None if self.parser is None else queue  # a reply may be complete after the connection is lost
        if self.queue is not None:
            self.queue[self] = None
            self.since = self.loop.time()

    def _is_idle(self) -> bool:
        return self.queue is self.waiting.idle or self.queue is self.waiting.strangers

    def _wait_for_rest(self) -> None:
        """Wait for the rest of a request, which has begun to arrive."""
        if self.queue is None or self._is_idle():
            self._wait_in(self.waiting.partial if self.known else self.waiting.new)

    def _wait_for_next(self) -> None:
        """Wait for the next request. `end_if_slow` looks at it: no timer for each request."""
        self.known = self.known or "caller" in self.cycle.scope
        self._wait_in(self.waiting.idle if self.known else self.waiting.strangers)

    def pause_writing(self) -> None:
        """Note that the client does not read its replies: without a key it would keep its place for nothing."""
        super().pause_writing()
        self.known = self.known or (self.cycle is not None and "caller" in self.cycle.scope)
        if self.queue is None:
            self._run()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        if self.queue is self.waiting.unread:
            self._wait_in(None)

    def _run(self) -> None:
        """Wait for nothing but the reply; for the client, if it does not read what was written before."""
        self._wait_in(self.waiting.unread if self.flow.write_paused and not self.known else None)

    def has_unread(self) -> bool:
        """Whether bytes of the client wait to be read."""
        known = self.transport.get_extra_info("socket")
        if known is None or known.fileno() < 0 or not hasattr(select, "poll"):  # Windows has no such function
            return False
        poll = select.poll()
        poll.register(known, select.POLLIN)
        return bool(poll.poll(0))

    def give_way(self) -> None:
        """Close the connection, so that its place is free at once."""
        self._wait_in(None)
        self.connections.discard(self)  # it is gone only after this turn of the event loop
        if self.waiting.tls is not None or self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # it would stay open until its client has read the reply, or answered the goodbye
        elif self.begun:
            self.refuse(503, "unavailable", f"There are {self.waiting.most:,} connections. Try again.")
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the requests that were not begun."""
        if self.parser is None:  # a handshake that failed is reported twice
            return
        self._wait_in(None)
        if self.address:
            self.waiting.by_address[self.address] -= 1
            if not self.waiting.by_address[self.address]:
                del self.waiting.by_address[self.address]
        for cycle, _ in self.pipeline:
            cycle.on_response = nothing  # else the two refer to each other, and wait for the garbage collector
        self.pipeline.clear()
        self.unparsed = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the rest of a request, if this is the first of it."""
        if self._is_idle():
            self._wait_for_rest()
        self.unparsed += data
        if not self._is_bare():
            self._parse()

    def _parse(self) -> None:
        """Parse the received bytes, as long as no parsed request waits."""
        data, at = self.unparsed, 0
        if not self.in_body and UPGRADE.search(data, 0, MAX_HEAD):
            data = without_upgrade(data)
        while at < len(data) and not self.pipeline and not self.transport.is_closing():
            part = data[at : at + SLICE]
            at += len(part)
            self.size += len(part)
            self._feed(part)
            if self.size > MAX_HEAD and (not self.in_body or self.size > MAX_HEAD + CHUNKING * self.max_body):
                self.refuse(431, "too_large", f"The head of a request has at most {MAX_HEAD:,} bytes.")
        self.unparsed = b"" if self.transport.is_closing() else data[at:]
        self.flow.holding = bool(self.unparsed)
        if self.unparsed:
            self.flow.pause_reading()
        elif not self.pipeline and (self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT):
            self.flow.resume_reading()

    def _feed(self, part: bytes) -> None:
        """Parse a part of the received bytes. Invalid HTTP is not logged, because anyone can send it."""
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserError:
            self.refuse(400, "not_http", "Invalid HTTP request received.")
        except httptools.HttpParserUpgrade:  # one that was not seen in time: it is answered, and closed
            if self.cycle is not None:
                self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        """Note the start of a request."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.begun = True
        if self._is_idle():
            self._wait_for_rest()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; raise if it announces a body that nothing here can read."""
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = self.expect_100_continue or value.lower() == b"100-continue"
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            raise httptools.HttpParserError  # the parser would pass on compressed bytes as if they were the body
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Pass the request to the application, or queue it behind earlier ones; its body follows."""
        version = self.parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        before = self.cycle
        self.cycle = RequestCycle(
            {
                "type": "http",
                "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
                "http_version": version,
                "method": self.parser.get_method().decode("ascii"),
                "scheme": self.scheme,  # type: ignore[typeddict-item]
                "server": self.server,
                "client": self.client,
                "root_path": "",
                "path": unquote(path) if "%" in path else path,
                "raw_path": url.path,
                "query_string": url.query or b"",
                "headers": self.headers,
                "state": self.app_state.copy(),
            },
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        self.in_body = True
        self.size = 0

    def on_response_complete(self) -> None:
        """Begin the next request, or wait for it or for its remaining parts."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return self._wait_for_next()  # until its client has read the reply
        last = not self.pipeline
        self.flow.resume_reading()
        if not last:
            self._start_asgi_task(*self.pipeline.pop())
        if self.begun and (last or (self.in_body and not self.pipeline)):
            self._wait_for_rest()
        elif last:
            self._wait_for_next()
        if self.unparsed:
            self._parse()
        return None

    def on_message_complete(self) -> None:
        """Wait no longer, unless the reply was complete before."""
        super().on_message_complete()
        self.begun = self.in_body = False
        self.size = 0
        if self.cycle.response_complete:
            self._wait_for_next()
        else:
            self._run()

    def end_if_slow(self, now: float, slow_s: float) -> None:
        """End a connection if its request does not arrive or its client does not read the reply."""
        if self._is_idle():
            if self.since < now - self.timeout_keep_alive:
                self.transport.close()
        elif self.queue is self.waiting.unread:
            pass  # see below
        elif self.queue is not None and self.since < now - slow_s:
            self.refuse(408, "too_slow", "The request did not arrive in time.")
        unread = self.transport.get_write_buffer_size()
        if unread != self.unread:
            self.unread, self.unread_since = unread, now
        elif unread and self.unread_since < now - slow_s:
            self.transport.abort()

    def refuse(self, status: int, code: str, detail: str) -> None:
        """Close the connection, with a reply unless one is in progress."""
        if self.transport.is_closing():
            return
        if self._is_bare():
            self.transport.abort()  # what is said before the handshake is complete is noise
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = msgspec.json.encode({"status": status, "code": code, "detail": detail})
            headers = [*self.server_state.default_headers, (b"content-type", b"application/json"), NO_STORE]
            if status == 503:
                headers.append((b"retry-after", b"1"))
            lines = b"".join(b"%b: %b\r\n" % line for line in headers)
            end = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + lines + end + body)
        self.transport.close()


def nothing() -> None:
    """Do nothing."""


def without_upgrade(data: bytes) -> bytes:
    """Return the beginning of a request without the wish to speak another protocol, which may be ignored.

    Some clients ask for HTTP/2 in their first request. The parser would take its body for that other protocol.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    return UPGRADE.sub(b"\r\nignored:", head) + end + body
