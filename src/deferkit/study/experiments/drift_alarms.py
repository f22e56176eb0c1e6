"""Drift alarms: how many are false, how many changes are found, and how soon."""

import math

import numpy as np
import polars as pl

from deferkit.study.drawing.figures import DifferenceDots
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Grid, Judgement, MeanTable, claim
from deferkit.worlds.classifiers import REWARDS, SHAPES

OLD = "default-2026.11"
POLICIES = ("default", OLD)
TARGETS = ("model", "expert", "cost")
BUDGET = "5%"
STREAMS, CHANGES = 200, 100  # streams of each kind
FALSE_ALARMS = 0.01  # share of streams, for each target
FOUND, LATER = 0.95, 1.5  # share of changes; times the median delay of the rule of November 2026
STILL = [
    {"shape": shape, "rewards": rewards, "horizon": 20_000}
    for shape in SHAPES
    for rewards in REWARDS
    if shape != "uneven noise" or rewards == "graded"  # the noise of 0/1 rewards follows from their chance
]
CHANGING = [{"rewards": rewards, "change": True, "horizon": 6_000} for rewards in REWARDS]


def with_alarms(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the trials with whether each target raised an alarm, in per cent, and the delay of the model's first.

    The delay counts from the change, which is in the middle; it is null where nothing changes or no alarm came.
    """
    half = pl.col("horizon") // 2
    rows = frame.with_columns(
        *((100.0 * (pl.col("alarms").list.get(i) > 0)).alias(f"{name} %") for i, name in enumerate(TARGETS)),
        stream=pl.format("{}, {}", pl.col("shape"), pl.col("rewards")),
    )
    delays = [
        next((at - middle for at in times if at >= middle), None) if change else None
        for times, middle, change in rows.select("alarm_at", half, "change").iter_rows()
    ]
    return rows.with_columns(delay=pl.Series(delays, dtype=pl.Float64))


@claim(
    f"Where nothing changes, at most {FALSE_ALARMS:.0%} of the streams of each kind raise an alarm, for each target:"
    " also where a linear learner cannot represent the rewards."
)
def _false_alarms(frame: pl.DataFrame) -> Judgement:
    still = frame.filter(pl.col("policy") == "default", ~pl.col("change"))
    met, texts = [], []
    for (stream,), part in still.group_by("stream", maintain_order=True):
        counts = [int((part[f"{name} %"] > 0).sum()) for name in TARGETS]
        met.append(max(counts) <= FALSE_ALARMS * part.height)
        texts.append(f"{stream} {' / '.join(map(str, counts))} of {part.height}")
    return f"Streams with an alarm of {' / '.join(TARGETS)}: {'; '.join(texts)}.", met


@claim(f"At least {FOUND:.0%} of the changes are found.")
def _judge_found(frame: pl.DataFrame) -> Judgement:
    met, texts = [], []
    changing = frame.filter(pl.col("policy") == "default", pl.col("change"))
    for (rewards,), part in changing.group_by("rewards", maintain_order=True):
        found = part["delay"].count()
        met.append(found >= FOUND * part.height)
        texts.append(f"{rewards} {found} of {part.height}")
    return f"Found: {', '.join(texts)}.", met


def median_delay(part: pl.DataFrame) -> float:
    """Return the median delay of all changes; one that was not found counts as infinitely late."""
    return float(np.median(part["delay"].fill_null(math.inf).to_numpy()))


@claim(f"The median delay is at most {LATER:g} times that of the rule of November 2026, which bounds no false alarms.")
def _delays(frame: pl.DataFrame) -> Judgement:
    met, texts = [], []
    for (rewards,), part in frame.filter(pl.col("change")).group_by("rewards", maintain_order=True):
        ours, old = (median_delay(part.filter(policy=policy)) for policy in POLICIES)
        met.append(ours <= LATER * old)
        texts.append(f"{rewards} {ours:.0f} (old rule: {old:.0f})")
    return f"Median delay in tasks: {', '.join(texts)}.", met


EXPERIMENT = Experiment(
    title="Drift alarms",
    description="A model whose reward depends on four numbers: linearly in its log-odds, in a U, by an interaction, or"
    " with uneven noise, as 0/1 or graded rewards. Streams of 20,000 tasks in which nothing changes, where every alarm"
    " is false, and of 6,000 in which the model's log-odds fall by 2 in the middle. Full feedback, budget 5 %.",
    realised=True,
    rows=with_alarms,
    grids=(
        Grid(
            world="one-change",
            worlds=STILL,
            policies=("default",),
            budgets=(BUDGET,),
            trace="alarms",
            seeds=range(STREAMS),
            quick={"seeds": range(2)},
        ),
        Grid(
            world="one-change",
            worlds=STILL,
            policies=(OLD,),
            budgets=(BUDGET,),
            trace="alarms",
            seeds=range(STREAMS // 5),
            quick={"seeds": range(2)},
        ),
        Grid(
            world="one-change",
            worlds=CHANGING,
            policies=POLICIES,
            budgets=(BUDGET,),
            trace="alarms",
            seeds=range(CHANGES),
            quick={"seeds": range(4)},
        ),
    ),
    figure=Figure(
        title="Drift alarms of the model's reward",
        panels=(
            DifferenceDots(
                value="model %",
                x_title="streams with a false alarm, %",
                title="nothing changes",
                y="stream",
                by="policy",
                split=["change"],
                rows=lambda frame: frame.filter(~pl.col("change")),
            ),
            DifferenceDots(
                value="delay",
                x_title="tasks until the alarm",
                title="one change",
                y="stream",
                by="policy",
                split=["change"],
                rows=lambda frame: frame.filter(pl.col("delay").is_not_null()),
            ),
        ),
        spread="mean",
        notes=["mean ± 2 standard errors; right: of the changes that were found"],
    ),
    claims=(_false_alarms, _judge_found, _delays),
    tables=(
        MeanTable(
            caption="{value}, by stream, nothing changes (mean ± sd)",
            values={f"{name} %": f"Streams with an alarm of the {name}, %" for name in TARGETS},
            columns="stream",
            rows=lambda frame: frame.filter(~pl.col("change")),
        ),
        MeanTable(
            caption="{value}, by stream (mean ± sd)",
            values={"delay": "Tasks from the change to the alarm"},
            columns="stream",
            rows=lambda frame: frame.filter(pl.col("delay").is_not_null()),
        ),
    ),
)
