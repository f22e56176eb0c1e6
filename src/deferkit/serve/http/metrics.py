"""Health, readiness and metrics endpoints."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from litestar import Response, get
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from deferkit.serve.api.common import Health, Index, Reply
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import unavailable
from deferkit.serve.domain.webhook import DEAD, DELIVERED
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.webhooks import DROPPED, FAILED
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


class PolicyMetric(NamedTuple):
    """A metric of each policy."""

    family: type[GaugeMetricFamily | CounterMetricFamily]
    what: str
    labels: tuple[str, ...] = ()  # beside the policy


GAUGE, COUNTER = GaugeMetricFamily, CounterMetricFamily
POLICY_METRICS = {
    "deferkit_budget": PolicyMetric(GAUGE, "Budget or its period in units", ("resource", "part")),
    "deferkit_price": PolicyMetric(
        GAUGE, "Price: reward per unit of budget at which a task is deferred", ("resource",)
    ),
    "deferkit_decisions": PolicyMetric(COUNTER, "Decisions", ("route",)),
    "deferkit_outcomes": PolicyMetric(COUNTER, "Outcomes"),
    "deferkit_late_outcomes": PolicyMetric(COUNTER, "Outcomes that were booked but not learned"),
    "deferkit_expected_gain": PolicyMetric(GAUGE, "Expected reward above the model's"),
    "deferkit_parked": PolicyMetric(GAUGE, "Outcomes that wait for a decision"),
    "deferkit_parked_dropped": PolicyMetric(COUNTER, "Parked outcomes dropped"),
    "deferkit_parked_costs_dropped": PolicyMetric(COUNTER, "Parked costs of tasks that the model decided"),
    "deferkit_unconfirmed_costs": PolicyMetric(GAUGE, "Reported costs that wait to be confirmed"),
    "deferkit_clipped_features": PolicyMetric(COUNTER, "Features clipped as outliers"),
    "deferkit_review_queue": PolicyMetric(GAUGE, "Seats for reviewers", ("state",)),
    "deferkit_review_oldest_seconds": PolicyMetric(GAUGE, "Age of the oldest review"),
    "deferkit_drifts": PolicyMetric(COUNTER, "Drifts detected in a reward or cost", ("target",)),
    "deferkit_webhook_deliveries": PolicyMetric(COUNTER, "Attempts to deliver events", ("state",)),
    "deferkit_webhook_oldest_seconds": PolicyMetric(GAUGE, "Age of the oldest event that is not delivered"),
    "deferkit_period_end_seconds": PolicyMetric(
        GAUGE, "Time of the next renewal or the end of a budget, seconds since 1970", ("resource",)
    ),
    "deferkit_runs_out_seconds": PolicyMetric(
        GAUGE,
        "Forecast exhaustion time of a budget, seconds since 1970; infinite if not before its end",
        ("resource",),
    ),
    "deferkit_pace": PolicyMetric(
        GAUGE, "Spent share of a budget divided by the decided share of its tasks", ("resource",)
    ),
    "deferkit_holds": PolicyMetric(COUNTER, "Holds extended, reviews stopped, costs beyond holds", ("what",)),
}


def policy_values(engine: Engine, owned: OwnedPolicy) -> Iterator[tuple[str, list[str], float]]:
    """Yield the values of a policy: the metric, its labels beside the policy, and the number."""
    now = owned.time(engine.clock.now())
    summary = summary_of(owned, engine.store.queue(owned.id), now)
    for resource, account in owned.policy.books_at(now).current().items():
        for part in ("total", "reserved", "posted", "suspense"):
            value = getattr(account, part)
            yield "deferkit_budget", [resource, part], math.inf if value is None else value / MICRO
        prices = summary.price if isinstance(summary.price, dict) else {resource: summary.price}
        yield "deferkit_price", [resource], prices[resource]
    for route, n in summary.routes.items():
        yield "deferkit_decisions", [route], n
    yield "deferkit_outcomes", [], summary.outcomes
    yield "deferkit_late_outcomes", [], summary.late
    yield "deferkit_expected_gain", [], summary.expected_gain
    yield "deferkit_parked", [], summary.parked
    yield "deferkit_parked_dropped", [], owned.dropped_parked
    yield "deferkit_parked_costs_dropped", [], owned.dropped_costs
    yield "deferkit_unconfirmed_costs", [], summary.unconfirmed_costs
    yield "deferkit_clipped_features", [], summary.clipped_features
    yield "deferkit_review_queue", ["waiting"], summary.queue.waiting
    yield "deferkit_review_queue", ["claimed"], summary.queue.claimed
    yield "deferkit_review_oldest_seconds", [], summary.queue.oldest_s or 0.0
    for state in (DELIVERED, FAILED, DEAD, DROPPED):
        yield "deferkit_webhook_deliveries", [state], engine.webhooks.attempts[owned.id, state]
    oldest = engine.webhooks.store.oldest(owned.id)
    since = 0.0 if oldest is None else max(0, owned.time(engine.clock.now()) - oldest) / MICRO
    yield "deferkit_webhook_oldest_seconds", [], since
    found = {drift.target: drift.times for drift in summary.drifted}
    for target in summary.samples:
        yield "deferkit_drifts", [target], found.get(target, 0)
    for what, n in (("extended", summary.extended), ("stopped", summary.stopped), ("beyond", summary.overruns)):
        yield "deferkit_holds", [what], n
    for resource, budget in summary.budget.items():
        if (period := budget.period) is not None:
            yield "deferkit_period_end_seconds", [resource], period.end
            runs_out = math.inf if period.runs_out_at is None else period.runs_out_at
            yield "deferkit_runs_out_seconds", [resource], runs_out
            if period.pace is not None:
                yield "deferkit_pace", [resource], period.pace


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
        families = {
            name: metric.family(name, metric.what, labels=["policy", *metric.labels])
            for name, metric in POLICY_METRICS.items()
        }
        for (tenant, policy), owned in list(self.engine.owned.items()):
            if tenant == self.tenant:
                for name, labels, value in policy_values(self.engine, owned):
                    families[name].add_metric([policy, *labels], value)
        yield from families.values()
        stored = self.engine.disk_quota.taken.get(self.tenant or "", 0)
        yield GaugeMetricFamily("deferkit_tenant_bytes", "Bytes of the policies in the store", value=stored)


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
