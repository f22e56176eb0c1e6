"""The Grafana dashboard and the alerts in deploy/ know the metrics that a service exports, and promtool takes them."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.serve.harness.clients import Client

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "deferkit.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
SELECTOR = re.compile(r"(deferkit_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
OF_SCRAPES = {"job", "instance"}  # labels that Prometheus adds


def dashboard_queries() -> list[str]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    variables = [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())] + variables


def alert_text() -> str:
    return "\n".join(line for line in ALERTS.read_text().splitlines() if not line.startswith("#"))


@pytest.fixture
def exported(client: Client) -> dict[str, set[str]]:
    """The labels of every metric that the service exports, by its name in queries."""
    weekly = {"name": "weekly", "features": 2, "budget": {"minutes": {"total": 10, "every": "week", "max_cost": 1}}}
    assert client.post("/v1/policies", weekly).status in (200, 201)
    for policy in ("p", "weekly"):
        assert client.decide("t", policy).status in (200, 201)
    text = client.get("/metrics").body.decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.MULTILINE))
    names = {name: set[str]() for name in kinds if kinds[name] != "histogram"}
    names |= {f"{name}_{part}": set() for name in kinds if kinds[name] == "histogram" for part in ("bucket", "count")}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, flags=re.MULTILINE):
        names.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return names


def test_queries_have_metrics_and_labels_that_are_exported(exported: dict[str, set[str]]) -> None:
    queries = [*dashboard_queries(), alert_text()]
    found = [selector for query in queries for selector in SELECTOR.findall(query)]
    assert len(found) > 40
    for name, labels in found:
        assert name in exported, name
        assert set(LABEL.findall(labels)) <= exported[name] | OF_SCRAPES, (name, labels)


def test_the_dashboard_shows_every_metric(exported: dict[str, set[str]]) -> None:
    shown = {name for query in dashboard_queries() for name, _ in SELECTOR.findall(query)}
    left_out = {"deferkit_request_seconds_count", "deferkit_request_seconds_sum"}  # the buckets are shown
    assert {name for name in exported if name.startswith("deferkit_")} - left_out <= shown


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def promtool(*words: str | Path) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: `make check-alerts` gets it")


@needs_promtool
def test_promtool_takes_the_alerts_and_their_tests_pass() -> None:
    rules = len(re.findall(r"- alert:", alert_text()))
    assert f"{rules} rules found" in promtool("check", "rules", ALERTS)
    tested = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
    assert set(re.findall(r"- alert: (\w+)", alert_text())) == set(re.findall(r"alertname: (\w+)", tested))
    promtool("test", "rules", DEPLOY / "prometheus" / "alerts_test.yml")


@needs_promtool
def test_promtool_takes_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    queries = [query for query in dashboard_queries() if not query.startswith("label_values")]
    filled = [
        query.replace("$__rate_interval", "5m").replace("$policy", ".*").replace("$job", "j") for query in queries
    ]
    assert not [query for query in filled if "$" in query]
    rules = [{"record": f"panel:{place}", "expr": query} for place, query in enumerate(filled)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # JSON is YAML
    assert f"{len(rules)} rules found" in promtool("check", "rules", tmp_path / "panels.yml")
