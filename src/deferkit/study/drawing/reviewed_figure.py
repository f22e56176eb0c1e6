"""The panels of the experiment `reviewed`: gain of every trial by feedback, and what was spent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, colour, layered


@dataclass(frozen=True, kw_only=True)
class TrialGains:
    """Gains of learners: small dots are trials, large ones means, a bar a rule; a chart for each world."""

    split: str
    """The column with a chart for each value."""
    policies: Sequence[str]
    feedbacks: Sequence[str]
    limits: Sequence[str]
    """Budgets in the order of the rows."""
    rule: str
    """The policy that is drawn as a bar."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return a chart for each world, those with few budgets first, so that charts side by side are as tall."""
        parts = [(str(key[0]), part) for key, part in frame.group_by(self.split, maintain_order=True)]
        parts.sort(key=lambda each: each[1]["limit"].n_unique())
        return [self._chart(part, title) for title, part in parts]

    def _chart(self, frame: pl.DataFrame, title: str) -> Any:
        row = pl.col("limit") + ", " + pl.col("policy")
        shown = frame.filter(pl.col("policy").is_in(self.policies)).with_columns(row=row)
        there = set(shown["row"])
        order = [f"{limit}, {policy}" for limit in self.limits for policy in self.policies]
        order = [row for row in order if row in there]
        means = shown.group_by("row", "feedback", maintain_order=True).agg(pl.col("gain").mean())
        rule = frame.filter(policy=self.rule).group_by("limit").agg(bar=pl.col("gain").mean())
        bars = shown.select("row", "limit").unique(maintain_order=True).join(rule, on="limit")
        y = alt.Y("row:N", sort=order, title=None)
        offset = alt.YOffset("feedback:N", sort=list(self.feedbacks))
        x = alt.X(
            "gain:Q",
            title="gain % of hindsight OPT",
            scale=alt.Scale(domain=[-10, 85], nice=False),
            axis=alt.Axis(values=[0, 20, 40, 60, 80]),
        )
        ticks = chart_of(bars).mark_tick(thickness=2, size=30, color="#222").encode(y=y, x="bar:Q")
        small = chart_of(shown.select("row", "feedback", "gain")).mark_point(filled=True, size=16, opacity=0.3)
        large = chart_of(means).mark_point(filled=True, size=80, opacity=1)
        ink = colour("feedback", self.feedbacks)
        dots = [chart.encode(y=y, yOffset=offset, x=x, color=ink) for chart in (small, large)]
        return layered(ticks, *dots).properties(width=300, height=max(44 * len(order), 120), title=title)


@dataclass(frozen=True, kw_only=True)
class TrialSpending:
    """What a policy spent with one feedback, trial by trial, in each cell with a limit."""

    policy: str
    feedback: str

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return the chart."""
        limited = pl.col("asked_budget") != "inf"
        shown = frame.filter(limited, policy=self.policy, feedback=self.feedback)
        base = chart_of(shown.select("cell", "spent_pct")).mark_point(filled=True, size=16, opacity=0.4)
        chart = base.encode(
            y=alt.Y("cell:N", sort=None, title=None, axis=alt.Axis(labelLimit=220)),
            x=alt.X("spent_pct:Q", title="spent, % of the budget", scale=alt.Scale(domain=[0, 102])),
            color=alt.value("#1b9e8a"),
        )
        return [chart.properties(width=260, height=220, title=f"{self.policy}, {self.feedback}: spent")]
