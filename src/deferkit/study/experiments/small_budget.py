"""Budgets from a quarter of a per cent to a quarter of the number of tasks."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import bands, finished, log_axis, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    REGIMES,
    Experiment,
    Finding,
    mean_of,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.experiments.goals import SHORT_BUDGETS, goal_finding
from deferkit.study.store import Trial

BUDGETS = (125, 250, 500, 1_000, 2_000, 4_000, 8_000, 12_500)
POLICIES = ("default", "adaptive", "thompson", "gradient", "paper", "best-reject", "threshold", "arbitrary-human")
LONG, SHORT = 50_000, 4_000
TIMES = 2


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials for each budget, or 3; and the short streams that have goals of their own."""
    seeds = 3 if quick else 20
    worlds = [{"regime": regime} for regime in REGIMES]
    short = [world | {"horizon": SHORT} for world in worlds]
    return trials_of(POLICIES, BUDGETS, seeds, worlds) + trials_of(
        ("default", "paper"), SHORT_BUDGETS, seeds, short, feedbacks=["full", "bandit"]
    )


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw gain and spending."""
    long = frame.filter(horizon=LONG).with_columns(share=100 * pl.col("budget") / LONG)
    charts = []
    for value, title in (("gain", "gain %"), ("spent_pct", "spent, % of the budget")):
        for regime in REGIMES:
            charts.append(
                bands(
                    over_trials(long.filter(regime=regime), ["policy", "share"], value),
                    x=log_axis("share", "budget, % of T", [100 * b / LONG for b in BUDGETS], "~g"),
                    y_title=title,
                    y_scale=alt.Scale(domain=[-5, 105]),
                ).properties(title=f"{regime} human: {title}")
            )
    return finished(
        side_by_side(charts),
        "Small budgets: what is gained, and what is spent",
        f"T = 50,000, σ = 0.1, full feedback; mean ± sd over {seeds_text(long)}",
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge what small budgets bring."""
    long = frame.filter(horizon=LONG, feedback="full")
    texts, won = [], True
    for regime in REGIMES:
        for budget in (125, 500, 2_000):
            ours, paper, simple = (
                mean_of(long, "gain", policy=p, regime=regime, budget=float(budget))
                for p in ("default", "paper", "best-reject")
            )
            spent = mean_of(long, "spent_pct", policy="paper", regime=regime, budget=float(budget))
            won = won and ours > TIMES * max(paper, 0.0) and ours > simple
            texts.append(
                f"{regime}, B = {budget / LONG:.2%} of T: {ours:.0f} against {paper:.0f} (which spends {spent:.0f} %)"
                f" and BestReject's {simple:.0f}"
            )
    return [
        Finding(
            f"At budgets of 4 % of T and less the default gains more than {TIMES} × as much as Algorithm 1, and"
            " more than"
            " BestReject.",
            "deferkit",
            "Gain %: " + "; ".join(texts) + ".",
            HOLDS if won else FAILS,
        ),
        goal_finding(frame, noise=0.1, horizon=SHORT),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gains for each budget."""
    long = frame.filter(horizon=LONG, feedback="full")
    short = frame.filter(horizon=SHORT, feedback="full")
    result = {
        f"Gain %, {r} human, T = 50,000, by budget": pivot(long.filter(regime=r), "policy", "budget", "gain")
        for r in REGIMES
    }
    for regime in REGIMES:
        caption = f"Gain %, {regime} human, T = 4,000, by budget"
        result[caption] = pivot(short.filter(regime=regime), "policy", "budget", "gain")
    return result


EXPERIMENT = Experiment(
    "small-budget",
    "Small budgets",
    "The paper's reviewers asked for budgets of 0.1·T and less. Below 0.5 % of T the random steps of"
    " Algorithm 1's warm-up"
    " use the budget up; from 1 % to 8 % its price starts too dear and moves too slowly to spend it"
    " (lower row), so that it"
    " gains less than a fixed rule.",
    trials,
    figure,
    findings,
    tables,
)
