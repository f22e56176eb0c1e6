"""What each reviewer has done, over HTTP, on both databases."""

from pathlib import Path
from typing import Any

import pytest

import deferkit
from tests.serve.harness.clients import Client
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import POLICY, running

REVIEW = {
    "form": [{"name": "label", "kind": "choice", "options": [{"value": "spam"}, {"value": "ham"}]}],
    "timer": {"resource": "cost", "unit_s": 60},
}


@pytest.fixture(params=["sqlite", "postgres"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    given: dict[str, Any] = (
        {"store": url_of(request.getfixturevalue("postgres_url"))} if request.param == "postgres" else {}
    )
    with running(tmp_path, **given) as service:
        yield service


def claim(client: Client, reviewer: str) -> dict[str, Any]:
    claimed = client.post("/v1/policies/p/reviews/claim", {"reviewer": reviewer}).json
    return {name: claimed[name] for name in ("task", "seat", "epoch", "token")}


def complete(client: Client, reviewer: str, label: str, cost: float) -> None:
    body = claim(client, reviewer) | {"answer": {"label": label}, "rewards": {"human": 1}, "cost": cost}
    assert client.post("/v1/policies/p/reviews/complete", body).status == 200


def test_each_reviewer_has_a_line(service: Any) -> None:
    client = service.client()
    assert client.post("/v1/policies", POLICY | {"reviewers": 2, "review": REVIEW}).status == 201
    for n in range(3):
        assert client.decide(f"t{n}", model_answer="spam").status == 201
    for label in ("spam", "ham", "spam"):
        complete(client, "ann", label, 0.25)
    complete(client, "bo", "spam", 0.5)
    complete(client, "bo", "spam", 0.5)
    declined = claim(client, "bo")
    assert client.post("/v1/policies/p/reviews/decline", declined | {"reason": "a friend"}).status == 200
    held = claim(client, "cy")
    ann, bo, cy = client.get("/v1/policies/p/reviewers").json["reviewers"]
    last = [line.pop("last") for line in (ann, bo, cy)]
    assert last == sorted(last)
    assert ann == {
        "reviewer": "ann",
        "done": 3,
        "held": 0,
        "declined": 0,
        "lapsed": 0,
        "active_s": 45.0,
        "cost": {"cost": 0.75},
        "agrees_with_model": pytest.approx(2 / 3),
        "agrees_with_colleagues": ann["agrees_with_colleagues"],
    }
    assert (bo["done"], bo["declined"], bo["lapsed"], bo["agrees_with_model"]) == (2, 1, 0, 1.0)
    assert bo["agrees_with_colleagues"] == ann["agrees_with_colleagues"] == 0.5  # the same two tasks
    assert (cy["held"], cy["done"], cy["cost"], cy["agrees_with_model"]) == (1, 0, {"cost": 0.0}, None)
    assert client.post("/v1/policies/p/reviews/release", held).status == 200
    with deferkit.Client(service.url, policy="p") as caller:
        assert [line["lapsed"] for line in caller.figures.reviewers()] == [0, 0, 1]
