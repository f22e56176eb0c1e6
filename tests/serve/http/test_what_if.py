"""What-ifs over HTTP: computed beside the service, and the same as `deferkit replay --budget` says."""

import json
from pathlib import Path
from typing import Any

import pytest

import deferkit
from deferkit.serve.http import auth, what_if
from tests.command_line import deferkit as command
from tests.serve.harness.clients import Client, until
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import POLICY, running

PATH = "/v1/policies/p/what-if"
RENEWS = {"cost": {"total": 4, "every": "month", "carry": 1, "max_cost": 1}}


def tell_a_story(client: Client, **given: Any) -> None:
    """Decide tasks, some at random, and report what came of them."""
    policy = POLICY | {"explore_floor": 0.2, "representation": "linear"} | given
    assert client.post("/v1/policies", policy).status == 201
    for n in range(60):
        task = {"task": f"t{n}", "context": [1.0, n % 7 / 7]}
        route = client.post("/v1/policies/p/decisions", task).json["route"]
        outcome: dict[str, Any] = {"task": f"t{n}", "rewards": {"human": 0.9, "model": n % 7 / 7}}
        assert (
            client.post("/v1/policies/p/outcomes", outcome | ({} if route == "model" else {"cost": 0.3})).status == 200
        )


def finished(client: Client, job: str) -> Any:
    return until(lambda: (found := client.get(f"{PATH}?job={job}").json)["state"] != "running" and found)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("budget", [POLICY["budget"], RENEWS], ids=["horizon", "renews"])
def test_a_what_if_is_what_the_command_says(
    kind: str, budget: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = url_of(request.getfixturevalue("postgres_url")) if kind == "postgres" else str(tmp_path / "deferkit.db")
    with running(tmp_path, store=store) as service:
        client = service.client()
        tell_a_story(client, budget=budget)
        started = client.post(PATH, {"budgets": ["0.5x", "2x"]})
        assert started.status == 202
        found = finished(client, started.json["job"])
        assert (found["state"], found["progress"], found["error"]) == ("done", 1.0, None)
        with deferkit.Client(service.url, policy="p") as caller:
            assert caller.figures.what_if(["0.5x", "2x"])["rows"] == found["rows"]
    said = command("replay", "p", "--store", store, "--budget", "0.5x", "--budget", "2x", "--json", cwd=tmp_path)
    expected = json.loads(said.stdout)["what_if"]
    assert [row["budget"] for row in found["rows"]] == ["as it was", "0.5x", "2x"]
    assert (found["basis"], found["remarks"]) == (expected["basis"], expected["remarks"])
    total = budget["cost"]["total"]
    assert [row["totals"]["cost"] for row in found["rows"]] == [total, total / 2, total * 2]
    assert any("(every month): it is what each period gets" in said for said in found["remarks"]) == (budget is RENEWS)
    for row, other in zip(found["rows"], expected["rows"], strict=True):
        assert {name: row[name] for name in ("totals", "asked", "spent", "price", "unsupported")} == {
            name: other[name] for name in ("totals", "asked", "spent", "price", "unsupported")
        }
        assert row["reward"] == {"value": other["reward"], "error": other["reward_se"]}
        assert row["difference"] == {"value": other["difference"], "error": other["difference_se"]}


def test_one_at_a_time_and_only_for_whom_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "NEW_S", -1.0)
    with running(tmp_path, tenants=True) as service:
        client = service.client("acme", "admin", "read", "decide", "observe")
        tell_a_story(client)
        job = client.post(PATH, {"budgets": ["2x"]}).json["job"]
        busy = client.post(PATH, {"budgets": ["2x"]})
        assert (busy.status, busy.json["code"]) == (409, "busy")
        assert client.decide("meanwhile", force="model").status == 201
        other = service.client("other")
        assert other.post("/v1/policies", POLICY).status == 201
        assert other.get(f"{PATH}?job={job}").status == 404
        assert service.client("acme", "decide").post(PATH, {"budgets": ["2x"]}).status == 403
        assert finished(client, job)["state"] == "done"
        assert client.post(PATH, {"budgets": ["2x"]}).status == 202


def test_results_of_one_tenant_do_not_evict_those_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "NEW_S", -1.0)
    monkeypatch.setattr(what_if, "MAX_KEPT", 3)
    with running(tmp_path, tenants=True) as service:
        clients = {tenant: service.client(tenant) for tenant in ("acme", "other")}
        jobs: dict[str, list[str]] = {tenant: [] for tenant in clients}
        for tenant, n in (("acme", 1), ("other", 6)):
            assert clients[tenant].post("/v1/policies", POLICY).status == 201
            for _ in range(n):
                jobs[tenant].append(clients[tenant].post(PATH, {"budgets": ["2x"]}).json["job"])
                assert finished(clients[tenant], jobs[tenant][-1])["state"] == "done"
        found = {
            each: [client.get(f"{PATH}?job={job}").status for job in jobs[each]] for each, client in clients.items()
        }
        assert found == {"acme": [200], "other": [404, 404, 404, 200, 200, 200]}


@pytest.mark.parametrize("budgets", [[], ["lots"], ["nope=3"], ["2x"] * 11, [2], ["x" * 201]])
def test_what_is_no_budget_is_refused_at_once(client: Client, budgets: Any) -> None:
    assert client.post(PATH, {"budgets": budgets}).status == 422
    assert client.get(f"{PATH}?job=zz").status == 422
    assert client.get(f"{PATH}?job=00").status == 404


def test_a_process_that_ends_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "MODULE", "deferkit.version")
    found = finished(client, client.post(PATH, {"budgets": ["2x"]}).json["job"])
    assert found["state"] == "failed"
    assert found["error"]


def test_a_job_that_takes_too_long_is_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "MAX_JOB_S", 0.05)
    found = finished(client, client.post(PATH, {"budgets": ["2x"]}).json["job"])
    assert (found["state"], found["error"]) == ("failed", "It took longer than 0.05 seconds.")
