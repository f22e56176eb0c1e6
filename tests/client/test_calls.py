"""What a client does when the network or the service fails: it asks again, for the same task, until time is up."""

import http.client
import json
import os
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deferkit import (
    Budget,
    Client,
    ConflictingObservation,
    InvalidArgument,
    ServiceError,
    ServiceUnavailable,
    http_connections,
)
from deferkit.client import calls
from tests.serve.harness.clients import CERTIFICATE, Reply, ScriptedServer
from tests.serve.harness.service_process import ServiceProcess

DECISION = {
    "task": "t",
    "id": 3,
    "route": "model",
    "reason": "not worth it",
    "propensity": 1.0,
    "price": 0.5,
    "budget_left": 4.0,
    "reserved": 0.0,
    "expected_cost": 0.0,
    "estimates": {"model": 0.5, "human": 0.25},
    "widths": {"model": 0.1, "human": 0.1},
    "costs": {"human": 0.5},
    "cost_widths": {"human": 0.1},
}
GOOD = Reply(201, json.dumps(DECISION).encode())
BUSY = b'{"status": 503, "code": "unavailable", "detail": "Too much is waiting."}'


def client_of(server: ScriptedServer, **given: Any) -> Client:
    return Client(server.url, policy="p", **given)


@pytest.mark.parametrize(
    "failure",
    [
        Reply(503, BUSY),
        Reply(502, b"<html>bad gateway</html>"),
        Reply(429, BUSY),
        Reply(0),
        Reply(201, b"{", (("content-length", "100"),), then_close=True),
    ],
    ids=["503", "502", "429", "closed", "cut"],
)
def test_a_call_that_fails_is_repeated_with_the_same_task(failure: Reply) -> None:
    with ScriptedServer(failure, failure, GOOD) as server, client_of(server) as client:
        assert client.decide([1.0]).id == 3
        assert len(server.asked) == 3
        assert len({body for _, _, body, _ in server.asked}) == 1
        assert len(json.loads(server.asked[0][2])["task"]) == 32


def test_retry_after_is_kept() -> None:
    with ScriptedServer(Reply(503, BUSY, (("Retry-After", "1"),)), GOOD) as server, client_of(server) as client:
        client.decide([1.0])
        (*_, first), (*_, second) = server.asked
        assert second - first >= 1.0


def test_a_service_that_asks_for_more_time_than_there_is() -> None:
    later = Reply(503, BUSY, (("Retry-After", "60"),))
    with ScriptedServer(later) as server, client_of(server, total_s=5) as client:
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable, match="Too much is waiting") as caught:
            client.decide([1.0])
        assert time.monotonic() - began < 4, "there is no use in waiting"
        assert caught.value.status == 503
        assert len(server.asked) == 1


def test_silence_is_a_failure() -> None:
    with ScriptedServer(Reply(201, wait_s=3.0), GOOD) as server, client_of(server, timeout_s=0.5) as client:
        assert client.decide([1.0]).id == 3
        assert len(server.asked) >= 2
        assert len({body for _, _, body, _ in server.asked}) == 1


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return sum(self.pauses)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_pauses_grow_and_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(calls, "time", clock)
    with ScriptedServer(Reply(503, BUSY)) as server, client_of(server, total_s=20) as client:
        with pytest.raises(ServiceUnavailable, match=r"within 20 seconds \(tries: \d+\)"):
            client.decide([1.0])
        assert len(server.asked) == len(clock.pauses) + 1
    longest = [min(http_connections.FIRST_WAIT_S * 2**i, http_connections.MAX_WAIT_S) for i in range(len(clock.pauses))]
    assert all(0.5 * most <= pause <= most for pause, most in zip(clock.pauses, longest, strict=True))
    assert len(set(clock.pauses)) == len(clock.pauses), "those who failed together would come back together"
    assert 20 - http_connections.MAX_WAIT_S < sum(clock.pauses) < 20


def test_nobody_there() -> None:
    with ScriptedServer(GOOD) as server:
        url = server.url
    with Client(url, policy="p", total_s=0.3) as client, pytest.raises(ServiceUnavailable, match="refused") as caught:
        client.summary()
    assert caught.value.status is None


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((status, ServiceError) for status in (401, 403, 404, 413, 500)),
        *((status, InvalidArgument) for status in (400, 422)),
        (409, ConflictingObservation),
    ],
)
def test_a_refusal_is_not_repeated(status: int, error: type[Exception]) -> None:
    body = json.dumps({"status": status, "code": "x", "detail": "Because."}).encode()
    with ScriptedServer(Reply(status, body)) as server, client_of(server) as client:
        with pytest.raises(error, match="Because"):
            client.decide([1.0])
        assert len(server.asked) == 1


def test_something_else_that_speaks_http() -> None:
    page = Reply(200, b"<html>hello</html>")
    moved = Reply(301, b"", (("location", "https://example.org"),))
    with ScriptedServer(page, moved) as server, client_of(server) as client:
        with pytest.raises(ServiceError, match="does not answer as a deferkit service"):
            client.decide([1.0])
        with pytest.raises(ServiceError, match="status 301"):
            client.decide([1.0])


def test_connections_are_kept_and_replaced_when_stale() -> None:
    with ScriptedServer(GOOD, GOOD._replace(then_close=True), GOOD) as server, client_of(server) as client:
        for _ in range(3):
            client.decide([1.0])
        assert (len(server.asked), server.connections) == (3, 2)
        client.close()
        client.decide([1.0])
        assert server.connections == 3


def test_a_forked_process_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(GOOD) as server, client_of(server) as client:
        client.decide([1.0])
        monkeypatch.setattr(os, "getpid", lambda: -1)
        client.decide([1.0])
        assert server.connections == 2


def test_a_call_that_is_interrupted_leaves_no_half_read_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(GOOD) as server, client_of(server) as client:
        client.decide([1.0])
        with monkeypatch.context() as patch:
            patch.setattr(http.client.HTTPConnection, "getresponse", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.decide([1.0])
        assert client.decide([1.0]).id == 3
        assert server.connections == 2


def interrupted(_: http.client.HTTPConnection) -> None:
    raise KeyboardInterrupt


def test_https_and_a_path_before_the_service() -> None:
    trusting = ssl.create_default_context(cafile=CERTIFICATE)
    with ScriptedServer(GOOD, secure=True) as server:
        with Client(server.url + "/deferkit/", policy="a b", key="dk_1_s", ssl_context=trusting) as client:
            assert client.decide([1.0]).id == 3
        assert server.asked[0][1] == "/deferkit/v1/policies/a%20b/decisions"
        assert server.keys == ["Bearer dk_1_s"]
        with Client(server.url, policy="p") as client, pytest.raises(ServiceUnavailable, match="not trusted"):
            client.decide([1.0])


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8080", "ftp://a", "http://", "http://a:x", "http://a/?b", "http://a\n", None),
        *("http://a..b", "http://" + "a" * 64, "http://a/b c", "http://a/ä"),
    ],
)
def test_what_is_no_url(url: Any) -> None:
    with pytest.raises(InvalidArgument, match="'url' of a Client"):
        Client(url, policy="p")


@pytest.mark.parametrize(
    "given", [{"policy": ""}, {"key": "a\nb"}, {"key": "é"}, {"timeout_s": 0}, {"total_s": "1"}, {"memory": 0.5}]
)
def test_what_is_no_client(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Client("http://127.0.0.1:1", **{"policy": "p", **given})


def test_a_service_that_dies_and_comes_back(tmp_path: Path) -> None:
    """Callers notice nothing but the time: each task is decided once, each cost is booked once."""
    n, threads = 60, 3
    with ServiceProcess(tmp_path) as service, service.client("p", timeout_s=20) as client:
        client.create(features=1, budget=Budget(1000, horizon=10_000, max_cost=1))
        numbers: list[int] = []
        spent: list[int] = []  # in thousandths
        failures: list[BaseException] = []

        def work(who: int) -> None:
            try:
                for i in range(n):
                    decision = client.decide([1.0], force="human", task=f"{who}-{i}")
                    client.observe(decision.id, {"human": 0.5}, cost=i / 1000)
                    numbers.append(decision.id)
                    spent.append(i)
            except BaseException as error:
                failures.append(error)

        workers = [threading.Thread(target=work, args=(who,)) for who in range(threads)]
        for worker in workers:
            worker.start()
        while len(numbers) < 0.4 * n * threads and not failures:
            time.sleep(0.005)
        service.kill()
        service.start()
        for worker in workers:
            worker.join()
        assert not failures, failures
        assert sorted(numbers) == list(range(n * threads))
        summary = client.summary()
        assert (summary.decisions, summary.pending, summary.reserved) == (n * threads, 0, 0.0)
        assert summary.spent == sum(spent) / 1000
