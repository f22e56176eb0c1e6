"""OpenTelemetry spans and metrics of the service: requests, commands (decide, claim, complete …), group commits.

Needs OpenTelemetry's SDK: `pip install 'deferkit[otel]'`. Nothing imports this module unless it is switched on.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from deferkit.extras import needs
from deferkit.version import __version__

needs("otel")

from opentelemetry.context import Context  # noqa: E402  after the check
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: E402
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: E402
from opentelemetry.sdk.resources import Resource  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: E402
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, use_span  # noqa: E402
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: E402

NAME, DECIDE = "deferkit", "decide"
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COMMANDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
TRACE_HEADERS = (b"traceparent", b"tracestate")
FLUSH_MS = 3000

Headers = Iterable[tuple[bytes, bytes]]


class RouteOfReply(msgspec.Struct):
    """The part of a decision's reply that its span shows."""

    route: str


class Telemetry:
    """Makes spans and records durations with OpenTelemetry's SDK.

    Args:
        tracers: Where spans go.
        meters: Where measurements go.
    """

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        self._tracers, self._meters = tracers, meters
        self._tracer = tracers.get_tracer(NAME, __version__)
        meter = meters.get_meter(NAME, __version__)
        self._command_seconds = meter.create_histogram(
            "deferkit.command.duration",
            unit="s",
            description="From a command's arrival to its reply",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._commit_seconds = meter.create_histogram(
            "deferkit.commit.duration",
            unit="s",
            description="A group of commands, from its beginning to the end of its durable commit",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._commit_commands = meter.create_histogram(
            "deferkit.commit.commands",
            unit="{command}",
            description="Commands that shared a commit",
            explicit_bucket_boundaries_advisory=COMMANDS,
        )
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Telemetry":
        """Return telemetry with OTLP export over HTTP, configured by the standard variables `OTEL_…`.

        Args:
            environment: `OTEL_TRACES_EXPORTER` and `OTEL_METRICS_EXPORTER` may be `none`; the SDK reads the others.
        """
        named = {} if "OTEL_SERVICE_NAME" in environment else {"service.name": NAME}
        resource = Resource.create({**named, "service.version": __version__})
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        if environment.get("OTEL_TRACES_EXPORTER") != "none":
            tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        sent = environment.get("OTEL_METRICS_EXPORTER") != "none"
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if sent else []
        return cls(tracers, MeterProvider(readers, resource=resource, shutdown_on_exit=False))

    def close(self) -> None:
        """Export the remaining spans and metrics, for at most a few seconds, and stop."""
        self._tracers.force_flush(FLUSH_MS)
        self._tracers.shutdown()
        self._meters.shutdown(FLUSH_MS)

    @contextmanager
    def request(self, scope: Any) -> Iterator[Span]:
        """Start a span for a request, a child of the caller's span if there is a `traceparent`.

        Args:
            scope: Of ASGI. Its trace headers become those of this span, so that a call that is passed on to another
                process belongs to it too.
        """
        came = scope["headers"]
        context = self._propagator.extract(trace_headers(came), Context())
        span = self._tracer.start_span(scope["method"], context, SpanKind.SERVER)
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            carried: dict[str, str] = {}
            self._propagator.inject(carried)
            kept = [line for line in came if line[0] not in TRACE_HEADERS]
            scope["headers"] = [*kept, *((name.encode(), value.encode()) for name, value in carried.items())]
            yield span

    @staticmethod
    def describe_request(span: Span, method: str, route: str, status: int) -> None:
        """Set the route and the status on the span of a request.

        Args:
            span: As `request` has it.
            method: Of HTTP.
            route: The path of the route, with the names of its parameters.
            status: Of the reply.
        """
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))

    @contextmanager
    def command(self, command: object, tenant: str, policy: str) -> Iterator[Span]:
        """Start a span for a command, from its arrival to its reply, and record the duration.

        Args:
            command: Its class gives the span its name: `deferkit.decide`.
            tenant: Whose policy it is about.
            policy: The name of the policy.
        """
        name = command_name(command)
        measured = {"deferkit.command": name, "deferkit.policy": policy}
        attributes = {"deferkit.tenant": tenant, "deferkit.policy": policy}
        span = self._tracer.start_span(f"deferkit.{name}", attributes=attributes)
        began = time.perf_counter()
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except BaseException as error:
                measured["error.type"] = str(getattr(error, "code", type(error).__name__))
                span.set_attribute("error.type", measured["error.type"])
                if getattr(error, "status", 500) >= 500:
                    span.set_status(Status(StatusCode.ERROR, measured["error.type"]))
                raise
            finally:
                self._command_seconds.record(time.perf_counter() - began, measured)

    @staticmethod
    def describe_reply(span: Span, command: object, body: bytes) -> None:
        """Set the decider on the span of a decision.

        Args:
            span: As `command` has it.
            command: What was answered.
            body: The reply.
        """
        if span.is_recording() and command_name(command) == DECIDE:
            span.set_attribute("deferkit.route", msgspec.json.decode(body, type=RouteOfReply).route)

    def record_commit(self, began_ns: int, spans: Sequence[Span | None], failure: Exception | None = None) -> None:
        """Record a group commit that has just ended.

        Args:
            began_ns: When the group began, in nanoseconds since 1970.
            spans: Those of its commands: the commit is linked to them.
            failure: Why it failed; None if it did not.
        """
        ended_ns = time.time_ns()
        links = [Link(each.get_span_context()) for each in spans if each is not None]
        attributes = {"deferkit.commands": len(spans)}
        span = self._tracer.start_span(
            "deferkit.commit", Context(), attributes=attributes, links=links, start_time=began_ns
        )
        measured: dict[str, str] = {}
        if failure is not None:
            measured["error.type"] = type(failure).__name__
            span.set_status(Status(StatusCode.ERROR, type(failure).__name__))
        span.end(ended_ns)
        self._commit_seconds.record((ended_ns - began_ns) / 1e9, measured)
        self._commit_commands.record(len(spans), measured)


def trace_headers(headers: Headers) -> dict[str, str]:
    """Return the headers of W3C Trace Context, as the propagator wants them.

    >>> trace_headers([(b"host", b"a"), (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")])
    {'traceparent': '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'}
    """
    return {name.decode(): value.decode("latin-1") for name, value in headers if name in TRACE_HEADERS}


def command_name(command: object) -> str:
    """Return the span name of a command.

    >>> command_name(object())
    'object'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(command).__name__).lower()
