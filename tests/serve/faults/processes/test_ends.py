"""Clients that leave, restarts, and an end in order."""

import json
import signal
import socket
import time
from collections.abc import Callable

from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import CROWD_POLICY, PATH, Crowd, until
from tests.serve.harness.in_process import KEY
from tests.serve.harness.policy_histories import audit, check_last_snapshot, check_log
from tests.serve.harness.service_process import ServiceProcess

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]


def task(number: int) -> dict[str, object]:
    return {"task": f"t{number}", "context": [number % 3, number % 5, 1]}


def leave(service: ServiceProcess, body: dict[str, object], *, whole: bool, after_s: float = 0.0) -> None:
    """Send a task, or the half of it, and hang up without reading the reply."""
    data = json.dumps(body).encode()
    head = f"POST {PATH}/decisions HTTP/1.1\r\nhost: {service.host}\r\ncontent-type: application/json\r\n"
    with socket.create_connection((service.host, service.port), timeout=60) as connection:
        connection.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(data))
        connection.sendall(data if whole else data[: len(data) // 2])
        time.sleep(after_s)


def test_a_client_that_leaves_has_its_decision_once(service_on: ServiceOn, store_url: str, reading: Reading) -> None:
    service = service_on(store_url)
    service.start()
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    for number in range(20):
        leave(service, task(number), whole=True, after_s=number % 5 / 100)
        leave(service, task(100 + number), whole=False)
    until(lambda: service.get(f"{PATH}/summary").json["decisions"] >= 5, "some are decided")
    seen = [service.get(f"{PATH}/decisions?task=t{number}") for number in range(20)]
    first = [service.post(f"{PATH}/decisions", **task(number)) for number in range(20)]
    assert {each.status for each in first} == {201}
    stood = [(then.json["decision"], now.json) for then, now in zip(seen, first, strict=True) if then.status == 200]
    assert len(stood) >= 5
    assert all(then == now for then, now in stood)
    service.kill()
    service.start()
    service.ready()
    again = [service.post(f"{PATH}/decisions", **task(number)) for number in range(20)]
    assert [each.reply for each in again] == [each.reply for each in first]
    asked = sum(each.json["route"] != "model" for each in first)
    summary = service.get(f"{PATH}/summary").json
    assert (summary["decisions"], summary["budget"]["cost"]["reserved"]) == (20, asked)
    assert 0 < asked < 20
    assert service.get(f"{PATH}/decisions?task=t100").status == 404  # the half of a request is none
    assert service.stop() == 0
    store = Store(reading(store_url))
    row = store.policy(*KEY)
    assert row is not None
    assert len(check_log(store, row)) == 20


def test_the_random_stream_goes_on_after_restarts(service_on: ServiceOn, sqlite_path: str) -> None:
    restarted, steady = service_on(sqlite_path), service_on(sqlite_path + "2")
    ample = CROWD_POLICY | {"budget": {"cost": {"total": 1000, "horizon": 1000, "max_cost": 1}}}
    for each in (restarted, steady):
        each.start()
        assert each.ready().post("/v1/policies", **ample).status == 201
    replies = []
    for number in range(24):
        if number % 4 == 3:
            restarted.kill() if number % 8 == 3 else restarted.stop()
            restarted.start()
            restarted.ready()
        replies.append(restarted.post(f"{PATH}/decisions", **task(number)))
        assert replies[-1].reply == steady.post(f"{PATH}/decisions", **task(number)).reply
    assert len({each.json["route"] for each in replies}) == 3


def test_sigterm_drains_and_loses_nothing(service_on: ServiceOn, store_url: str, reading: Reading) -> None:
    service = service_on(store_url, stop_s=2)
    service.start(fresh=True)  # all of it, as a user starts it
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    with Crowd(service) as crowd, socket.create_connection((service.host, service.port), timeout=60) as idle:
        idle.sendall(b"POST /v1/policies HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{")  # never the rest
        crowd.go_on(100)
        began = time.monotonic()
        service.signal(signal.SIGTERM)
        assert service.wait() == 0, service.log
        took = time.monotonic() - began
        check_last_snapshot(reading(store_url))  # what it had in memory is in the log, and nothing else
        assert set(crowd.decisions) <= set(decided(reading(store_url)))
        service.start()
    print(f"stopped within {took:.1f} s, {crowd.count} acknowledged")
    assert took < 2 + 30  # its time, and a machine that is busy
    assert service.stop() == 0
    audit(reading(store_url), crowd)


def decided(database: Database) -> list[str]:
    """Return the tasks that are decided."""
    store = Store(database)
    row = store.policy(*KEY)
    assert row is not None
    return [line.task for line in store.log(row.id) if line.kind == "decided" and line.task is not None]
