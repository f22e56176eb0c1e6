"""The figure of `deferkit run --plot`: what policies gained, and how they spent the budget."""

from pathlib import Path

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import (
    HEIGHT,
    WIDTH,
    bands,
    chart_of,
    colour,
    finished,
    in_order,
    layered,
    side_by_side,
)
from deferkit.study.drawing.figures import write_figure
from deferkit.study.trial_statistics import over_trials


def comparison(frame: pl.DataFrame, title: str, remark: str = "") -> alt.TopLevelMixin:
    """Return gain, and regret and spending over time, of all policies of a run; what is not known is left out."""
    policies = in_order(frame, "policy")
    known = frame.filter(pl.col("gain").is_not_nan())
    value, shown = ("gain", "gain %") if len(known) else ("reward", "reward")
    gains = over_trials(frame, ["policy"], value)
    base = chart_of(gains).encode(y=alt.Y("policy:N", sort=policies, title=None))
    bars = base.mark_bar().encode(
        x=alt.X("mean:Q", title=shown), color=colour("policy", policies), tooltip=["policy:N", "mean:Q", "sd:Q"]
    )
    spread = base.mark_rule(strokeWidth=2, color="#333").encode(x="low:Q", x2="high:Q")
    label = base.mark_text(align="left", dx=5, fontSize=12).encode(x="high:Q", text=alt.Text("mean:Q", format=",.1f"))
    charts = [layered(bars, spread, label).properties(width=WIDTH, height=HEIGHT, title=shown)]
    paths = frame.filter(pl.col("at").list.len() > 0).explode("at", "regret_at", "spent_at")
    x = alt.X("at:Q", title="tasks", axis=alt.Axis(format="~s"))
    for column, name in (("regret_at", "regret against OPT"), ("spent_at", "spent")) if len(paths) else ():
        some = paths.filter(pl.col(column).is_not_nan())
        if some.is_empty():
            continue
        lines = over_trials(some, ["policy", "at"], column)
        charts.append(bands(lines, x=x, y_title=name, points=False).properties(title=name))
    return finished(
        side_by_side(charts, columns=3).resolve_scale(color="shared"),
        title,
        [line for line in (*remark.splitlines(), "mean ± sd over trials") if line],
    )


def draw_comparison(frame: pl.DataFrame, folder: Path, title: str, remark: str = "") -> Path:
    """Write the figure and return where its PNG is; SVG and an interactive page lie beside it."""
    write_figure(comparison(frame, title, remark), "run", folder / "figures")
    return folder / "figures" / "run.png"
