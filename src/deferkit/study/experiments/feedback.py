"""Full, bandit and reviewed feedback."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import bands, finished, horizontal, layered, log_axis, side_by_side
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    REGIMES,
    Experiment,
    Finding,
    as_float,
    mean_and_error,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.store import Trial

BUDGETS = (500, 2_000, 8_000, 32_000)
SMALL = 1.0  # gain %
FEEDBACKS = ("full", "bandit", "reviewed")


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials for each feedback, or 3."""
    worlds = [{"regime": regime} for regime in REGIMES]
    return trials_of(("default", "paper"), BUDGETS, 3 if quick else 20, worlds, feedbacks=FEEDBACKS)


def losses(frame: pl.DataFrame) -> pl.DataFrame:
    """Return, trial by trial, what less feedback loses, and on which share of tasks the model's reward is seen."""
    full = frame.filter(feedback="full").select("policy", "regime", "budget", "seed", full_gain="gain")
    paired = frame.join(full, on=["policy", "regime", "budget", "seed"])
    seen = (
        pl.when(feedback="full")
        .then(100.0)
        .when(feedback="bandit")
        .then(100 - pl.col("defer_rate"))
        .otherwise(pl.col("defer_rate"))
    )
    return paired.with_columns(lost=pl.col("full_gain") - pl.col("gain"), seen=seen)


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw what less feedback loses, and how much is seen of the model."""
    paired = losses(frame).filter(policy="default")
    x = log_axis("budget", "budget B", BUDGETS)
    charts = []
    for regime in REGIMES:
        part = paired.filter(pl.col("regime") == regime, pl.col("feedback") != "full")
        chart = bands(
            over_trials(part, ["feedback", "budget"], "lost"),
            x=x,
            y_title="gain % lost against full feedback",
            by="feedback",
            among=FEEDBACKS,
        )
        charts.append(layered(horizontal(0.0, "full"), chart).properties(title=f"{regime} human: lost"))
    for regime in REGIMES:
        seen = over_trials(paired.filter(regime=regime), ["feedback", "budget"], "seen")
        charts.append(
            bands(
                seen,
                x=x,
                y_title="% of tasks where the model is seen",
                y_scale=alt.Scale(domain=[0, 102]),
                by="feedback",
                among=FEEDBACKS,
            ).properties(title=f"{regime} human: seen of the model")
        )
    return finished(
        side_by_side(charts),
        "Feedback: what is lost by seeing less (default learner)",
        f"T = 50,000, σ = 0.1, paired by seed; mean ± sd over {seeds_text(frame)}",
    )


def lost_text(paired: pl.DataFrame) -> tuple[str, float]:
    """Return what was lost for each regime and budget as text, and the largest of it."""
    rows = over_trials(paired, ["regime", "budget"], "lost").sort("budget")
    parts = [
        f"{regime} " + ", ".join(f"{round(v, 1) + 0.0:+.1f}" for v in rows.filter(regime=regime)["mean"])
        for regime in REGIMES
    ]
    return "; ".join(parts), as_float(rows["mean"].abs().max())


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the paper's claim on bandit feedback, and say why."""
    paired = losses(frame)
    bandit = paired.filter(policy="paper", feedback="bandit")
    printed, most = lost_text(bandit)
    mean, error = mean_and_error(bandit.group_by("regime", "seed").agg(pl.col("lost").mean())["lost"].to_numpy())
    ours, _ = lost_text(paired.filter(policy="default", feedback="bandit"))
    reviews = paired.filter(policy="default", feedback="reviewed")
    reviewed, worst = lost_text(reviews)
    seen = over_trials(paired.filter(policy="default"), ["feedback", "budget"], "seen")
    seen_at = {f: [f"{v:.0f}" for v in seen.filter(feedback=f).sort("budget")["mean"]] for f in FEEDBACKS[1:]}
    return [
        Finding(
            "There is no significant difference between bandit feedback and full information; full is slightly better.",
            "paper",
            f"Gain % lost by Algorithm 1 at B = 500, 2,000, 8,000, 32,000: {printed}; on average {mean:+.2f}"
            " (standard error"
            f" {error:.2f}). By the default: {ours}.",
            HOLDS if most < SMALL and mean > 0 else PARTLY if most < SMALL else FAILS,
        ),
        Finding(
            f"Feedback that comes only where a human was asked costs the default less than {SMALL} % of gain.",
            "deferkit",
            f"Lost: {reviewed}. The model's reward is seen on {', '.join(seen_at['bandit'])} % of tasks with"
            " bandit feedback,"
            f" on {', '.join(seen_at['reviewed'])} % with reviewed feedback: a small sample that the policy"
            " itself selects,"
            " but of just the tasks where a decision is close.",
            HOLDS if worst < SMALL else FAILS,
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gains for each feedback."""
    named = frame.with_columns(run=pl.col("policy") + ", " + pl.col("feedback"))
    return {f"Gain %, {r} human, by budget": pivot(named.filter(regime=r), "run", "budget", "gain") for r in REGIMES}


EXPERIMENT = Experiment(
    "feedback",
    "Full, bandit and reviewed feedback",
    "Full: the model's reward is always seen, the human's when asked. Bandit: only the chosen decider's."
    " Reviewed: nothing"
    " unless a human was asked, then both, which is what a moderation team really has.",
    trials,
    figure,
    findings,
    tables,
)
