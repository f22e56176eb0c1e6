"""What operators see: an access log, a first page, the address before the log, rates that are on by default."""

import json
import subprocess
from pathlib import Path

import pytest

from deferkit.serve.http import auth
from deferkit.version import __version__
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, running
from tests.serve.harness.service_process import COMMAND, ServiceProcess, command

FIELDS = {"at", "level", "event", "method", "path", "status", "ms", "tenant", "key"}


def test_an_access_log_can_be_switched_on(tmp_path: Path) -> None:
    store = str(tmp_path / "deferkit.db")
    key = command("keys", "create", "--store", store, "--tenant", "acme").stdout.strip()
    with ServiceProcess(tmp_path, "--access-log") as served:
        client = Client(served.url, key)
        client.post("/v1/policies", POLICY)
        client.decide("s3cret", payload="s3cret")
        client.get("/v1/policies/p/decisions?task=s3cret")
        client.get("/s3cret")
        client.connection.close()
        nobody = Client(served.url)
        nobody.decide("s3cret")
        nobody.connection.close()
        served.stop()
    lines = [line for line in served.events() if line["event"] == "request"]
    number = key.split("_")[1]
    assert [(line["method"], line["path"], line["status"], line["tenant"], line["key"]) for line in lines] == [
        ("POST", "/v1/policies", 201, "acme", number),
        ("POST", "/v1/policies/{name}/decisions", 201, "acme", number),
        ("GET", "/v1/policies/{name}/decisions", 200, "acme", number),
        ("GET", "unknown", 404, None, None),
        ("POST", "/v1/policies/{name}/decisions", 401, None, None),
    ]
    assert all(set(line) == FIELDS and 0 <= line["ms"] < 600_000 for line in lines)
    assert "s3cret" not in served.log
    assert key not in served.log


def test_an_access_log_is_off_unless_asked_for(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as served:
        client = Client(served.url)
        client.get("/v1/policies")
        client.connection.close()
        served.stop()
    assert not [line for line in served.events() if line["event"] == "request"]


def test_the_address_is_printed_before_the_log(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, "--log-level", "debug") as served:
        served.stop()
        first, *rest = served.log.splitlines()
    assert first.startswith("deferkit serves on http://127.0.0.1:")
    events = [json.loads(line)["event"] for line in rest if line.startswith("{")]
    assert events.index("ready") < events.index("listening")


def test_a_log_is_not_lost_when_the_service_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "deferkit.db").write_text("not a database, but long enough to be taken for one" * 100)
    words = [*COMMAND, "serve", "--store", str(tmp_path / "deferkit.db"), "--port", "0"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert "error" in ended.stderr
    assert "deferkit serves" not in ended.stdout


def test_the_root_points_to_the_documentation(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        client = service.client()
        answer = client.get("/")
        assert (answer.status, answer.json["version"]) == (200, __version__)
        for name in ("routes", "health", "readiness"):
            assert client.get(answer.json[name]).status == 200
        assert "service-guide.md" in answer.json["guide"]


def test_rates_are_limited_unless_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "clock", lambda: 1000.0)  # nothing flows in meanwhile
    with running(tmp_path) as service:
        client = service.client()
        statuses = [client.get("/v1/policies/nope").status for _ in range(1010)]
    assert statuses == [404] * 1000 + [429] * 10
    with running(tmp_path, rate=0) as service:
        client = service.client()
        assert {client.get("/v1/policies/nope").status for _ in range(1010)} == {404}
