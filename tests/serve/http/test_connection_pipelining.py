"""One connection that pipelines requests takes neither memory nor the service from others."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from uvicorn.server import ServerState

from tests.serve.harness.clients import Client, connected, rest_of, until
from tests.serve.harness.in_process import Running, running
from tests.serve.harness.service_process import ServiceProcess

REQUESTS = 200_000
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
MAX_GROWTH_MB = 40
WATCH_S = 8.0


def memory_mb(served: ServiceProcess) -> float:
    """Return the resident memory of a process in MB."""
    lines = Path(f"/proc/{served.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service in a process of its own."""
    with ServiceProcess(tmp_path_factory.mktemp("service"), "--body-timeout-s", "3600") as served:
        yield served


def send_all(bare: socket.socket) -> None:
    """Send all requests, as fast as the service takes them in."""
    try:
        for _ in range(REQUESTS // 1000):
            bare.sendall(HEALTH * 1000)
    except OSError:
        return


def longest_wait_s(url: str, seconds: float) -> float:
    """Return how long another client waits for its slowest answer."""
    other, longest, end = Client(url), 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        assert other.get("/healthz").status == 200
        longest = max(longest, time.monotonic() - began)
    other.connection.close()
    return longest


@pytest.mark.parametrize("reads", [True, False], ids=["replies are read", "replies are not read"])
def test_pipelined_health_checks_do_not_fill_memory(served: ServiceProcess, reads: bool) -> None:
    longest_wait_s(served.url, 0.5)
    before = memory_mb(served)
    read = 0

    def read_replies() -> None:
        nonlocal read
        with suppress(ConnectionResetError):
            while part := bare.recv(65536):
                read += part.count(b"HTTP/1.1 200")

    with closing(connected(served.url)) as bare:
        threads = [threading.Thread(target=send_all, args=(bare,)), threading.Thread(target=read_replies)]
        for thread in threads if reads else threads[:1]:
            thread.start()
        longest = longest_wait_s(served.url, WATCH_S)
        growth = memory_mb(served) - before
        bare.shutdown(socket.SHUT_RDWR)
        for thread in threads if reads else threads[:1]:
            thread.join()
    print(f"growth {growth:.1f} MB, longest wait {longest:.3f} s, replies {read:,}")
    assert growth < MAX_GROWTH_MB, f"{growth:.0f} MB"
    assert longest < 2.0
    assert read > 100 if reads else read == 0


def test_pipelined_requests_are_all_answered(served: ServiceProcess) -> None:
    n = 5000
    with closing(connected(served.url)) as bare:
        sender = threading.Thread(target=bare.sendall, args=(HEALTH * n + LAST,))
        sender.start()
        assert rest_of(bare).count(b"HTTP/1.1 200") == n + 1
        sender.join()


def test_pipelined_bodies_are_all_answered(served: ServiceProcess) -> None:
    body = b'{"name": "' + b"x" * 100_000 + b'"}'
    post = b"POST /v1/policies HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    post += b"content-length: %d\r\n\r\n%b" % (len(body), body)
    with closing(connected(served.url)) as bare:
        sender = threading.Thread(target=bare.sendall, args=(post * 20 + LAST,))
        sender.start()
        answers = rest_of(bare)
        sender.join()
    assert answers.count(b"HTTP/1.1 422") == 20
    assert answers.count(b"HTTP/1.1 200") == 1


def test_a_client_that_never_reads_is_dropped(tmp_path: Path) -> None:
    with running(tmp_path, body_timeout_s=1.0) as service, closing(connected(service.url)) as bare:
        sender = threading.Thread(target=send_all, args=(bare,))
        sender.start()
        until(lambda: service.server.server_state.connections)
        until(lambda: not service.server.server_state.connections, seconds=60)
        sender.join()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Running]:
    """A service for three connections."""
    with running(tmp_path, max_connections=3) as service:
        yield service


def test_connections_beyond_the_limit_get_503(small: Running) -> None:
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(connected(small.url))) for _ in range(3)]
        until(lambda: len(small.server.server_state.connections) == 3)
        with closing(connected(small.url)) as further:
            answer = rest_of(further)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1\r\n" in answer
        assert b"connection: close\r\n" in answer
        kept[0].sendall(HEALTH)
        assert kept[0].recv(65536).startswith(b"HTTP/1.1 200")
    until(lambda: not small.server.server_state.connections)
    assert small.client().get("/healthz").status == 200


def test_idle_connections_make_room_for_new_ones(small: Running) -> None:
    """The one that has waited longest for its next request is closed: keeping connections open locks nobody out."""
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(connected(small.url))) for _ in range(3)]
        for each in kept:
            each.sendall(HEALTH)
            assert each.recv(65536).startswith(b"HTTP/1.1 200")
        ends: dict[Any, Any] = {getattr(each, "client", None): each for each in small.server.server_state.connections}
        for place, each in enumerate(kept):
            end = ends[each.getsockname()]
            end.idle_since = until(partial(getattr, end, "idle_since")) - (10 - place)
        further = stack.enter_context(closing(connected(small.url)))
        further.sendall(HEALTH)
        assert further.recv(65536).startswith(b"HTTP/1.1 200")
        assert rest_of(kept[0]) == b""
        for other in kept[1:]:
            other.sendall(HEALTH)
            assert other.recv(65536).startswith(b"HTTP/1.1 200")


class StubTransport:
    """A transport whose client has not read some bytes."""

    def __init__(self, unread: int) -> None:
        self.unread = unread
        self.ended = ""

    def get_extra_info(self, _: str) -> None:
        """Return nothing: no address, no TLS."""

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.ended)

    def abort(self) -> None:
        self.ended = "abort"

    def close(self) -> None:
        self.ended = "close"


@pytest.mark.parametrize(("unread", "ended"), [(0, "close"), (10, "abort")])
def test_an_idle_connection_whose_client_does_not_read_makes_room_at_once(
    small: Running, unread: int, ended: str
) -> None:
    state, loop = ServerState(), asyncio.new_event_loop()
    made: list[tuple[Any, StubTransport]] = []
    for size in (unread, 0, 0, 0):
        protocol: Any = small.server.config.http_protocol_class
        connection = protocol(config=small.server.config, server_state=state, app_state={}, _loop=loop)
        made.append((connection, StubTransport(size)))
        connection.connection_made(made[-1][1])
        connection.idle_since = float(len(made))
    loop.close()
    assert [transport.ended for _, transport in made] == [ended, "", "", ""]
