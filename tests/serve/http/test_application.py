"""Each route does what its description says, and its example works."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document
from deferkit.serve.http.route_support import route_of
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running

DOCUMENT: Any = msgspec.json.decode(msgspec.json.encode(document(ROUTES)))


class Checked(Client):
    """A client that holds the service to its document: each reply is one that the document has."""

    def call(self, method: str, path: str, *given: Any, **named: Any) -> Any:
        answer = super().call(method, path, *given, **named)
        parts = path.partition("?")[0].split("/")
        template = "/".join("{name}" if place == 3 and len(parts) > 3 else part for place, part in enumerate(parts))
        said = DOCUMENT["paths"][template][method.lower()]["responses"][str(answer.status)]
        said = DOCUMENT["components"]["responses"].get(str(said.get("$ref")).rpartition("/")[2], said)
        content = said.get("content", {}).get("application/json")
        if content is not None:
            schema = {**content["schema"], "components": DOCUMENT["components"]}
            jsonschema_rs.validator_for(schema).validate(answer.json)
        else:
            assert answer.body == b""
        for name in said.get("headers", {}):
            assert name.lower() in answer.headers
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        return answer


@pytest.fixture
def checked(tmp_path: Path) -> Iterator[Checked]:
    with running(tmp_path) as service:
        client = Checked(service.url)
        service.clients.append(client)
        assert client.post("/v1/policies", POLICY).status == 201
        yield client


def test_the_document_is_whole(client: Client) -> None:
    assert client.get("/v1/openapi.json").json == DOCUMENT
    names = [each["operationId"] for path in DOCUMENT["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names) == len(ROUTES)
    assert {"decide", "claim", "observe", "create_policy", "openapi"} <= set(names)
    for path in DOCUMENT["paths"].values():
        for each in path.values():
            assert 5 < len(each["summary"]) <= 80, each["summary"]
            assert each["description"].startswith(each["summary"])
            assert {"500", "503"} < set(each["responses"])
    for schema in DOCUMENT["components"]["schemas"].values():
        assert jsonschema_rs.meta.is_valid(schema)
        assert schema["description"]


def test_bodies_are_described_as_strictly_as_they_are_read() -> None:
    for route in ROUTES:
        body = route.parsed_fn_signature.parameters.get("data")
        if body is not None:
            schema = DOCUMENT["components"]["schemas"][body.annotation.__name__]
            assert schema["additionalProperties"] is False
            assert route_of(route).example is not None


def test_the_examples_of_the_document_tell_a_story_that_works(checked: Checked) -> None:
    """The examples in the order of a task's life: made, decided, claimed, extended, answered, corrected."""
    examples = {route.fn.__name__: route_of(route).example for route in ROUTES}
    paths = {
        each["operationId"]: (method.upper(), path.replace("{name}", "spam"))
        for path, routes in DOCUMENT["paths"].items()
        for method, each in routes.items()
    }
    assert checked.post("/v1/policies", examples.pop("create_policy")).status == 201

    def play(name: str, **change: Any) -> Any:
        method, path = paths.pop(name)
        return checked.call(method, path, examples[name] | change).status

    assert play("decide", force="human") == 201
    assert play("decide_batch") == 200
    method, path = paths.pop("claim")
    token = checked.call(method, path, examples["claim"]).json["token"]
    method, path = paths.pop("resume")
    token = checked.call(method, path, examples["resume"]).json["token"]
    assert [play(name, token=token) for name in ("extend", "release")] == [200, 200]

    def claim(reviewer: str) -> dict[str, Any]:
        claimed = checked.post("/v1/policies/spam/reviews/claim", {"reviewer": reviewer}).json
        return {name: claimed[name] for name in ("epoch", "token")}

    assert claim("ann")["epoch"] == 2
    assert play("reassign") == 200
    assert play("decline", **claim("ann")) == 200
    last = claim("bo")
    assert last["epoch"] == 4
    assert play("effort", token=token) == 200
    assert [play("complete", **last), play("correct_answer", **last), play("correct")] == [200, 200, 200]
    assert checked.call(*paths["observe"], examples["observe"]).status == 409  # other values than the reviewer's
    assert checked.call(*paths["observe"], {"task": "mail-2", "rewards": {"model": 1.0}}).status == 200
    assert checked.call(*paths["observe"], {"task": "mail-3", "rewards": {"model": 1.0}}).status == 202
    assert play("change_budget") == 200
    assert play("change_policy") == 200
    assert play("expire") == 409  # it is settled
    assert [play("forget"), play("reset_learner"), play("erase")] == [200, 200, 200]
    for name in (
        "read_policy",
        "read_summary",
        "read_log",
        "list_policies",
        "read_review",
        "list_reviews",
        "list_tasks",
    ):
        assert checked.get(paths[name][1]).status == 200
    for name in ("read_review_status", "list_held"):
        assert checked.get(f"{paths[name][1]}?reviewer=ann").status == 200
    assert checked.get(f"{paths['read_decision'][1]}?task=mail-1").json["final"] == "human"
    assert checked.call("DELETE", "/v1/policies/spam").json == {"deleted": "spam"}
    assert checked.call("DELETE", "/v1/policies/spam").status == 404


def test_a_decision_can_be_read_with_all_that_happened_to_it(checked: Checked) -> None:
    decided = checked.decide("t", payload={"a": [1, None]}, model_answer="ham")
    claimed = checked.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).json
    assert (claimed["payload"], claimed["model_answer"], claimed["expert"]) == ({"a": [1, None]}, "ham", "human")
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
    answer = {**lease, "answer": {"label": "spam"}, "rewards": {"human": 1.0, "model": 0.0}, "cost": 0.75}
    assert checked.post("/v1/policies/p/reviews/complete", answer).json["booked"] == 0.75
    read = checked.get("/v1/policies/p/decisions?task=t").json
    assert read["decision"] == decided.json
    assert read["explanation"].startswith("Task 0 goes to human")
    assert (read["state"], read["final"], read["answer"], read["cost"]) == ("posted", "human", {"label": "spam"}, 0.75)
    assert read["rewards"] == {"human": 1.0, "model": 0.0}
    assert [line["kind"] for line in read["history"]] == ["decided", "observed"]
    assert [(claim["reviewer"], claim["effort"]) for claim in read["claims"]] == [("ann", None)]
    assert checked.get("/v1/policies/p/decisions?task=u").status == 404


def test_policies_are_listed_by_pages(checked: Checked) -> None:
    for name in ("c", "a", "b", "Z"):
        checked.post("/v1/policies", POLICY | {"name": name})
    names: list[str] = []
    after = ""
    while after is not None:
        page = checked.get(f"/v1/policies?limit=2&after={after}").json
        names += [policy["name"] for policy in page["policies"]]
        after = page["next"]
    assert names == ["Z", "a", "b", "c", "p"]
    assert checked.get("/v1/policies?after=zzz").json == {"policies": [], "next": None}


def test_the_log_is_read_by_pages(checked: Checked) -> None:
    for n in range(5):
        checked.decide(f"t{n}", force="model")
    rows: list[Any] = []
    start = 0
    while start is not None:
        page = checked.get(f"/v1/policies/p/log?start={start}&limit=2").json
        rows += page["rows"]
        start = page["next"]
    assert [row["seq"] for row in rows] == list(range(6))
    assert [row["kind"] for row in rows] == ["created"] + ["decided"] * 5
    assert rows[1]["record"]["context"] == [1.0, 0.5]
    assert len({row["hash"] for row in rows}) == 6
    assert checked.get("/v1/policies/p/log?start=9007199254740991").json == {"rows": [], "next": None}


def test_a_policy_is_changed_where_it_may_be(checked: Checked) -> None:
    def change(body: Any) -> Any:
        return checked.call("PATCH", "/v1/policies/p", body)

    assert change({"deadline_s": 60, "reviewers": 2}).json["deadline_s"] == 60
    assert checked.get("/v1/policies/p").json["reviewers"] == 2
    assert change({"deadline_s": None}).json["deadline_s"] is None
    assert change({}).json["reviewers"] == 2
    for bad in ({"features": 3}, {"reviewers": None}, {"lease_s": 0}, {"deadline_s": -1}, {"after_deadline": "never"}):
        assert change(bad).status == 422
    assert checked.call("PATCH", "/v1/policies/q", {}).status == 404
    checked.decide("t")
    assert checked.get("/v1/policies/p/summary").json["queue"]["waiting"] == 2


def test_a_policy_may_be_made_again_but_not_another_of_its_name(checked: Checked) -> None:
    assert checked.post("/v1/policies", POLICY).json == checked.get("/v1/policies/p").json
    first = checked.post("/v1/policies", POLICY)
    assert checked.call("PATCH", "/v1/policies/p", {"reviewers": 2}).status == 200
    again = checked.post("/v1/policies", POLICY)  # as a script does that makes what is missing
    assert (again.status, again.body) == (201, first.body)
    assert checked.get("/v1/policies/p").json["reviewers"] == 2
    answer = checked.post("/v1/policies", POLICY | {"features": 3, "seed": 5})
    assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert answer.json["detail"] == "There is another policy 'p', made with other settings: features, seed."


def test_a_summary_adds_up(checked: Checked) -> None:
    checked.decide("t")
    checked.decide("u", force="model")
    checked.post("/v1/policies/p/outcomes", {"task": "v", "rewards": {"model": 1.0}})
    summary = checked.get("/v1/policies/p/summary").json
    assert (summary["decisions"], summary["routes"], summary["pending"]) == (2, {"model": 1, "human": 1}, 1)
    assert summary["budget"]["cost"] == {"total": 10, "reserved": 1, "posted": 0, "suspense": 0, "free": 9}
    assert (summary["parked"], summary["records"]) == (1, 3)
    assert summary["queue"]["waiting"] == 1


def test_a_batch_decides_each_by_itself(checked: Checked) -> None:
    good = {"task": "a", "context": [1.0, 0.5], "force": "model"}
    tasks = [good, good, good | {"context": [0.0, 0.5]}, good | {"task": "b", "context": [1.0]}, good | {"task": "c"}]
    results = checked.post("/v1/policies/p/decisions/batch", {"tasks": tasks}).json["results"]
    assert [result["status"] for result in results] == [201, 201, 409, 422, 201]
    assert results[0] == results[1]
    wrong: list[Any] = [[], [good] * 1001, [{}], "x"]
    for bad in wrong:
        assert checked.post("/v1/policies/p/decisions/batch", {"tasks": bad}).status == 422


@pytest.mark.parametrize("route", ["extend", "release", "complete", "effort", "decline", "correct"])
def test_a_claim_that_is_none_is_refused(checked: Checked, route: str) -> None:
    given: dict[str, Any] = {"effort": {"cost": 0.5}, "correct": {"id": "c"}}
    path, more = f"/v1/policies/p/reviews/{route}", given.get(route, {})
    assert checked.post(path, {"task": "nope", "epoch": 1, **more}).status == 404
    checked.decide("t")
    assert checked.post(path, {"task": "t", "seat": 1, "epoch": 1, **more}).status == 404
    assert checked.post("/v1/policies/p/reviews/claim", {"reviewer": "ann", "experts": ["human"]}).status == 200
    assert checked.post("/v1/policies/p/reviews/claim", {"reviewer": "bo"}).status == 204
    for bad in ({"epoch": 0}, {"epoch": 2}):
        assert checked.post(path, {"task": "t", **bad, **more}).status in (404, 409)
    wrong: list[Any] = [{"epoch": -1}, {"epoch": 1, "seat": 16}, {"epoch": True}, {"epoch": 1.5}, {"epoch": 2**53}, {}]
    for bad in wrong:
        assert checked.post(path, {"task": "t", **bad, **more}).status == 422


def test_a_budget_is_changed_once_for_each_id(checked: Checked) -> None:
    path = "/v1/policies/p/budget"
    assert checked.post(path, {"id": "a", "add": 5}).json["budget"]["cost"]["total"] == 15
    assert checked.post(path, {"id": "b", "total": 20}).json["budget"]["cost"]["total"] == 20
    assert checked.post(path, {"id": "a", "add": 5}).json["budget"]["cost"]["total"] == 15  # as it was then
    assert checked.post(path, {"id": "a", "add": 6}).status == 409
    checked.decide("t")
    assert checked.post(path, {"id": "c", "total": 0.5}).status == 409
    assert checked.post(path, {"id": "c", "add": -100}).status == 409
    wrong: list[Any] = [{}, {"add": 1, "total": 1}, {"add": {"euros": 1}}, {"add": 1e-7}, {"total": -1}]
    for bad in wrong:
        assert checked.post(path, {"id": "d", **bad}).status == 422, bad
    assert checked.get("/v1/policies/p/summary").json["budget"]["cost"]["total"] == 20


def test_an_expiration_frees_what_was_held(checked: Checked) -> None:
    checked.decide("t")
    assert checked.post("/v1/policies/p/expirations", {"task": "t"}).json == {"task": "t", "final": "model"}
    assert checked.get("/v1/policies/p/summary").json["budget"]["cost"]["reserved"] == 0
    assert checked.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).status == 204
    assert checked.post("/v1/policies/p/expirations", {"task": "u"}).status == 404


def test_names_may_be_anything_that_can_be_read(checked: Checked) -> None:
    for name in ("a", "A.b-c_9", "0", "x" * 64):
        assert checked.post("/v1/policies", POLICY | {"name": name}).status == 201
        assert checked.get(f"/v1/policies/{name}").json["name"] == name
    for task in ("a/b?c=d&e#f", "ü 日本 🙂", "'; DROP TABLE decisions; --", "%00", "../..", "x" * 128):
        assert checked.decide(task, force="model").json["task"] == task


def test_the_service_in_a_thread_is_the_one_that_is_shipped(service: Running) -> None:
    assert type(service.server).__module__ == "deferkit.serve.http.server"
