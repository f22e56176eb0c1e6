"""The figure of when tasks come: every hour of the week."""

from pathlib import Path

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, finished
from deferkit.study.drawing.figures import write_figure
from deferkit.study.plan_periods import WEEKDAYS, arrivals_by_hour
from deferkit.worlds.task_stream import Floats


def arrivals_chart(times: Floats, title: str) -> alt.TopLevelMixin:
    """Return a square for each hour of the week, the darker the more tasks come in it."""
    counts = arrivals_by_hour(times)
    rows = pl.DataFrame(
        {
            "day": [day for day in WEEKDAYS for _ in range(24)],
            "hour": list(range(24)) * 7,
            "tasks": counts.reshape(-1).tolist(),
        }
    )
    chart = (
        chart_of(rows)
        .mark_rect()
        .encode(
            x=alt.X("hour:O", title="hour of the day", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("day:O", sort=list(WEEKDAYS), title=None),
            color=alt.Color("tasks:Q", title="tasks an hour", scale=alt.Scale(scheme="blues")),
            tooltip=["day:O", "hour:O", alt.Tooltip("tasks:Q", format=".1f")],
        )
        .properties(width=600, height=210)
    )
    return finished(chart, title, [f"{len(times):,} tasks, by the clock of the table"])


def draw_arrivals(times: Floats, folder: Path, title: str) -> Path:
    """Write the figure and return where its PNG is; SVG and an interactive page lie beside it."""
    write_figure(arrivals_chart(times, title), "arrivals", folder / "figures")
    return folder / "figures" / "arrivals.png"
