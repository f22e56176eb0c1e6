"""A table as teams have them: made-up moderation items, on which nothing is linear and cells are missing."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, colour, finished, layered, side_by_side
from deferkit.study.experiments.experiment import (
    Experiment,
    Finding,
    mean_of,
    over_trials,
    paired,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.experiments.people import difference, share_verdict, surely
from deferkit.study.store import Trial

WORLD = "moderation"
BUDGETS = ("10%", "25%")
FEEDBACKS = ("full", "bandit", "reviewed")
OTHERS = ("linear", "tree")
RULES = ("best-reject", "informed")
SHOWN = ("default", *OTHERS, *RULES)
SEEDS, QUICK_SEEDS = 20, 3
CLOSE = 1.0  # gain %


def trials(quick: bool) -> list[Trial]:
    """Return 20 tables at two budgets with each feedback, or 3 at the smaller one."""
    seeds, budgets = (QUICK_SEEDS, BUDGETS[:1]) if quick else (SEEDS, BUDGETS)
    return trials_of(SHOWN, budgets, seeds, world=WORLD, feedbacks=FEEDBACKS)


def more_right(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with how many more answers were right than the model's alone (`more`)."""
    return frame.with_columns(more=pl.col("reward") - pl.col("model"))


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw how many more answers are right, by policy and feedback."""
    charts = []
    for key, part in more_right(frame).group_by("asked_budget", maintain_order=True):
        points = over_trials(part, ["policy", "feedback"], "more")
        base = chart_of(points).encode(
            y=alt.Y("policy:N", sort=list(SHOWN), title=None),
            yOffset=alt.YOffset("feedback:N", sort=list(FEEDBACKS)),
            color=colour("feedback", FEEDBACKS),
        )
        rule = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q", title="right answers more than the model alone (mean ± sd)"), x2="high:Q"
        )
        dot = base.mark_point(filled=True, size=80, opacity=1).encode(
            x="mean:Q", tooltip=["policy:N", "feedback:N", alt.Tooltip("mean:Q", format=".1f")]
        )
        minutes, tasks = mean_of(part, "budget"), int(part["horizon"][0])
        title = f"budget {key[0]} of asking always: {minutes:,.0f} minutes for {tasks:,} items"
        charts.append(layered(rule, dot).properties(width=400, height=52 * len(SHOWN), title=title))
    return finished(
        side_by_side(charts),
        "A table as teams have them: made-up moderation items",
        [
            f"{seeds_text(frame)}, another table each; best-reject has a cross-validated estimate of the model, and the"
            " best threshold in hindsight",
            "informed knows the true probabilities, which nobody else is told",
        ],
    )


def compared(frame: pl.DataFrame, other: str) -> tuple[dict[str, tuple[float, float]], str]:
    """Return the gain of the default less that of another policy by setting, and that in right answers as text."""
    found, texts = {}, []
    for (budget, feedback), part in more_right(frame).group_by("asked_budget", "feedback", maintain_order=True):
        found[f"{budget} {feedback}"] = paired(part, "default", other)
        ours, theirs, best = (mean_of(part, "more", policy=who) for who in ("default", other, "informed"))
        less = difference(found[f"{budget} {feedback}"])
        texts.append(f"{budget} {feedback} {ours:.0f} against {theirs:.0f}, informed {best:.0f} (gain % {less})")
    return found, "; ".join(texts)


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge the default against best-reject and against other representations."""
    rule, text = compared(frame, "best-reject")
    found = [
        Finding(
            "On a table whose effects are not linear, the default gains more than best-reject.",
            "deferkit",
            f"Right answers more than the model alone: {text}.",
            share_verdict(map(surely, rule.values())),
        )
    ]
    for other in OTHERS:
        apart, text = compared(frame, other)
        found.append(
            Finding(
                f"On such a table nobody needs to choose: the default is at most {CLOSE:.0f} % of gain below {other}.",
                "deferkit",
                f"Right answers more than the model alone: {text}.",
                share_verdict(mean >= -CLOSE for mean, _ in apart.values()),
            )
        )
    return found


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return right answers, gain and spending."""
    return {
        f"{what}, budget {budget[0]}, by feedback (mean ± sd)": pivot(part, "policy", "feedback", value)
        for budget, part in more_right(frame).group_by("asked_budget", maintain_order=True)
        for value, what in (
            ("more", "Right answers more than the model alone"),
            ("gain", "Gain % of hindsight OPT"),
            ("spent_pct", "Spent, % of the budget"),
        )
    }


EXPERIMENT = Experiment(
    "tables",
    "A table as teams have them",
    "5,000 made-up moderation items: the model's score, whose effect is U-shaped, category, length, language, a flag,"
    " reports, and missing cells; 0/1 rewards of the model and the reviewer; minutes as cost. Read as a CSV file is.",
    trials,
    figure,
    findings,
    tables,
)
