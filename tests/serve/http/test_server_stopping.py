"""A service that is told to stop finishes what it was asked, or says that it has not, and leaves in time."""

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tests.serve.harness.clients import Answer, Client, connected, rest_of, until
from tests.serve.harness.in_process import POLICY, running
from tests.serve.harness.service_process import ServiceProcess

CALLS = 20
PATIENT = "from deferkit.serve.storage import sqlite; sqlite.BUSY_S = 600"  # a commit waits as long as it takes
ONE_BY_ONE = ("--group-limit", "1")  # so that it can be seen how many wait


@contextmanager
def locked(folder: Path) -> Iterator[apsw.Connection]:
    """Hold the database, so that nothing can be committed."""
    other = apsw.Connection(str(folder / "deferkit.db"))
    other.set_busy_timeout(5000)
    other.execute("BEGIN IMMEDIATE")
    yield other
    if other.in_transaction:
        other.execute("ROLLBACK")
    other.close()


@contextmanager
def in_flight(served: ServiceProcess) -> Iterator[list[Future[Answer]]]:
    """Have calls wait for a commit."""
    clients = [Client(served.url) for _ in range(CALLS)]
    assert {client.get("/readyz").status for client in clients} == {200}
    with ThreadPoolExecutor(CALLS) as pool:
        calls = [pool.submit(client.decide, f"t{n}", force="model") for n, client in enumerate(clients)]
        watch = Client(served.url)
        clients.append(watch)
        waiting = f"deferkit_queue_length {CALLS - 1}.0".encode()  # and one is being committed
        until(lambda: waiting in watch.get("/metrics").body)
        yield calls
    for client in clients:
        client.connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_calls_in_flight_get_their_replies(tmp_path: Path, number: signal.Signals) -> None:
    with ServiceProcess(tmp_path, *ONE_BY_ONE, "--stop-s", "60", setup=PATIENT) as served:
        client = Client(served.url)
        client.post("/v1/policies", POLICY)
        idle = connected(served.url)
        with locked(tmp_path) as other, in_flight(served) as calls:
            served.signal(number)
            until(lambda: "Shutting down" in served.log)
            other.execute("ROLLBACK")
            answers = [call.result() for call in calls]
        assert served.wait(60) == 0
        assert [answer.status for answer in answers] == [201] * CALLS
        assert {answer.headers["connection"] for answer in answers} == {"close"}
        assert rest_of(idle) == b""  # a connection that asks nothing does not keep it
        idle.close()
        client.connection.close()
        assert served.events()[-1]["level"] == "info"
    with running(tmp_path) as service:
        assert service.client().get("/v1/policies/p/summary").json["decisions"] == CALLS


def test_calls_that_cannot_be_finished_are_refused_and_the_service_leaves(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, *ONE_BY_ONE, "--stop-s", "1", setup=PATIENT) as served:
        client = Client(served.url)
        client.post("/v1/policies", POLICY)
        client.connection.close()
        with locked(tmp_path), in_flight(served) as calls:
            served.signal(signal.SIGTERM)
            answers = [call.result() for call in calls]  # while nothing can be committed
            assert {(answer.status, answer.json["code"]) for answer in answers} == {(503, "unavailable")}
            assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        assert served.wait(60) == 0
    with running(tmp_path) as service:
        answers = [service.client().decide(f"t{n}", force="model") for n in range(CALLS)]
        assert [answer.status for answer in answers] == [201] * CALLS
        assert service.client().get("/v1/policies/p/summary").json["decisions"] == CALLS
