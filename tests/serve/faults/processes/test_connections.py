"""Attacks by many connections without a key: calls of others are not refused. What was counted is shown by `-rP`."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.serve.harness.attacks import KINDS, Attack, Others, attacked
from tests.serve.harness.clients import CERTIFICATE, TIMEOUT_S, connected, until
from tests.serve.harness.in_process import POLICY
from tests.serve.harness.service_process import ServiceProcess
from tests.serve.test_telemetry import collector, exporting_to, spans_of

__all__ = ["collector"]

ServiceOn = Callable[..., ServiceProcess]
BODY = b'{"task": "%d", "context": [1.0, 0.5], "force": "model"}'
DECISION = b"POST /v1/policies/p/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def sockets_of(service: ServiceProcess) -> int:
    """Return how many sockets a service has."""
    found = 0
    for each in Path(f"/proc/{service.pid}/fd").iterdir():
        try:
            found += str(each.readlink()).startswith("socket:")
        except OSError:
            continue
    return found


def check_under_attack(service: ServiceProcess, attack: Attack, others: Others, limit: int) -> None:
    """Check that no call of others is refused during an attack, and that connections are not more than they may be."""
    most = 0
    with attacked(attack) as attacker, others.calling():
        while attacker.poll() is None:
            most = max(most, sockets_of(service))
            time.sleep(0.2)
        done, _ = attacker.communicate()
    report = others.report(f"{attack.kind} {done.strip()}, at most {most:,} sockets")
    print(report)
    assert attacker.returncode == 0
    assert not others.refused, report
    assert most < 2 * limit + 200, report  # those that are evicted are closed a moment later


@pytest.mark.parametrize("kind", KINDS)
def test_connections_that_are_kept_open_refuse_nobody(
    service_on: ServiceOn, sqlite_path: str, kind: str, soak: bool
) -> None:
    """A thousand new connections in each of 30 seconds."""
    limit = 1000 if soak else 50
    service = service_on(sqlite_path, max_connections=limit)
    service.start()
    assert service.ready().post("/v1/policies", **POLICY).status == 201
    rate, seconds = (1000, 30) if soak else (200, 2)
    attack = Attack(port=service.port, kind=kind, rate=rate, seconds=seconds)
    check_under_attack(service, attack, Others(service.port), limit)


@contextmanager
def secure_service(folder: Path, environment: dict[str, str], *options: str) -> Iterator[ServiceProcess]:
    """A service with TLS, which exports spans and metrics."""
    options = ("--otel", f"--tls-cert={CERTIFICATE}", "--rate=0", *options)
    with ServiceProcess(folder, *options, environment=environment) as service:
        others = Others(service.port, secure=True)
        with closing(others.connection()) as connection:
            body = b'{"name": "p", "features": 2, "budget": {"cost": {"total": 10, "horizon": 1000, "max_cost": 1}}}'
            connection.request("POST", "/v1/policies", body, {"content-type": "application/json"})
            assert connection.getresponse().status == 201
        yield service


@pytest.mark.parametrize(
    ("kind", "handshake"), [("silent", False), ("hello", False), ("silent", True), ("head", True), ("body", True)]
)
def test_with_tls_and_telemetry_connections_that_are_kept_open_refuse_nobody(
    collector: object, tmp_path: Path, kind: str, handshake: bool, soak: bool
) -> None:
    """Connections without a complete handshake are counted and evicted like others."""
    limit = 1000 if soak else 100
    with secure_service(tmp_path, exporting_to(collector), f"--max-connections={limit}") as service:
        # a handshake takes a millisecond of the service, and another one of the attacker
        rate = 100.0 if handshake else 1000 if soak else 200
        attack = Attack(
            port=service.port, kind=kind, rate=rate, seconds=30 if soak else 3, handshake=handshake, kept=2000
        )
        check_under_attack(service, attack, Others(service.port, secure=True), limit)
        service.stop()
    assert {"POST /v1/policies/{name}/decisions", "deferkit.commit"} <= {span.name for span in spans_of(collector)}


@pytest.mark.parametrize("connections", [1, 4])
def test_one_client_that_pipelines_decisions_keeps_nobody_waiting(
    service_on: ServiceOn, sqlite_path: str, connections: int, soak: bool
) -> None:
    service = service_on(sqlite_path)
    service.start()
    assert service.ready().post("/v1/policies", **POLICY).status == 201
    alone, others = Others(service.port), Others(service.port)
    with alone.calling():
        time.sleep(10 if soak else 1)
    n = 5000 if soak else 1000
    answered: list[int] = []

    def pipeline(number: int) -> None:
        bodies = [BODY % (number * n + place) for place in range(n)]
        with closing(connected(service.url)) as bare:
            requests = b"".join(DECISION + b"content-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
            sender = threading.Thread(target=bare.sendall, args=(requests,))
            sender.start()
            found, rest = 0, b""
            while found < n and (part := bare.recv(65_536)):
                rest += part
                found += rest.count(b"HTTP/1.1 201 ")
                rest = rest[-12:]
            sender.join()
        answered.append(found)

    threads = [threading.Thread(target=pipeline, args=(number,)) for number in range(connections)]
    began = time.monotonic()
    with others.calling():
        for each in threads:
            each.start()
        for each in threads:
            each.join(TIMEOUT_S)
    rate = sum(answered) / (time.monotonic() - began)
    print(alone.report("alone"))
    print(others.report(f"beside {connections} x {n:,} pipelined decisions, {rate:,.0f} a second"))
    assert answered == [n] * connections
    assert not others.refused
    assert others.median_s() < max(0.25, 10 * alone.median_s())


def test_connections_of_one_address_are_limited_under_attack(service_on: ServiceOn, sqlite_path: str) -> None:
    """The attacker has eight addresses, and five connections of each."""
    service = service_on(sqlite_path, max_connections_per_address=5)
    service.start()
    assert service.ready().post("/v1/policies", **POLICY).status == 201
    others = Others(service.port, pauses_s=(0.0, 0.1, 0.5), fresh=1)
    with attacked(Attack(port=service.port, kind="silent", rate=200, seconds=3)) as attacker, others.calling():
        until(lambda: sockets_of(service) > 40, "the attacker has what it may have", seconds=30)
        assert sockets_of(service) < 60
        attacker.communicate(timeout=60)
    print(others.report("a limit for each address"))
    assert not others.refused
