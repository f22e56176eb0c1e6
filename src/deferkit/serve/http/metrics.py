"""Health, readiness and metrics endpoints."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, cast

from litestar import Response, get
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from deferkit.serve.api.common import Health, Index, Reply
from deferkit.serve.api.reports import SummaryReply
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.problems import unavailable
from deferkit.serve.domain.webhook import DEAD, DELIVERED
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.webhooks import FAILED
from deferkit.serve.http.forwarding import header
from deferkit.serve.http.middleware import BUCKETS, Traffic
from deferkit.serve.http.route_support import (
    AnyRequest,
    caller_of,
    engine_of,
    json_response,
    raw_response,
    route_options,
)
from deferkit.serve.reports.summary import summary_of
from deferkit.version import __version__


def period_metrics(summaries: Mapping[str, SummaryReply]) -> Iterator[Metric]:
    """Yield the metrics of policies, given their summaries by name."""
    labels = ["policy", "resource"]
    end = GaugeMetricFamily(
        "deferkit_period_end_seconds",
        "Time of the next renewal or the end of a budget, seconds since 1970",
        labels=labels,
    )
    runs_out = GaugeMetricFamily(
        "deferkit_runs_out_seconds",
        "Forecast exhaustion time of a budget, seconds since 1970; infinite if not before its end",
        labels=labels,
    )
    pace = GaugeMetricFamily(
        "deferkit_pace", "Spent share of a budget divided by the decided share of its tasks", labels=labels
    )
    holds = CounterMetricFamily(
        "deferkit_holds", "Holds extended, reviews stopped, costs beyond holds", labels=["policy", "what"]
    )
    for name, summary in summaries.items():
        for what, n in (("extended", summary.extended), ("stopped", summary.stopped), ("beyond", summary.overruns)):
            holds.add_metric([name, what], n)
        for resource, state in summary.budget.items():
            if (current := state.period) is None:
                continue
            end.add_metric([name, resource], current.end)
            runs_out.add_metric([name, resource], float("inf") if current.runs_out_at is None else current.runs_out_at)
            if current.pace is not None:
                pace.add_metric([name, resource], current.pace)
    yield from (end, runs_out, pace, holds)


CONTENT_TYPE = "text/plain; version=0.0.4"  # Litestar adds the charset


class ServiceMetrics(Collector):
    """Collects the metrics of an engine."""

    def __init__(self, engine: Engine, traffic: Traffic | None, tenant: str | None) -> None:
        self.engine = engine
        self.traffic = traffic
        self.tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the process if `traffic` is given, then those of the tenant's policies."""
        if self.traffic is not None:
            yield from self._process(self.traffic)
        if self.tenant is not None:
            yield from self._policies()

    def _process(self, traffic: Traffic) -> Iterator[Metric]:
        engine = self.engine
        requests = CounterMetricFamily("deferkit_requests", "Requests answered", labels=["method", "path", "status"])
        for (method, path, status), n in list(traffic.requests.items()):
            requests.add_metric([method, path, str(status)], n)
        yield requests
        seen, buckets = 0, []
        for bound, n in zip([*map(str, BUCKETS), "+Inf"], traffic.durations, strict=True):
            seen += n
            buckets.append((bound, seen))
        durations = HistogramMetricFamily("deferkit_request_seconds", "Duration of requests")
        durations.add_metric([], buckets, traffic.seconds)
        yield durations
        yield CounterMetricFamily("deferkit_commits", "Groups of commands committed", value=engine.groups)
        yield CounterMetricFamily("deferkit_commands", "Commands in those groups", value=engine.commands)
        yield GaugeMetricFamily("deferkit_queue_length", "Commands that wait", value=engine.queue.length)
        jump = engine.ownership.clock_jump / MICRO
        yield GaugeMetricFamily(
            "deferkit_clock_jump_seconds", "Jump of the clock that the service does not follow", value=jump
        )
        yield GaugeMetricFamily("deferkit_failing", "1: the last commit failed", value=engine.failing is not None)

    def _policies(self) -> Iterator[Metric]:
        engine = self.engine
        names = ("total", "reserved", "posted", "suspense")
        summaries: dict[str, SummaryReply] = {}
        budget = GaugeMetricFamily(
            "deferkit_budget", "Budget or its period in units", labels=["policy", "resource", "part"]
        )
        price = GaugeMetricFamily(
            "deferkit_price",
            "Price: reward per unit of budget at which a task is deferred",
            labels=["policy", "resource"],
        )
        decisions = CounterMetricFamily("deferkit_decisions", "Decisions", labels=["policy", "route"])
        outcomes = CounterMetricFamily("deferkit_outcomes", "Outcomes", labels=["policy"])
        late = CounterMetricFamily(
            "deferkit_late_outcomes", "Outcomes that were booked but not learned", labels=["policy"]
        )
        gain = GaugeMetricFamily("deferkit_expected_gain", "Expected reward above the model's", labels=["policy"])
        parked = GaugeMetricFamily("deferkit_parked", "Outcomes that wait for a decision", labels=["policy"])
        forgotten = CounterMetricFamily("deferkit_parked_dropped", "Parked outcomes dropped", labels=["policy"])
        dropped_costs = CounterMetricFamily(
            "deferkit_parked_costs_dropped", "Parked costs of tasks that the model decided", labels=["policy"]
        )
        unconfirmed = GaugeMetricFamily(
            "deferkit_unconfirmed_costs", "Reported costs that wait to be confirmed", labels=["policy"]
        )
        clipped = CounterMetricFamily("deferkit_clipped_features", "Features clipped as outliers", labels=["policy"])
        queue = GaugeMetricFamily("deferkit_review_queue", "Seats for reviewers", labels=["policy", "state"])
        age = GaugeMetricFamily("deferkit_review_oldest_seconds", "Age of the oldest review", labels=["policy"])
        drifts = CounterMetricFamily(
            "deferkit_drifts", "Drifts detected in a reward or cost", labels=["policy", "target"]
        )
        deliveries = CounterMetricFamily(
            "deferkit_webhook_deliveries", "Attempts to deliver events", labels=["policy", "state"]
        )
        undelivered = GaugeMetricFamily(
            "deferkit_webhook_oldest_seconds", "Age of the oldest event that is not delivered", labels=["policy"]
        )
        for (tenant, name), owned in list(engine.owned.items()):
            if tenant != self.tenant:
                continue
            now = owned.time(engine.clock.now())
            summary = summary_of(owned, engine.store.queue(owned.id), now)
            for resource, account in owned.policy.books_at(now).current().items():
                for part in names:
                    value = getattr(account, part)
                    budget.add_metric([name, resource, part], float("inf") if value is None else value / MICRO)
                prices = summary.price if isinstance(summary.price, dict) else {resource: summary.price}
                price.add_metric([name, resource], prices[resource])
            summaries[name] = summary
            for route, n in summary.routes.items():
                decisions.add_metric([name, route], n)
            outcomes.add_metric([name], summary.outcomes)
            late.add_metric([name], summary.late)
            gain.add_metric([name], summary.expected_gain)
            parked.add_metric([name], summary.parked)
            forgotten.add_metric([name], owned.dropped_parked)
            dropped_costs.add_metric([name], owned.dropped_costs)
            unconfirmed.add_metric([name], summary.unconfirmed_costs)
            clipped.add_metric([name], summary.clipped_features)
            queue.add_metric([name, "waiting"], summary.queue.waiting)
            queue.add_metric([name, "claimed"], summary.queue.claimed)
            age.add_metric([name], summary.queue.oldest_s or 0.0)
            for state in (DELIVERED, FAILED, DEAD):
                deliveries.add_metric([name, state], engine.webhooks.attempts[owned.id, state])
            oldest = engine.webhooks.store.oldest(owned.id)
            since = 0.0 if oldest is None else max(0, owned.time(engine.clock.now()) - oldest) / MICRO
            undelivered.add_metric([name], since)
            found = {drift.target: drift.times for drift in summary.drifted}
            for target in summary.samples:
                drifts.add_metric([name, target], found.get(target, 0))
        yield from (
            budget,
            price,
            decisions,
            outcomes,
            late,
            gain,
            parked,
            forgotten,
            dropped_costs,
            unconfirmed,
            clipped,
            queue,
            age,
            drifts,
            deliveries,
            undelivered,
        )
        yield from period_metrics(summaries)


def metrics_of(engine: Engine, traffic: Traffic | None, tenant: str | None) -> str:
    """Return the metrics as text: of the process if its traffic is given, of a tenant's policies if one is."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceMetrics(engine, traffic, tenant))
    return generate_latest(registry).decode()


@get("/healthz", opt=route_options("operation"))
async def healthz() -> Response[Health]:
    """Check that the process is alive."""
    return json_response(Health(status="alive", version=__version__), Health)


@get("/readyz", opt=route_options("operation"))
async def readyz(request: AnyRequest) -> Response[Health]:
    """Check that the service can decide: policies are loaded, and the last commit succeeded."""
    engine = engine_of(request)
    if not engine.ready:
        raise unavailable("The service is starting or stopping.")
    if engine.loading:
        raise unavailable("Policies are being loaded. Those that are loaded are served.")
    if engine.failing is not None:
        raise unavailable("The last commit failed; the log says why.")
    return json_response(Health(status="ready", version=__version__), Health)


@get("/metrics", opt=route_options("operation", "admin", "operator"), media_type="text/plain")
async def metrics(request: AnyRequest) -> Response[str]:
    """Read metrics in the Prometheus format: of the tenant's policies (admin), of the process (operator)."""
    caller = caller_of(request)
    traffic = request.app.state.traffic if "operator" in caller.scopes else None
    tenant = caller.tenant if "admin" in caller.scopes else None
    text = await asyncio.to_thread(metrics_of, engine_of(request), traffic, tenant)
    return Response(content=text, media_type=CONTENT_TYPE)


@get("/v1/openapi.json", opt=route_options("operation"))
async def openapi(request: AnyRequest) -> Response[dict[str, Any]]:
    """Read the OpenAPI document of all routes."""
    return raw_response(Reply(200, request.app.state.document), dict[str, Any])


@get("/", opt=route_options("operation", also={303: None}))
async def index(request: AnyRequest) -> Response[Index]:
    """Read the name and version of the service; a browser is redirected to the console."""
    if b"text/html" in header(request.scope, b"accept"):
        return cast("Response[Index]", Response(b"", status_code=303, headers={"location": "/console"}))
    return json_response(Index(), Index)


OPERATION_ROUTES = [index, healthz, readyz, metrics, openapi]
