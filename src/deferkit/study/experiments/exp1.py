"""Experiment 1: regret over time."""

from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.panels import TASKS, Figure, Lines
from deferkit.study.experiments.experiment import Experiment, Grid, Judgement, OutcomeTable, claim
from deferkit.study.statistics import mean_of, over_trials, power_of

BUDGET, WORLD = 8_000, {"regime": "random"}
LEARNERS = ("default", "gradient", "paper")
BASELINES = ("adaptive", "greedy", "thompson", "best-reject", "threshold", "random", "arbitrary-human", "model-only")
GOALS = {"full": (835, 60), "bandit": (846, 60)}
"""Regret of Algorithm 1 in an independent implementation, on other seeds, and how far ours may be from it."""
DEFAULT_GOAL = 45  # regret of the default, at most
SINCE = 25_000  # the second half of the stream
SEEDS: dict[str, Any] = {"seeds": range(100), "quick": {"seeds": range(5)}}


def paths(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each point of each path, the price in units of OPT's price where that is not 0."""
    long = frame.filter(pl.col("trace") == "path").explode("at", "regret_at", "price_at", "spent_at")
    return long.with_columns(
        relative_price=pl.when(pl.col("opt_price") > 0).then(pl.col("price_at") / pl.col("opt_price"))
    )


def exponent(frame: pl.DataFrame, policy: str) -> float:
    """Return the slope of log mean regret over log t in the second half of the stream; NaN where there is no regret."""
    late = paths(frame).filter(pl.col("at") > SINCE, policy=policy, feedback="full")
    points = late.group_by("at").agg(pl.col("regret_at").mean()).sort("at")
    return power_of(points["at"].to_numpy(), points["regret_at"].to_numpy())


@claim("The regret of Algorithm 1 is sublinear (Experiment 1).", "paper")
def _sublinear(frame: pl.DataFrame) -> Judgement:
    slope = exponent(frame, "paper")
    regret, share = (mean_of(frame, value, policy="paper", feedback="full") for value in ("regret", "pct_opt"))
    measured = (
        f"Regret grows as t^{slope:.2f} over the second half of the stream; at T it is {regret:,.0f},"
        f" {share:.2f} % of OPT."
    )
    return measured, 0 < slope < 1


def regrets(frame: pl.DataFrame, policy: str) -> tuple[list[float], str]:
    """Return the mean regret of a policy with full and bandit feedback, and as text."""
    parts = [frame.filter(policy=policy, feedback=feedback) for feedback in GOALS]
    rows = [over_trials(part, ["feedback"], "regret").row(0, named=True) for part in parts]
    texts = [f"{row['mean']:,.0f} (sd {row['sd'] or float('nan'):,.0f}) {row['feedback']}" for row in rows]
    return [row["mean"] for row in rows], " and ".join(texts)


@claim("Our Algorithm 1 is the printed one: an independent implementation has regret 835 (full) and 846 (bandit).")
def _judge_printed(frame: pl.DataFrame) -> Judgement:
    found, text = regrets(frame, "paper")
    return text, all(abs(r - goal) <= off for r, (goal, off) in zip(found, GOALS.values(), strict=True))


@claim(f"The default's regret is at most {DEFAULT_GOAL}.")
def _default(frame: pl.DataFrame) -> Judgement:
    found, text = regrets(frame, "default")
    return text, max(found) <= DEFAULT_GOAL


EXPERIMENT = Experiment(
    title="Experiment 1: regret over time",
    description="Random rewards and costs, a budget of 8,000 for 50,000 tasks. The regret of Algorithm 1 as printed,"
    " of the same price step with the gradient of Agrawal & Devanur, and of the default; beside it the price that each"
    " of them puts on a unit of budget, relative to OPT's.",
    grids=(
        Grid(policies=LEARNERS, budgets=[BUDGET], worlds=[WORLD], feedbacks=tuple(GOALS), trace="path", **SEEDS),
        Grid(policies=BASELINES, budgets=[BUDGET], worlds=[WORLD], **SEEDS),
    ),
    figure=Figure(
        title="Experiment 1: regret over time, and the price against the true one",
        panels=(
            Lines(
                title="regret",
                value="regret_at",
                y_title="regret against OPT (expected reward)",
                x=TASKS,
                rows=paths,
                dash="feedback",
                points=False,
            ),
            Lines(
                title="price (full feedback)",
                value="relative_price",
                y_title="price λ / OPT's price λ*",
                x=TASKS,
                rows=lambda frame: paths(frame).filter(feedback="full"),
                y_scale=alt.Scale(domain=[0, 12]),
                points=False,
                level=(1.0, "OPT"),
            ),
        ),
    ),
    claims=(_sublinear, _judge_printed, _default),
    tables=(
        OutcomeTable(
            caption="All policies in Experiment 1 (mean ± sd over trials)",
            index=("policy", "feedback"),
            values={
                "regret": ("regret", 1),
                "% of OPT": ("pct_opt", 1),
                "gain %": ("gain", 1),
                "spent %": ("spent_pct", 1),
            },
        ),
    ),
)
