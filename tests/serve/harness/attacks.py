"""Attacks by many connections on a service of this machine, and other callers whose calls are measured meanwhile.

`python -m tests.serve.harness.attacks ORDER` is an attacker in a process of its own; ORDER is the JSON of an `Attack`.
It ends by itself, and prints what it has done.
"""

import contextlib
import http.client
import json
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.serve.harness.clients import CERTIFICATE, TIMEOUT_S

ROOT = Path(__file__).parents[3]
GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /v1/policies/p/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
# what each connection sends, in parts, each after the reply to the one before it
KINDS: dict[str, list[bytes]] = {
    "silent": [],
    "hello": [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"],  # the beginning of a handshake
    "head": [GET + b"x-slow: "],
    "body": [POST + b'content-length: 100\r\n\r\n{"task": '],
    "idle": [GET + b"\r\n"],
    "next head": [GET + b"\r\n", GET + b"x-slow: "],
    "late body": [GET + b"content-length: 4\r\n\r\n", b"late"],
}
THREADS = 8


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What an attacker does: so many new connections in a second, of which the newest stay open at its end."""

    port: int
    kind: str
    rate: float
    seconds: float
    kept: int = 3000
    handshake: bool = False  # complete the handshake of TLS first

    def run(self) -> dict[str, float]:
        """Carry it out; return how many connections were made, and failed."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, self.kept + 1000)), hard))
        done: Counter[str] = Counter()
        began = time.monotonic()
        threads = [threading.Thread(target=self._attack, args=(number, done, began)) for number in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return dict(done) | {"seconds": round(time.monotonic() - began, 1)}

    def _attack(self, number: int, done: Counter[str], began: float) -> None:
        kept: deque[socket.socket] = deque()
        made, rate = 0, self.rate / THREADS
        while (now := time.monotonic() - began) < self.seconds:
            if made > now * rate:
                time.sleep(min(0.005, made / rate - now))
                continue
            made += 1
            try:
                kept.append(self._connection(f"127.0.0.{2 + number}"))
                done["made"] += 1
            except OSError as error:
                done[type(error).__name__] += 1
            while len(kept) > self.kept / THREADS:
                kept.popleft().close()
        for each in kept:
            each.close()

    def _connection(self, source: str) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(source, 0))
        try:
            if self.handshake:
                made = tls().wrap_socket(made, server_hostname="127.0.0.1")
            parts = KINDS[self.kind]
            for place, part in enumerate(parts):
                made.sendall(part)
                if place < len(parts) - 1 or self.kind == "idle":
                    made.recv(65_536)
        except OSError:
            made.close()
            raise
        return made


def tls() -> ssl.SSLContext:
    """Return how clients trust the service of the tests."""
    return ssl.create_default_context(cafile=CERTIFICATE)


@contextlib.contextmanager
def attacked(attack: Attack) -> Iterator["subprocess.Popen[str]"]:
    """Attack in another process; it is ended at the end."""
    command = [sys.executable, "-m", "tests.serve.harness.attacks", json.dumps(asdict(attack))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass
class Others:
    """Callers who do nothing wrong: some keep their connection, with a pause between two calls; some make many.

    Nothing is repeated: a reply other than 2xx, or none, is a refusal.
    """

    port: int
    secure: bool = False
    pauses_s: Sequence[float] = (0.0, 0.02, 0.1, 0.5)  # of those that keep their connection
    fresh: int = 2  # of those that make one each time
    path: str = "/v1/policies/p/decisions"
    headers: dict[str, str] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Call until the end."""
        ends = threading.Event()
        callers = [(pause, False) for pause in self.pauses_s] + [(0.01, True)] * self.fresh
        threads = [threading.Thread(target=self._call, args=(n, *each, ends)) for n, each in enumerate(callers)]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            ends.set()
            for each in threads:
                each.join(TIMEOUT_S)

    def _call(self, number: int, pause_s: float, fresh: bool, ends: threading.Event) -> None:
        connection, calls = self.connection(), 0
        headers = {"content-type": "application/json"} | self.headers
        while not ends.is_set():
            calls += 1
            body = json.dumps({"task": f"{id(self)}-{number}-{calls}", "context": [1.0, 0.5], "force": "model"})
            began = time.perf_counter()
            try:
                connection.request("POST", self.path, body, headers)
                reply = connection.getresponse()
                said = reply.read()
                if reply.status != 201:
                    self.refused[f"{reply.status} {said.decode()}"] += 1
            except (OSError, http.client.HTTPException) as error:
                self.refused[type(error).__name__] += 1
                connection.close()
            self.latencies.append(time.perf_counter() - began)
            if fresh:
                connection.close()
            ends.wait(pause_s)
        connection.close()

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that is made with its first call."""
        if self.secure:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=tls())
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def median_s(self) -> float:
        """Return the median latency."""
        return statistics.median(self.latencies)

    def report(self, what: str) -> str:
        """Return the counts of a line of text."""
        found = sorted(self.latencies)
        return (
            f"{what}: {len(found):,} calls of others, {sum(self.refused.values())} refused {dict(self.refused)},"
            f" median {self.median_s() * 1000:.1f} ms, 99 % {found[int(len(found) * 0.99)] * 1000:.0f} ms,"
            f" worst {found[-1] * 1000:.0f} ms"
        )


if __name__ == "__main__":
    print(json.dumps(Attack(**json.loads(sys.argv[1])).run()))
