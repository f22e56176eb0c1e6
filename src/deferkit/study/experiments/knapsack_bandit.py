"""Knapsacks with full and with bandit feedback."""

from typing import Any

import polars as pl

from deferkit.study.drawing.figures import FeedbackDifferences
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Judgement, MeanTable, claim
from deferkit.study.experiments.knapsacks import NEURAL, WORLD, by_name, people_remark
from deferkit.study.experiments.people import (
    BUDGETS,
    LIMITED,
    OF_PAPER,
    PRICED,
    PRINTED,
    grid,
    over_tasks,
    present,
    ran,
)
from deferkit.study.statistics import Difference, cells_text, difference, mean_and_error, surely

PAPERS = "Linear" + PRINTED
DRAWN = ("Linear", "NeuralLinear", "TreeLinear", PAPERS)
SLIGHT = 5.0  # gain %: more than that is not slight
BOTH: dict[str, Any] = {"world": WORLD, "feedbacks": ("full", "bandit")}


def differences(frame: pl.DataFrame) -> pl.DataFrame:
    """Return, trial by trial, the gain with bandit feedback less that with full feedback (`more`)."""
    keys = ["who", "asked_budget", "seed"]
    full = frame.filter(feedback="full").select(*keys, full_gain="gain")
    both = frame.filter(feedback="bandit").join(full, on=keys)
    return both.with_columns(more=pl.col("gain") - pl.col("full_gain"))


def by_learner(frame: pl.DataFrame) -> dict[str, dict[str, Difference]]:
    """Return the mean difference of each learner by budget."""
    more = differences(frame)
    return {
        who: {
            BUDGETS[b]: mean_and_error(more.filter(who=who, asked_budget=b)["more"].to_numpy())
            for b in present(more.filter(who=who))
        }
        for who in ran(more, *DRAWN)
    }


@claim("On knapsacks Linear is slightly better with bandit feedback than with full feedback.", "paper")
def _better(frame: pl.DataFrame) -> Judgement:
    """Judge whether Linear is slightly better with bandit feedback; with the paper's price, where there is a limit."""
    texts = {who: cells_text(cells) for who, cells in by_learner(frame).items()}
    free = (pl.col("who") == "Linear") & (pl.col("asked_budget") == "inf")
    priced = (pl.col("who") == PAPERS) & pl.col("asked_budget").is_in(OF_PAPER)
    papers = differences(frame).filter(free | priced)
    average = mean_and_error(papers.group_by("seed").agg(pl.col("more").mean())["more"].to_numpy())
    slight = 0 < average[0] < SLIGHT
    measured = (
        f"Gain %, bandit less full: Linear {texts['Linear']}; printed price {texts.get(PAPERS, 'not run')}."
        f" With the paper's price, over its budgets: {difference(average)}."
    )
    return measured, [slight, slight and surely(average)]


@claim(f"Bandit feedback changes the gain of any learner by less than {SLIGHT:.0f} % (knapsacks).")
def _small(frame: pl.DataFrame) -> Judgement:
    cells = by_learner(frame)
    changes = [abs(mean) for found in cells.values() for mean, _ in found.values()]
    texts = [f"{who}: {cells_text(found)}" for who, found in cells.items()]
    measured = f"{'; '.join(texts)}. The largest change is {max(changes):.1f}."
    return measured, (change < SLIGHT for change in changes)


EXPERIMENT = Experiment(
    title="Knapsacks: full and bandit feedback",
    description="Full: RatioMax4's reward is always seen, the person's when asked. Bandit: only that of who decided."
    " The paper saw Linear do slightly better with less, and suspected that the full feedback asks people too often.",
    realised=True,
    grids=[
        *grid("linear", **BOTH),
        *grid("linear", budgets=LIMITED, parameters=PRICED, **BOTH),
        *grid("tree", budgets=("inf", "0.25T", "0.05T"), quick={"budgets": ["0.25T"]}, **BOTH),
        *grid("neural", budgets=("inf", "0.25T"), quick={"budgets": ["0.25T"]}, parameters=NEURAL, **BOTH),
    ],
    rows=lambda frame: by_name(frame).with_columns(run=by_name(frame)["who"] + ", " + pl.col("feedback")),
    figure=Figure(
        title="Knapsacks: full feedback (solid) and bandit feedback (dashed)",
        columns=3,
        by="who",
        spread="means",
        panels=(
            over_tasks(
                "regret_at",
                "regret against hindsight OPT",
                "budget: {limit}",
                split=["limit"],
                among=DRAWN,
                dash="feedback",
                banded=False,  # too many lines for bands
                width=330,
            ),
            FeedbackDifferences(
                title="what bandit feedback changes", rows=differences, learners=DRAWN, limits=tuple(BUDGETS.values())
            ),
        ),
        seed="the people in another order",
        notes=[people_remark],
    ),
    claims=(_better, _small),
    tables=(
        MeanTable(
            caption="{value}, by budget (mean ± sd)",
            values={"gain": "Gain %", "defer_rate": "Asked, % of tasks"},
            index="run",
            columns="limit",
        ),
    ),
)
