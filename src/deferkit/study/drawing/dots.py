"""Panels of dots and bars: a mean with its spread for each policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, colour, layered
from deferkit.study.trial_statistics import as_float, over_trials


@dataclass(frozen=True, kw_only=True)
class FeedbackDots:
    """A dot with its standard deviation for each policy and feedback; a chart for each budget."""

    value: str
    """The column of numbers."""
    x_title: str
    title: Callable[[pl.DataFrame], str]
    """Of the chart of these trials."""
    policies: Sequence[str]
    feedbacks: Sequence[str]

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return a chart for each budget."""
        return [self._chart(part) for _, part in frame.group_by("asked_budget", maintain_order=True)]

    def _chart(self, part: pl.DataFrame) -> Any:
        base = chart_of(over_trials(part, ["policy", "feedback"], self.value)).encode(
            y=alt.Y("policy:N", sort=list(self.policies), title=None),
            yOffset=alt.YOffset("feedback:N", sort=list(self.feedbacks)),
            color=colour("feedback", self.feedbacks),
        )
        rule = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=self.x_title), x2="high:Q")
        dot = base.mark_point(filled=True, size=80, opacity=1).encode(
            x="mean:Q", tooltip=["policy:N", "feedback:N", alt.Tooltip("mean:Q", format=".1f")]
        )
        return layered(rule, dot).properties(width=400, height=52 * len(self.policies), title=self.title(part))


@dataclass(frozen=True, kw_only=True)
class Dots:
    """A dot with its standard deviation for each row and colour; a chart for each part of the trials."""

    value: str
    """The column of numbers."""
    x_title: str
    title: str
    """Of a chart; may name columns of `split`."""
    y: str
    """The column with a row for each value."""
    by: str
    """The column with a colour for each value."""
    split: Sequence[str]
    """Columns with a chart for each combination of values."""
    scale: alt.Scale

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return a chart for each part."""
        among = frame[self.by].unique(maintain_order=True).to_list()
        return [
            self._chart(part, among).properties(title=self.title.format(**dict(zip(self.split, key, strict=True))))
            for key, part in frame.group_by(self.split, maintain_order=True)
        ]

    def _chart(self, part: pl.DataFrame, among: Sequence[str]) -> Any:
        rows = part[self.y].unique(maintain_order=True).to_list()
        base = chart_of(over_trials(part, [self.y, self.by], self.value)).encode(
            y=alt.Y(f"{self.y}:N", sort=rows, title=None),
            yOffset=alt.YOffset(f"{self.by}:N", sort=list(among)),
            color=colour(self.by, among),
        )
        x = alt.X("low:Q", title=self.x_title, scale=self.scale)
        rule = base.mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q")
        dot = base.mark_point(filled=True, size=80, opacity=1).encode(
            x="mean:Q", tooltip=[f"{self.y}:N", f"{self.by}:N", alt.Tooltip("mean:Q", format=".1f")]
        )
        return layered(rule, dot).properties(width=400, height=44 * len(rows))


@dataclass(frozen=True, kw_only=True)
class DifferenceDots:
    """Mean differences with two standard errors for each row and colour, and a line at 0; a chart for each part."""

    value: str
    """The column of differences."""
    x_title: str
    title: str
    """Of a chart; may name columns of `split`."""
    y: str
    """The column with a row for each value."""
    by: str
    """The column with a colour for each value."""
    split: Sequence[str]
    """Columns with a chart for each combination of values."""
    rows: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame
    """Which trials are shown."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return a chart for each part."""
        shown = self.rows(frame)
        among = shown[self.by].unique(maintain_order=True).to_list()
        error = 2 * pl.col("sd").fill_null(0.0) / pl.col("trials").sqrt()
        means = over_trials(shown, [*self.split, self.y, self.by], self.value).with_columns(
            low=pl.col("mean") - error, high=pl.col("mean") + error
        )
        # all charts have one scale, so that they can be compared
        scale = alt.Scale(domain=[as_float(means["low"].min()), as_float(means["high"].max())], nice=True)
        return [
            self._chart(part, among, scale).properties(
                title=self.title.format(**dict(zip(self.split, key, strict=True)))
            )
            for key, part in means.group_by(self.split, maintain_order=True)
        ]

    def _chart(self, means: pl.DataFrame, among: Sequence[str], scale: alt.Scale) -> Any:
        rows = means[self.y].unique(maintain_order=True).to_list()
        base = chart_of(means).encode(
            y=alt.Y(f"{self.y}:N", sort=rows, title=None, axis=alt.Axis(labelLimit=240)),
            yOffset=alt.YOffset(f"{self.by}:N", sort=list(among)),
            color=colour(self.by, among),
        )
        rule = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=self.x_title, scale=scale), x2="high:Q")
        dot = base.mark_point(filled=True, size=70, opacity=1).encode(
            x="mean:Q", tooltip=[f"{self.y}:N", f"{self.by}:N", alt.Tooltip("mean:Q", format="+.1f")]
        )
        zero = chart_of(pl.DataFrame({"x": [0.0]})).mark_rule(strokeDash=[5, 4], color="#333").encode(x="x:Q")
        return layered(zero, rule, dot).properties(width=400, height=40 * len(rows))


@dataclass(frozen=True, kw_only=True)
class GainBars:
    """Bars of gain with the time of a step beside each; a chart for each setting."""

    policies: Sequence[str]
    """In the order of the bars."""
    setting: str = "setting"
    """The column with a chart for each value."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return the charts as one."""
        keys = ["policy", self.setting]
        times = over_trials(frame, keys, "us_per_step").select(*keys, us="mean")
        rows = over_trials(frame, keys, "gain").join(times, on=keys)
        label = pl.struct("mean", "us").map_elements(_label, return_dtype=pl.String)
        rows = rows.with_columns(label=label)
        base = chart_of(rows).encode(
            y=alt.Y("policy:N", sort=list(self.policies), title=None),
            color=alt.condition("datum.policy == 'default'", alt.value("#0b5fa5"), alt.value("#9aa5b1")),
        )
        tooltip = [
            "policy:N",
            alt.Tooltip("mean:Q", format=".1f"),
            alt.Tooltip("us:Q", format=".1f", title="µs a step"),
        ]
        x = alt.X("mean:Q", title="gain % (µs a step)", scale=alt.Scale(domain=[-10, 150]))
        bars = base.mark_bar().encode(x=x, tooltip=tooltip)
        lines = base.mark_rule(strokeWidth=2, color="#333").encode(x="low:Q", x2="high:Q", color=alt.value("#333"))
        texts = base.mark_text(align="left", dx=6, fontSize=12).encode(
            x="high:Q", text="label:N", color=alt.value("#222")
        )
        chart = layered(bars, lines, texts).properties(width=330, height=210)
        settings = rows[self.setting].unique(maintain_order=True).to_list()
        return [chart.facet(facet=alt.Facet(f"{self.setting}:N", title=None, sort=settings), columns=2)]


def _label(row: dict[str, float | None]) -> str:
    us = row["us"]
    return f"{row['mean']:.0f}" + ("" if us is None else f"  ({us:,.{0 if us > 10 else 1}f} µs)")
