"""The route that decides a task: however a call is sent, it has the same answers as any other route."""

from pathlib import Path
from typing import Any

import pytest

from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.engine.engine import Engine
from deferkit.serve.http import auth
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running

PATH = "/v1/policies/p/decisions"
CHARSET = {"content-type": "application/json; charset=utf-8"}


def test_a_task_has_the_same_reply_whatever_the_content_type_adds(client: Client) -> None:
    for n, ways in enumerate([({}, CHARSET), (CHARSET, {})]):
        body = {"task": f"both ways {n}", "context": [0.3, n / 3], "force": "human"}
        first, second = (client.post(PATH, body, headers=way) for way in ways)
        assert (first.status, first.body) == (second.status, second.body)
        assert first.status == 201


@pytest.mark.parametrize(
    "body",
    [
        {"task": "t", "context": [1.0]},
        {"task": "t", "context": [1.0, "1"]},
        {"task": "t", "context": [1.0, 2.0], "unknown": 1},
        {"task": "", "context": [1.0, 2.0]},
        {"task": "t", "context": [1.0, 2.0], "force": "nobody"},
        b"",
        b"{",
        b'{"task": "t", "task": "u", "context": [1, 2]}',
    ],
)
def test_what_is_wrong_is_said_alike(client: Client, body: Any) -> None:
    plain, charset = (client.post(PATH, body, headers=way) for way in ({}, CHARSET))
    assert (plain.status, plain.body) == (charset.status, charset.body)
    assert plain.status in (400, 422)


def test_conflicts_and_unknown_policies_are_said_alike(client: Client) -> None:
    assert client.decide("taken").status == 201
    for path, body, status in (
        (PATH, {"task": "taken", "context": [9.0, 9.0]}, 409),
        ("/v1/policies/nowhere/decisions", {"task": "t", "context": [1.0, 2.0]}, 404),
    ):
        plain, charset = (client.post(path, body, headers=way) for way in ({}, CHARSET))
        assert (plain.status, plain.body) == (charset.status, charset.body)
        assert plain.status == status


def test_both_ways_are_counted_as_one_route(client: Client) -> None:
    def count() -> float:
        wanted = 'deferkit_requests_total{method="POST",path="/v1/policies/{name}/decisions",status="201"}'
        lines = client.get("/metrics").body.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(wanted))

    before = count()
    for n, way in enumerate(({}, CHARSET)):
        assert client.post(PATH, {"task": f"counted {n}", "context": [1.0, 2.0]}, headers=way).status == 201
    assert count() == before + 2


def test_a_database_that_cannot_be_read_is_said_alike(
    service: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreFailed("SQLite: s3cret.")

    monkeypatch.setattr(auth, "FRESH_S", -1.0)
    monkeypatch.setattr(service.store, "keys", fail)
    for way in ({}, CHARSET):
        answer = client.post(PATH, {"task": "unread", "context": [1.0, 2.0]}, headers=way)
        assert (answer.status, answer.json["code"], answer.headers["retry-after"]) == (503, "unavailable", "1")


def test_a_fault_of_ours_is_said_alike(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("s3cret")

    monkeypatch.setattr(Engine, "submit", fail)
    for way in ({}, CHARSET):
        answer = client.post(PATH, {"task": "fault", "context": [1.0, 2.0]}, headers=way)
        assert answer.json == {"status": 500, "code": "internal", "detail": "The call failed: ZeroDivisionError."}


def test_a_decision_that_fails_is_not_tried_a_second_way(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    async def fail(*_: Any) -> None:
        nonlocal tried
        tried += 1
        raise ZeroDivisionError

    monkeypatch.setattr(Engine, "submit", fail)
    assert client.post(PATH, {"task": "fault", "context": [1.0, 2.0]}).status == 500
    assert tried == 1


@pytest.mark.parametrize("path", [f"{PATH}/", f"/{PATH}", "/v1//policies/p/decisions"])
def test_slashes_are_not_counted(client: Client, path: str) -> None:
    body = {"task": "slashes", "context": [1.0, 2.0]}
    assert client.post(path, body).body == client.post(PATH, body).body


def test_a_parameter_is_refused(client: Client) -> None:
    answer = client.post(f"{PATH}?task=t", {"task": "t", "context": [1.0, 2.0]})
    assert (answer.status, answer.json["detail"]) == (422, "There is no parameter 'task'. There is none.")


def test_the_route_is_declared_for_those_who_ask_what_there_is(client: Client) -> None:
    assert client.call("OPTIONS", PATH).headers["allow"] == "GET, OPTIONS, POST"
    assert set(client.call("PUT", PATH).headers["allow"].split(", ")) == {"GET", "OPTIONS", "POST"}


def test_a_body_of_nobody_is_not_read(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True, max_body=1000) as service:
        assert service.client().post(PATH, b"[" * 2000).status == 401


def test_a_key_is_good_for_the_same_either_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FRESH_S", -1.0)
    with running(tmp_path, tenants=True, rate=1000) as service:
        client, reader = service.client("acme"), service.client("acme", "review")
        assert client.post("/v1/policies", POLICY).status == 201
        for way in ({}, CHARSET):
            body = {"task": f"t{len(way)}", "context": [1.0, 2.0]}
            assert service.client().post(PATH, body, headers=way).status == 401
            assert reader.post(PATH, body, headers=way).status == 403
            assert service.client("other").post(PATH, body, headers=way).status == 404
            assert client.post(PATH, body, headers=way).status == 201


@pytest.mark.parametrize("way", [{}, CHARSET], ids=["plain", "charset"])
def test_calls_are_counted_once(tmp_path: Path, way: dict[str, str]) -> None:
    with running(tmp_path, rate=0.001) as service:  # one call, and no other in the next minutes
        client = service.client()
        statuses = [client.post(PATH, {"task": "t", "context": [1.0]}, headers=way).status for _ in range(2)]
        assert statuses == [404, 429]
