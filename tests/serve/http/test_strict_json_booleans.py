"""`true` and `false` are rewards over HTTP, as True and False are in the library; elsewhere they are no numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferkit.serve.audit.replay import replay
from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running

PATH = "/v1/policies/p"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as service:
        assert service.client().post("/v1/policies", POLICY).status == 201
        yield service


def rewards_of(client: Client, task: str) -> Any:
    return client.get(f"{PATH}/decisions?task={task}").json["rewards"]


def test_true_and_false_are_rewards_of_an_outcome_and_a_correction(service: Running) -> None:
    client = service.client()
    assert client.decide("t1").status == 201
    outcome = {"task": "t1", "rewards": {"human": True, "model": False}, "cost": 1}
    assert client.post(f"{PATH}/outcomes", outcome).status == 200
    assert client.post(f"{PATH}/outcomes", outcome | {"rewards": {"human": 1.0, "model": 0}}).status == 200
    assert client.post(f"{PATH}/outcomes", outcome | {"rewards": {"human": False}}).status == 409
    assert repr(rewards_of(client, "t1")) == "{'human': 1.0, 'model': 0.0}"
    correction = {"id": "c", "task": "t1", "rewards": {"human": False}}
    first = client.post(f"{PATH}/corrections", correction)
    assert first.status == 200
    again = client.post(f"{PATH}/corrections", correction | {"rewards": {"human": 0.0}})  # the same request
    assert (again.status, again.body) == (200, first.body)
    assert rewards_of(client, "t1") == {"human": 0.0, "model": 0.0}
    assert replay(service.store, "default", "p").faults == []


def test_true_is_a_reward_of_a_review_and_of_a_parked_outcome(service: Running) -> None:
    client = service.client()
    assert client.post(f"{PATH}/outcomes", {"task": "t2", "rewards": {"model": True}}).status == 202
    assert client.decide("t2").status == 201
    claimed = client.post(f"{PATH}/reviews/claim", {"reviewer": "ann"}).json
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
    assert client.post(f"{PATH}/reviews/complete", lease | {"rewards": {"human": True}, "cost": 1}).status == 200
    assert repr(rewards_of(client, "t2")) in ("{'model': 1.0, 'human': 1.0}", "{'human': 1.0, 'model': 1.0}")
    assert replay(service.store, "default", "p").faults == []


@pytest.mark.parametrize(
    "body", [{"cost": True}, {"cost": {"cost": True}}, {"rewards": {"human": "true"}}, {"rewards": {"human": None}}]
)
def test_a_truth_value_is_no_cost_and_a_word_is_no_reward(service: Running, body: dict[str, Any]) -> None:
    client = service.client()
    assert client.decide("t3").status == 201
    assert client.post(f"{PATH}/outcomes", {"task": "t3", **body}).status == 422


def test_the_openapi_document_shows_boolean_rewards() -> None:
    schemas = document(ROUTES)["components"]["schemas"]
    for name in ("OutcomeBody", "CorrectionBody", "CompleteBody"):
        values = schemas[name]["properties"]["rewards"]["additionalProperties"]["anyOf"]
        assert {each["type"] for each in values} == {"number", "boolean"}
    assert schemas["OutcomeBody"]["properties"]["cost"]["anyOf"][0]["type"] == "number"
