"""Careless and malicious clients on bare sockets: they hold neither memory nor a place for long."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from deferkit.serve.http.connection import LimitedConnection
from tests.serve.harness.clients import TIMEOUT_S, connected, rest_of, until
from tests.serve.harness.in_process import POLICY, Running, running

MAX_BODY = 100_000
SLOW_S = 1.0
HEAD = b"POST /v1/policies/p/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that waits longer than any test lasts."""
    with running(tmp_path_factory.mktemp("service"), max_body=MAX_BODY, body_timeout_s=600) as service:
        assert service.client().post("/v1/policies", POLICY).status == 201
        yield service


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service for those who are slow."""
    with running(tmp_path_factory.mktemp("impatient"), max_body=MAX_BODY, body_timeout_s=SLOW_S) as service:
        yield service


def bare_to(service: Running) -> Iterator[socket.socket]:
    """A bare connection; the service is well afterwards."""
    with closing(connected(service.url)) as bare:
        yield bare
    until(lambda: not service.server.server_state.tasks)
    assert service.client().get("/readyz").status == 200


@pytest.fixture
def bare(service: Running) -> Iterator[socket.socket]:
    yield from bare_to(service)


@pytest.fixture
def slow(impatient: Running) -> Iterator[socket.socket]:
    """A bare connection that is not waited for."""
    yield from bare_to(impatient)


def other_end(service: Running, bare: socket.socket) -> LimitedConnection:
    """Return what the service has of a connection."""
    mine = bare.getsockname()

    def end() -> Any:
        ends = list(service.server.server_state.connections)
        return next((each for each in ends if getattr(each, "client", None) == mine), None)

    found = until(end)
    assert isinstance(found, LimitedConnection)
    return found


def refusal(answer: bytes) -> tuple[int, str]:
    """Return the status and the code of a refusal after which the connection is closed."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head
    assert b"\r\ncontent-type: application/json" in head
    assert b"\r\nx-content-type-options: nosniff" in head
    return int(head.split()[1]), json.loads(body)["code"]


def push(bare: socket.socket, part: bytes, most: int) -> int:
    """Send a part again and again until the other side has had enough; return how much that was."""
    bare.settimeout(5)
    sent = 0
    try:
        while sent < most:
            bare.sendall(part)
            sent += len(part)
    except OSError:
        pass
    return sent


def trickle(bare: socket.socket, part: bytes) -> None:
    """Send a part ten times a second until the other side closes; it must, some day."""
    end = time.monotonic() + TIMEOUT_S
    bare.settimeout(0.1)
    while time.monotonic() < end:
        try:
            bare.sendall(part)
            if not bare.recv(1000):
                return
        except TimeoutError:
            continue
        except OSError:
            return
    pytest.fail("the connection stays open")


def test_ten_megabytes_are_refused_before_they_are_sent(bare: socket.socket) -> None:
    bare.sendall(HEAD + b"content-length: 10000000\r\n\r\n")
    assert refusal(rest_of(bare)) == (413, "too_large")


def test_who_asks_first_is_not_told_to_go_on(bare: socket.socket) -> None:
    bare.sendall(HEAD + b"content-length: 10000000\r\nexpect: 100-continue\r\n\r\n")
    assert refusal(rest_of(bare)) == (413, "too_large")


def test_who_asks_first_may_send_what_is_not_too_large(bare: socket.socket) -> None:
    body = b'{"task": "asked first", "context": [1, 1], "force": "model"}'
    bare.sendall(HEAD + b"expect: 100-continue\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
    assert bare.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    bare.sendall(body)
    assert rest_of(bare).startswith(b"HTTP/1.1 201")


def test_ten_megabytes_are_not_taken_in(bare: socket.socket) -> None:
    bare.sendall(HEAD + b"content-length: 100000000\r\n\r\n")
    assert push(bare, b" " * 65536, 100_000_000) < 20_000_000  # what the system's own buffers hold


def test_chunks_without_a_length_end_at_the_limit(bare: socket.socket) -> None:
    bare.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    for _ in range(MAX_BODY // 10_000 + 1):
        bare.sendall(chunk)
    assert refusal(rest_of(bare)) == (413, "too_large")


def test_chunks_are_a_body_like_any_other(bare: socket.socket) -> None:
    body = json.dumps({"task": "chunks", "context": [1, 1], "force": "model"}).encode()
    bare.sendall(HEAD + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n")
    bare.sendall(b"".join(b"1\r\n%c\r\n" % each for each in body) + b"0\r\n\r\n")
    assert rest_of(bare).startswith(b"HTTP/1.1 201")


def test_a_slow_body_gets_408(slow: socket.socket) -> None:
    slow.sendall(HEAD + b"content-length: 100\r\n\r\n{")
    assert refusal(rest_of(slow)) == (408, "too_slow")


def test_a_body_that_trickles_is_slow_too(slow: socket.socket) -> None:
    slow.sendall(HEAD + b"content-length: 1000\r\n\r\n")
    trickle(slow, b" ")


@pytest.mark.parametrize("head", [b"", b"POST ", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: "])
def test_a_slow_head_is_closed(slow: socket.socket, head: bytes) -> None:
    slow.sendall(head)
    assert refusal(rest_of(slow)) == (408, "too_slow")


def test_a_head_that_trickles_is_slow_too(slow: socket.socket) -> None:
    slow.sendall(b"GET /healthz HTTP/1.1\r\nx-slow: ")
    trickle(slow, b"x")


def test_empty_lines_do_not_hold_a_connection(slow: socket.socket) -> None:
    slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert slow.recv(65536).startswith(b"HTTP/1.1 200")
    trickle(slow, b"\r\n")


def test_the_body_of_a_request_that_is_answered_does_not_hold_a_connection(slow: socket.socket) -> None:
    slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90000\r\n\r\n")
    assert slow.recv(65536).startswith(b"HTTP/1.1 200")
    trickle(slow, b"x")


@pytest.mark.parametrize("half", [b"GET /heal", HEAD, HEAD + b"content-length: 100\r\n\r\n{"])
@pytest.mark.parametrize("requests", [1, 2])
def test_half_a_request_that_comes_along_with_a_whole_one_is_slow_too(
    slow: socket.socket, half: bytes, requests: int
) -> None:
    slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * requests + half)
    answers = rest_of(slow)
    assert answers.count(b"HTTP/1.1 200") == requests
    assert refusal(answers[answers.index(b"HTTP/1.1 408") :]) == (408, "too_slow")


def test_half_a_request_that_comes_along_with_the_end_of_a_body_is_slow_too(slow: socket.socket) -> None:
    slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n")
    assert slow.recv(65536).startswith(b"HTTP/1.1 200")
    slow.sendall(b"0123456789GET /heal")
    assert refusal(rest_of(slow)) == (408, "too_slow")


def test_an_endless_head_is_refused(bare: socket.socket) -> None:
    assert push(bare, b"GET /healthz HTTP/1.1\r\n" + b"x-long: " + b"x" * 65536, 100_000_000) < 20_000_000


def test_a_head_that_is_too_large_is_told_so(bare: socket.socket) -> None:
    bare.sendall(b"GET /healthz HTTP/1.1\r\n")
    for _ in range(7):
        bare.sendall(b"x: " + b"x" * 10_000 + b"\r\n")
        time.sleep(0.01)
    assert refusal(rest_of(bare)) == (431, "too_large")


def test_endless_trailers_are_refused(bare: socket.socket) -> None:
    bare.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n \r\n0\r\n")
    assert push(bare, b"x: " + b"x" * 65536 + b"\r\n", 100_000_000) < 20_000_000


def test_who_does_not_read_is_dropped(impatient: Running, slow: socket.socket) -> None:
    mine = slow.getsockname()
    page = b"GET /v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    slow.sendall(page * 300)
    until(lambda: mine not in {getattr(each, "client", None) for each in impatient.server.server_state.connections})


BROKEN = {
    "not HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50,
    "another method": b"HACK / HTTP/1.1\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a length and chunks": HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n12345",
    "a negative length": HEAD + b"content-length: -5\r\n\r\n",
    "a length that is no number": HEAD + b"content-length: five\r\n\r\n",
    "an endless length": HEAD + b"content-length: " + b"9" * 5000 + b"\r\n\r\n",
    "a chunk of an endless length": HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n",
    "a coding besides chunked": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a header with NUL": b"GET /healthz HTTP/1.1\r\nx: a\0b\r\n\r\n",
    "a header with a bare newline": b"GET /healthz HTTP/1.1\r\nx: a\ny\r\n\r\n",
    "a folded header": b"GET /healthz HTTP/1.1\r\nx: a\r\n b\r\n\r\n",
    "a space before the colon": b"GET /healthz HTTP/1.1\r\ncontent-length : 5\r\n\r\n12345",
    "a path that is not ASCII": b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
def test_what_is_not_http_is_refused(bare: socket.socket, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    bare.sendall(sent)
    assert refusal(rest_of(bare)) == (400, "not_http")
    assert not caplog.records  # anyone can send many


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_an_upgrade_is_not_taken_up(service: Running, bare: socket.socket, protocol: bytes) -> None:
    """The request is answered as it is, with its body, and so is the next one."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + b"\r\nHTTP2-Settings: AAEAAEAA\r\n"
    body = json.dumps({"task": f"up to {protocol.decode()}", "context": [1, 1], "payload": "\r\nupgrade: x"}).encode()
    bare.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + wish + b"\r\n")
    assert bare.recv(65536).startswith(b"HTTP/1.1 200")
    for at_once in (True, False):
        head = HEAD + wish + b"content-length: %d\r\n\r\n" % len(body)
        bare.sendall(head + body if at_once else head)
        if not at_once:
            until(lambda: other_end(service, bare).in_body)
            bare.sendall(body)
        assert b"HTTP/1.1 201" in bare.recv(65536)


def test_an_upgrade_that_comes_in_pieces_ends_the_connection(service: Running, bare: socket.socket) -> None:
    bare.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupg")
    until(lambda: other_end(service, bare).size)
    bare.sendall(b"rade: h2c\r\n\r\n")
    assert rest_of(bare).startswith(b"HTTP/1.1 200")


def test_requests_one_behind_the_other_are_answered_in_order(bare: socket.socket) -> None:
    bodies = [json.dumps({"task": f"pipe {n}", "context": [1, n], "force": "model"}).encode() for n in range(20)]
    bare.sendall(b"".join(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies))
    bare.sendall(b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")
    answers = rest_of(bare).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"201"] * 20 + [b"200"]
    assert [b'"task":"pipe %d"' % n in answer for n, answer in enumerate(answers[:20])] == [True] * 20


def test_who_goes_away_leaves_the_decision(service: Running) -> None:
    body = json.dumps({"task": "gone", "context": [1, 1], "force": "model"}).encode()
    with closing(connected(service.url)) as bare:
        bare.sendall(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes with a reset
    client = service.client()
    until(lambda: client.get("/v1/policies/p/decisions?task=gone").status == 200)


def test_an_idle_connection_is_closed_after_a_while(service: Running, bare: socket.socket) -> None:
    """No timer for each reply: the look at all connections ends it, and not before its time."""
    bare.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert bare.recv(65_536).startswith(b"HTTP/1.1 200 OK")  # head and body are one write
    end = other_end(service, bare)
    began = until(lambda: end._is_idle() and end.since)
    end.end_if_slow(began + end.timeout_keep_alive - 0.1, 600)
    assert not end.transport.is_closing()
    end.timeout_keep_alive = 0
    assert rest_of(bare) == b""


def test_a_body_that_comes_after_its_reply_leaves_an_idle_connection(service: Running, bare: socket.socket) -> None:
    """It neither held its place for ever nor was it closed."""
    bare.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\n")
    assert bare.recv(65_536).startswith(b"HTTP/1.1 200 OK")
    end = other_end(service, bare)
    bare.sendall(b"late")
    until(end._is_idle)
    end.end_if_slow(end.since + end.timeout_keep_alive - 0.1, 0)
    assert not end.transport.is_closing()
    end.timeout_keep_alive = 0
    assert rest_of(bare) == b""


def test_a_request_that_takes_long_is_not_idle(service: Running, bare: socket.socket) -> None:
    bare.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert bare.recv(65_536).startswith(b"HTTP/1.1 200 OK")
    end = other_end(service, bare)
    until(end._is_idle)
    bare.sendall(HEAD + b"content-length: 2\r\n\r\n{")
    until(lambda: not end._is_idle())
    end.timeout_keep_alive = 0
    bare.sendall(b"}")
    assert bare.recv(65_536).startswith(b"HTTP/1.1 422 ")
