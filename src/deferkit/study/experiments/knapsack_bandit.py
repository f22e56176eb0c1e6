"""Knapsacks with full and with bandit feedback."""

import altair as alt
import polars as pl

from deferkit.study.drawing.charts import chart_of, colour, finished, layered, side_by_side
from deferkit.study.experiments.experiment import Experiment, Finding, mean_and_error, pivot
from deferkit.study.experiments.knapsacks import KIND, LINEAR, NETWORK, TREE, WORLD, paths, said
from deferkit.study.experiments.people import (
    BUDGETS,
    OF_PAPER,
    PRICED,
    PRINTED,
    Entrant,
    count,
    difference,
    named,
    over_time,
    present,
    ran,
    share_verdict,
    subtitle,
    surely,
    trials_with,
)
from deferkit.study.store import Trial

PAPERS = "Linear" + PRINTED
DRAWN = ("Linear", "NeuralLinear", "TreeLinear", PAPERS)
SLIGHT = 5.0  # gain %: more than that is not slight


def trials(quick: bool) -> list[Trial]:
    """Return 20 trials of each learner with both feedbacks at five budgets (what is slow: fewer), or 2 at two."""
    budgets = ("inf", "0.25T") if quick else tuple(BUDGETS)
    groups = (
        (LINEAR, budgets),
        (Entrant("linear", PRICED), [b for b in budgets if b != "inf"]),
        (TREE, ["0.25T"] if quick else ["inf", "0.25T", "0.05T"]),
        (NETWORK, ["0.25T"] if quick else ["inf", "0.25T"]),
    )
    return [
        trial
        for feedback in ("full", "bandit")
        for entrant, limits in groups
        for trial in trials_with([entrant], limits, count(quick), WORLD, feedback=feedback)
    ]


def differences(frame: pl.DataFrame) -> pl.DataFrame:
    """Return, trial by trial, the gain with bandit feedback less that with full feedback (`more`)."""
    shown = named(frame, KIND)
    full = shown.filter(feedback="full").select("who", "asked_budget", "seed", full_gain="gain")
    both = shown.filter(feedback="bandit").join(full, on=["who", "asked_budget", "seed"])
    return both.with_columns(more=pl.col("gain") - pl.col("full_gain"))


def differences_chart(frame: pl.DataFrame) -> alt.LayerChart:
    """Return the differences at each budget, with two standard errors."""
    rows = []
    for (who, limit), part in differences(frame).group_by("who", "limit", maintain_order=True):
        mean, error = mean_and_error(part["more"].to_numpy())
        rows.append((who, limit, mean, mean - 2 * error, mean + 2 * error))
    points = pl.DataFrame(rows, schema=["who", "limit", "mean", "low", "high"], orient="row")
    base = chart_of(points).encode(
        x=alt.X("limit:O", sort=list(BUDGETS.values())[::-1], title="budget", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("who:N", sort=list(DRAWN)),
        color=colour("who", DRAWN),
    )
    rule = base.mark_rule(strokeWidth=2).encode(
        y=alt.Y("low:Q", title="gain %, bandit less full (± 2 standard errors)"), y2="high:Q"
    )
    dot = base.mark_point(filled=True, size=70, opacity=1).encode(y="mean:Q", tooltip=["who:N", "limit:N", "mean:Q"])
    zero = chart_of(pl.DataFrame({"y": [0.0]})).mark_rule(strokeDash=[5, 4], color="#333").encode(y="y:Q")
    return layered(zero, rule, dot).properties(width=330, height=280, title="what bandit feedback changes")


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw regret over time with both feedbacks, and the differences at the end."""
    long = paths(frame)
    charts = [
        over_time(
            long.filter(asked_budget=b),
            "regret_at",
            "regret against hindsight OPT",
            among=DRAWN,
            dash="feedback",
            width=330,
        ).properties(title=f"budget: {BUDGETS[b]}")
        for b in present(frame)
    ]
    return finished(
        side_by_side([*charts, differences_chart(frame)], columns=3),
        "Knapsacks: full feedback (solid) and bandit feedback (dashed)",
        [line.replace("mean ± sd", "means") for line in subtitle(named(frame, KIND), said())],
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge what the paper says of bandit feedback."""
    more = differences(frame)
    texts, each = {}, {}
    for who in ran(more, *DRAWN):
        part = more.filter(who=who)
        found = {b: mean_and_error(part.filter(asked_budget=b)["more"].to_numpy()) for b in present(part)}
        texts[who] = ", ".join(f"{BUDGETS[b]} {difference(d)}" for b, d in found.items())
        each[who] = list(found.values())
    # the claim is about the paper's price, on our estimates; without a limit there is none
    free = (pl.col("who") == "Linear") & (pl.col("asked_budget") == "inf")
    papers = more.filter(free | ((pl.col("who") == PAPERS) & pl.col("asked_budget").is_in(OF_PAPER)))
    average = mean_and_error(papers.group_by("seed").agg(pl.col("more").mean())["more"].to_numpy())
    slight = 0 < average[0] < SLIGHT
    largest = max(abs(mean) for found in each.values() for mean, _ in found)
    return [
        Finding(
            "On knapsacks Linear is slightly better with bandit feedback than with full feedback.",
            "paper",
            f"Gain %, bandit less full: Linear {texts['Linear']}; printed price {texts.get(PAPERS, 'not run')}."
            f" With the paper's price, over its budgets: {difference(average)}.",
            share_verdict([slight, slight and surely(average)]),
        ),
        Finding(
            f"Bandit feedback changes the gain of any learner by less than {SLIGHT:.0f} % (knapsacks).",
            "deferkit",
            "; ".join(f"{who}: {text}" for who, text in texts.items()) + f". The largest change is {largest:.1f}.",
            share_verdict(abs(mean) < SLIGHT for found in each.values() for mean, _ in found),
        ),
    ]


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gains and how often a person is asked, for both feedbacks."""
    run = named(frame, KIND).with_columns(run=pl.col("who") + ", " + pl.col("feedback"))
    return {
        f"{what}, by budget (mean ± sd)": pivot(run, "run", "limit", value)
        for value, what in (("gain", "Gain %"), ("defer_rate", "Asked, % of tasks"))
    }


EXPERIMENT = Experiment(
    "knapsack-bandit",
    "Knapsacks: full and bandit feedback",
    "Full: RatioMax4's reward is always seen, the person's when asked. Bandit: only that of who decided. The paper saw"
    " Linear do slightly better with less, and suspected that the full feedback asks people too often.",
    trials,
    figure,
    findings,
    tables,
)
