"""Budgets from a quarter of a per cent to a quarter of the number of tasks."""

from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import log_axis
from deferkit.study.drawing.panels import Figure, Lines
from deferkit.study.experiments.experiment import (
    HUMAN_REGIMES,
    REGIMES,
    SHORT_BUDGETS,
    Experiment,
    Grid,
    Judgement,
    MeanTable,
    claim,
    goal_claim,
    select_rows,
)
from deferkit.study.statistics import mean_of

BUDGETS = (125, 250, 500, 1_000, 2_000, 4_000, 8_000, 12_500)
POLICIES = ("default", "adaptive", "thompson", "gradient", "paper", "best-reject", "threshold", "arbitrary-human")
LONG, SHORT = 50_000, 4_000
TIMES = 2
SEEDS: dict[str, Any] = {"seeds": range(20), "quick": {"seeds": range(3)}}


@claim(
    f"At budgets of 4 % of T and less the default gains more than {TIMES} × as much as Algorithm 1, and"
    " more than BestReject."
)
def _small(frame: pl.DataFrame) -> Judgement:
    long = frame.filter(horizon=LONG, feedback="full")
    texts, won = [], []
    for regime in REGIMES:
        for budget in (125, 500, 2_000):
            at = {"regime": regime, "budget": float(budget)}
            ours, paper, simple = (
                mean_of(long, "gain", policy=name, **at) for name in ("default", "paper", "best-reject")
            )
            spent = mean_of(long, "spent_pct", policy="paper", **at)
            won.append(ours > TIMES * max(paper, 0.0) and ours > simple)
            texts.append(
                f"{regime}, B = {budget / LONG:.2%} of T: {ours:.0f} against {paper:.0f} (which spends {spent:.0f} %)"
                f" and BestReject's {simple:.0f}"
            )
    return f"Gain %: {'; '.join(texts)}.", all(won)


EXPERIMENT = Experiment(
    title="Small budgets",
    description="The paper's reviewers asked for budgets of 0.1·T and less. Below 0.5 % of T the random steps of"
    " Algorithm 1's warm-up use the budget up; from 1 % to 8 % its price starts too high and moves too slowly to spend"
    " it (lower row), so that it gains less than a fixed rule.",
    grids=(
        Grid(policies=POLICIES, budgets=BUDGETS, worlds=HUMAN_REGIMES, **SEEDS),
        Grid(
            policies=("default", "paper"),
            budgets=SHORT_BUDGETS,
            worlds=[world | {"horizon": SHORT} for world in HUMAN_REGIMES],
            feedbacks=["full", "bandit"],
            **SEEDS,
        ),
    ),
    figure=Figure(
        title="Small budgets: what is gained, and what is spent",
        rows=lambda frame: frame.filter(horizon=LONG).with_columns(share=100 * pl.col("budget") / LONG),
        panels=[
            Lines(
                title=f"{{regime}} human: {title}",
                value=value,
                y_title=title,
                x=log_axis("share", "budget, % of T", [100 * b / LONG for b in BUDGETS], "~g"),
                split=["regime"],
                y_scale=alt.Scale(domain=[-5, 105]),
            )
            for value, title in (("gain", "gain %"), ("spent_pct", "spent, % of the budget"))
        ],
    ),
    claims=(_small, goal_claim(noise=0.1, horizon=SHORT)),
    tables=[
        MeanTable(
            caption=f"{{value}}, {{regime}} human, T = {horizon:,}, by budget",
            split=["regime"],
            rows=select_rows(horizon=horizon, feedback="full"),
        )
        for horizon in (LONG, SHORT)
    ],
)
