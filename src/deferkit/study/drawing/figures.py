"""Figures of experiments."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import polars as pl
import vl_convert

from deferkit.errors import UnwritableState
from deferkit.study.drawing.charts import (
    HEIGHT,
    WIDTH,
    bands,
    chart_of,
    colour,
    finish,
    in_order,
    layer,
    side_by_side,
)
from deferkit.study.drawing.panels import TASKS, Rows
from deferkit.study.statistics import as_float, mean_and_error, over_trials
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
        lines = order_policies(self.rows(frame), self.policies, self.dashed)
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
    return layer(*strips).properties(width=330, height=46)


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
        shown = order_policies(frame, self.policies, self.last).with_columns(
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
        return [layer(ticks, dots).properties(width=290, height=300, title=self.title)]


def order_policies(frame: pl.DataFrame, policies: Sequence[str], last: str) -> pl.DataFrame:
    """Return the rows of these policies, the first of them late, so that nothing covers it, and `last` after it."""
    place = {name: at for at, name in enumerate(reversed(policies))} | {last: len(policies)}
    shown = frame.filter(pl.col("policy").is_in(policies))
    return shown.sort(pl.col("policy").replace_strict(place, return_dtype=pl.Int64), maintain_order=True)


@dataclass(frozen=True, kw_only=True)
class FeedbackDifferences:
    """The mean difference of each learner at each budget, with two standard errors."""

    title: str
    rows: Rows
    """Returns a row for each pair of trials: `who`, `limit` and the difference `more`."""
    learners: Sequence[str]
    limits: Sequence[str]
    """Budgets, the largest first."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return the chart."""
        rows = []
        for (who, limit), part in self.rows(frame).group_by("who", "limit", maintain_order=True):
            mean, error = mean_and_error(part["more"].to_numpy())
            rows.append((who, limit, mean, mean - 2 * error, mean + 2 * error))
        points = pl.DataFrame(rows, schema=["who", "limit", "mean", "low", "high"], orient="row")
        base = chart_of(points).encode(
            x=alt.X("limit:O", sort=list(self.limits)[::-1], title="budget", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("who:N", sort=list(self.learners)),
            color=colour("who", self.learners),
        )
        rule = base.mark_rule(strokeWidth=2).encode(
            y=alt.Y("low:Q", title="gain %, bandit less full (± 2 standard errors)"), y2="high:Q"
        )
        dot = base.mark_point(filled=True, size=70, opacity=1).encode(
            y="mean:Q", tooltip=["who:N", "limit:N", "mean:Q"]
        )
        zero = chart_of(pl.DataFrame({"y": [0.0]})).mark_rule(strokeDash=[5, 4], color="#333").encode(y="y:Q")
        return [layer(zero, rule, dot).properties(width=330, height=280, title=self.title)]


@dataclass(frozen=True, kw_only=True)
class RewardSoFar:
    """The mean reward of a task so far, and that of OPT (dashed)."""

    title: str
    rows: Rows
    """Returns a row for each point of each path: `who`, `at`, `so_far` and `opt_so_far`."""
    among: Sequence[str]
    """All lines of the figure."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return the chart."""
        long = self.rows(frame)
        best = over_trials(long.filter(who="ModelOnly"), ["at"], "opt_so_far")
        line = chart_of(best).mark_line(strokeDash=[6, 4], strokeWidth=2, color="#000").encode(x="at:Q", y="mean:Q")
        means = over_trials(long, ["who", "at"], "so_far")
        settled = means.filter(pl.col("at") >= pl.col("at").max() / 10)
        reach = [as_float(settled["mean"].min()) - 0.03, as_float(best["mean"].max()) + 0.01]
        reward = bands(
            means,
            x=TASKS,
            y_title="mean reward of a task so far",
            y_scale=alt.Scale(domain=reach),
            by="who",
            among=self.among,
            points=False,
            width=430,
            height=330,
        )
        return [layer(reward, line).properties(title=self.title)]


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
        return layer(band, line, beta).properties(width=380, height=300, title=title)


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
        return layer(ticks, *dots).properties(width=300, height=max(44 * len(order), 120), title=title)


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


def dots_with_bars(
    means: pl.DataFrame, *, y: str, by: str, among: Sequence[str], x: alt.X, digits: str = ".1f"
) -> tuple[Any, Any]:
    """Return bars from `low` to `high` and dots at `mean`, for each row and colour.

    Args:
        means: The rows, with `mean`, `low` and `high`.
        y: The column with a row of the chart for each value.
        by: The column with a colour for each value.
        among: All values of `by` in the figure.
        x: The axis of the numbers.
        digits: The format of a mean in a tooltip.
    """
    rows = means[y].unique(maintain_order=True).to_list()
    base = (
        chart_of(means)
        .encode(
            y=alt.Y(f"{y}:N", sort=rows, title=None, axis=alt.Axis(labelLimit=240)),
            yOffset=alt.YOffset(f"{by}:N", sort=list(among)),
            color=colour(by, among),
        )
        .properties(width=400, height=44 * len(rows))
    )
    rule = base.mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q")
    tooltip = [f"{y}:N", f"{by}:N", alt.Tooltip("mean:Q", format=digits)]
    return rule, base.mark_point(filled=True, size=80, opacity=1).encode(x="mean:Q", tooltip=tooltip)


@dataclass(frozen=True, kw_only=True)
class Dots:
    """A dot with its standard deviation for each row and colour; a chart for each part of the trials."""

    value: str
    """The column of numbers."""
    x_title: str
    title: str | Callable[[pl.DataFrame], str]
    """Of a chart; may name columns of `split`, or be made of its trials."""
    y: str
    """The column with a row for each value."""
    by: str
    """The column with a colour for each value."""
    split: Sequence[str]
    """Columns with a chart for each combination of values."""
    scale: alt.Scale = field(default_factory=alt.Scale)

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return a chart for each part."""
        among = frame[self.by].unique(maintain_order=True).to_list()
        x = alt.X("low:Q", title=self.x_title, scale=self.scale)
        charts = []
        for key, part in frame.group_by(self.split, maintain_order=True):
            means = over_trials(part, [self.y, self.by], self.value)
            named = dict(zip(self.split, key, strict=True))
            title = self.title.format(**named) if isinstance(self.title, str) else self.title(part)
            layers = dots_with_bars(means, y=self.y, by=self.by, among=among, x=x)
            charts.append(layer(*layers).properties(title=title))
        return charts


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
        x = alt.X("low:Q", title=self.x_title, scale=scale, axis=alt.Axis(tickCount=8))
        zero = chart_of(pl.DataFrame({"x": [0.0]})).mark_rule(strokeDash=[5, 4], color="#333").encode(x="x:Q")
        charts = []
        for key, part in means.group_by(self.split, maintain_order=True):
            layers = dots_with_bars(part, y=self.y, by=self.by, among=among, x=x, digits="+.1f")
            charts.append(
                layer(zero, *layers).properties(title=self.title.format(**dict(zip(self.split, key, strict=True))))
            )
        return charts


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
        chart = layer(bars, lines, texts).properties(width=330, height=210)
        settings = rows[self.setting].unique(maintain_order=True).to_list()
        return [chart.facet(facet=alt.Facet(f"{self.setting}:N", title=None, sort=settings), columns=2)]


def _label(row: dict[str, float | None]) -> str:
    us = row["us"]
    return f"{row['mean']:.0f}" + ("" if us is None else f"  ({us:,.{0 if us > 10 else 1}f} µs)")


STYLE = (Path(__file__).parent / "web" / "report.css").read_text(encoding="utf-8")
SCALE = 2.0  # of the PNG: sharp in print

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body><main>{body}<figure><div id="figure"></div></figure></main>
<script>{bundle}</script>
<script>vegaEmbed("#figure", {spec}, {{renderer: "svg", actions: true}});</script>
</body></html>
"""


class Drawn(NamedTuple):
    """A figure as it goes into the report."""

    name: str
    svg: str
    spec: str  # JSON, safe inside a script element


@functools.cache
def bundle() -> str:
    """Return the script that draws interactive figures, all of it, so that a page needs nothing else."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


def draw(chart: alt.TopLevelMixin, name: str) -> Drawn:
    """Return a chart for a page."""
    spec = json.dumps(chart.to_dict(), ensure_ascii=False)
    return Drawn(name, vl_convert.vegalite_to_svg(spec), spec.replace("</", "<\\/"))


def write_figure(chart: alt.TopLevelMixin, name: str, folder: Path) -> Drawn:
    """Write a chart as `name`.png, .svg and .html, and return it for the report."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(chart, name)
    (folder / f"{name}.svg").write_text(drawn.svg, encoding="utf-8")
    (folder / f"{name}.png").write_bytes(vl_convert.svg_to_png(drawn.svg, scale=SCALE))
    write_page(folder / f"{name}.html", name, "", chart)
    return drawn


def write_page(path: str | Path, title: str, body: str, chart: alt.TopLevelMixin) -> Path:
    """Write a page that needs no other file, and return its path.

    Args:
        path: Where it goes.
        title: Of its window.
        body: HTML above the figure.
        chart: The figure.

    Raises:
        UnwritableState: It cannot be written.
    """
    spec = json.dumps(chart.to_dict(), ensure_ascii=False).replace("</", "<\\/")
    return write_html(path, PAGE.format(title=escape(title), style=STYLE, body=body, bundle=bundle(), spec=spec))


def write_html(path: str | Path, page: str) -> Path:
    """Write a page, or raise UnwritableState; return its path."""
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise UnwritableState(f"{path} cannot be written: {error.strerror or error}.") from error
    return Path(path)


def comparison(frame: pl.DataFrame, title: str, remark: str = "", columns: int = 3) -> alt.TopLevelMixin:
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
    charts = [layer(bars, spread, label).properties(width=WIDTH, height=HEIGHT, title=shown)]
    paths = frame.filter(pl.col("at").list.len() > 0).explode("at", "regret_at", "spent_at")
    x = alt.X("at:Q", title="tasks", axis=alt.Axis(format="~s"))
    for column, name in (("regret_at", "regret against OPT"), ("spent_at", "spent")) if len(paths) else ():
        some = paths.filter(pl.col(column).is_not_nan())
        if some.is_empty():
            continue
        lines = over_trials(some, ["policy", "at"], column)
        charts.append(bands(lines, x=x, y_title=name, points=False).properties(title=name))
    return finish(
        side_by_side(charts, columns=columns).resolve_scale(color="shared"),
        title,
        [line for line in (*remark.splitlines(), "mean ± sd over trials") if line],
    )
