"""What is sent again, at once or later, is done once and answered alike."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serve.harness.clients import Answer, Client, until
from tests.serve.harness.in_process import POLICY, Running, running

OUTCOMES = "/v1/policies/p/outcomes"


def records(client: Client) -> int:
    """Return how long the log is."""
    return int(client.get("/v1/policies/p/summary").json["records"])


def test_the_same_task_again_gets_the_same_bytes(service: Running, client: Client) -> None:
    body = {"task": "again", "context": [0.1 + 0.2, 1 / 3], "payload": {"b": 1, "a": 2}}
    first = client.post("/v1/policies/p/decisions", body)
    after = records(client)
    for other in (client, service.client()):
        for text in (json.dumps(body), json.dumps(body, sort_keys=True, indent=2)):
            again = other.post("/v1/policies/p/decisions", text.encode())
            assert (again.status, again.body) == (201, first.body)
    assert 0 < first.json["propensity"] <= 1
    assert records(client) == after


def test_the_same_task_gets_the_same_bytes_after_a_restart(tmp_path: Path) -> None:
    answers = []
    for _ in range(2):
        with running(tmp_path) as service:
            client = service.client()
            assert client.post("/v1/policies", POLICY | {"explore_floor": 0.5}).status == 201
            answers.append([client.decide(f"t{n}", context=[1.0, n / 7], force=None).body for n in range(20)])
    assert answers[0] == answers[1]
    assert len({json.loads(answer)["propensity"] for answer in answers[0]}) > 1


def test_the_same_task_with_another_body_is_a_conflict(client: Client) -> None:
    assert client.decide("other body").status == 201
    after = records(client)
    for change in ({"context": [1.0, 0.6]}, {"force": "model"}, {"payload": 1}, {"reviewers": 2}):
        answer = client.decide("other body", **change)
        assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert records(client) == after
    batch = client.post("/v1/policies/p/decisions/batch", {"tasks": [{"task": "other body", "context": [0, 0]}] * 2})
    assert [each["status"] for each in batch.json["results"]] == [409, 409]
    assert records(client) == after


def at_once(service: Running, n: int, path: str, body: Any) -> list[Answer]:
    """Send the same request over many connections at the same moment."""
    barrier = threading.Barrier(n)

    def one(client: Client) -> Answer:
        barrier.wait()
        return client.post(path, body)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, [service.client() for _ in range(n)]))


def test_fifty_at_once_are_one_decision(service: Running, client: Client) -> None:
    before = client.get("/v1/policies/p/summary").json
    body = {"task": "fifty", "context": [1.0, 0.5], "force": "human"}
    answers = at_once(service, 50, "/v1/policies/p/decisions", body)
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    after = client.get("/v1/policies/p/summary").json
    assert after["records"] == before["records"] + 1
    assert after["budget"]["cost"]["reserved"] == before["budget"]["cost"]["reserved"] + 1


def test_fifty_top_ups_at_once_are_one(service: Running, client: Client) -> None:
    before = client.get("/v1/policies/p/summary").json["budget"]["cost"]["total"]
    answers = at_once(service, 50, "/v1/policies/p/budget", {"id": "fifty", "add": 5})
    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    assert client.get("/v1/policies/p/summary").json["budget"]["cost"]["total"] == before + 5


def test_fifty_times_the_same_policy_is_one(service: Running, client: Client) -> None:
    answers = at_once(service, 20, "/v1/policies", POLICY | {"name": "fifty"})
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert client.get("/v1/policies/fifty/log").json["next"] is None


def test_a_full_queue_says_when_to_try_again(tmp_path: Path) -> None:
    most = 4 + 2  # in the queue and in the group that is being committed
    with running(tmp_path, queue_limit=4, tenant_share=1, group_limit=2) as service:
        client = service.client()
        client.post("/v1/policies", POLICY)
        with service.held_up() as gate, ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(service.client().decide, f"t{n}", force="model") for n in range(20)]
            until(lambda: sum(call.done() for call in calls) >= 20 - most)
            gate.open.set()
            answers = [call.result() for call in calls]
        refused = [answer for answer in answers if answer.status != 201]
        assert 20 - most <= len(refused) < 20
        assert {(each.status, each.json["code"], each.headers["retry-after"]) for each in refused} == {
            (503, "unavailable", "1")
        }
        assert client.get("/v1/policies/p/summary").json["decisions"] == 20 - len(refused)
        assert client.decide("later", force="model").status == 201


@pytest.mark.parametrize("body", [{"rewards": {"model": 1.0}}, {"rewards": {"model": 1.0}, "cost": 0}])
def test_an_outcome_of_an_unknown_task_is_not_found(client: Client, body: Any) -> None:
    answer = client.post(OUTCOMES, body | {"task": "never decided", "park": False})
    assert (answer.status, answer.json["code"]) == (404, "unknown")


def test_a_reward_of_nobody_is_refused(client: Client) -> None:
    client.decide("of nobody")
    for task in ("of nobody", "not yet decided"):
        answer = client.post(OUTCOMES, {"task": task, "rewards": {"nobody": 1.0}})
        assert (answer.status, answer.json["code"]) == (422, "invalid")


COSTS: dict[str, Any] = {
    "negative": b"-0.5",
    "NaN": b"NaN",
    "infinite": b"Infinity",
    "1e999": b"1e999",
    "beyond the unit": b"0.0000001",
    "too large": b"9007199255",
    "a text": b'"1"',
    "a truth": b"true",
    "of another resource": b'{"euros": 1}',
    "of no resource": b"{}",
}


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
def test_a_cost_that_is_none_is_refused(client: Client, cost: bytes) -> None:
    client.decide("costs", force="human")
    before = client.get("/v1/policies/p/summary").json["budget"]
    for path in ("outcomes", "corrections"):
        request = b'{"task": "costs", %b"cost": %b}' % (b'"id": "c", ' if path == "corrections" else b"", cost)
        assert client.post(f"/v1/policies/p/{path}", request).status in (400, 422)
    assert client.get("/v1/policies/p/summary").json["budget"] == before


def test_a_cost_above_its_reservation_is_an_overrun(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        client.post("/v1/policies", POLICY)
        client.decide("dear")
        assert client.post(OUTCOMES, {"task": "dear", "cost": 12.5}).json["booked"] == 12.5
        summary = client.get("/v1/policies/p/summary").json
        assert summary["budget"]["cost"] == {"total": 10, "reserved": 0, "posted": 10, "suspense": 2.5, "free": 0}
        assert summary["frozen"]
        assert client.decide("next").status == 409
        assert client.decide("next", force=None).json["reason"] == "budget"
