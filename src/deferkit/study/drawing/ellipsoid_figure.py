"""The panel of the experiment `coverage`: how far the truth is from the estimate, and how far the ellipsoid reaches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, layered
from deferkit.study.drawing.panels import Rows

COLOURS = ("#0b5fa5", "#cf3a4f", "#5d8a1f")


@dataclass(frozen=True, kw_only=True)
class Ellipsoids:
    """A chart for each policy: median distance (solid, with its 5–95 % band) and β (dashed), over the tasks."""

    rows: Rows
    """Returns a row for each trial, time and parameter: `policy`, `target`, `at`, `far` and `beta`."""
    titles: Mapping[str, str]
    """Of the charts, by policy."""
    targets: Sequence[str]
    """The parameters that are estimated."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return the charts."""
        grouped = (
            self.rows(frame)
            .group_by("policy", "target", "at", maintain_order=True)
            .agg(
                pl.col("far").median().alias("mean"),
                pl.col("far").quantile(0.05).alias("low"),
                pl.col("far").quantile(0.95).alias("high"),
                pl.col("beta").median(),
            )
        )
        return [self._chart(grouped.filter(policy=policy), title) for policy, title in self.titles.items()]

    def _chart(self, rows: pl.DataFrame, title: str) -> Any:
        ticks = alt.Axis(format="~s", values=[20, 100, 1000, 10000, 50000])
        x = alt.X("at:Q", title="tasks", scale=alt.Scale(type="log", nice=False), axis=ticks)
        scale = alt.Scale(type="log", domain=[0.1, 100])
        colours = alt.Scale(domain=list(self.targets), range=list(COLOURS))
        base = chart_of(rows).encode(x=x, color=alt.Color("target:N", title=None, scale=colours))
        band = base.mark_area(opacity=0.15, clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
        line = base.mark_line(strokeWidth=2.2, clip=True).encode(
            y=alt.Y("mean:Q", scale=scale, title="distance of the truth (norm M), in units of σ"),
            tooltip=["target:N", "at:Q", alt.Tooltip("mean:Q", format=".3~r"), alt.Tooltip("beta:Q", format=".3~r")],
        )
        beta = base.mark_line(strokeDash=[6, 4], strokeWidth=2, clip=True).encode(y=alt.Y("beta:Q", scale=scale))
        return layered(band, line, beta).properties(width=380, height=300, title=title)
