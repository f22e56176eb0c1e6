"""Health, readiness and metrics, as those who run the service see them."""

import math
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deferkit.serve.domain.problems import StoreFailed
from deferkit.version import __version__
from tests.serve.harness.clients import Client, connected, rest_of, until
from tests.serve.harness.in_process import POLICY, Running, running


def metrics_of(client: Client) -> dict[tuple[str, ...], float]:
    """Return the metrics by name and labels, which come in the order of their names."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def test_metrics_say_where_everything_stands(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        client.post("/v1/policies", POLICY)
        client.post(
            "/v1/policies", POLICY | {"name": "two", "budget": {"a": {}, "b": {"max_cost": 1}}, "experts": ["x"]}
        )
        client.decide("t")
        client.decide("u")
        client.decide("v", force="model")
        client.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"})
        client.post("/v1/policies/p/outcomes", {"task": "v", "rewards": {"model": 0.5}})
        client.post("/v1/policies/p/outcomes", {"task": "w", "rewards": {"model": 0.5}})
        client.get("/v1/policies/nope/summary")
        client.get("/nope/s3cret")
        found = metrics_of(client)
    assert found["deferkit_budget", "reserved", "p", "cost"] == 2
    assert found["deferkit_budget", "total", "p", "cost"] == 10
    assert found["deferkit_budget", "total", "two", "a"] == math.inf
    assert found["deferkit_decisions_total", "p", "human"] == 2
    assert found["deferkit_decisions_total", "p", "model"] == 1
    assert found["deferkit_outcomes_total", "p"] == 1
    assert found["deferkit_parked", "p"] == 1
    assert found["deferkit_review_queue", "p", "waiting"] == 1
    assert found["deferkit_review_queue", "p", "claimed"] == 1
    assert 0 <= found["deferkit_review_oldest_seconds", "p"] < 60
    assert found["deferkit_requests_total", "POST", "/v1/policies/{name}/decisions", "201"] == 3
    assert found["deferkit_requests_total", "GET", "/v1/policies/{name}/summary", "404"] == 1
    assert found["deferkit_requests_total", "GET", "unknown", "404"] == 1
    assert found["deferkit_request_seconds_count",] == found["deferkit_request_seconds_bucket", "+Inf"] == 10
    assert found["deferkit_commits_total",] >= 1
    assert found["deferkit_failing",] == found["deferkit_queue_length",] == 0


def test_a_request_that_did_not_arrive_is_not_counted_as_a_fault_of_ours(tmp_path: Path) -> None:
    with running(tmp_path, body_timeout_s=0.2) as service:
        for more in (b"", b"content-length: 100\r\n\r\n{"):
            bare = connected(service.url)
            bare.sendall(b"POST /v1/policies HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" + more)
            assert rest_of(bare).startswith(b"HTTP/1.1 408")
            bare.close()
        found = metrics_of(service.client())
    assert found["deferkit_requests_total", "POST", "/v1/policies", "408"] == 1
    assert not [labels for labels in found if labels[-1] == "500"]


def test_a_service_says_that_it_is_alive_and_ready(client: Client) -> None:
    assert client.get("/healthz").json == {"status": "alive", "version": __version__}
    assert client.get("/readyz").json == {"status": "ready", "version": __version__}
    assert client.get("/healthz?from=balancer").status == 200


def test_a_service_is_not_ready_while_its_commits_fail(
    service: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreFailed("SQLite: s3cret is full.")

    monkeypatch.setattr(service.store, "renew", fail)
    with monkeypatch.context() as patch:
        patch.setattr(service.store, "commit", fail)
        answer = client.decide("fails", force="model")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    ready = client.get("/readyz")
    assert (ready.status, ready.json["code"], ready.headers["retry-after"]) == (503, "unavailable", "1")
    assert "s3cret" not in ready.json["detail"]  # whoever asks
    assert client.get("/healthz").status == 200
    assert metrics_of(client)["deferkit_failing",] == 1
    assert client.get("/v1/policies/p/summary").status == 200
    monkeypatch.undo()
    until(lambda: client.get("/readyz").status == 200)  # by itself: who asks first sends no calls before
    assert client.decide("fails", force="model").status == 201
    assert metrics_of(client)["deferkit_failing",] == 0


@pytest.mark.parametrize(
    "path", ["/healthz", "/v1/policies", "/v1/policies/nope", "/nope", "/v1/openapi.json", "/metrics"]
)
def test_every_reply_says_what_it_is(client: Client, path: str) -> None:
    answer = client.get(path)
    kind = "text/plain" if path == "/metrics" else "application/json"
    assert answer.headers["content-type"].partition(";")[0] == kind
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


def test_a_browser_on_another_site_is_not_let_in(client: Client) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = client.call("OPTIONS", "/v1/policies", headers=asked | {"access-control-request-headers": "content-type"})
    assert answer.status == 204
    assert answer.headers["allow"] == "GET, OPTIONS, POST"
    assert not [name for name in answer.headers if name.startswith("access-control")]
