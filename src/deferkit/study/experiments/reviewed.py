"""Reviewed feedback on people's answers: rewards become known only where a human was asked. Does it go on asking?"""

from typing import Any

import altair as alt
import polars as pl

from deferkit.errors import MissingData
from deferkit.study.drawing.charts import chart_of, colour, finished, layered, side_by_side
from deferkit.study.experiments.experiment import (
    Experiment,
    Finding,
    as_float,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.experiments.people import BUDGETS, share_verdict
from deferkit.study.store import Trial

FEEDBACKS = ("full", "bandit", "reviewed")
ENTRANTS = ("default", "linear", "tree")
RULE = "best-reject"
PICTURES, KNAPSACKS = "model-vs-human", "knapsack"
SETTINGS = tuple((model, order) for model in ("clip", "resnet50") for order in ("experiment", "shuffled"))
PICTURE_BUDGETS = ("0.1T", "0.25T")
KNAPSACK_BUDGETS = tuple(BUDGETS)
SEEDS, QUICK_SEEDS = 20, 3
KEPT = 0.8  # of the gain with full feedback
STALLED = 0.25  # of it, in a single trial
SPENT = 95.0  # per cent of a budget that binds
BELOW = 5.0  # gain % that a trial may be below the median of its cell
NOT_HERE = "model-vs-human was not run, as its data are not here (docs/data.md); knapsacks are simulated"


def trials(quick: bool) -> list[Trial]:
    """Return 20 orders of the people for each cell, or 3 of those that take least; without data, knapsacks alone."""
    seeds = QUICK_SEEDS if quick else SEEDS
    fast, slow = ("linear", RULE), ("default", "tree")
    worlds = [{"model": model, "order": order} for model, order in SETTINGS]
    made = trials_of(fast, KNAPSACK_BUDGETS, seeds, world=KNAPSACKS, feedbacks=FEEDBACKS)
    made += trials_of(slow, ["0.25T"] if quick else KNAPSACK_BUDGETS, seeds, world=KNAPSACKS, feedbacks=FEEDBACKS)
    try:
        made += trials_of(fast, PICTURE_BUDGETS, seeds, worlds, world=PICTURES, feedbacks=FEEDBACKS)
        some, feedbacks = (worlds[1:2], FEEDBACKS[::2]) if quick else (worlds, FEEDBACKS)
        budgets = PICTURE_BUDGETS[:1] if quick else PICTURE_BUDGETS
        made += trials_of(slow, budgets, seeds, some, world=PICTURES, feedbacks=feedbacks)
    except MissingData:
        pass  # said in figure and findings
    return made


def placed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with where they ran (`where`), the budget (`limit`) and both together (`cell`)."""
    if PICTURES in frame["world"]:
        order = pl.when(order="experiment").then(pl.lit("in order")).otherwise(pl.lit("shuffled"))
        pictures = pl.col("world_model") + ", " + order
        where = pl.when(world=KNAPSACKS).then(pl.lit("knapsacks")).otherwise(pictures)
    else:
        where = pl.lit("knapsacks")
    named = frame.with_columns(where=where, limit=pl.col("asked_budget").replace_strict(BUDGETS))
    return named.with_columns(cell=pl.col("where") + " " + pl.col("limit"))


def said(frame: pl.DataFrame) -> str:
    """Return what has to be said of the data."""
    return "knapsack people are simulated" if PICTURES in frame["world"] else NOT_HERE


def scope(frame: pl.DataFrame) -> str:
    """Return what a claim is about, where not everything could be run."""
    return "" if PICTURES in frame["world"] else " (knapsacks alone: the data of model-vs-human are not here)"


def figure(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw the gain of every trial by feedback, and what was spent with reviewed feedback."""
    shown = placed(frame)
    charts = [by_feedback(part, str(key[0])) for key, part in shown.group_by("where", maintain_order=True)]
    return finished(
        side_by_side([*charts, spending(shown)], columns=3),
        "Reviewed feedback: what is gained by who learns only where a human was asked",
        [
            f"gain in % of hindsight OPT; small: every trial, large: mean over {seeds_text(shown)} (people in"
            " another order); bar: best-reject, whose threshold is set in hindsight",
            said(frame),
        ],
    )


def rows_of(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return the trials of learners with a row for each budget and policy, and the order of the rows."""
    shown = frame.filter(pl.col("policy").is_in(ENTRANTS)).with_columns(row=pl.col("limit") + ", " + pl.col("policy"))
    order = [f"{limit}, {policy}" for limit in BUDGETS.values() for policy in ENTRANTS]
    return shown, [row for row in order if row in set(shown["row"])]


def by_feedback(frame: pl.DataFrame, title: str) -> Any:
    """Return the gains in one world."""
    shown, order = rows_of(frame)
    means = shown.group_by("row", "feedback", maintain_order=True).agg(pl.col("gain").mean())
    rule = frame.filter(policy=RULE).group_by("limit").agg(bar=pl.col("gain").mean())
    bars = shown.select("row", "limit").unique(maintain_order=True).join(rule, on="limit")
    y = alt.Y("row:N", sort=order, title=None)
    offset = alt.YOffset("feedback:N", sort=list(FEEDBACKS))
    x = alt.X("gain:Q", title="gain % of hindsight OPT", scale=alt.Scale(domain=[-10, 85], nice=False))
    ink = colour("feedback", FEEDBACKS)
    ticks = chart_of(bars).mark_tick(thickness=2, size=30, color="#222").encode(y=y, x="bar:Q")
    small = chart_of(shown.select("row", "feedback", "gain")).mark_point(filled=True, size=16, opacity=0.3)
    large = chart_of(means).mark_point(filled=True, size=80, opacity=1)
    drawn = [chart.encode(y=y, yOffset=offset, x=x, color=ink) for chart in (small, large)]
    return layered(ticks, *drawn).properties(width=300, height=max(44 * len(order), 120), title=title)


def spending(frame: pl.DataFrame) -> Any:
    """Return what the default spent with reviewed feedback, trial by trial."""
    shown = frame.filter(policy="default", feedback="reviewed").filter(pl.col("asked_budget") != "inf")
    base = chart_of(shown.select("cell", "spent_pct")).mark_point(filled=True, size=16, opacity=0.4)
    chart = base.encode(
        y=alt.Y("cell:N", sort=None, title=None, axis=alt.Axis(labelLimit=220)),
        x=alt.X("spent_pct:Q", title="spent, % of the budget", scale=alt.Scale(domain=[0, 102])),
        color=alt.value("#1b9e8a"),
    )
    return chart.properties(width=260, height=220, title="default, reviewed: spent")


def cells(frame: pl.DataFrame, policy: str) -> list[tuple[str, dict[str, pl.DataFrame]]]:
    """Return the trials of a policy by feedback, for each cell that has full and reviewed feedback."""
    found = []
    for key, part in placed(frame).filter(policy=policy).group_by("cell", maintain_order=True):
        by = {feedback: part.filter(feedback=feedback) for feedback in FEEDBACKS}
        if len(by["full"]) and len(by["reviewed"]):
            found.append((str(key[0]), by))
    return found


def mean(frame: pl.DataFrame, value: str) -> float:
    """Return the mean of a column."""
    return as_float(frame[value].mean())


def kept_finding(frame: pl.DataFrame, policy: str) -> Finding:
    """Judge how much of the gain with full feedback is kept."""
    texts, held = [], []
    for cell, by in cells(frame, policy):
        full, reviewed = (mean(by[feedback], "gain") for feedback in ("full", "reviewed"))
        held.append(reviewed >= (KEPT * full if full > 0 else full))
        texts.append(f"{cell} {reviewed:.1f} of {full:.1f}")
    return Finding(
        f"Where rewards become known only if a human was asked, {policy} keeps {KEPT:.0%} of its gain{scope(frame)}.",
        "deferkit",
        f"Gain %, reviewed of full: {'; '.join(texts)}. {said(frame).capitalize()}.",
        share_verdict(held),
    )


def stall_finding(frame: pl.DataFrame, policy: str) -> Finding:
    """Judge whether any single trial stops asking."""
    stalls, count, least = [], 0, []
    for cell, by in cells(frame, policy):
        full = mean(by["full"], "gain")
        low = by["reviewed"].filter(pl.col("gain") < STALLED * full)
        count += len(by["reviewed"])
        least.append(f"{cell} {as_float(by['reviewed']['gain'].min()):.1f}")
        if len(low):
            stalls.append(f"{cell}: {len(low)}")
    return Finding(
        f"No trial of {policy} with reviewed feedback stalls: less than {STALLED:.0%} of full's gain{scope(frame)}.",
        "deferkit",
        f"{count} trials, stalls: {', '.join(stalls) or 'none'}. Least gain %: {', '.join(least)}.",
        share_verdict([not stalls]),
    )


def spent_finding(frame: pl.DataFrame, policy: str) -> Finding:
    """Judge whether the budget is spent where it binds: where the same policy spends it with full feedback."""
    texts, held = [], []
    for cell, by in cells(frame, policy):
        full = by["full"]["spent_pct"].fill_nan(None).mean()
        if full is not None and as_float(full) >= SPENT:
            spent = by["reviewed"]["spent_pct"]
            held.append(mean(by["reviewed"], "spent_pct") >= SPENT)
            texts.append(f"{cell} {mean(by['reviewed'], 'spent_pct'):.0f} (least {as_float(spent.min()):.0f})")
    return Finding(
        f"{policy} with reviewed feedback spends {SPENT:.0f} % of a budget that binds{scope(frame)}.",
        "deferkit",
        f"Spent %, where {policy} with full feedback spends at least {SPENT:.0f}: {', '.join(texts)}.",
        share_verdict(held),
    )


def burn_finding(frame: pl.DataFrame, policy: str) -> Finding:
    """Judge whether single trials with bandit feedback fall far behind the others."""
    texts, held = [], []
    for cell, by in cells(frame, policy):
        if len(by["bandit"]):
            gains = by["bandit"]["gain"]
            below = as_float(gains.median()) - as_float(gains.min())
            held.append(below <= BELOW)
            texts.append(f"{cell} {below:.1f}")
    return Finding(
        f"No trial of {policy} with bandit feedback is more than {BELOW:.0f} % below the median gain{scope(frame)}.",
        "deferkit",
        f"Median less least gain %: {', '.join(texts)}.",
        share_verdict(held),
    )


def findings(frame: pl.DataFrame) -> list[Finding]:
    """Judge every learner that was run."""
    found = []
    for policy in (name for name in ENTRANTS if name in set(frame["policy"])):
        judges = (kept_finding, stall_finding, spent_finding, burn_finding)
        found += [judge(frame, policy) for judge in judges]
    return found


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return gain and spending in each world."""
    result = {}
    for key, part in placed(frame).group_by("where", maintain_order=True):
        run = part.with_columns(run=pl.col("policy") + ", " + pl.col("feedback"))
        for value, what in (("gain", "Gain %"), ("spent_pct", "Spent, % of the budget")):
            result[f"{key[0]}: {what}, by budget (mean ± sd)"] = pivot(run, "run", "limit", value)
    return result


EXPERIMENT = Experiment(
    "reviewed",
    "Reviewed feedback on people's answers",
    "A moderation team learns what was right only where somebody looked. Asking then is the only way to learn, so that"
    " whoever stops asking never finds out that it was a mistake. Pictures named by two networks and 37 people with"
    " real response times, in the order of the experiments and shuffled; and knapsacks with simulated people.",
    trials,
    figure,
    findings,
    tables,
)
