"""A service in a process of its own: started, killed, stopped, started again."""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]
PORTS = range(20_000, 30_000)  # below those that the system gives to clients, so that no client takes a server's
PATIENCE_S = 120.0  # the machine may be busy with other things


class Answer(NamedTuple):
    """What a service has answered."""

    status: int
    body: bytes

    @property
    def plain(self) -> Any:
        """The body as plain data."""
        return json.loads(self.body)


def free_port() -> int:
    """Return a port that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def eventually(what: str, is_so: Callable[[], bool], *, seconds: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"Not within {seconds:g} s: {what}."
        time.sleep(0.01)


class Nursery:
    """Where services come from. `close` ends all of them."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.processes.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        self._one = threading.Lock()
        self._loaded = False

    def order(self, **order: Any) -> Any:
        """Return what the nursery says to an order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one:
            if not self._loaded:
                assert self._process.stdout.readline(), "The nursery did not start."
                self._loaded = True
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End all services, and the nursery."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(PATIENCE_S)


class Service:
    """A service on a store, on a port that stays the same."""

    def __init__(self, nursery: Nursery, folder: Path, store: str, **settings: object) -> None:
        self.nursery = nursery
        self.port = free_port()
        self.host = "127.0.0.1"
        self.log = folder / f"service-{self.port}.log"
        given = {"store": store, "port": self.port, "rate": 0} | settings
        self.arguments = ["serve", *(f"--{name.replace('_', '-')}={value}" for name, value in given.items())]
        self.pid: int | None = None

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://{self.host}:{self.port}"

    def start(self, *, alone: bool = False, **first: object) -> None:
        """Start it; `alone` loads everything afresh, as a user's command does."""
        assert self.pid is None
        self.pid = self.nursery.order(arguments=self.arguments, output=str(self.log), alone=alone, first=first)

    def ready(self) -> "Service":
        """Wait until it takes decisions."""
        eventually(f"ready; it says {self.said()}", self.is_ready)
        return self

    def is_ready(self) -> bool:
        """Whether it takes decisions now; raise if it has ended instead."""
        if (code := self.wait(0)) is not None:
            raise AssertionError(f"It ended with {code}: {self.said()}")
        return self.answers()

    def answers(self) -> bool:
        """Whether it says that it takes decisions."""
        try:
            return self.get("/readyz", timeout_s=5).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, seconds: float = PATIENCE_S) -> int | None:
        """Return how it ended; None if it has not."""
        assert self.pid is not None
        code: int | None = self.nursery.order(wait=self.pid, seconds=seconds)
        if code is not None:
            self.pid = None
        return code

    def kill(self) -> None:
        """Kill it, as by kill -9."""
        if self.pid is not None:
            self.signal(signal.SIGKILL)
            assert self.wait() is not None

    def stop(self) -> int | None:
        """Stop it in order; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def said(self) -> str:
        """What it has written so far."""
        return self.log.read_text() if self.log.exists() else ""

    def get(self, path: str, *, timeout_s: float = 60.0) -> Answer:
        """Ask it something."""
        return self.call("GET", path, timeout_s=timeout_s)

    def post(self, path: str, **body: object) -> Answer:
        """Tell it something."""
        return self.call("POST", path, json.dumps(body).encode())

    def call(self, method: str, path: str, body: bytes | None = None, *, timeout_s: float = 60.0) -> Answer:
        """Send a request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return Answer(response.status, response.read())
        finally:
            connection.close()
