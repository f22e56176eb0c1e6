"""Where policies stand and how they came there, over HTTP: for those who may read, and nobody else."""

from pathlib import Path
from typing import Any

import pytest

import deferkit
from deferkit.serve.domain.problems import Problem
from deferkit.serve.engine.engine import Engine
from deferkit.serve.http import auth
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running


def answered(client: Client, n: int, policy: str = "p", *, start: int = 0) -> None:
    """Decide tasks by the human, and report what came of them."""
    for number in range(start, start + n):
        assert client.decide(f"t{number}", policy).status == 201
        outcome = {"task": f"t{number}", "rewards": {"human": 1.0, "model": 0.25}, "cost": 0.05}
        assert client.post(f"/v1/policies/{policy}/outcomes", outcome).status == 200


@pytest.fixture
def story(tmp_path: Path) -> Any:
    """A service whose policy `p` has decided ten tasks."""
    with running(tmp_path) as service:
        client = service.client()
        assert client.post("/v1/policies", POLICY).status == 201
        answered(client, 8)
        assert client.decide("model", force="model").status == 201
        assert client.decide("waits").status == 201
        yield service


def test_the_overview_has_every_policy(story: Running) -> None:
    client = story.client()
    assert client.post("/v1/policies", POLICY | {"name": "other", "budget": {"euros": {}}}).status == 201
    reply = client.get("/v1/overview").json
    assert [policy["name"] for policy in reply["policies"]] == ["other", "p"]
    other, p = reply["policies"]
    assert other["state"] == "No task has come yet."
    assert (p["decisions"], p["routes"], p["deferral_rate"]) == (10, {"model": 1, "human": 9}, 0.9)
    assert p["budget"]["cost"] == {"total": 10, "reserved": 1, "posted": 0.4, "suspense": 0, "free": 8.6}
    assert p["pace"] == pytest.approx(0.04 / 0.01)
    assert p["gain"] == {"value": 6.0, "error": 0.0, "basis": "observed"}
    assert (p["queue"]["waiting"], p["queue"]["claimed"]) == (1, 0)
    assert reply["now"] > 1.7e9
    standing = client.get("/v1/policies/p/standing").json
    same = [name for name in p if name not in ("queue", "runs_out_at")]  # time goes on
    assert {name: standing[name] for name in same} == {name: p[name] for name in same}


def test_the_series_ends_where_the_policy_stands(story: Running) -> None:
    client = story.client()
    reply = client.get("/v1/policies/p/series?buckets=5").json
    records = client.get("/v1/policies/p/summary").json["records"]
    assert (reply["complete"], reply["read"], reply["records"]) == (True, records, records)
    assert 1 <= len(reply["start"]) <= 5
    assert (reply["decisions"][-1], reply["deferred"][-1]) == (10, 9)
    assert {name: column[-1] for name, column in reply["routes"].items()} == {"model": 1, "human": 9}
    assert sum(column[-1] for column in reply["reasons"].values()) == 10
    assert (reply["posted"]["cost"][-1], reply["reserved"]["cost"][-1]) == (0.4, 1)
    assert reply["plan"]["cost"][-1] == pytest.approx(10 * 10 / 1000)
    assert (reply["gain"][-1], reply["gain_error"][-1]) == (6, 0)
    answered(client, 1, start=100)
    assert client.get("/v1/policies/p/series").json["decisions"][-1] == 11
    for wrong in ("0", "2001", "x", "-1"):
        assert client.get(f"/v1/policies/p/series?buckets={wrong}").status == 422


def test_a_policy_without_tasks_has_an_empty_series(story: Running) -> None:
    client = story.client()
    assert client.post("/v1/policies", POLICY | {"name": "new"}).status == 201
    reply = client.get("/v1/policies/new/series").json
    assert (reply["complete"], reply["start"], reply["routes"]) == (True, [], {"model": [], "human": []})


def test_estimates_have_coefficients_with_errors_and_calibration(story: Running) -> None:
    client = story.client()
    reply = client.get("/v1/policies/p/estimates").json
    assert [each["target"] for each in reply["targets"]] == ["model", "human", "cost of human"]
    human = reply["targets"][1]
    assert human["samples"] == 8
    assert {each["feature"] for each in human["coefficients"]} >= {"feature 1", "feature 2"}
    assert all(each["error"] >= 0 for each in human["coefficients"])
    clarity = [abs(each["value"]) / each["error"] for each in human["coefficients"] if each["error"]]
    assert clarity == sorted(clarity, reverse=True)
    assert sum(each["count"] for each in human["calibration"]) == 8
    assert {each["observed"] for each in human["calibration"]} == {1.0}
    assert reply["drifts"] == []
    assert "linear" in reply["representation"] or "trees" in reply["representation"]


@pytest.mark.parametrize(
    "path", ["/v1/overview", *(f"/v1/policies/p/{name}" for name in ("standing", "series", "estimates"))]
)
def test_who_may_not_read_sees_nothing(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "NEW_S", -1.0)  # a key that is made in a test is known at once
    with running(tmp_path, tenants=True) as service:
        assert service.client("acme").post("/v1/policies", POLICY).status == 201
        assert service.client().get(path).status == 401
        assert service.client("acme", "decide", "observe", "review", "operator").get(path).status == 403
        assert service.client("acme", "read").get(path).status == 200
        assert service.client("acme", "admin").get(path).status == 200
        other = service.client("other").get(path)
        assert other.json["policies"] == [] if path == "/v1/overview" else other.status == 404


def test_a_policy_that_cannot_be_served_does_not_hide_the_others(
    story: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = story.client()
    assert client.post("/v1/policies", POLICY | {"name": "bad"}).status == 201
    holding = Engine.holding

    async def fail(self: Engine, key: tuple[str, str]) -> Any:
        if key[1] == "bad":
            raise Problem(500, "damaged", "The policy is damaged and not served.")
        return await holding(self, key)

    monkeypatch.setattr(Engine, "holding", fail)
    bad, p = client.get("/v1/overview").json["policies"]
    assert bad["alarms"] == [{"kind": "failing", "text": "The policy is damaged and not served."}]
    assert bad["budget"]["cost"]["total"] == 10
    assert p["decisions"] == 10


def test_a_client_reads_the_figures(story: Running) -> None:
    with deferkit.Client(story.url, policy="p") as client:
        assert [policy["name"] for policy in client.figures.overview()] == ["p"]
        assert client.figures.standing()["gain"]["value"] == 6
        assert client.figures.series(buckets=1)["decisions"] == [10]
        assert len(client.figures.estimates()["targets"]) == 3
        assert client.session()["open"] is True
