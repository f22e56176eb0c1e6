"""`deferkit serve` in a process of its own: started, killed, stopped, started again."""

import contextlib
import ctypes
import faulthandler
import gc
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from deferkit import Client, cli
from deferkit.serve.http import server
from tests.command_line import SCRIPT
from tests.serve.harness.clients import TIMEOUT_S, Answer, eventually, until


class Started:
    """A service on a file; it can be killed and started again on the same port."""

    def __init__(self, store: Path, *words: str) -> None:
        self.store = store
        self.words = words
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start, and wait until it listens."""
        command = [sys.executable, "-c", SCRIPT, "serve", "--store", str(self.store), "--port", str(self.port)]
        with self.store.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen([*command, *self.words], stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"on (http://[0-9.]+:(\d+)),", line)
        assert found, f"{line!r}\n{self.store.with_suffix('.log').read_text()}"
        self.url, self.port = found[1], int(found[2])

    def client(self, policy: str, **given: object) -> Client:
        """Return a client that does not give up easily."""
        return Client(self.url, policy=policy, **{"total_s": TIMEOUT_S, **given})  # type: ignore[arg-type]

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> "Started":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGKILL)


def left_over(word: str) -> list[str]:
    """Return the processes whose command line has a word; waits a little for those that are about to end."""
    for _ in range(100):
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in line:
                found.append(line)
        if not found:
            break
        time.sleep(0.1)
    return found


COMMAND = [sys.executable, "-c", "from deferkit.cli import main; main()"]


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


ROOT = Path(__file__).parents[3]

PORTS = range(20_000, 30_000)  # below those that the system gives to clients, so that no client takes a server's


def free_port() -> int:
    """Return a port that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class ForkServer:
    """Where services come from. `close` ends all of them."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.harness.service_process"],
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
            process.wait(TIMEOUT_S)


class Service:
    """A service on a store, on a port that stays the same."""

    def __init__(self, nursery: ForkServer, folder: Path, store: str, **settings: object) -> None:
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

    def wait(self, seconds: float = TIMEOUT_S) -> int | None:
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
            return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, response.read())
        finally:
            connection.close()


assert server  # loaded here, once, for all

DIE_WITH_PARENT = 1

ALONE = "from deferkit.cli import main; main()"


def fork(order: dict[str, Any]) -> int:
    """Start a service; return its id."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child does it too: whoever comes first
            os.setpgid(pid, pid)
        return pid
    try:
        become(order)
    finally:
        os._exit(70)


def become(order: dict[str, Any]) -> NoReturn:
    """Be the service that was ordered."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    with contextlib.suppress(AttributeError):  # Linux can see to it that nothing outlives the nursery
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.register(signal.SIGUSR1)  # says where a service is that does not get on
    from tests.serve.harness import fault_injection  # noqa: PLC0415 (imports this module)

    arguments = order["arguments"]
    if order["alone"]:
        os.execv(sys.executable, [sys.executable, "-c", ALONE, *arguments])
    for name, given in order["first"].items():
        getattr(fault_injection, name)(given)
    sys.argv = ["deferkit", *arguments]
    code = 0
    try:
        cli.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait(pid: int, seconds: float) -> int | None:
    """Return the exit code of a process, negative if a signal ended it; None if it goes on."""
    until = time.monotonic() + seconds
    parent = os.getppid()
    while os.getppid() == parent:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.005)
    raise SystemExit("The tests have ended.")


def main() -> None:
    """Take orders until there are no more."""
    alive: set[int] = set()
    try:
        gc.freeze()  # or a service would copy all of this memory when it first looks for cycles
        print(json.dumps("ready"), flush=True)
        for line in iter(sys.stdin.buffer.readline, b""):
            print(json.dumps(obey(json.loads(line), alive)), flush=True)
    finally:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def obey(order: dict[str, Any], alive: set[int]) -> int | None:
    """Start a service and return its id, or wait for one and return its exit code."""
    if "wait" not in order:
        pid = fork(order)
        alive.add(pid)
        return pid
    code = wait(order["wait"], order["seconds"])
    if code is not None:
        alive.discard(order["wait"])
    return code


if __name__ == "__main__":
    main()
