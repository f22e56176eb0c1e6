"""Metrics of budgets that renew or have an end, and of reviews that can be stopped."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from deferkit.serve.engine.policy_summary import SummaryReply


def period_metrics(summaries: Mapping[str, SummaryReply]) -> Iterator[Metric]:
    """Yield the metrics of policies, given their summaries by name."""
    labels = ["policy", "resource"]
    end = GaugeMetricFamily(
        "deferkit_period_end_seconds", "When a budget is renewed or ends, since 1970", labels=labels
    )
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
            end.add_metric([name, resource], current.end)
            runs_out.add_metric([name, resource], float("inf") if current.runs_out_at is None else current.runs_out_at)
            if current.pace is not None:
                pace.add_metric([name, resource], current.pace)
    yield from (end, runs_out, pace, holds)
