"""The panels of the experiment `drift`: gain over time above the phase, and the gain at the end beside the goals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, colour, in_order, layered
from deferkit.study.drawing.panels import Rows
from deferkit.study.trial_statistics import as_float
from deferkit.worlds.drift import phases

STEPPED = ("abrupt", "recurring")  # kinds of drift whose phase jumps


@dataclass(frozen=True, kw_only=True)
class GainOverTime:
    """A chart for each kind of drift: gain within windows of the stream, and the phase below it."""

    rows: Rows
    """Returns a row for each policy, kind and window: `policy`, `kind`, `at` and `mean`."""
    policies: Sequence[str]
    """The policies that are drawn."""
    dashed: str
    """The policy whose line is dashed, and drawn last."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return a chart for each kind."""
        lines = ordered(self.rows(frame), self.policies, self.dashed)
        among, tasks = in_order(lines, "policy"), int(as_float(lines["at"].max()))
        kinds = frame["kind"].unique(maintain_order=True)
        return [self._chart(lines.filter(kind=kind), kind, tasks, among) for kind in kinds]

    def _chart(self, lines: pl.DataFrame, kind: str, tasks: int, among: list[str]) -> Any:
        scale = alt.Scale(domain=[0, tasks], nice=False)
        gain = (
            chart_of(lines)
            .mark_line(strokeWidth=2.2, clip=True)
            .encode(
                x=alt.X("at:Q", title=None, scale=scale, axis=alt.Axis(labels=False)),
                y=alt.Y("mean:Q", title="gain % within the window", scale=alt.Scale(domain=[-60, 140], nice=False)),
                color=colour("policy", among),
                strokeDash=alt.condition(f"datum.policy == '{self.dashed}'", alt.value([5, 4]), alt.value([1, 0])),
                tooltip=["policy:N", "at:Q", alt.Tooltip("mean:Q", format=".1f")],
            )
            .properties(width=330, height=230, title=kind)
        )
        return alt.vconcat(gain, phase_chart(kind, tasks, scale), spacing=6)


def phase_chart(kind: str, tasks: int, scale: alt.Scale) -> Any:
    """Return the phase of a kind of drift: the weights of A (black) and B (grey)."""
    turn = pl.DataFrame({"at": list(range(tasks)), "phase": phases(kind, tasks)})
    few = turn.gather_every(max(tasks // 400, 1)).with_columns(A=pl.col("phase").cos(), B=pl.col("phase").sin())
    strips = [
        chart_of(few.select("at", weight=side))
        .mark_line(strokeWidth=1.6, color=ink, interpolate="step-after" if kind in STEPPED else "linear")
        .encode(
            x=alt.X("at:Q", title="tasks", scale=scale, axis=alt.Axis(format="~s", tickCount=5)),
            y=alt.Y("weight:Q", title="phase", scale=alt.Scale(domain=[-1.3, 1.3]), axis=alt.Axis(values=[-1, 0, 1])),
        )
        for side, ink in (("B", "#b5b5b5"), ("A", "#222222"))
    ]
    return layered(*strips).properties(width=330, height=46)


@dataclass(frozen=True, kw_only=True)
class GoalDots:
    """The mean gain in each cell as dots, and the goals of the default as bars."""

    title: str
    goals: Mapping[tuple[str, str], float]
    """By kind and budget."""
    policies: Sequence[str]
    last: str
    """The policy that is drawn last."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return the chart."""
        shown = ordered(frame, self.policies, self.last).with_columns(
            cell=pl.col("kind") + ", " + pl.col("asked_budget")
        )
        kinds, budgets = (frame[name].unique(maintain_order=True) for name in ("kind", "asked_budget"))
        rows = shown.group_by("policy", "cell", maintain_order=True).agg(pl.col("gain").mean())
        goals = [(f"{kind}, {budget}", goal) for (kind, budget), goal in self.goals.items()]
        y = alt.Y("cell:N", sort=[f"{kind}, {budget}" for kind in kinds for budget in budgets], title=None)
        ticks = (
            chart_of(pl.DataFrame(goals, schema=["cell", "gain"], orient="row"))
            .mark_tick(thickness=3, size=18, color="#222")
            .encode(y=y, x="gain:Q")
        )
        axis = alt.Axis(values=list(range(0, 101, 20)))
        scale = alt.Scale(domain=[-10, 103], nice=False)
        dots = (
            chart_of(rows)
            .mark_point(filled=True, size=75, opacity=0.9, clip=True)
            .encode(
                y=y,
                x=alt.X("gain:Q", title="gain % of the whole stream", scale=scale, axis=axis),
                color=colour("policy", in_order(shown, "policy")),
                tooltip=["policy:N", "cell:N", alt.Tooltip("gain:Q", format=".1f")],
            )
        )
        return [layered(ticks, dots).properties(width=290, height=300, title=self.title)]


def ordered(frame: pl.DataFrame, policies: Sequence[str], last: str) -> pl.DataFrame:
    """Return the rows of these policies, the first of them late, so that nothing covers it, and `last` after it."""
    place = {name: at for at, name in enumerate(reversed(policies))} | {last: len(policies)}
    shown = frame.filter(pl.col("policy").is_in(policies))
    return shown.sort(pl.col("policy").replace_strict(place, return_dtype=pl.Int64), maintain_order=True)
