"""Tenants do not see, wait for or pay for each other."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deferkit.serve.http import auth
from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.route_support import route_of
from tests.serve.harness.clients import until
from tests.serve.harness.in_process import POLICY, Running, running

QUERIES = {
    "read_decision": "?task=secret",
    "read_review_status": "?reviewer=x",
    "list_held": "?reviewer=x",
    "read_what_if": "?job=00",
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FRESH_S", -1.0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, tenants=True) as service:
        yield service


def test_the_same_names_in_two_tenants_are_two_things(service: Running) -> None:
    a, b = service.client("a"), service.client("b")
    assert a.post("/v1/policies", POLICY).status == 201
    assert b.post("/v1/policies", POLICY | {"experts": ["ann"], "budget": {"euros": {}}}).status == 201
    assert a.decide("t", payload="of a").json["route"] == "human"
    assert b.decide("t", payload="of b", force="ann").json["route"] == "ann"
    assert a.post("/v1/policies/p/outcomes", {"task": "t", "rewards": {"human": 1.0}, "cost": 0.5}).status == 200
    assert b.post("/v1/policies/p/outcomes", {"task": "t", "rewards": {"human": 1.0}}).status == 422
    assert a.get("/v1/policies/p/summary").json["outcomes"] == 1
    assert b.get("/v1/policies/p/summary").json["outcomes"] == 0
    assert a.post("/v1/policies/p/budget", {"id": "t", "add": 1}).status == 200
    assert b.post("/v1/policies/p/budget", {"id": "t", "add": 1}).status == 422  # its own has no end
    assert b.post("/v1/policies/p/reviews/claim", {"reviewer": "x"}).json["payload"] == "of b"
    assert a.post("/v1/policies/p/reviews/claim", {"reviewer": "x"}).status == 204  # settled


def test_what_another_tenant_has_is_not_there(service: Running) -> None:
    a, b = service.client("a"), service.client("b")
    assert b.post("/v1/policies", POLICY | {"name": "mine"}).status == 201
    assert b.decide("secret", "mine", payload="secret").status == 201
    for route in ROUTES:
        path = next(iter(route.paths))
        if "{name:str}" in path:
            path = path.replace("{name:str}", "mine") + QUERIES.get(route.fn.__name__, "")
            example = route_of(route).example
            answer = a.call(next(iter(route.http_methods)), path, example)
            assert (answer.status, answer.json["detail"]) == (404, "There is no policy 'mine'."), path
    assert a.get("/v1/policies").json == {"policies": [], "next": None}
    assert b"mine" not in a.get("/metrics").body
    assert b'policy="mine"' in b.get("/metrics").body
    assert b.post("/v1/policies/mine/reviews/claim", {"reviewer": "x"}).json["task"] == "secret"


def test_one_tenant_does_not_fill_the_queue_for_another(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True, queue_limit=10, tenant_share=0.5, group_limit=1) as service:
        a = [service.client("a") for _ in range(20)]
        b = [service.client("b") for _ in range(4)]
        for client in (a[0], b[0]):
            assert client.post("/v1/policies", POLICY).status == 201
        watch = service.client("a")
        with service.held_up() as gate, ThreadPoolExecutor(30) as pool:
            greedy = [pool.submit(client.decide, f"t{n}", force="model") for n, client in enumerate(a)]
            until(lambda: sum(call.done() for call in greedy) >= 14)  # 5 wait, 1 is being committed
            modest = [pool.submit(client.decide, f"t{n}", force="model") for n, client in enumerate(b)]
            until(lambda: b"deferkit_queue_length 9.0" in watch.get("/metrics").body)
            gate.open.set()
            assert {call.result().status for call in modest} == {201}
            assert {call.result().status for call in greedy} == {201, 503}


class Hand:
    """A clock that is moved by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    """The clock of the rates."""
    hand = Hand()
    monkeypatch.setattr(auth, "clock", hand)
    return hand


def test_each_tenant_has_its_own_rate(tmp_path: Path, hand: Hand) -> None:
    with running(tmp_path, tenants=True, rate=5) as service:
        a, b = service.client("a"), service.client("b")
        answers = [a.get("/v1/policies") for _ in range(20)]
        assert [answer.status for answer in answers] == [200] * 5 + [429] * 15
        assert {answer.json["code"] for answer in answers[5:]} == {"too_many"}
        assert {int(answer.headers["retry-after"]) for answer in answers[5:]} == {1}
        assert b.get("/v1/policies").status == 200
        assert a.get("/healthz").status == 200
        hand.now += 0.25
        assert [a.get("/v1/policies").status for _ in range(2)] == [200, 429]
        hand.now += 100
        assert [a.get("/v1/policies").status for _ in range(6)] == [200] * 5 + [429]


def test_a_slow_rate_says_how_long_to_wait(tmp_path: Path, hand: Hand) -> None:
    with running(tmp_path, tenants=True, rate=0.1) as service:
        a = service.client("a")
        assert a.get("/v1/policies").status == 200
        assert a.get("/v1/policies").headers["retry-after"] == "10"
        hand.now += 4
        assert a.get("/v1/policies").headers["retry-after"] == "6"
        assert service.client("a").get("/v1/policies").status == 429  # another key of the same tenant
