"""`deferkit serve` in a process of its own: started, killed, stopped, started again.

`python -m tests.serve.harness.service_process` is the fork server: a process that has everything loaded, and forks
services, so that a start takes a fraction of a second and not seconds. What it forks are real processes, each the
leader of a group of its own, that run the command line. It reads orders, a line of JSON each, and answers with a line.
When its input ends, so do all that it has started.
"""

import contextlib
import ctypes
import faulthandler
import gc
import http.client
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import deferkit
from deferkit import cli
from deferkit.cli import service
from deferkit.serve.domain.api_keys import SCOPES, new_key
from deferkit.serve.http import server
from deferkit.serve.storage.open_store import database_of
from deferkit.serve.storage.store import Store
from tests.command_line import SCRIPT
from tests.serve.harness import fault_injection
from tests.serve.harness.clients import TIMEOUT_S, Answer, Client, until

assert service  # imported once, in the fork server, for all that it forks
assert server
ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", SCRIPT]
PORTS = range(20_000, 30_000)  # below those that the system gives to clients, so that no client takes a server's
NUMBERS = itertools.count()
DIE_WITH_PARENT = 1


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


def free_port() -> int:
    """Return a port that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def processes_with(word: str) -> list[str]:
    """Return the command lines that have a word; waits a little for processes that are about to end."""
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


class ForkServer:
    """The fork server, seen from the tests. `close` ends it and all services that it has started."""

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
        self._lock = threading.Lock()
        self._loaded = False

    def order(self, **order: Any) -> Any:
        """Return what the fork server answers to an order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            if not self._loaded:
                assert self._process.stdout.readline(), "The fork server did not start."
                self._loaded = True
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End all services, and the fork server."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(TIMEOUT_S)


def keys_for(folder: Path, *tenants: str) -> list[str]:
    """Return a key of each tenant that is good for everything, in the store that a service of this folder has."""
    store = Store(database_of(str(folder / "deferkit.db")))
    store.database.prepare()
    keys = [new_key(tenant, list(SCOPES), "") for tenant in tenants]
    for _, row in keys:
        store.add_key(row)
    store.close()
    return [key for key, _ in keys]


class ServiceProcess:
    """`deferkit serve` on a store; it can be killed and started again on the same port.

    `with ServiceProcess(folder) as service` starts it, waits until it listens, and kills it at the end.

    Args:
        folder: Where its log is written, and its store unless another one is given.
        options: Further words of the command line.
        store: A path or a URL.
        port: Where it listens; 0 lets the system choose at the first start.
        environment: Further environment variables; not with a fork server.
        setup: Python statements to run before the command; not with a fork server.
        fork_server: Forks the process; without one it is started as a user starts it.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        store: str | Path | None = None,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        setup: str = "pass",
        fork_server: ForkServer | None = None,
    ) -> None:
        self.host = "127.0.0.1"
        self.port = port
        self.store = str(store or folder / "deferkit.db")
        self.options = list(options)
        self.log_path = folder / f"service-{next(NUMBERS)}.log"
        self.pid: int | None = None
        self._environment = {**os.environ, **(environment or {})}
        self._setup = setup
        self._fork_server = fork_server
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # where the log of this start begins

    def __enter__(self) -> "ServiceProcess":
        self.start()
        try:
            until(self.is_listening, "it listens")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *, fresh: bool = False, **faults: object) -> None:
        """Start it and return at once.

        Args:
            fresh: Have what the fork server has forked import everything anew, as a user's command does.
            faults: Functions of `fault_injection` to call first, with their argument; only with a fork server.
        """
        assert self.pid is None
        arguments = ["serve", f"--store={self.store}", f"--port={self.port}", *self.options]
        self._log_start = len(self.log)
        if self._fork_server is not None:
            self.pid = self._fork_server.order(
                arguments=arguments, output=str(self.log_path), fresh=fresh, faults=faults
            )
            return
        assert not faults
        with self.log_path.open("ab") as log:
            script = f"{self._setup}; {SCRIPT}"
            self._popen = subprocess.Popen(
                [sys.executable, "-c", script, *arguments], stdout=log, stderr=log, env=self._environment
            )
        self.pid = self._popen.pid

    def is_listening(self) -> bool:
        """Whether it has said where it listens since it was started; raise if it has ended instead."""
        self._check_alive()
        url = next((event["url"] for event in events(self.log[self._log_start :]) if event["event"] == "listening"), "")
        if not url:
            return False
        assert f" on {url}," in self.log[self._log_start :]  # in the line for people
        self.port = int(url.rpartition(":")[2])
        return True

    def ready(self) -> "ServiceProcess":
        """Wait until it takes decisions."""
        if not self.port:
            until(self.is_listening, "it listens")
        until(self.is_ready, f"ready; it says {self.log}")
        return self

    def is_ready(self) -> bool:
        """Whether it takes decisions now; raise if it has ended instead."""
        self._check_alive()
        return self.answers()

    def answers(self) -> bool:
        """Whether it says that it takes decisions."""
        try:
            return self.get("/readyz", timeout_s=5).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _check_alive(self) -> None:
        if (code := self.wait(0)) is not None:
            raise AssertionError(f"It ended with {code}: {self.log}")

    def signal(self, number: int) -> None:
        """Send it a signal: to its whole group if it was forked, to the process alone if not."""
        if self.pid is None:
            return
        if self._popen is not None:
            self._popen.send_signal(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, seconds: float = TIMEOUT_S) -> int | None:
        """Return its exit code; None if it has not ended after so many seconds."""
        assert self.pid is not None
        code: int | None = None
        if self._fork_server is not None:
            code = self._fork_server.order(wait=self.pid, seconds=seconds)
        elif self._popen is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._popen.wait(seconds)
        if code is not None:
            self.pid = self._popen = None
        return code

    def kill(self) -> None:
        """Kill it, as by kill -9, if it still runs."""
        if self.pid is not None:
            self.signal(signal.SIGKILL)
            assert self.wait() is not None

    def stop(self) -> int | None:
        """Stop it by SIGTERM; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """What it has written so far, in all its starts."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def events(self) -> list[dict[str, Any]]:
        """Return the events of its log."""
        return events(self.log)

    def client(self, policy: str, **given: Any) -> deferkit.Client:
        """Return a client, as users have it, that does not give up easily."""
        return deferkit.Client(self.url, policy=policy, **{"total_s": TIMEOUT_S, **given})

    def get(self, path: str, *, timeout_s: float = 60.0) -> Answer:
        """Get a page on a connection of its own."""
        return self._call("GET", path, None, timeout_s)

    def post(self, path: str, **body: object) -> Answer:
        """Post a body on a connection of its own."""
        return self._call("POST", path, body, 60.0)

    def _call(self, method: str, path: str, body: object, timeout_s: float) -> Answer:
        client = Client(self.url, timeout_s=timeout_s)
        with contextlib.closing(client.connection):
            return client.call(method, path, body)


def events(log: str) -> list[dict[str, Any]]:
    """Return the lines of a log that are whole events."""
    return [json.loads(line) for line in log.splitlines(keepends=True) if line[0] == "{" and line[-1] == "\n"]


def fork(order: dict[str, Any]) -> int:
    """Start a service; return its process id."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child does it too: whoever comes first
            os.setpgid(pid, pid)
        return pid
    try:
        run_service(order)
    finally:
        os._exit(70)


def run_service(order: dict[str, Any]) -> NoReturn:
    """Run the service that was ordered, in a forked process."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    with contextlib.suppress(AttributeError):  # Linux can see to it that nothing outlives the fork server
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.register(signal.SIGUSR1)  # says where a service is that does not get on
    arguments = order["arguments"]
    if order["fresh"]:
        os.execv(sys.executable, [*COMMAND, *arguments])
    for name, given in order["faults"].items():
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


def wait_for(pid: int, seconds: float) -> int | None:
    """Return the exit code of a process, negative if a signal ended it; None if it goes on."""
    end = time.monotonic() + seconds
    parent = os.getppid()
    while os.getppid() == parent:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.005)
    raise SystemExit("The tests have ended.")


def carry_out(order: dict[str, Any], alive: set[int]) -> int | None:
    """Start a service and return its process id, or wait for one and return its exit code."""
    if "wait" not in order:
        pid = fork(order)
        alive.add(pid)
        return pid
    code = wait_for(order["wait"], order["seconds"])
    if code is not None:
        alive.discard(order["wait"])
    return code


def main() -> None:
    """Be the fork server: take orders until there are no more."""
    alive: set[int] = set()
    try:
        gc.freeze()  # or a service would copy all of this memory when it first looks for cycles
        print(json.dumps("ready"), flush=True)
        for line in iter(sys.stdin.buffer.readline, b""):
            print(json.dumps(carry_out(json.loads(line), alive)), flush=True)
    finally:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
