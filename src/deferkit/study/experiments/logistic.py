"""Binary rewards and the logistic link."""

import math
from typing import Any

import altair as alt
import polars as pl
from scipy.stats import t as student

from deferkit.study.drawing.charts import log_axis
from deferkit.study.drawing.panels import Figure, Lines
from deferkit.study.experiments.experiment import REGIMES, Experiment, Grid, Judgement, MeanTable, claim
from deferkit.study.statistics import as_float, cell, mean_and_error, mean_of, over_trials

BUDGETS = (200, 800, 2_500)
EXACT_BUDGETS = (200, 800)
ALLOWED = 0.05  # per cent of OPT that one Newton step may be away from the exact estimate
NAMES = {"logistic": "default", "identity": "linear link", "always": "exact at every step"}
WORLDS = tuple({"regime": regime, "link": "logistic", "horizon": 5_000} for regime in REGIMES)
GRID: dict[str, Any] = {"budgets": BUDGETS, "worlds": WORLDS, "seeds": range(20), "quick": {"seeds": range(3)}}


def add_variant(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with a name for each variant of the learner (`variant`)."""
    exact = pl.col("policy_refit").fill_null("") == "always"
    linear = pl.col("policy_link").fill_null("") == "identity"
    name = (
        pl.when(pl.col("policy") != "default")
        .then(pl.col("policy"))
        .when(exact)
        .then(pl.lit(NAMES["always"]))
        .when(linear)
        .then(pl.lit(NAMES["identity"]))
        .otherwise(pl.lit(NAMES["logistic"]))
    )
    return frame.with_columns(variant=name)


@claim(f"One Newton step loses at most {ALLOWED} % of OPT against the exact estimate at every step.")
def _newton(rows: pl.DataFrame) -> Judgement:
    step, exact = (rows.filter(variant=NAMES[kind]) for kind in ("logistic", "always"))
    paired = exact.join(step, on=["regime", "asked_budget", "seed"], suffix="_step").with_columns(
        lost=pl.col("pct_opt") - pl.col("pct_opt_step")
    )
    lost = over_trials(paired, ["regime", "budget"], "lost").select("regime", "budget", "mean", "sd")
    streams = paired.group_by("regime", "seed").agg(pl.col("lost").mean())["lost"].to_numpy()
    mean, error = mean_and_error(streams)
    reach = float(student.ppf(0.975, len(streams) - 1)) * error if len(streams) > 1 else math.inf
    measured = (
        f"Lost, {len(streams)} streams: {mean:+.3f} % of OPT (95 % interval ± {reach:.3f}); "
        + ", ".join(f"{r} B = {b:,.0f}: {cell(m, s, 3)}" for r, b, m, s in lost.rows())
        + f"; at {as_float(step['us_per_step'].median()):.0f} µs a step instead of"
        f" {as_float(exact['us_per_step'].median()):,.0f}."
    )
    return measured, [mean - reach <= ALLOWED, mean + reach <= ALLOWED]


@claim("The logistic link is worth having for binary rewards.")
def _link(rows: pl.DataFrame) -> Judgement:
    step, linear = (rows.filter(variant=NAMES[kind]) for kind in ("logistic", "identity"))
    gained = [
        mean_of(step, "gain", regime=r, budget=float(b)) - mean_of(linear, "gain", regime=r, budget=float(b))
        for r in REGIMES
        for b in BUDGETS
    ]
    measured = (
        "Gain % over the linear link, B = 200, 800, 2,500, complementary then dominant: "
        + ", ".join(f"{gain:+.1f}" for gain in gained)
        + "."
    )
    return measured, (gain > 0 for gain in gained)


EXPERIMENT = Experiment(
    title="Binary rewards",
    description="Rewards are 0 or 1 with a logistic mean. The default takes one Newton step a task and refits exactly"
    " each time the sample has doubled; beside it exact refits at every step, a linear link, Algorithm 1 and"
    " BestReject.",
    grids=(
        Grid(policies=("default", "best-reject"), **GRID),
        Grid(policies=["default"], parameters={"link": "identity"}, **GRID),
        Grid(
            policies=["default"],
            budgets=EXACT_BUDGETS,
            worlds=WORLDS,
            seeds=range(4),  # exact refits take hundreds of times as long
            parameters={"refit": "always"},
            quick={"seeds": range(1), "budgets": EXACT_BUDGETS[:1]},
        ),
        Grid(policies=["paper"], budgets=EXACT_BUDGETS, worlds=WORLDS, seeds=range(2), quick=None),
    ),
    rows=add_variant,
    figure=Figure(
        title="Binary rewards: the logistic link",
        # exact refits are judged in pairs instead, as their few seeds would mislead here
        rows=lambda rows: rows.filter(pl.col("variant") != NAMES["always"]),
        by="variant",
        panels=(
            Lines(
                title="{regime} human",
                value="gain",
                y_title="gain %",
                x=log_axis("budget", "budget B", BUDGETS),
                split=["regime"],
                by="variant",
                y_scale=alt.Scale(domain=[-10, 105]),
            ),
        ),
        notes=[lambda rows: "the paper's algorithm has the few trials" if "paper" in rows["policy"] else ""],
    ),
    claims=(_newton, _link),
    tables=(
        MeanTable(caption="{value}, {regime} human, by budget", index="variant", split=["regime"]),
        MeanTable(
            caption="{value}, both regimes, by budget",
            values={"us_per_step": "µs a step"},
            index="variant",
            rows=lambda rows: rows.filter(pl.col("policy") != "best-reject"),
        ),
    ),
)
