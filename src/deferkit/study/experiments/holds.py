"""Holds: what is kept back for pending reviews, where costs have a heavy tail or outcomes come late."""

from typing import Any

import altair as alt
import polars as pl

from deferkit.study.drawing.figures import Dots
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import REGIMES, Experiment, Grid, Judgement, MeanTable, claim
from deferkit.study.statistics import as_float, mean_and_error

HEAVY_GOAL = 95.0
LATE_GOALS = {"complementary": 80.0, "dominant": 75.0}
HEAVY_BUDGETS = ("10%", "10% hold auto", "5%", "5% hold auto")
LATE_BUDGETS = ("10%", "10% hold auto")
FRESH = 1_000  # seeds from here on were not looked at before
SEEDS: dict[str, Any] = {"seeds": [*range(8), *range(FRESH, FRESH + 8)], "quick": {"seeds": [0, FRESH]}}
LATE_SEEDS: dict[str, Any] = {"seeds": [*range(16), *range(FRESH, FRESH + 16)], "quick": {"seeds": [0, 1, FRESH]}}


def add_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with what is held, the share of the budget, the setting, and whether a seed is fresh."""
    held = (
        pl.when(pl.col("asked_budget").str.contains("hold auto"))
        .then(pl.lit("hold auto"))
        .otherwise(pl.lit("hold max_cost"))
    )
    tail = pl.when(tail="heavy").then(pl.lit("heavy tail")).otherwise(pl.col("regime"))
    late = (100 * pl.col("late")).round().cast(pl.Int64).cast(pl.String) + " % late"
    values = pl.col("values") + " values"
    length = pl.col("horizon").cast(pl.String)
    return frame.with_columns(
        held=held,
        share=pl.col("asked_budget").str.split(" ").list.first(),
        setting=pl.concat_str([tail, pl.lit("T = ") + length, late, values], separator=", "),
        fresh=pl.col("seed") >= FRESH,
    )


def gains(frame: pl.DataFrame, **where: Any) -> tuple[float, float]:
    """Return the mean gain of some trials: with the seeds that were looked at, and with fresh ones."""
    part = frame.filter(**where)
    old, fresh = (as_float(part.filter(fresh=each)["gain"].mean()) for each in (False, True))
    return old, fresh


@claim(
    f"With a heavy tail and late costs, holds that are extended or reviews that are stopped gain {HEAVY_GOAL:g} % or"
    " more, with values that are known."
)
def _heavy(frame: pl.DataFrame) -> Judgement:
    texts, met = [], []
    for horizon in sorted(set(frame.filter(tail="heavy")["horizon"].to_list())):
        for share in ("10%", "5%"):
            given = {"tail": "heavy", "values": "known", "horizon": horizon, "share": share}
            (held, _), (old, fresh) = (gains(frame, held=each, **given) for each in ("hold max_cost", "hold auto"))
            mean, error = mean_and_error(frame.filter(held="hold auto", **given)["gain"].to_numpy())
            texts.append(
                f"T = {horizon:,}, {share}: {old:.0f} ({fresh:.0f}; all {mean:.0f} ± {error:.0f}, holding max_cost"
                f" {held:.0f})"
            )
            met.append(mean >= HEAVY_GOAL)
    return f"Gain %, fresh seeds and all with standard errors in parentheses: {'; '.join(texts)}.", all(met)


@claim("Where outcomes come after 10 % of a short stream, the learner gains what is asked of it.")
def _late(frame: pl.DataFrame) -> Judgement:
    texts, met = [], []
    for regime, goal in LATE_GOALS.items():
        given = {"tail": "none", "late": 0.1, "regime": regime}
        (held, _), (old, fresh) = (gains(frame, held=each, **given) for each in ("hold max_cost", "hold auto"))
        texts.append(f"{regime} {old:.0f} ({fresh:.0f}; asked {goal:g}, holding max_cost {held:.0f})")
        met.append(old >= goal)
    return f"Gain %, fresh seeds in parentheses: {'; '.join(texts)}.", all(met)


@claim("Nothing is spent over budget, whoever is asked.")
def _judge_overruns(frame: pl.DataFrame) -> Judgement:
    most, overrun = as_float(frame["spent_pct"].max()), as_float(frame["overrun"].max())
    stopped = as_float(frame.filter(held="hold auto")["stopped"].mean())
    measured = f"At most {most:.2f} % of a budget was spent; overruns {overrun:g}; {stopped:.1f} reviews stopped a run."
    return measured, most <= 100 + 1e-6 and overrun == 0


EXPERIMENT = Experiment(
    title="Holds of pending reviews",
    description="For a pending review its largest possible cost is held back, or about what it will cost, with more"
    " added while it lasts and the review stopped if nothing is left. Costs are log-normal, and 207 times the mean once"
    " in a thousand, or without a tail; outcomes come after a share of the stream.",
    grids=[
        *(
            Grid(
                world="late",
                worlds=[{"horizon": 4_000, "values": values}],
                budgets=HEAVY_BUDGETS,
                policies=[policy],
                parameters=parameters,
                **SEEDS,
            )
            for values, policy, parameters in (("known", "greedy", {"forget": "never"}), ("learned", "default", {}))
        ),
        Grid(
            world="late",
            worlds=[
                {"horizon": 1_000, "tail": "none", "late": late, "regime": regime}
                for regime in REGIMES
                for late in (0.1, 0.3)
            ],
            budgets=LATE_BUDGETS,
            policies=["default"],
            **LATE_SEEDS,
        ),
    ],
    rows=add_labels,
    figure=Figure(
        title="Holds: what is gained",
        panels=(
            Dots(
                title="budget {share} of asking always",
                value="gain",
                x_title="gain, % of the best for who knows all tasks to come",
                y="setting",
                by="held",
                split=["share"],
                scale=alt.Scale(domain=[0, 130], clamp=True),
            ),
        ),
        columns=1,
    ),
    claims=(_heavy, _late, _judge_overruns),
    tables=(
        MeanTable(
            caption="{value}, budget {share} of asking always",
            values={"gain": "Gain %", "spent_pct": "Spent %", "stopped": "Reviews stopped"},
            index="setting",
            columns="held",
            split=["share"],
        ),
    ),
)
