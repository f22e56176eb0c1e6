"""More noise: σ = 0.1 and 0.5."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import bands, finished, log_axis, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    REGIMES,
    Experiment,
    Finding,
    mean_of,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.experiments.goals import NOISY_BUDGETS, goal_finding
from deferkit.study.store import Trial

LEVELS = (0.1, 0.5)
POLICIES = ("default", "thompson", "greedy", "paper", "best-reject")


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials for each level, or 3; Algorithm 1 is told the noise, and once, at σ = 0.5, that it is 0.1."""
    seeds = 3 if quick else 20
    result = []
    for sigma in LEVELS:
        worlds = [{"regime": regime, "noise": sigma} for regime in REGIMES]
        result += trials_of(POLICIES, NOISY_BUDGETS, seeds, worlds)
        result += trials_of(("default",), NOISY_BUDGETS, seeds, worlds, feedbacks=["bandit"])
    return result + trials_of(("paper",), NOISY_BUDGETS, seeds, worlds, parameters={"noise": LEVELS[0]})


def told_truly(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out Algorithm 1 where it is told less noise than there is."""
    return frame.filter(pl.col("policy_noise").is_null()) if "policy_noise" in frame.columns else frame


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain over budgets for both levels."""
    full = told_truly(frame).filter(feedback="full")
    charts = [
        bands(
            over_trials(full.filter(regime=regime, noise=sigma), ["policy", "budget"], "gain"),
            x=log_axis("budget", "budget B", NOISY_BUDGETS),
            y_title="gain %",
            y_scale=alt.Scale(domain=[-10, 105]),
        ).properties(title=f"σ = {sigma}, {regime} human")
        for sigma in LEVELS
        for regime in REGIMES
    ]
    return finished(
        side_by_side(charts),
        "More noise in rewards and costs",
        f"T = 50,000, full feedback; mean ± sd over {seeds_text(full)}",
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the default under noise."""
    full = frame.filter(feedback="full", noise=LEVELS[1])
    told, less = told_truly(full), full.filter(pl.col("policy_noise") == LEVELS[0])
    rows = [
        (
            mean_of(told, "gain", policy="default", **at),
            mean_of(told, "gain", policy="paper", **at),
            mean_of(less, "gain", policy="paper", **at),
        )
        for at in ({"regime": r, "budget": float(b)} for r in REGIMES for b in NOISY_BUDGETS)
    ]
    won = sum(ours > max(paper, bolder) for ours, paper, bolder in rows)
    return [
        goal_finding(frame, noise=LEVELS[1], horizon=50_000),
        Finding(
            "Five times the noise leaves the default ahead of Algorithm 1.",
            "deferkit",
            "Gain % default / Algorithm 1 told σ = 0.5 / told σ = 0.1, at B = 500, 2,000, 8,000, 32,000,"
            " complementary then"
            f" dominant: {', '.join(f'{a:.1f}/{b:.1f}/{c:.1f}' for a, b, c in rows)}.",
            HOLDS if won == len(rows) else PARTLY if won else FAILS,
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gains at σ = 0.5."""
    noisy = told_truly(frame).filter(feedback="full", noise=0.5)
    return {
        f"Gain % at σ = 0.5, {r} human, by budget": pivot(noisy.filter(regime=r), "policy", "budget", "gain")
        for r in REGIMES
    }


EXPERIMENT = Experiment(
    "noise",
    "More noise",
    "The paper gives no noise level. σ = 0.1 as elsewhere on this page, and σ = 0.5, which is as large"
    " as the differences"
    " between deciders.",
    trials,
    figure,
    findings,
    tables,
)
