"""More noise: σ = 0.1 and 0.5."""

from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import log_axis
from deferkit.study.drawing.panels import Figure, Lines
from deferkit.study.experiments.experiment import (
    NOISY_BUDGETS,
    REGIMES,
    Experiment,
    Grid,
    Judgement,
    MeanTable,
    claim,
    goal_claim,
)
from deferkit.study.statistics import mean_of

LOW, HIGH = 0.1, 0.5
WORLDS = {noise: [{"regime": regime, "noise": noise} for regime in REGIMES] for noise in (LOW, HIGH)}
POLICIES = ("default", "thompson", "greedy", "paper", "best-reject")
GRID: dict[str, Any] = {"budgets": NOISY_BUDGETS, "seeds": range(20), "quick": {"seeds": range(3)}}


def told_truly(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with full feedback, without Algorithm 1 where it is told less noise than there is."""
    full = frame.filter(feedback="full")
    return full.filter(pl.col("policy_noise").is_null()) if "policy_noise" in frame.columns else full


@claim("Five times the noise leaves the default ahead of Algorithm 1.")
def _ahead(frame: pl.DataFrame) -> Judgement:
    told = told_truly(frame).filter(noise=HIGH)
    less = frame.filter(pl.col("policy_noise") == LOW, feedback="full", noise=HIGH)
    rows = [
        (
            mean_of(told, "gain", policy="default", **at),
            mean_of(told, "gain", policy="paper", **at),
            mean_of(less, "gain", policy="paper", **at),
        )
        for at in ({"regime": r, "budget": float(b)} for r in REGIMES for b in NOISY_BUDGETS)
    ]
    measured = (
        "Gain % default / Algorithm 1 told σ = 0.5 / told σ = 0.1, at B = 500, 2,000, 8,000, 32,000, complementary then"
        f" dominant: {', '.join(f'{a:.1f}/{b:.1f}/{c:.1f}' for a, b, c in rows)}."
    )
    return measured, (ours > max(paper, bolder) for ours, paper, bolder in rows)


EXPERIMENT = Experiment(
    title="More noise",
    description="The paper gives no noise level. σ = 0.1 as elsewhere on this page, and σ = 0.5, which is as large as"
    " the differences between deciders. Algorithm 1 is told the noise, and once, at σ = 0.5, that it is 0.1.",
    grids=(
        *(
            grid
            for worlds in WORLDS.values()
            for grid in (
                Grid(policies=POLICIES, worlds=worlds, **GRID),
                Grid(policies=["default"], worlds=worlds, feedbacks=["bandit"], **GRID),
            )
        ),
        Grid(policies=["paper"], worlds=WORLDS[HIGH], parameters={"noise": LOW}, **GRID),
    ),
    figure=Figure(
        title="More noise in rewards and costs",
        rows=told_truly,
        panels=(
            Lines(
                title="σ = {noise}, {regime} human",
                value="gain",
                y_title="gain %",
                x=log_axis("budget", "budget B", NOISY_BUDGETS),
                split=["noise", "regime"],
                y_scale=alt.Scale(domain=[-10, 105]),
            ),
        ),
    ),
    claims=(goal_claim(noise=HIGH, horizon=50_000), _ahead),
    tables=(
        MeanTable(
            caption="{value} at σ = 0.5, {regime} human, by budget",
            split=["regime"],
            rows=lambda frame: told_truly(frame).filter(noise=HIGH),
        ),
    ),
)
