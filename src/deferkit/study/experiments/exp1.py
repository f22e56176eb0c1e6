"""Experiment 1: regret over time."""

import math
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from deferkit.study.drawing.charts import bands, finished, horizontal, layered, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    Experiment,
    Finding,
    cell_of,
    mean_of,
    over_trials,
    seeds_text,
    trials_of,
)
from deferkit.study.store import Trial

BUDGET, WORLD = 8_000, {"regime": "random"}
LEARNERS = ("default", "gradient", "paper")
BASELINES = ("adaptive", "greedy", "thompson", "best-reject", "threshold", "random", "arbitrary-human", "model-only")
GOALS = {("paper", "full"): (835, 60), ("paper", "bandit"): (846, 60)}
"""Regret of Algorithm 1 in an independent implementation, on other seeds, and how far ours may be from it."""
DEFAULT_GOAL = 45  # regret of the default, at most


def trials(quick: bool) -> list[Trial]:
    """Return 100 trials of each, or 5."""
    seeds = 5 if quick else 100
    both: dict[str, Any] = {"worlds": [WORLD], "feedbacks": ["full", "bandit"], "trace": "path"}
    return trials_of(LEARNERS, [BUDGET], seeds, **both) + trials_of(BASELINES, [BUDGET], seeds, [WORLD])


def paths(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each point of each path, the price in units of OPT's price where that is not 0."""
    long = frame.filter(pl.col("trace") == "path").explode("at", "regret_at", "price_at", "spent_at")
    return long.with_columns(
        relative_price=pl.when(pl.col("opt_price") > 0).then(pl.col("price_at") / pl.col("opt_price"))
    )


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw regret and price over time."""
    long = paths(frame).with_columns(run=pl.col("policy") + ", " + pl.col("feedback"))
    x = alt.X("at:Q", title="tasks", axis=alt.Axis(format="~s"))
    regret = bands(
        over_trials(long, ["policy", "feedback", "at"], "regret_at"),
        x=x,
        y_title="regret against OPT (expected reward)",
        points=False,
        dash="feedback",
    ).properties(title="regret")
    price = bands(
        over_trials(long.filter(feedback="full"), ["policy", "at"], "relative_price"),
        x=x,
        y_title="price λ / OPT's price λ*",
        y_scale=alt.Scale(domain=[0, 12]),
        points=False,
    ).properties(title="price (full feedback)")
    return finished(
        side_by_side([regret, layered(price, horizontal(1.0, "OPT"))]),
        "Experiment 1: regret over time, and the price against the true one",
        f"T = 50,000, B = 8,000, θ and w uniform on [0, 1]^20, σ = 0.1; mean ± sd over {seeds_text(frame)}",
    )


def exponent(frame: pl.DataFrame, policy: str) -> float:
    """Return the slope of log mean regret over log t in the second half of the stream; NaN where there is no regret."""
    long = paths(frame).filter(policy=policy, feedback="full")
    points = long.group_by("at").agg(pl.col("regret_at").mean()).sort("at").filter(pl.col("at") > 25_000)
    regret = points["regret_at"].to_numpy()
    if regret.min() <= 0:
        return math.nan
    return float(np.polyfit(np.log(points["at"].to_numpy()), np.log(regret), 1)[0])


def regret_text(frame: pl.DataFrame, policy: str, feedback: str) -> str:
    """Say what the regret of a policy is."""
    row = over_trials(frame.filter(policy=policy, feedback=feedback), ["policy"], "regret").row(0, named=True)
    return f"{row['mean']:,.0f} (sd {row['sd'] or math.nan:,.0f}) {feedback}"


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the claims of Experiment 1."""
    slope = exponent(frame, "paper")
    both = {f: mean_of(frame, "regret", policy="paper", feedback=f) for f in ("full", "bandit")}
    near = all(abs(both[f] - GOALS["paper", f][0]) <= GOALS["paper", f][1] for f in both)
    ours = max(mean_of(frame, "regret", policy="default", feedback=f) for f in both)
    share = mean_of(frame, "pct_opt", policy="paper", feedback="full")
    return [
        Finding(
            "The regret of Algorithm 1 is sublinear (Experiment 1).",
            "paper",
            f"Regret grows as t^{slope:.2f} over the second half of the stream; at T it is {both['full']:,.0f},"
            f" {share:.2f} % of OPT.",
            HOLDS if 0 < slope < 1 else FAILS,
        ),
        Finding(
            "Our Algorithm 1 is the printed one: an independent implementation has regret 835 (full) and 846 (bandit).",
            "deferkit",
            " and ".join(regret_text(frame, "paper", f) for f in both),
            HOLDS if near else FAILS,
        ),
        Finding(
            f"The default's regret is at most {DEFAULT_GOAL}.",
            "deferkit",
            " and ".join(regret_text(frame, "default", f) for f in both),
            HOLDS if ours <= DEFAULT_GOAL else FAILS,
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return all policies with full feedback, and bandit feedback where it matters."""
    rows = []
    for key, part in frame.group_by("policy", "feedback", maintain_order=True):
        shown = {"regret": "regret", "% of OPT": "pct_opt", "gain %": "gain", "spent %": "spent_pct"}
        cells = {name: cell_of(part, column, 1) for name, column in shown.items()}
        rows.append({"policy": key[0], "feedback": key[1]} | cells)
    return {"All policies in Experiment 1 (mean ± sd over trials)": pl.DataFrame(rows)}


EXPERIMENT = Experiment(
    "exp1",
    "Experiment 1: regret over time",
    "Random rewards and costs, a budget of 8,000 for 50,000 tasks. The regret of Algorithm 1 as printed,"
    " of the same price"
    " step with the gradient of Agrawal & Devanur, and of the default; beside it the price that each of them asks for a"
    " unit of budget, relative to OPT's.",
    trials,
    figure,
    findings,
    tables,
)
