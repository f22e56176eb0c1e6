"""A service to call: in a process of its own, or in a thread of this one, always over real sockets."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from deferkit.serve.domain.api_keys import SCOPES, new_key
from deferkit.serve.http.server import Server
from deferkit.serve.service_settings import ServiceSettings
from deferkit.serve.storage.open_store import database_of
from deferkit.serve.storage.store import Store

COMMAND = [sys.executable, "-c", "from deferkit.cli import main; main()"]
POLICY: dict[str, Any] = {
    "name": "p",
    "features": 2,
    "budget": {"cost": {"total": 10, "horizon": 1000, "max_cost": 1}},
    "warm_up": 0,
}
TIMEOUT_S = 180.0  # a new machine compiles for a minute before the first decision


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as plain data."""
        return json.loads(self.body)


class Client:
    """Calls a service over one connection."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=TIMEOUT_S)
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


class Running(NamedTuple):
    """A service in a thread."""

    url: str
    server: Server
    store: Store
    clients: list[Client]

    def client(self, tenant: str | None = None, *scopes: str, key: str | None = None) -> Client:
        """Return a client; with a new key if it is of a tenant."""
        self.clients.append(Client(self.url, key if tenant is None else self.key(tenant, *scopes)))
        return self.clients[-1]

    def key(self, tenant: str, *scopes: str) -> str:
        """Make a key."""
        key, row = new_key(tenant, list(scopes or SCOPES), "")
        self.store.add_key(row)
        return key

    @contextmanager
    def held_up(self) -> Iterator["Gate"]:
        """Let nothing be committed until the gate is opened, or the end."""
        gate, begin = Gate(threading.Event(), threading.Event()), self.store.begin

        def later(reads: Any, work: Any) -> Any:
            gate.reached.set()
            gate.open.wait(TIMEOUT_S)
            return begin(reads, work)

        self.store.begin = later  # type: ignore[method-assign,assignment]
        try:
            yield gate
        finally:
            self.store.begin = begin  # type: ignore[method-assign]
            gate.open.set()


class Gate(NamedTuple):
    """Where the writer waits."""

    reached: threading.Event
    open: threading.Event


@contextmanager
def running(folder: Path, *, tenants: bool = False, **given: Any) -> Iterator[Running]:
    """Run a service in a thread; with tenants, there is a key from the start."""
    values: dict[str, Any] = {"store": str(folder / "deferkit.db"), "port": 0}
    settings = ServiceSettings(**values | given)
    database = database_of(settings.store)
    database.prepare()
    store = Store(database)
    if tenants:
        store.add_key(new_key("nobody", ["admin"], "")[1])
    urls: list[str] = []
    server = Server(settings, store, urls.append)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: urls or not thread.is_alive())
    service = Running(urls[0], server, store, [])
    try:
        yield service
    finally:
        for client in service.clients:
            client.connection.close()
        server.should_exit = True
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def until(what: Any, seconds: float = TIMEOUT_S) -> Any:
    """Wait until something is so; return it."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)
    return found


class Process:
    """A service in a process of its own: `deferkit serve`."""

    def __init__(
        self, folder: Path, *options: str, environment: Mapping[str, str] | None = None, first: str = "pass"
    ) -> None:
        self.log_path = folder / f"log{time.monotonic_ns()}"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *COMMAND[:-1],
                    f"{first}; {COMMAND[-1]}",
                    "serve",
                    "--port",
                    "0",
                    "--store",
                    str(folder / "deferkit.db"),
                    *options,
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )

    @property
    def url(self) -> str:
        """Where it listens; nothing as long as it does not."""
        assert self.process.poll() is None, self.log
        return next((line["url"] for line in self.lines() if line["event"] == "listening"), "")

    @property
    def log(self) -> str:
        """All that it has said."""
        return self.log_path.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of its log that are events."""
        return [json.loads(line) for line in self.log.splitlines(keepends=True) if line[0] == "{" and line[-1] == "\n"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Have it stop; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)


@contextmanager
def process(
    folder: Path, *options: str, environment: Mapping[str, str] | None = None, first: str = "pass"
) -> Iterator[Process]:
    """Run a service in a process of its own, after a statement or two; it does not outlive the test."""
    served = Process(folder, *options, environment=environment, first=first)
    try:
        until(lambda: served.url)
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()


def command(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **(environment or {})},
        check=False,
    )


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
