"""OpenTelemetry: what the real SDK sees of requests, commands and commits, in memory and by OTLP over HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.telemetry import Telemetry
from tests.serve.harness.clients import Client, until
from tests.serve.harness.in_process import POLICY, Running, running
from tests.serve.harness.service_process import ServiceProcess, free_port

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Observed:
    """A service whose telemetry stays in memory."""

    def __init__(self, service: Running, spans: InMemorySpanExporter, metrics: InMemoryMetricReader) -> None:
        self.service, self._spans, self._metrics = service, spans, metrics
        self.client: Client = service.client()

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans of a name that have ended."""
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        found = [metric for each in data.resource_metrics[0].scope_metrics for metric in each.metrics]
        return [point for metric in found if metric.name == name for point in metric.data.data_points]


@contextmanager
def observing(folder: Path, **given: Any) -> Iterator[Observed]:
    spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(tracers, MeterProvider([metrics], shutdown_on_exit=False))
    with running(folder, telemetry=telemetry, **given) as service:
        yield Observed(service, spans, metrics)


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Observed]:
    with observing(tmp_path) as found:
        assert found.client.post("/v1/policies", POLICY).status == 201
        yield found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_decision_belongs_to_the_trace_of_its_caller_and_is_linked_to_its_commit(observed: Observed) -> None:
    body = {"task": "t", "context": [1.0, 0.5], "force": "human"}
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
    assert observed.client.post("/v1/policies/p/decisions", body, headers=headers).status == 201
    [request] = until(lambda: observed.spans("POST /v1/policies/{name}/decisions"))
    [decide] = observed.spans("deferkit.decide")
    [commit] = observed.spans("deferkit.commit")
    assert request.kind is SpanKind.SERVER
    assert request.parent is not None
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)
    assert request.context.trace_state.get("vendor") == "1"
    assert decide.parent is not None
    assert decide.parent.span_id == request.context.span_id
    assert attributes(request) == {
        "http.request.method": "POST",
        "http.route": "/v1/policies/{name}/decisions",
        "http.response.status_code": 201,
    }
    assert attributes(decide) == {"deferkit.tenant": "default", "deferkit.policy": "p", "deferkit.route": "human"}
    assert [link.context.span_id for link in commit.links] == [decide.context.span_id]
    assert commit.parent is None
    assert attributes(commit) == {"deferkit.commands": 1}
    assert decide.start_time <= commit.start_time < commit.end_time <= decide.end_time  # type: ignore[operator]


def test_claims_and_answers_have_spans_and_durations(observed: Observed) -> None:
    observed.client.decide("t")
    claimed = observed.client.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).json
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
    assert observed.client.post("/v1/policies/p/reviews/complete", lease | {"cost": 0.5}).status == 200
    assert len(observed.spans("deferkit.claim")) == len(observed.spans("deferkit.complete")) == 1
    commands = {point.attributes["deferkit.command"]: point for point in observed.points("deferkit.command.duration")}
    for name in ("decide", "claim", "complete"):
        assert commands[name].count == 1
        assert 0 < commands[name].sum < 60
        assert commands[name].attributes["deferkit.policy"] == "p"
    [seconds] = observed.points("deferkit.commit.duration")
    [size] = observed.points("deferkit.commit.commands")
    assert seconds.count == size.count == size.sum == 3


def test_what_is_refused_has_an_error_type_and_what_fails_is_an_error(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed.client.decide("t")
    assert observed.client.decide("t", context=[2.0, 2.0]).status == 409
    refused = observed.spans("deferkit.decide")[-1]
    assert attributes(refused)["error.type"] == "conflict"
    assert refused.status.status_code is StatusCode.UNSET  # the caller's mistake

    def fail(*_: object) -> None:
        raise StoreFailed("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(observed.service.store, "commit", fail)
        assert observed.client.decide("u").status == 503
    assert observed.spans("deferkit.decide")[-1].status.status_code is StatusCode.ERROR
    [failed] = [span for span in observed.spans("deferkit.commit") if not span.status.is_ok]
    assert failed.status.description == "StoreFailed"
    calls = until(lambda: observed.spans("POST /v1/policies/{name}/decisions")[2:])  # a span ends after its reply
    assert [call.status.status_code for call in calls] == [StatusCode.ERROR]


def test_a_bad_traceparent_begins_a_trace_of_its_own(observed: Observed) -> None:
    for bad in ("nonsense", "00-" + "0" * 32 + f"-{PARENT}-01", "\xff"):
        assert observed.client.get("/healthz", headers={"traceparent": bad}).status == 200
    found = until(lambda: len(observed.spans("GET /healthz")) == 3 and observed.spans("GET /healthz"))
    assert [span.parent for span in found] == [None] * 3
    assert observed.client.get("/no/s3cret").status == 404
    assert until(lambda: observed.spans("GET unknown"))


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP, as a collector does."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        server: Any = self.server
        server.received.append((self.path, body))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.received = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def exporting_to(collector: Any) -> dict[str, str]:
    """The variables of a service that sends to the collector."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_SERVICE_NAME": "decisions",
    }


def resource_spans(collector: Any) -> list[Any]:
    bodies = [body for path, body in collector.received if path == "/v1/traces"]
    return [each for body in bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans]


def spans_of(collector: Any) -> list[Any]:
    return [span for each in resource_spans(collector) for scope in each.scope_spans for span in scope.spans]


def metrics_of(collector: Any) -> list[Any]:
    bodies = [body for path, body in collector.received if path == "/v1/metrics"]
    found = [each for body in bodies for each in ExportMetricsServiceRequest.FromString(body).resource_metrics]
    return [metric for each in found for scope in each.scope_metrics for metric in scope.metrics]


def test_a_service_sends_spans_and_metrics_by_otlp(collector: Any, tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, environment=exporting_to(collector) | {"DEFERKIT_OTEL": "on"}) as service:
        service.ready()
        assert service.post("/v1/policies", **POLICY).status == 201
        assert service.post("/v1/policies/p/decisions", task="t", context=[1.0, 0.5]).status == 201
        assert service.stop() == 0
    resources = [each.resource.attributes for each in resource_spans(collector)]
    names = {each.value.string_value for found in resources for each in found if each.key == "service.name"}
    assert names == {"decisions"}
    spans = {span.name for span in spans_of(collector)}
    assert {"POST /v1/policies/{name}/decisions", "deferkit.decide", "deferkit.commit"} <= spans
    metrics = {metric.name for metric in metrics_of(collector)}
    assert {"deferkit.command.duration", "deferkit.commit.duration", "deferkit.commit.commands"} <= metrics


def test_a_call_that_is_passed_on_stays_in_its_trace(collector: Any, postgres_server: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA telemetry")
    store = f"{postgres_server}{'&' if '?' in postgres_server else '?'}options=-csearch_path%3Dtelemetry"
    owner = ServiceProcess(tmp_path, "--otel", store=store, port=free_port(), environment=exporting_to(collector))
    owner.options.append(f"--address={owner.url}")
    with owner, observing(tmp_path, store=store) as other:
        assert owner.ready().post("/v1/policies", **POLICY).status == 201
        body = {"task": "t", "context": [1.0, 0.5], "force": "human"}
        headers = {"traceparent": TRACEPARENT}
        assert other.client.post("/v1/policies/p/decisions", body, headers=headers).status == 201
        [passed_on] = until(lambda: other.spans("POST /v1/policies/{name}/decisions"))
        assert other.client.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).status == 200
        assert len(other.spans("deferkit.claim")) == 1  # by the process that was asked
        assert owner.stop() == 0
    [answered] = [span for span in spans_of(collector) if span.name == "POST /v1/policies/{name}/decisions"]
    assert answered.trace_id.hex() == f"{passed_on.context.trace_id:032x}" == TRACE
    assert answered.parent_span_id.hex() == f"{passed_on.context.span_id:016x}"


def test_a_service_without_a_collector_serves_and_stops(tmp_path: Path) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "10"}
    with ServiceProcess(tmp_path, "--otel", environment=environment) as service:
        service.ready()
        assert service.get("/healthz").status == 200
        assert service.stop() == 0


def test_the_sdk_is_not_imported_unless_it_is_switched_on(tmp_path: Path) -> None:
    script = "import atexit, sys, json; atexit.register(lambda: print(json.dumps({'event': 'modules', 'otel':"
    script += " sorted(name for name in sys.modules if name.startswith('opentelemetry.sdk'))}), file=sys.stderr))"
    with ServiceProcess(tmp_path, setup=script) as service:
        service.ready()
        assert service.stop() == 0
        [line] = [json.loads(line) for line in service.log.splitlines() if '"modules"' in line]
    assert line["otel"] == []
