"""Full, bandit and reviewed feedback."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import log_axis
from deferkit.study.drawing.panels import Figure, Lines
from deferkit.study.experiments.experiment import (
    FEEDBACKS,
    HUMAN_REGIMES,
    REGIMES,
    Experiment,
    Grid,
    Judgement,
    MeanTable,
    claim,
)
from deferkit.study.statistics import as_float, mean_and_error, over_trials

BUDGETS = (500, 2_000, 8_000, 32_000)
SMALL = 1.0  # gain %


def losses(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with two more columns, in per cent.

    `lost` is the gain that less feedback loses, paired by seed; `seen` the share of tasks where the reward of the
    model is observed.
    """
    keys = ["policy", "regime", "budget", "seed"]
    paired = frame.join(frame.filter(feedback="full").select(*keys, full_gain="gain"), on=keys)
    seen = (
        pl.when(feedback="full")
        .then(100.0)
        .when(feedback="bandit")
        .then(100 - pl.col("defer_rate"))
        .otherwise(pl.col("defer_rate"))
    )
    run = pl.col("policy") + ", " + pl.col("feedback")
    return paired.with_columns(lost=pl.col("full_gain") - pl.col("gain"), seen=seen, run=run)


def lost_text(paired: pl.DataFrame) -> tuple[str, float]:
    """Return the loss for each regime and budget as text, and the largest loss."""
    rows = over_trials(paired, ["regime", "budget"], "lost").sort("budget")
    parts = [
        f"{regime} " + ", ".join(f"{round(v, 1) + 0.0:+.1f}" for v in rows.filter(regime=regime)["mean"])
        for regime in REGIMES
    ]
    return "; ".join(parts), as_float(rows["mean"].abs().max())


@claim(
    "There is no significant difference between bandit feedback and full information; full is slightly better.", "paper"
)
def _bandit(paired: pl.DataFrame) -> Judgement:
    bandit = paired.filter(policy="paper", feedback="bandit")
    printed, most = lost_text(bandit)
    mean, error = mean_and_error(bandit.group_by("regime", "seed").agg(pl.col("lost").mean())["lost"].to_numpy())
    ours, _ = lost_text(paired.filter(policy="default", feedback="bandit"))
    measured = (
        f"Gain % lost by Algorithm 1 at B = 500, 2,000, 8,000, 32,000: {printed}; on average {mean:+.2f}"
        f" (standard error {error:.2f}). By the default: {ours}."
    )
    return measured, [most < SMALL, most < SMALL and mean > 0]


@claim(f"Feedback that comes only where a human was asked costs the default less than {SMALL} % of gain.")
def _judge_reviewed(paired: pl.DataFrame) -> Judgement:
    own = paired.filter(policy="default")
    reviewed, worst = lost_text(own.filter(feedback="reviewed"))
    seen = over_trials(own, ["feedback", "budget"], "seen").sort("budget")
    bandit, few = (", ".join(f"{v:.0f}" for v in seen.filter(feedback=f)["mean"]) for f in FEEDBACKS[1:])
    measured = (
        f"Lost: {reviewed}. The model's reward is seen on {bandit} % of tasks with bandit feedback, on {few} % with"
        " reviewed feedback: a small sample that the policy itself selects, but of just the tasks where a decision is"
        " close."
    )
    return measured, worst < SMALL


def panel(title: str, value: str, y_title: str, *, full: bool) -> Lines:
    """Return a value of the default over budgets in both regimes, with full feedback or without."""
    return Lines(
        title=f"{{regime}} human: {title}",
        value=value,
        y_title=y_title,
        x=log_axis("budget", "budget B", BUDGETS),
        split=["regime"],
        rows=lambda paired: paired.filter(pl.lit(full) | (pl.col("feedback") != "full"), policy="default"),
        by="feedback",
        among=FEEDBACKS,
        y_scale=alt.Scale(domain=[0, 102]) if full else None,
        level=None if full else (0.0, "full"),
    )


EXPERIMENT = Experiment(
    title="Full, bandit and reviewed feedback",
    description="Full: the model's reward is always seen, the human's when asked. Bandit: only the chosen decider's."
    " Reviewed: nothing unless a human was asked, then both, which is what a moderation team really has.",
    grids=(
        Grid(
            policies=("default", "paper"),
            budgets=BUDGETS,
            worlds=HUMAN_REGIMES,
            feedbacks=FEEDBACKS,
            seeds=range(20),
            quick={"seeds": range(3)},
        ),
    ),
    rows=losses,
    figure=Figure(
        title="Feedback: what is lost by seeing less (default learner)",
        spread="paired by seed, mean ± sd",
        panels=(
            panel("lost", "lost", "gain % lost against full feedback", full=False),
            panel("seen of the model", "seen", "% of tasks where the model is seen", full=True),
        ),
    ),
    claims=(_bandit, _judge_reviewed),
    tables=(MeanTable(caption="{value}, {regime} human, by budget", index="run", split=["regime"]),),
)
