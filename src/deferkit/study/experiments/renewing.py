"""Renewing budgets and budgets with an end: what is gained without knowing how many tasks come."""

from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.figures import Dots
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Grid, Judgement, MeanTable, claim
from deferkit.study.statistics import as_float
from deferkit.worlds.arrivals import PATTERNS

GOALS = {"flat": 96.5, "office": 96.7, "bursts": 96.0, "growth": 96.7, "step": 96.7, "all": 95.9, "weekend": 96.1}
CARRIED_GOALS = {"bursts": 97.0, "growth": 96.0, "all": 94.0}
ENDING = ("office", "bursts", "growth", "step", "all")
KEPT_UNTIL_END = 98.0  # per cent of the gain of who knows the number of tasks
LEARNING_COSTS = 1.5  # points of gain, at most
WEEKLY, CARRIED = "105 every 7d", "105 every 7d carry inf"
UNTIL, COUNTED = "10% until end", "10%"
FRESH = 1_000  # seeds from here on were not looked at before
SEEDS: dict[str, Any] = {"seeds": [*range(8), *range(FRESH, FRESH + 8)], "quick": {"seeds": [0, FRESH]}}
KNOWN: dict[str, Any] = {"policies": ("greedy",), "parameters": {"forget": "never"}}
LEARNED: dict[str, Any] = {"policies": ("default", "arbitrary-human")}


def grids(budget: str, patterns: tuple[str, ...]) -> list[Grid]:
    """Return the trials of a budget, with values that are known and with the learner."""
    return [
        Grid(
            world="arrivals",
            worlds=[{"pattern": pattern, "values": values} for pattern in patterns],
            budgets=[budget],
            **of_values,
            **SEEDS,
        )
        for values, of_values in (("known", KNOWN), ("learned", LEARNED))
    ]


def add_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with the columns `run` (policy and values) and `fresh` (seeds that were not looked at)."""
    runs = {"known": "known values", "learned": "the learner"}
    run = pl.when(policy="arbitrary-human").then(pl.lit("until empty")).otherwise(pl.col("values").replace(runs))
    return frame.with_columns(run=run, fresh=pl.col("seed") >= FRESH)


def mean_gain(frame: pl.DataFrame, **where: Any) -> float:
    """Return the mean gain of some trials."""
    return as_float(frame.filter(**where)["gain"].mean())


def judge_goals(frame: pl.DataFrame, budget: str, goals: dict[str, float]) -> Judgement:
    """Return the gain with known values for each pattern beside its goal, with fresh seeds in parentheses."""
    texts, met = [], []
    for pattern, goal in goals.items():
        given = {"pattern": pattern, "asked_budget": budget, "run": "known values"}
        old, fresh = (mean_gain(frame, fresh=each, **given) for each in (False, True))
        texts.append(f"{pattern} {old:.1f} ({fresh:.1f}; asked {goal:g})")
        met.append(old >= goal)
    return f"Gain %, fresh seeds in parentheses: {', '.join(texts)}.", all(met)


@claim(
    "With values that are known, an allowance that lapses gains what is asked of it, of the best for someone who knows"
    " all tasks to come."
)
def _weekly(frame: pl.DataFrame) -> Judgement:
    return judge_goals(frame, WEEKLY, GOALS)


@claim("If nothing lapses, likewise, of the best over all periods.")
def _judge_carrying(frame: pl.DataFrame) -> Judgement:
    return judge_goals(frame, CARRIED, CARRIED_GOALS)


@claim(
    f"One total until a date gains at least {KEPT_UNTIL_END:g} % of what it gains for who knows the number of tasks."
)
def _until(frame: pl.DataFrame) -> Judgement:
    texts, met = [], []
    for pattern in ENDING:
        given = {"pattern": pattern, "run": "known values"}
        shares = [
            100
            * mean_gain(frame, fresh=fresh, asked_budget=UNTIL, **given)
            / mean_gain(frame, fresh=fresh, asked_budget=COUNTED, **given)
            for fresh in (False, True)
        ]
        texts.append(f"{pattern} {shares[0]:.1f} ({shares[1]:.1f})")
        met.append(shares[0] >= KEPT_UNTIL_END)
    return f"Per cent, fresh seeds in parentheses: {', '.join(texts)}.", all(met)


@claim(f"To learn the values on the way costs at most {LEARNING_COSTS:g} points of gain.")
def _learning(frame: pl.DataFrame) -> Judgement:
    texts, met = [], []
    for pattern in PATTERNS:
        given = {"pattern": pattern, "asked_budget": WEEKLY}
        lost = mean_gain(frame, run="known values", **given) - mean_gain(frame, run="the learner", **given)
        texts.append(f"{pattern} {lost:+.1f}")
        met.append(lost <= LEARNING_COSTS)
    return f"Points lost with an allowance that lapses: {', '.join(texts)}.", all(met)


EXPERIMENT = Experiment(
    title="Renewing budgets",
    description="A budget is 40 hours a week, or 5,000 euros until the end of March; nobody knows how many tasks come."
    " Fourteen weeks of tasks that come evenly, in office hours, in bursts, or more and more. The price is solved for"
    " the tasks that came later in the last two weeks than it is in this one. The first two weeks are not judged.",
    grids=[
        *grids(WEEKLY, PATTERNS),
        *grids(CARRIED, tuple(CARRIED_GOALS)),
        *grids(UNTIL, ENDING),
        *grids(COUNTED, ENDING),
    ],
    rows=add_labels,
    figure=Figure(
        title="Renewing budgets: what is gained",
        panels=(
            Dots(
                title="{asked_budget}",
                value="gain",
                x_title="gain, % of the best for who knows all tasks to come",
                y="pattern",
                split=["asked_budget"],
                by="run",
                scale=alt.Scale(domain=[35, 105]),
            ),
        ),
    ),
    claims=(_weekly, _judge_carrying, _until, _learning),
    tables=(
        MeanTable(
            caption="{value}, {asked_budget}, by pattern of arrivals",
            values={"gain": "Gain %", "spent_pct": "Spent %"},
            index="run",
            columns="pattern",
            split=["asked_budget"],
        ),
    ),
)
