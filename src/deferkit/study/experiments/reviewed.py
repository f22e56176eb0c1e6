"""Reviewed feedback on people's answers: rewards become known only where a human was asked. Does it go on asking?"""

from collections.abc import Callable
from typing import Any

import polars as pl

from deferkit.study.drawing.figures import TrialGains, TrialSpending
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import FEEDBACKS, Experiment, Grid, Judgement, MeanTable, StudyClaim, claim
from deferkit.study.experiments.people import BUDGETS
from deferkit.study.statistics import as_float, mean_of

LEARNERS = ("default", "linear", "tree")
FAST, SLOW = ("linear", "best-reject"), ("default", "tree")
PICTURES, KNAPSACKS = "model-vs-human", "knapsack"
WORLDS = [{"model": model, "order": order} for model in ("clip", "resnet50") for order in ("experiment", "shuffled")]
KEPT = 0.8  # of the gain with full feedback
STALLED = 0.25  # of it, in a single trial
SPENT = 95.0  # per cent of a budget that binds
BELOW = 5.0  # gain % that a trial may be below the median of its cell
NOT_HERE = "model-vs-human was not run, as its data are not here (docs/data.md); knapsacks are simulated"
GRID: dict[str, Any] = {"feedbacks": FEEDBACKS, "seeds": range(20)}
QUICK: dict[str, Any] = {"seeds": range(3)}
KNAPSACK: dict[str, Any] = {"world": KNAPSACKS, "budgets": tuple(BUDGETS), **GRID}
PICTURE: dict[str, Any] = {"world": PICTURES, "worlds": WORLDS, "budgets": ("0.1T", "0.25T"), "optional": True, **GRID}


def add_places(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with four more columns of text.

    `where` is the world, `limit` the budget, `cell` both together, `run` the policy with its feedback.
    """
    if PICTURES in frame["world"]:
        order = pl.when(order="experiment").then(pl.lit("in order")).otherwise(pl.lit("shuffled"))
        pictures = pl.col("world_model") + ", " + order
        where = pl.when(world=KNAPSACKS).then(pl.lit("knapsacks")).otherwise(pictures)
    else:
        where = pl.lit("knapsacks")
    named = frame.with_columns(where=where, limit=pl.col("asked_budget").replace_strict(BUDGETS))
    return named.with_columns(
        cell=pl.col("where") + " " + pl.col("limit"), run=pl.col("policy") + ", " + pl.col("feedback")
    )


def scope(frame: pl.DataFrame) -> str:
    """Return the scope of a claim if not everything could be run, else ""."""
    return "" if PICTURES in frame["world"] else "knapsacks alone: the data of model-vs-human are not here"


def remark(frame: pl.DataFrame) -> str:
    """Return the remark on the data."""
    return "knapsack people are simulated" if PICTURES in frame["world"] else NOT_HERE


def cells(frame: pl.DataFrame, policy: str) -> list[tuple[str, dict[str, pl.DataFrame]]]:
    """Return the trials of a policy by feedback, for each cell that has full and reviewed feedback."""
    found = []
    for key, part in frame.filter(policy=policy).group_by("cell", maintain_order=True):
        by = {feedback: part.filter(feedback=feedback) for feedback in FEEDBACKS}
        if len(by["full"]) and len(by["reviewed"]):
            found.append((str(key[0]), by))
    return found


def judge_kept(frame: pl.DataFrame, policy: str) -> Judgement:
    """Judge the share of the gain with full feedback that is kept."""
    texts, held = [], []
    for cell, by in cells(frame, policy):
        full, reviewed = (mean_of(by[feedback], "gain") for feedback in ("full", "reviewed"))
        held.append(reviewed >= (KEPT * full if full > 0 else full))
        texts.append(f"{cell} {reviewed:.1f} of {full:.1f}")
    return f"Gain %, reviewed of full: {'; '.join(texts)}. {remark(frame).capitalize()}.", held


def stalls(frame: pl.DataFrame, policy: str) -> Judgement:
    """Judge whether any single trial stops asking."""
    stalled, count, least = [], 0, []
    for cell, by in cells(frame, policy):
        low = by["reviewed"].filter(pl.col("gain") < STALLED * mean_of(by["full"], "gain"))
        count += len(by["reviewed"])
        least.append(f"{cell} {as_float(by['reviewed']['gain'].min()):.1f}")
        if len(low):
            stalled.append(f"{cell}: {len(low)}")
    measured = f"{count} trials, stalls: {', '.join(stalled) or 'none'}. Least gain %: {', '.join(least)}."
    return measured, [not stalled]


def spends(frame: pl.DataFrame, policy: str) -> Judgement:
    """Judge whether the budget is spent where it binds: where the same policy spends it with full feedback."""
    texts, held = [], []
    for cell, by in cells(frame, policy):
        full = by["full"]["spent_pct"].fill_nan(None).mean()
        if full is not None and as_float(full) >= SPENT:
            mean, least = mean_of(by["reviewed"], "spent_pct"), as_float(by["reviewed"]["spent_pct"].min())
            held.append(mean >= SPENT)
            texts.append(f"{cell} {mean:.0f} (least {least:.0f})")
    measured = f"Spent %, where {policy} with full feedback spends at least {SPENT:.0f}: {', '.join(texts)}."
    return measured, held


def falls_behind(frame: pl.DataFrame, policy: str) -> Judgement:
    """Judge whether single trials with bandit feedback fall far behind the others."""
    texts, held = [], []
    for cell, by in cells(frame, policy):
        if len(by["bandit"]):
            gains = by["bandit"]["gain"]
            below = as_float(gains.median()) - as_float(gains.min())
            held.append(below <= BELOW)
            texts.append(f"{cell} {below:.1f}")
    return f"Median less least gain %: {', '.join(texts)}.", held


CLAIMS: dict[str, Callable[[pl.DataFrame, str], Judgement]] = {
    f"Where rewards become known only if a human was asked, {{}} keeps {KEPT:.0%} of its gain.": judge_kept,
    f"No trial of {{}} with reviewed feedback stalls: less than {STALLED:.0%} of full's gain.": stalls,
    f"{{}} with reviewed feedback spends {SPENT:.0f} % of a budget that binds.": spends,
    f"No trial of {{}} with bandit feedback is more than {BELOW:.0f} % below the median gain.": falls_behind,
}


def claim_of(text: str, policy: str) -> StudyClaim:
    """Return a claim about a learner; it is judged where the learner was run."""

    @claim(text.format(policy), scope=scope)
    def judge(frame: pl.DataFrame) -> Judgement | None:
        return CLAIMS[text](frame, policy) if policy in frame["policy"] else None

    return judge


EXPERIMENT = Experiment(
    title="Reviewed feedback on people's answers",
    description="A moderation team learns what was right only where somebody looked. Asking then is the only way to"
    " learn, so that whoever stops asking never finds out that it was a mistake. Pictures named by two networks and 37"
    " people with real response times, in the order of the experiments and shuffled; and knapsacks with simulated"
    " people.",
    realised=True,
    grids=(
        Grid(policies=FAST, quick=QUICK, **KNAPSACK),
        Grid(policies=SLOW, quick=QUICK | {"budgets": ["0.25T"]}, **KNAPSACK),
        Grid(policies=FAST, quick=QUICK, **PICTURE),
        Grid(
            policies=SLOW,
            quick=QUICK | {"worlds": WORLDS[1:2], "feedbacks": FEEDBACKS[::2], "budgets": ["0.1T"]},
            **PICTURE,
        ),
    ),
    rows=add_places,
    figure=Figure(
        title="Reviewed feedback: what is gained by who learns only where a human was asked",
        columns=2,
        panels=(
            TrialGains(
                split="where",
                policies=LEARNERS,
                feedbacks=FEEDBACKS,
                limits=tuple(BUDGETS.values()),
                rule="best-reject",
            ),
            TrialSpending(policy="default", feedback="reviewed"),
        ),
        spread="small: every trial, large: mean",
        notes=[
            "people in another order for each trial; gain in % of hindsight OPT; bar: best-reject, whose threshold is"
            " set in hindsight",
            remark,
        ],
    ),
    claims=[claim_of(text, policy) for policy in LEARNERS for text in CLAIMS],
    tables=(
        MeanTable(
            caption="{where}: {value}, by budget (mean ± sd)",
            values={"gain": "Gain %", "spent_pct": "Spent, % of the budget"},
            index="run",
            columns="limit",
            split=["where"],
        ),
    ),
)
