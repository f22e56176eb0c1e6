"""Metrics of budgets that renew or have an end, and of reviews that can be stopped."""

from collections.abc import Iterator, Mapping

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from deferkit.serve.engine.policy_summary import SummaryReply


def period_metrics(summaries: Mapping[str, SummaryReply]) -> Iterator[Metric]:
    """Yield the metrics of policies, given their summaries by name."""
    labels = ["policy", "resource"]
    period = GaugeMetricFamily("deferkit_period", "The current period in units", labels=[*labels, "part"])
    end = GaugeMetricFamily("deferkit_period_end_seconds", "When it is renewed or ends, since 1970", labels=labels)
    runs_out = GaugeMetricFamily(
        "deferkit_runs_out_seconds",
        "When it is spent if it goes on so, since 1970; infinite: not before its end",
        labels=labels,
    )
    pace = GaugeMetricFamily("deferkit_pace", "Share of it spent over share of its tasks decided", labels=labels)
    holds = CounterMetricFamily(
        "deferkit_holds", "Holds extended, reviews stopped, costs beyond holds", labels=["policy", "what"]
    )
    for name, summary in summaries.items():
        for what, n in (("extended", summary.extended), ("stopped", summary.stopped), ("beyond", summary.overruns)):
            holds.add_metric([name, what], n)
        for resource, state in summary.budget.items():
            if (current := state.period) is None:
                continue
            period.add_metric([name, resource, "total"], number_of(current.total))
            period.add_metric([name, resource, "posted"], number_of(current.posted))
            end.add_metric([name, resource], current.end)
            runs_out.add_metric([name, resource], float("inf") if current.runs_out_at is None else current.runs_out_at)
            if current.pace is not None:
                pace.add_metric([name, resource], current.pace)
    yield from (period, end, runs_out, pace, holds)


def number_of(given: float) -> float:
    """Return a number of a reply, which may be a JSON number that no double is."""
    return float(bytes(given)) if isinstance(given, msgspec.Raw) else given
