"""One connection that pipelines requests takes neither memory nor the service from others."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from deferkit.serve.http.connection import LimitedConnection, WaitingConnections
from tests.serve.harness.clients import Client, connected, rest_of, until
from tests.serve.harness.in_process import POLICY, Running, running
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


def test_connections_beyond_the_limit_get_503_if_all_run_a_request(small: Running) -> None:
    client = small.client()
    assert client.post("/v1/policies", POLICY).status == 201
    client.connection.close()
    with ThreadPoolExecutor(3) as threads, small.held_up() as gate:
        calls = [threads.submit(small.client().decide, f"t{n}", force="model") for n in range(3)]
        until(lambda: len(small.server.server_state.tasks) == 3)
        gate.reached.wait()
        for _ in range(3):
            with closing(connected(small.url)) as further:
                answer = rest_of(further)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 1\r\n" in answer
            assert b"connection: close\r\n" in answer
        gate.open.set()
        assert [call.result().status for call in calls] == [201, 201, 201]
    assert small.client().get("/healthz").status == 200


def ask(bare: socket.socket, sent: bytes = HEALTH) -> None:
    """Have a request answered."""
    bare.sendall(sent)
    assert bare.recv(65536).startswith(b"HTTP/1.1 200")


def test_connections_give_way_in_the_order_of_their_worth(tmp_path: Path) -> None:
    """Silent ones first, the oldest first; then idle ones without a key, begun requests, idle ones."""
    with running(tmp_path, max_connections=6, tenants=True) as service, ExitStack() as stack:
        listing = b"GET /v1/policies HTTP/1.1\r\nhost: a\r\nauthorization: Bearer %b\r\n\r\n"
        known = listing % service.key("acme").encode()

        def connection() -> socket.socket:
            """Another connection, which the service knows of."""
            made = stack.enter_context(closing(connected(service.url)))
            mine = made.getsockname()
            until(lambda: mine in {getattr(each, "client", None) for each in service.server.server_state.connections})
            return made

        until(lambda: not service.server.server_state.connections)
        idle = [connection(), connection()]
        for each in idle:
            ask(each, known)
        begun, stranger = connection(), connection()
        ask(begun, known)
        begun.sendall(b"GET /healthz HTTP/1.1\r\nx-slow: ")
        ask(stranger)
        silent = [connection(), connection()]
        silent[1].sendall(b"GET /heal")
        until(lambda: len(service.server._waiting.partial) == 1)
        gone = []
        for each in (silent[0], silent[1], stranger, begun, *idle):
            ask(connection(), known)
            gone.append(rest_of(each))
        assert [answer[:12] for answer in gone] == [b"", b"HTTP/1.1 503", b"", b"HTTP/1.1 503", b"", b""]


def test_bytes_that_wait_to_be_read_keep_their_connection() -> None:
    """After a long turn of the event loop hundreds are accepted at once: nobody else makes room for them either."""
    waiting, state = WaitingConnections(2), ServerState()
    idle, first = stub(waiting, 0, state), stub(waiting, 0, state)
    idle._wait_in(waiting.idle)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(socket.create_connection(server.getsockname())) as bare,
        closing(server.accept()[0]) as end,
    ):
        first.transport.socket = end
        bare.sendall(b"GET")
        until(first.has_unread)
        second, third = stub(waiting, 0, state), stub(waiting, 0, state)
        made = (idle, first, second, third)
        assert [each.transport.ended for each in made] == ["", "", "close", ""]
        end.recv(3)
        assert waiting.make_room(state.connections)
    assert [each.transport.ended for each in made] == ["", "close", "close", ""]


def test_an_eighth_of_the_connections_is_for_new_ones() -> None:
    """Or, among idle ones, each new one would evict the one before it, in the middle of its handshake."""
    waiting, state = WaitingConnections(16), ServerState()
    made = [stub(waiting, 0, state) for _ in range(16)]
    for each in made[:14]:
        each._wait_in(waiting.idle)
    made.append(stub(waiting, 0, state))
    assert [each.transport.ended for each in made] == ["close", *[""] * 16]
    made.append(stub(waiting, 0, state))
    assert [each.transport.ended for each in made] == ["close", *[""] * 13, "close", "", "", ""]


def test_a_reply_that_is_complete_after_its_connection_is_lost_leaves_nothing_behind() -> None:
    """Of pipelined requests the one that runs may end after the connection."""
    waiting = WaitingConnections(2)
    lost = stub(waiting)
    lost.connection_lost(None)
    lost._wait_in(waiting.idle)
    assert not waiting.idle
    assert not waiting.new


def test_connections_of_one_address_are_limited(tmp_path: Path) -> None:
    with running(tmp_path, max_connections_per_address=2) as service, ExitStack() as stack:
        mine = [stack.enter_context(closing(connected(service.url))) for _ in range(2)]
        for each in mine:
            ask(each)
        with closing(connected(service.url)) as further:
            assert rest_of(further).startswith(b"HTTP/1.1 503")
        address = service.url.removeprefix("http://").partition(":")[0], int(service.url.rpartition(":")[2])
        other = stack.enter_context(closing(socket.create_connection(address, source_address=("127.0.0.9", 0))))
        ask(other)
        mine[0].close()
        until(lambda: len(service.server.server_state.connections) == 2)
        ask(stack.enter_context(closing(connected(service.url))))
    until(lambda: not service.server._waiting.by_address)


def test_idle_connections_make_room_for_new_ones(small: Running) -> None:
    """The one that has waited longest for its next request is closed: keeping connections open locks nobody out."""
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(connected(small.url))) for _ in range(3)]
        for each in kept:
            ask(each)
        further = stack.enter_context(closing(connected(small.url)))
        ask(further)
        assert rest_of(kept[0]) == b""
        for other in kept[1:]:
            ask(other)


def test_who_does_not_read_replies_makes_room_unless_a_key_was_valid(tmp_path: Path) -> None:
    """Requests without a key for the largest document, again and again, by clients that read nothing."""
    document = b"GET /v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with running(tmp_path, max_connections=4, body_timeout_s=3600) as service, ExitStack() as stack:
        for _ in range(4):
            bare = stack.enter_context(closing(socket.socket()))
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            bare.connect(("127.0.0.1", int(service.url.rpartition(":")[2])))
            bare.sendall(document * 60)
        made: Any = service.server.server_state.connections
        until(lambda: sum(each.flow.write_paused for each in made) == 4)
        for _ in range(3):
            with closing(connected(service.url)) as further:
                ask(further)
        assert service.client().get("/v1/policies").status == 200


@pytest.mark.parametrize("known", [False, True])
def test_a_connection_that_is_read_again_stays(known: bool) -> None:
    waiting = WaitingConnections(3)
    made = stub(waiting)
    made.known = known
    made._wait_in(None)  # it runs a request
    made.pause_writing()
    assert list(waiting.unread) == ([] if known else [made])
    made.resume_writing()
    assert (made.queue, list(waiting.unread)) == (None, [])


class StubTransport:
    """A transport whose client has not read some bytes."""

    def __init__(self, unread: int) -> None:
        self.unread = unread
        self.ended = ""
        self.socket: socket.socket | None = None

    def get_extra_info(self, name: str) -> socket.socket | None:
        """Return the socket; there is no address, and no TLS."""
        return self.socket if name == "socket" and self.ended == "" else None

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.ended)

    def abort(self) -> None:
        self.ended = "abort"

    def close(self) -> None:
        self.ended = "close"


def stub(waiting: WaitingConnections, unread: int = 0, state: ServerState | None = None) -> Any:
    """Return a new connection that nothing is behind."""
    protocol: Any = type("Connection", (LimitedConnection,), {"waiting": waiting})
    loop = asyncio.new_event_loop()
    made = protocol(
        config=uvicorn.Config(print, log_config=None, ws="none"),
        server_state=state or ServerState(),
        app_state={},
        _loop=loop,
    )
    loop.close()
    made.connection_made(StubTransport(unread))
    return made


@pytest.mark.parametrize(("unread", "ended"), [(0, "close"), (10, "abort")])
def test_an_idle_connection_whose_client_does_not_read_makes_room_at_once(unread: int, ended: str) -> None:
    waiting, state = WaitingConnections(3), ServerState()
    made = []
    for size in (unread, 0, 0):
        made.append(stub(waiting, size, state))
        made[-1]._wait_in(waiting.idle)
    made.append(stub(waiting, 0, state))
    assert [each.transport.ended for each in made] == [ended, "", "", ""]
