"""Two processes on one PostgreSQL: a call is answered alike, whichever of them gets it."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest

from deferkit.serve.http.auth import NEW_S
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running
from tests.serve.harness.service_process import ServiceProcess, free_port


class Pair(NamedTuple):
    owner: Client
    other: Client
    service: Running  # the other's


@pytest.fixture(scope="module")
def pair(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A process that owns the policy `p`, and one that does not, in a thread."""
    folder, schema = tmp_path_factory.mktemp("pair"), f"test_{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")  # type: ignore[arg-type, unused-ignore]
    store = f"{postgres_server}{'&' if '?' in postgres_server else '?'}options=-csearch_path%3D{schema}"
    owning = ServiceProcess(folder, store=store, port=free_port())
    owning.options.append(f"--address={owning.url}")
    with owning as served, running(folder, store=store) as service:
        key = service.key("acme")
        owner = Client(served.url, key)
        service.clients.append(owner)
        assert owner.post("/v1/policies", POLICY).status == 201
        yield Pair(owner, service.client(key=key), service)


def test_a_decision_is_the_same_wherever_it_is_asked_for(pair: Pair) -> None:
    first = pair.other.decide("t", payload="é")
    assert first.status == 201
    assert first.headers["content-type"] == "application/json"
    assert pair.owner.decide("t", payload="é").body == first.body
    assert pair.other.get("/v1/policies/p/decisions?task=t").json["decision"] == first.json
    assert pair.other.get("/v1/policies/p/summary").json["decisions"] == 1


def test_a_problem_is_the_same_wherever_it_is_met(pair: Pair) -> None:
    pair.owner.decide("u")
    for body in ({"context": [0, 0]}, {"context": [1]}, {"force": "nobody"}):
        here, there = (client.decide("u", **body) for client in (pair.other, pair.owner))
        assert here.status in (409, 422)
        assert (here.status, here.body) == (there.status, there.body)


def test_reviews_are_claimed_and_answered_wherever(pair: Pair) -> None:
    pair.owner.decide("v")
    claimed = pair.other.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).json
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
    assert pair.other.post("/v1/policies/p/reviews/extend", lease | {"lease_s": 60}).status == 200
    assert pair.owner.post("/v1/policies/p/reviews/extend", lease | {"epoch": 9}).status == 409
    assert pair.other.post("/v1/policies/p/reviews/extend", lease | {"epoch": 9}).status == 409
    assert pair.other.post("/v1/policies/p/reviews/release", lease | {"task": "nope"}).status == 404
    done = pair.other.post("/v1/policies/p/reviews/complete", lease | {"rewards": {"human": 1.0}, "cost": 0.5})
    assert (done.status, done.json["booked"]) == (200, 0.5)


def test_claims_are_resumed_declined_reassigned_and_corrected_wherever(pair: Pair) -> None:
    reviews = "/v1/policies/p/reviews"

    def claim(client: Client, reviewer: str) -> dict[str, Any]:
        claimed = client.post(f"{reviews}/claim", {"reviewer": reviewer}).json
        return {name: claimed[name] for name in ("task", "seat", "epoch", "token")}

    pair.owner.decide("x", cost=0.25)
    lease = claim(pair.owner, "dee")
    assert pair.other.get(f"{reviews}/held?reviewer=dee").json["held"][0]["task"] == lease["task"]
    key = pair.owner.headers["authorization"].removeprefix("Bearer ")
    opened = pair.other.post("/v1/session", {"key": key, "reviewer": "dee"}, headers={"authorization": ""})
    browser = pair.service.client()
    browser.headers["cookie"] = opened.headers["set-cookie"].partition(";")[0]
    resumed = browser.post(f"{reviews}/resume", {"reviewer": "dee", "task": lease["task"]}).json
    assert (resumed["epoch"], resumed["token"] != lease["token"]) == (lease["epoch"], True)
    lease["token"] = resumed["token"]
    assert pair.other.post(f"{reviews}/decline", lease).status == 200
    assert pair.owner.post(f"{reviews}/decline", lease).status == 200
    assert pair.owner.get(f"{reviews}/status?reviewer=dee").json["declined"] == 1
    assert claim(pair.other, "dee")["task"] != lease["task"]
    held = claim(pair.owner, "eve")
    assert pair.other.post(f"{reviews}/reassign", {"task": held["task"]}).status == 200
    last = claim(pair.other, "eve")
    done = pair.other.post(f"{reviews}/complete", last | {"answer": "a", "rewards": {"human": 1.0}, "cost": 0.5})
    assert done.status == 200
    corrected = pair.other.post(f"{reviews}/correct", last | {"id": "c", "answer": "b", "cost": 0.25})
    assert (corrected.status, corrected.json["cost"]) == (200, 0.25)
    again = pair.owner.post(f"{reviews}/correct", last | {"id": "c", "answer": "b", "cost": 0.25})
    assert again.body == corrected.body
    for path in ("tasks?search=x", "export/ledger.csv", "export/decisions.csv", "review", "reviews"):
        here, there = (client.get(f"/v1/policies/p/{path}") for client in (pair.other, pair.owner))
        assert (here.status, here.body) == (200, there.body)


def test_a_key_is_good_for_the_same_wherever(pair: Pair) -> None:
    reader = pair.service.client("acme", "review")
    stranger = pair.service.client("other")
    time.sleep(2 * NEW_S)
    assert reader.decide("w").status == 403
    assert stranger.decide("w").status == 404
    assert pair.service.client(key="dk_1_2").decide("w").status == 401


def test_a_session_is_good_for_the_same_wherever(pair: Pair) -> None:
    key = pair.owner.headers["authorization"].removeprefix("Bearer ")
    opened = pair.owner.post("/v1/session", {"key": key, "reviewer": "ann"}, headers={"authorization": ""})
    assert opened.status == 201
    browser = pair.service.client()
    browser.headers["cookie"] = opened.headers["set-cookie"].partition(";")[0]
    assert browser.get("/v1/session").json["reviewer"] == "ann"
    own = {"sec-fetch-site": "same-origin"}
    assert browser.post("/v1/policies/p/budget", {"id": "browser", "add": 1}, headers=own).status == 200
    assert browser.post("/v1/policies/p/reviews/claim", {"reviewer": "bo"}, headers=own).status == 403
    assert browser.get("/v1/policies/p/summary").json["budget"]["cost"]["total"] == 11
    assert browser.call("DELETE", "/v1/session").status == 204
    assert browser.get("/v1/policies/p/summary").status == 401


def test_figures_are_the_same_wherever(pair: Pair) -> None:
    assert pair.owner.decide("figures").status == 201
    for path in ("series?buckets=1", "estimates"):
        here, there = (client.get(f"/v1/policies/p/{path}") for client in (pair.other, pair.owner))
        assert (here.status, here.json) == (200, there.json)
    here, there = (client.get("/v1/overview").json["policies"] for client in (pair.other, pair.owner))
    decisions = [policy["decisions"] for policy in here]
    assert (decisions, sum(decisions) > 0) == ([policy["decisions"] for policy in there], True)
    assert pair.other.get("/v1/policies/p/standing").json["decisions"] == there[-1]["decisions"]


def test_a_call_is_passed_on_once(pair: Pair) -> None:
    answer = pair.other.get("/v1/policies/p/summary", headers={"x-deferkit-passed-on": "1"})
    assert (answer.status, answer.json["code"], answer.headers["retry-after"]) == (503, "unavailable", "1")
    assert pair.owner.get("/v1/policies/p/summary", headers={"x-deferkit-passed-on": "1"}).status == 200


@pytest.mark.parametrize("name", ["%00", "p%00", "p%0A", "%ff", "%ed%a0%80", "%F0%9F%92%A9", "..%2f"])
def test_what_is_not_a_name_is_not_there_on_postgresql_either(pair: Pair, name: str) -> None:
    assert pair.other.get(f"/v1/policies/{name}").status == 404
    assert pair.other.decide("x", name).status == 404
    assert pair.other.get(f"/v1/policies?after={name}").status == 422
    assert pair.other.get(f"/v1/policies/p/decisions?task=%00{name}").status == 422


def test_tasks_and_pages_are_the_same_on_postgresql(pair: Pair) -> None:
    for task in ("ü 日本 🙂", "'; DROP TABLE decisions; --", "\\x00", "%s %(x)s", "x" * 128):
        assert pair.other.decide(task, force="model").json["task"] == task
    for name in ("c", "a", "B", "b-1", "b.2", "b_3", "b1"):
        assert pair.owner.post("/v1/policies", POLICY | {"name": name}).status == 201
    names: list[str] = []
    after = ""
    while after is not None:
        page = pair.other.get(f"/v1/policies?limit=2&after={after}").json
        names += [policy["name"] for policy in page["policies"]]
        after = page["next"]
    assert sorted(names) == sorted(["c", "a", "B", "b-1", "b.2", "b_3", "b1", "p"])
