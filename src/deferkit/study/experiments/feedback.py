"""Full, bandit and reviewed feedback."""

import altair as alt
import polars as pl

from deferkit.study.charts import bands, finished, horizontal, layered, log_axis, side_by_side
from deferkit.study.experiments.experiment import (
    HOLDS,
    PARTLY,
    Experiment,
    Finding,
    as_float,
    over_trials,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.store import Trial

REGIMES = ("complementary", "dominant")
BUDGETS = (500, 2_000, 8_000, 32_000)
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


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the paper's claim on bandit feedback, and say why."""
    paired = losses(frame)

    def text(policy: str, feedback: str) -> tuple[str, float]:
        rows = over_trials(paired.filter(policy=policy, feedback=feedback), ["regime", "budget"], "lost")
        by = "; ".join(
            f"{regime} "
            + ", ".join(f"{round(v, 1) + 0.0:+.1f}" for v in rows.filter(regime=regime).sort("budget")["mean"])
            for regime in REGIMES
        )
        return by, as_float(rows["mean"].abs().max())

    printed, most = text("paper", "bandit")
    ours, _ = text("default", "bandit")
    reviewed, worst = text("default", "reviewed")
    return [
        Finding(
            "There is no significant difference between bandit feedback and full information; full is slightly better.",
            "paper",
            f"Gain lost by Algorithm 1 at B = 500, 2,000, 8,000, 32,000: {printed}. By the default: {ours}.",
            HOLDS if most < 2 else PARTLY,
        ),
        Finding(
            "Feedback that comes only where a human was asked costs little once the budget allows a few thousand"
            " reviews.",
            "deferkit",
            f"Gain lost by the default: {reviewed}. Bandit feedback still shows the model's reward wherever the model"
            " decides, which is nearly always; reviewed feedback shows it only on the reviewed tasks, so that"
            " the model is"
            " learned from a small sample that the policy itself selects.",
            HOLDS if worst < 5 else PARTLY,
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
