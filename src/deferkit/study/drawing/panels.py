"""Figures as declarations: panels, and which trials each of them shows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import (
    HEIGHT,
    WIDTH,
    bands,
    chart_of,
    finish,
    horizontal,
    layer,
    runs_text,
    settings_text,
    side_by_side,
    trials_text,
)
from deferkit.study.statistics import over_trials

TASKS = alt.X("at:Q", title="tasks", axis=alt.Axis(format="~s"))
"""The x axis of what is drawn over time."""
Rows = Callable[[pl.DataFrame], pl.DataFrame]


class Panel(Protocol):
    """A part of a figure."""

    def charts(self, frame: pl.DataFrame) -> Iterable[Any]:
        """Return its charts."""
        ...


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines of a mean with a band of one standard deviation; a chart for each part of the trials."""

    value: str
    """The column of numbers."""
    y_title: str
    x: alt.X
    title: str = ""
    """Of a chart; may name columns of `split`."""
    split: Sequence[str] = ()
    """Columns with a chart for each combination of values."""
    rows: Rows = lambda frame: frame
    """Which trials are shown."""
    by: str = "policy"
    """The column with a line for each value."""
    among: Callable[[pl.DataFrame], Sequence[str]] | Sequence[str] | None = None
    """All lines of the figure, for one legend; by default those of the chart."""
    dash: str | None = None
    """The column that dashes a line."""
    y_scale: alt.Scale | None = None
    points: bool = True
    banded: bool = True
    width: int = WIDTH
    height: int = HEIGHT
    level: tuple[float, str] | None = None
    """A horizontal line and its label."""
    least: float | None = None
    """What is drawn of smaller values, which a logarithmic axis does not have."""
    labels: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Texts: from the trials, rows with the column of the x axis, `y` and `label`."""

    def charts(self, frame: pl.DataFrame) -> list[Any]:
        """Return a chart for each part."""
        rows = self.rows(frame)
        among = self.among(frame) if callable(self.among) else self.among
        parts = rows.group_by(self.split, maintain_order=True) if self.split else [((), rows)]
        return [self._chart(part, dict(zip(self.split, key, strict=True)), among) for key, part in parts]

    def _chart(self, part: pl.DataFrame, key: Mapping[str, Any], among: Sequence[str] | None) -> Any:
        across = str(self.x.shorthand).partition(":")[0]
        lines = over_trials(part, [self.by, *([self.dash] if self.dash else []), across], self.value)
        lines = lines.filter(pl.col("mean").is_not_null())
        if self.least is not None:
            lines = lines.with_columns(pl.col("low", "mean").clip(lower_bound=self.least))
        if not self.banded:
            lines = lines.with_columns(low="mean", high="mean")
        chart = bands(
            lines,
            x=self.x,
            y_title=self.y_title,
            y_scale=self.y_scale,
            by=self.by,
            among=among,
            points=self.points,
            dash=self.dash,
            width=self.width,
            height=self.height,
        )
        if self.level is not None:
            chart = layer(chart, horizontal(*self.level))
        if self.labels is not None:
            texts = chart_of(self.labels(part)).mark_text(align="right", dx=-8, dy=-16, fontSize=14, fontWeight="bold")
            chart = layer(chart, texts.encode(x=f"{across}:Q", y="y:Q", text="label:N"))
        if not self.title:
            return chart
        return chart.properties(title=self.title.format(**key))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure: panels under a title; its subtitle says what the trials have in common."""

    title: str
    panels: Sequence[Panel]
    rows: Rows = lambda frame: frame
    """Which trials are shown."""
    columns: int = 2
    by: str = "policy"
    """The column that tells policies apart."""
    spread: str = "mean ± sd"
    """What the figure shows of several trials."""
    seed: str = ""
    """What a seed stands for, if the figure must say it."""
    notes: Sequence[str | Callable[[pl.DataFrame], str]] = ()
    """Further lines of the subtitle."""

    def draw(self, frame: pl.DataFrame) -> alt.TopLevelMixin:
        """Return the figure of these trials."""
        shown = self.rows(frame)
        charts = [chart for panel in self.panels for chart in panel.charts(shown)]
        settings, trials = settings_text(shown), f"{self.spread} over {trials_text(shown, self.by)}"
        if self.seed:
            trials += f" (seeds {runs_text(shown['seed'].to_list())}: {self.seed})"
        notes = [note(shown) if callable(note) else note for note in self.notes]
        lines = [
            f"{settings}; {trials}" if settings else trials,
            *(line for note in notes for line in note.splitlines()),
        ]
        alone = len(charts) == 1 and charts[0].title is alt.Undefined  # else the title of the chart would be lost
        together = charts[0] if alone else side_by_side(charts, self.columns)
        return finish(together, self.title, lines)
