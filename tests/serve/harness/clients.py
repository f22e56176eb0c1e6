"""Callers of a service over real sockets, and a server that answers what a test tells it to."""

import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec

TIMEOUT_S = 180.0  # a new machine compiles for a minute before the first decision


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def reply(self) -> tuple[int, bytes]:
        """What is the same when a call is repeated: all but the headers, which hold the time."""
        return self.status, self.body

    @property
    def json(self) -> Any:
        """The body as plain data."""
        return json.loads(self.body)


class Client:
    """Calls a service over one connection."""

    def __init__(self, url: str, key: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout_s)
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a body, as JSON unless it is bytes already; return what comes back."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {} if body is None else {"content-type": "application/json"}
        try:
            self.connection.request(method, path, data, {**given, **self.headers, **(headers or {})})
            response = self.connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, response.read())
        except BaseException:
            self.connection.close()
            raise

    def get(self, path: str, **given: Any) -> Answer:
        """Get what is there."""
        return self.call("GET", path, **given)

    def post(self, path: str, body: Any, **given: Any) -> Answer:
        """Post a body."""
        return self.call("POST", path, body, **given)

    def decide(self, task: str, policy: str = "p", **given: Any) -> Answer:
        """Decide a task; asks the human unless told otherwise."""
        body = {"task": task, "context": [1.0, 0.5], "force": "human"} | given
        return self.post(f"/v1/policies/{policy}/decisions", body)


def until(condition: Callable[[], Any], what: str = "the condition holds", seconds: float = TIMEOUT_S) -> Any:
    """Wait until a condition holds; return what it gives."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"Not within {seconds:g} s: {what}."
        time.sleep(0.005)
    return found


def latencies(call: Callable[[int], Any], going_on: threading.Event) -> list[float]:
    """Call again and again; return how long each call took that was sent while something was going on."""
    found: list[float] = []
    while going_on.is_set():
        began = time.perf_counter()
        call(len(found))
        found.append(time.perf_counter() - began)
    return found


def connected(url: str) -> socket.socket:
    """Return a bare connection to a service."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def rest_of(connection: socket.socket) -> bytes:
    """Return all that comes until the other side closes."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


PATH = "/v1/policies/p"

TOTAL, TOP_UP = 20, 2

CROWD_POLICY = {
    "name": "p",
    "features": 3,
    "experts": ["human", "clerk"],  # the clerk's costs come as outcomes, the human's from the review queue
    "budget": {"cost": {"total": TOTAL, "horizon": 100_000, "max_cost": 1}},
    "explore_floor": 0.6,
    "warm_up": 0,
}


class Ack(NamedTuple):
    """A call that was acknowledged."""

    path: str
    body: bytes
    status: int
    reply: bytes
    tries: int

    @property
    def sent(self) -> Any:
        """The body of the call as plain data."""
        return json.loads(self.body)

    @property
    def json(self) -> Any:
        """The reply as plain data; None if there is none."""
        return json.loads(self.reply) if self.reply else None


class Address(Protocol):
    """Where a service can be called."""

    host: str
    port: int


class Surprise(AssertionError):
    """A service has answered what it must not."""


class RetryingClient:
    """A client that never gives up: each call is repeated until it is acknowledged.

    It has one connection, to one of several services at a time; the next one is tried when one fails.
    """

    def __init__(self, crowd: "Crowd", number: int) -> None:
        self.crowd = crowd
        self.rng = random.Random(number)
        self.failures: Counter[str] = Counter()
        self._connection: http.client.HTTPConnection | None = None

    def call(self, path: str, body: object, *expected: int) -> Ack:
        """Have a call done, however long that takes."""
        return self.send(path, json.dumps(body).encode(), *expected)

    def send(self, path: str, body: bytes, *expected: int) -> Ack:
        """Send these bytes until they are acknowledged."""
        tries = 0
        while True:
            tries += 1
            try:
                status, reply = self._once(path, body)
                if status in expected:
                    return Ack(path, body, status, reply, tries)
                if status != 503:
                    raise Surprise(f"{path} {body!r} got {status}: {reply!r}")
                self.failures["503"] += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures[type(error).__name__] += 1
            self.close()
            if time.monotonic() > self.crowd.give_up_at:
                raise Surprise(f"{path} {body!r} was not acknowledged after {tries} tries: {self.failures}")
            time.sleep(self.rng.uniform(0.01, 0.1))

    def _once(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            service = self.rng.choice(self.crowd.services)
            self._connection = http.client.HTTPConnection(service.host, service.port, timeout=self.crowd.timeout_s)
        self._connection.request("POST", PATH + path, body, {"content-type": "application/json"})
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        """Take another connection for the next call."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Crowd:
    """Retrying clients in threads that decide, observe, review and top up, and keep every acknowledgement.

    A cost is known by the one who sends it, so that each is sent for exactly one task.
    """

    def __init__(self, *services: Address, deciders: int = 4, reviewers: int = 2, timeout_s: float = 20.0) -> None:
        self.services = services
        self.timeout_s = timeout_s
        self.decisions: dict[str, bytes] = {}  # replies by task
        self.acks: list[Ack] = []
        self.spent = 0  # micro-units that were acknowledged
        self.topped_up = 0
        self.failures: Counter[str] = Counter()
        self.repeated = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._wrong: list[BaseException] = []
        self.give_up_at = 0.0
        loops = [self._decide] * deciders + [self._review] * reviewers + [self._top_up]
        self._threads = [
            threading.Thread(target=self._run, args=(loop, number), daemon=True) for number, loop in enumerate(loops)
        ]

    def __enter__(self) -> "Crowd":
        self.give_up_at = time.monotonic() + 3600
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Let everyone finish what was begun; the service must be there for that."""
        self.give_up_at = time.monotonic() + (TIMEOUT_S if kind is None else 0)
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise if anyone got a reply that is wrong."""
        if self._wrong:
            raise self._wrong[0]

    def go_on(self, more: int) -> None:
        """Wait until this many more calls are acknowledged."""
        enough = self.count + more

        def reached() -> bool:
            self.check()
            return self.count >= enough

        until(reached, f"{more} calls are acknowledged")

    @property
    def count(self) -> int:
        """How many calls were acknowledged so far."""
        return len(self.acks)

    def _run(self, loop: Callable[[RetryingClient, int], None], number: int) -> None:
        client = RetryingClient(self, number)
        try:
            turn = 0
            while not self._stop.is_set() and not self._wrong:
                loop(client, turn)
                turn += 1
        except BaseException as error:
            self._wrong.append(error)
        finally:
            client.close()
            with self._lock:
                self.failures += client.failures

    def _keep(self, ack: Ack, *, spent: int = 0, topped_up: int = 0) -> Any:
        with self._lock:
            self.acks.append(ack)
            self.spent += spent
            self.topped_up += topped_up
        return ack.json

    def _decided(self, decision: Any, reply: bytes) -> None:
        with self._lock:
            known = self.decisions.setdefault(decision["task"], reply)
        if known != reply:
            raise Surprise(f"A task was answered with {known!r}, then with {reply!r}.")

    def _decide(self, client: RetryingClient, turn: int) -> None:
        rng, me = client.rng, threading.get_ident()
        tasks = [{"task": f"{me}-{turn}-{i}", "context": [rng.random() for _ in range(3)]} for i in range(3)]
        if rng.random() < 0.15:
            ack = client.call("/decisions/batch", {"tasks": tasks}, 200)
            replies = [part["decision"] for part in self._keep(ack)["results"]]
            sent = msgspec.json.decode(ack.reply, type=dict[str, list[dict[str, msgspec.Raw]]])
            for each, part in zip(replies, sent["results"], strict=True):
                self._decided(each, bytes(part["decision"]))  # as it was sent: a number may be written in several ways
        else:
            ack = client.call("/decisions", tasks[0], 201)
            replies = [self._keep(ack)]
            self._decided(replies[0], ack.reply)
        for reply in replies:
            rewards = {reply["route"]: rng.randint(0, 1)}
            if reply["route"] == "model" and rng.random() < 0.5:
                self._keep(client.call("/outcomes", {"task": reply["task"], "rewards": rewards}, 200))
            if reply["route"] == "clerk" and rng.random() < 0.8:
                cost = rng.randrange(1_100_000)  # some exceed what was reserved
                body = {"task": reply["task"], "rewards": rewards, "cost": cost / 1e6}
                self._keep(client.call("/outcomes", body, 200), spent=cost)
        if rng.random() < 0.1:
            self._repeat(client, ack)

    def _review(self, client: RetryingClient, turn: int) -> None:
        reviewer = f"reviewer {threading.get_ident()}"
        ack = client.call("/reviews/claim", {"reviewer": reviewer, "experts": ["human"]}, 200, 204)
        claimed = self._keep(ack)
        if claimed is None:
            time.sleep(0.05)
            return
        cost = client.rng.randrange(1_100_000)
        lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
        body = lease | {"answer": turn, "rewards": {"human": client.rng.randint(0, 1)}, "cost": cost / 1e6}
        ack = client.call("/reviews/complete", body, 200)
        self._keep(ack, spent=cost)
        if client.rng.random() < 0.1:
            self._repeat(client, ack)

    def _top_up(self, client: RetryingClient, turn: int) -> None:
        ack = client.call("/budget", {"id": f"top-up {threading.get_ident()} {turn}", "add": TOP_UP}, 200)
        self._keep(ack, topped_up=TOP_UP * 1_000_000)
        if client.rng.random() < 0.1:
            self._repeat(client, ack)
        time.sleep(0.02)

    def _repeat(self, client: RetryingClient, ack: Ack) -> None:
        """A call that was acknowledged gets the same reply again."""
        again = client.send(ack.path, ack.body, ack.status)
        self.repeated += 1
        if again.reply != ack.reply:
            raise Surprise(f"{ack.path} {ack.body!r} got {ack.reply!r}, then {again.reply!r}.")

    def ask_again(self, most: int) -> int:
        """Repeat calls that were acknowledged, those first that had to be sent more than once; return how many."""
        self.give_up_at = time.monotonic() + TIMEOUT_S
        client = RetryingClient(self, -1)
        fixed = [ack for ack in self.acks if not ack.path.endswith(("/claim", "/outcomes"))]
        chosen = sorted(fixed, key=lambda ack: -ack.tries)[: most // 2]
        chosen += client.rng.sample(fixed, min(len(fixed), most - len(chosen)))
        for ack in chosen:
            self._repeat(client, ack)
        client.close()
        return len(chosen)


CERTIFICATE = Path(__file__).parent / "localhost.pem"


class Reply(NamedTuple):
    """An answer; status 0 closes the connection without one."""

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    then_close: bool = False  # without saying so


class ScriptedServer(ThreadingHTTPServer):
    """Answers with the replies in order, the last one for ever; keeps what was asked."""

    daemon_threads = True

    def __init__(self, *replies: Reply, secure: bool = False, port: int = 0) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, str, bytes, float]] = []  # method, path, body, when
        self.keys: list[str | None] = []
        self.connections = 0
        self.turn = threading.Lock()
        super().__init__(("127.0.0.1", port), ScriptedHandler)
        if secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if secure else 'http'}://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away is part of the play."""

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class ScriptedHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: ScriptedServer

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
