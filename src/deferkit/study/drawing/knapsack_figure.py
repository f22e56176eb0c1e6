"""Panels of the experiments on knapsacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import bands, chart_of, colour, layered
from deferkit.study.drawing.panels import TASKS, Rows
from deferkit.study.trial_statistics import as_float, mean_and_error, over_trials


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
        return [layered(zero, rule, dot).properties(width=330, height=280, title=self.title)]


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
        return [layered(reward, line).properties(title=self.title)]
