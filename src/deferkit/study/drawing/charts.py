"""Charts: layers, axes, legends and subtitles."""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import altair as alt
import polars as pl

from deferkit.study.statistics import as_float, with_separators
from deferkit.study.trial import Outcome
from deferkit.worlds import WORLDS

COLOURS = {
    "default": "#0b5fa5",
    "default, cold": "#86b6dd",
    "adaptive": "#46a3d9",
    "never": "#46a3d9",
    "aupd": "#e08e0b",
    "thompson": "#7b3fa0",
    "greedy": "#1b9e8a",
    "gradient": "#e08e0b",
    "paper": "#cf3a4f",
    "best-reject": "#5d8a1f",
    "threshold": "#a8bd5a",
    "arbitrary-human": "#8d6e63",
    "random": "#c2a79b",
    "human-only": "#546e7a",
    "model-only": "#9e9e9e",
    "static": "#777777",
    "hindsight": "#444444",
    "achievable": "#b0307a",
    "opt": "#000000",
    "full": "#444444",
    "bandit": "#e08e0b",
    "reviewed": "#1b9e8a",
    "Linear": "#46a3d9",
    "Logistic": "#46a3d9",
    "NeuralLinear": "#7b3fa0",
    "NeuralLogistic": "#7b3fa0",
    "TreeLinear": "#1b9e8a",
    "TreeLogistic": "#1b9e8a",
    "NeuralUCB": "#e08e0b",
    "NeuralTS": "#f4c27a",
    "Linear, printed price": "#cf3a4f",
    "Logistic, printed price": "#cf3a4f",
    "NeuralLinear, printed price": "#e58ca0",
    "NeuralLogistic, printed price": "#e58ca0",
    "Algorithm 1": "#7a1022",
    "BestReject": "#5d8a1f",
    "ArbitraryHuman": "#8d6e63",
    "HumanOnly": "#546e7a",
    "ModelOnly": "#9e9e9e",
    "hindsight OPT": "#000000",
}
OTHERS = ("#e08e0b", "#7b3fa0", "#1b9e8a", "#8d6e63", "#0b5fa5")
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": "#d5d5d5"},
    "axis": {"labelFontSize": 13, "titleFontSize": 14, "gridColor": "#ececec", "titleFontWeight": "normal"},
    "header": {"labelFontSize": 15, "labelFontWeight": "bold", "titleFontSize": 0},
    "legend": {"labelFontSize": 13, "titleFontSize": 13, "symbolOpacity": 1, "symbolSize": 110, "labelLimit": 260},
    "title": {"fontSize": 16, "subtitleFontSize": 13, "anchor": "start", "subtitleColor": "#444", "offset": 12},
}
WIDTH: int = 380
HEIGHT: int = 280


def colour(field: str, values: Sequence[str]) -> alt.Color:
    """Return the colour encoding of a field: a policy always has its own colour."""
    others = [value for value in values if value not in COLOURS]
    chosen = [COLOURS.get(value) or OTHERS[others.index(value) % len(OTHERS)] for value in values]
    return alt.Color(f"{field}:N", title=None, scale=alt.Scale(domain=list(values), range=chosen), sort=list(values))


def in_order(frame: pl.DataFrame, field: str) -> list[str]:
    """Return the values of a column, policies in the order of their colours, others as they come."""
    values = frame[field].unique(maintain_order=True).to_list()
    return sorted(values, key=lambda value: list(COLOURS).index(value) if value in COLOURS else 99)


def bands(
    frame: pl.DataFrame,
    *,
    x: alt.X,
    y_title: str,
    y_scale: alt.Scale | None = None,
    by: str = "policy",
    among: Sequence[str] | None = None,
    points: bool = True,
    dash: str | None = None,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> alt.LayerChart:
    """Return lines of `mean` with a band from `low` to `high`; a click on the legend picks one.

    `among` are all values of `by` in the figure, where a panel has only some of them.
    """
    pick = pick_by_legend(by)
    colours = colour(by, among or in_order(frame, by))
    scale = alt.Scale() if y_scale is None else y_scale
    base = chart_of(frame).encode(x=x)
    band = base.mark_area(clip=True).encode(
        y=alt.Y("low:Q", title=y_title, scale=scale),
        y2="high:Q",
        color=colours,
        opacity=alt.condition(pick, alt.value(0.15), alt.value(0.02)),
    )
    line = base.mark_line(point={"size": 45} if points else False, strokeWidth=2.2, clip=True).encode(
        y=alt.Y("mean:Q", title=y_title, scale=scale),
        color=colours,
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12)),
        tooltip=tooltips(frame),
    )
    if dash:
        order = in_order(frame, dash)
        styles = alt.Scale(domain=order, range=[[1, 0], [5, 3], [2, 2]][: len(order)])
        band = band.encode(detail=f"{dash}:N")
        line = line.encode(strokeDash=alt.StrokeDash(f"{dash}:N", scale=styles))
    return layer(band, line.add_params(pick)).properties(width=width, height=height)


@functools.cache
def pick_by_legend(field: str) -> alt.Parameter:
    """Return the selection that a click on the legend makes, one for all panels of a figure."""
    return alt.selection_point(name=f"picked_{field}", fields=[field], bind="legend")


def chart_of(frame: pl.DataFrame) -> alt.Chart:
    """Return an empty chart of these rows, as JSON has them: what is not a number is missing."""
    floats = pl.col(pl.Float64)
    rows = frame.with_columns(pl.when(floats.is_finite()).then(floats)).to_dicts()
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]


def layer(*charts: Any) -> alt.LayerChart:
    """Return charts one above the other."""
    return cast(alt.LayerChart, alt.layer(*charts))


def tooltips(frame: pl.DataFrame) -> list[alt.Tooltip]:
    """Show every column, numbers with four digits."""
    return [
        alt.Tooltip(f"{name}:Q", format=",.4~r") if kind.is_numeric() else alt.Tooltip(f"{name}:N")
        for name, kind in frame.schema.items()
        if name not in ("low", "high") and not isinstance(kind, pl.List)
    ]


def side_by_side(charts: Sequence[alt.TopLevelMixin], columns: int = 2) -> alt.ConcatChart:
    """Return charts in a grid with one legend."""
    with warnings.catch_warnings():
        # that the panels share one selection is what is wanted
        warnings.filterwarnings("ignore", "Automatically deduplicated selection", UserWarning)
        return alt.concat(*charts, columns=columns, spacing=28)  # type: ignore[arg-type]


def finish(chart: Any, title: str, subtitle: str | Sequence[str]) -> alt.TopLevelMixin:
    """Return a chart with its title and the common look."""
    lines = [subtitle] if isinstance(subtitle, str) else list(subtitle)
    done: alt.TopLevelMixin = chart.properties(title=alt.TitleParams(title, subtitle=lines)).configure(**CONFIG)
    return done


def log_axis(field: str, title: str, values: Sequence[float], number: str = "~s") -> alt.X:
    """Return a logarithmic x axis with ticks at the values measured."""
    scale = alt.Scale(type="log", domain=[min(values) * 0.85, max(values) * 1.18], nice=False)
    axis = alt.Axis(values=list(values), format=number, labelOverlap=True)
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=axis)


def horizontal(value: float, label: str) -> alt.LayerChart:
    """Return a dashed line with a label."""
    base = chart_of(pl.DataFrame({"y": [value], "label": [label]}))
    rule = base.mark_rule(strokeDash=[5, 4], color="#333").encode(y="y:Q")
    text = base.mark_text(align="right", dy=11, dx=-4, fontSize=12, color="#333").encode(
        y="y:Q", x=alt.value(WIDTH), text="label:N"
    )
    return layer(rule, text)


FIELDS = {each.name: each for world in WORLDS.values() if is_dataclass(world) for each in fields(world)}
"""Parameters of all worlds; those that several worlds have mean the same in all of them."""


def parameter_columns(frame: pl.DataFrame) -> dict[str, str]:
    """Return the columns of trials that hold parameters of a world, by parameter.

    One that has the name of a result is called `world_…`, as in `deferkit.study.runner.table`.
    """
    columns = {name: f"world_{name}" if name in Outcome._fields else name for name in FIELDS}
    return {name: column for name, column in columns.items() if column in frame.columns}


def settings_text(frame: pl.DataFrame) -> str:
    """Return the settings that all trials have in common: parameters of the world, budget and feedback.

    Args:
        frame: Trials, a row each.

    >>> both = {"horizon": 50_000, "regime": "random", "noise": 0.1, "asked_budget": "8000", "feedback": "full"}
    >>> settings_text(pl.DataFrame([both | {"n_features": 5}, both | {"n_features": 20}]))
    'random regime, T = 50,000, σ = 0.1, B = 8,000, full feedback'
    >>> without_path = pl.DataFrame({"at": [[]], "feedback": ["full"]}, schema_overrides={"at": pl.List(pl.Float64)})
    >>> settings_text(without_path)
    'full feedback'
    """
    texts = []
    for name, column in parameter_columns(frame).items():
        shown, value = FIELDS[name].metadata.get("shown"), common(frame, column)
        if shown and value is not None and not (isinstance(value, str) and value == FIELDS[name].default):
            texts.append(shown.format(value))
    if "horizon" not in frame.columns and "at" in frame.columns and (tasks := tasks_text(frame)):
        texts.append(f"T = {tasks}")
    budget, feedback = common(frame, "asked_budget"), common(frame, "feedback")
    texts += [] if budget is None else [f"B = {with_separators(budget)}" if budget != "inf" else "no limit"]
    return ", ".join([*texts, *([] if feedback is None else [f"{feedback} feedback"])])


def common(frame: pl.DataFrame, column: str) -> Any:
    """Return the value that a column has in all rows; None if there are several, or some are missing."""
    values = frame[column].unique().to_list() if column in frame.columns else []
    return values[0] if len(values) == 1 else None


def tasks_text(frame: pl.DataFrame) -> str:
    """Return the number of tasks, from trials with a path; "" if none has one."""
    counts = sorted(set(frame["at"].list.last().drop_nulls().to_list()))
    return " and ".join(f"{n:,.0f}" for n in counts)


def trials_text(frame: pl.DataFrame, variant: str = "policy") -> str:
    """Return the number of trials of each setting, as text.

    Args:
        frame: Trials, a row each.
        variant: The column that tells policies apart.

    >>> trials_text(pl.DataFrame({"policy": ["a", "a", "b"], "feedback": ["full"] * 3}))
    '1 to 2 trials'
    """
    settings = {"asked_budget", "feedback", *parameter_columns(frame).values()} & set(frame.columns)
    counts = frame.group_by(variant, *sorted(settings)).len()["len"]
    low, high = as_float(counts.min()), as_float(counts.max())
    return f"{high:.0f} trials" if low == high else f"{low:.0f} to {high:.0f} trials"


def runs_text(seeds: Sequence[int]) -> str:
    """Return whole numbers as text, those that follow each other as a range.

    >>> runs_text([0, 1, 2, 100]), runs_text([7])
    ('0 to 2, 100', '7')
    """
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and parts[-1][1] == seed - 1:
            parts[-1][1] = seed
        else:
            parts.append([seed, seed])
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in parts)
