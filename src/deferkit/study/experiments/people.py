"""Shared parts of the experiments with people: budgets, names of policies, comparisons, panels, tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from deferkit.errors import MissingData
from deferkit.study.drawing.charts import in_order
from deferkit.study.drawing.panels import TASKS, Lines, Rows
from deferkit.study.experiments.experiment import Grid, Judgement, MeanTable, StudyClaim, claim
from deferkit.study.statistics import Difference, compare_paired, difference, mean_of
from deferkit.worlds import make_world

OF_PAPER = ("inf", "0.5T", "0.25T")
BUDGETS = {"inf": "no limit", "0.5T": "T/2", "0.25T": "T/4", "0.1T": "T/10", "0.05T": "T/20"}
LIMITED = tuple(budget for budget in BUDGETS if budget != "inf")
QUICK_BUDGETS = ("inf", "0.25T")
SEEDS, SLOW_SEEDS, QUICK_SEEDS = range(20), range(10), range(2)
"""Of everything, of what takes longest, and of a quick run."""
PRINTED = ", printed price"
PRICED = {"pacing": "paper"}
OPT = "hindsight OPT"
DEFAULT = "default"
CLOSE = 1.0  # gain % that the default may be below the best of the others
PATHS = ("at", "reward_at", "regret_at", "spent_at")


def names(kind: str) -> dict[str, str]:
    """Return the names of policies in figures, where rewards are Linear or Logistic.

    >>> names("Logistic")["neural"]
    'NeuralLogistic'
    """
    return {
        "default": DEFAULT,
        "linear": kind,
        "neural": f"Neural{kind}",
        "tree": f"Tree{kind}",
        "neural-ucb": "NeuralUCB",
        "neural-ts": "NeuralTS",
        "paper": "Algorithm 1",
        "best-reject": "BestReject",
        "arbitrary-human": "ArbitraryHuman",
        "human-only": "HumanOnly",
        "model-only": "ModelOnly",
        "opt": OPT,
    }


def grid(
    *policies: str,
    quick: Mapping[str, Any] | None = None,
    skip_quick: bool = False,
    budgets: Sequence[str] = tuple(BUDGETS),
    seeds: Sequence[int] = SEEDS,
    **given: Any,
) -> list[Grid]:
    """Return trials with their paths; those of OPT have none.

    Args:
        policies: Policies with the same settings.
        quick: What differs in a quick run beside its seeds; by default it has those of the budgets that are
            quick ones.
        skip_quick: A quick run does without these trials.
        budgets: All of them by default.
        seeds: `SEEDS` by default.
        given: Further fields of a `Grid`.
    """
    fewer = {"budgets": [budget for budget in budgets if budget in QUICK_BUDGETS]} if quick is None else quick
    return [
        Grid(
            policies=[policy],
            budgets=budgets,
            seeds=seeds,
            trace="" if policy == "opt" else "path",
            quick=None if skip_quick else {"seeds": QUICK_SEEDS, **fewer},
            **given,
        )
        for policy in policies
    ]


def add_names(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Return the trials with the names of the policy (`who`) and the budget (`limit`) in figures."""
    pacing = pl.col("policy_pacing") if "policy_pacing" in frame.columns else pl.lit(None)
    price = pl.when(pacing == "paper").then(pl.lit(PRINTED)).otherwise(pl.lit(""))
    return frame.with_columns(
        who=pl.col("policy").replace_strict(names(kind)) + price,
        limit=pl.col("asked_budget").replace_strict(BUDGETS),
    )


def present(frame: pl.DataFrame) -> list[str]:
    """Return the budgets that were run, the largest first."""
    there = set(frame["asked_budget"])
    return [budget for budget in BUDGETS if budget in there]


def both_ran(frame: pl.DataFrame, one: str, other: str) -> list[str]:
    """Return the budgets at which both of them were run."""
    return [b for b in present(frame) if {one, other} <= set(frame.filter(asked_budget=b)["who"])]


def ran(frame: pl.DataFrame, *wanted: str) -> list[str]:
    """Return those of them that were run."""
    there = set(frame["who"])
    return [who for who in wanted if who in there]


def compare(frame: pl.DataFrame, one: str, other: str, value: str = "gain") -> Difference:
    """Return the mean difference between `one` and `other`, paired by seed, and its standard error."""
    return compare_paired(frame, one, other, value, by="who")


def paths(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each point of each path."""
    return frame.filter(pl.col("at").list.len() > 0).explode(*PATHS)


def default_claim(kind: str, data: str, *cells: str, where: pl.Expr | None = None) -> StudyClaim:
    """Return the claim that the default, which chooses its representation itself, is nearly the best one.

    Args:
        kind: What the linear learner is called: Linear or Logistic.
        data: The data, for the text.
        cells: Columns whose values tell parts of the trials apart, beside the budget.
        where: Which trials are judged; all by default.
    """

    @claim(f"The default gains at most {CLOSE:g} less than the best of {kind}, Tree{kind} and BestReject ({data}).")
    def judge(frame: pl.DataFrame) -> Judgement:
        close, texts = [], []
        judged = frame if where is None else frame.filter(where)
        for key, part in judged.group_by(*cells, maintain_order=True) if cells else [((), judged)]:
            for b in both_ran(part, DEFAULT, kind):
                here = part.filter(asked_budget=b)
                others = ran(here, kind, f"Tree{kind}", "BestReject")
                best = max(others, key=lambda who: mean_of(here, "gain", who=who))
                behind = compare(here, DEFAULT, best)
                close.append(behind[0] >= -CLOSE)
                texts.append(f"{' '.join([*map(str, key), BUDGETS[b]])} {difference(behind)} ({best})")
        return f"Gain %, default less the best of them: {', '.join(texts)}.", close

    return judge


def at_budgets(frame: pl.DataFrame, who: str, value: str, digits: int = 1) -> str:
    """Return the means of someone at all budgets as text."""
    there = [b for b in present(frame) if not frame.filter(who=who, asked_budget=b)[value].drop_nans().is_empty()]
    each = [f"{BUDGETS[b]} {mean_of(frame, value, who=who, asked_budget=b):.{digits}f}" for b in there]
    return ", ".join(each)


def remark(world: str, given: Mapping[str, Any]) -> str:
    """Return the remark that accompanies the data of a world wherever they are shown."""
    try:
        return make_world(world, given).draw(0).remark
    except MissingData:
        return "the data are not here, so that remarks on them are not known"


def legend(frame: pl.DataFrame) -> list[str]:
    """Return all lines of a figure."""
    return in_order(frame, "who")


def over_budgets(value: str, y_title: str, title: str, *, width: int = 400, **given: Any) -> Lines:
    """Return lines over the budgets, the smallest at the left."""
    return Lines(
        value=value,
        y_title=y_title,
        title=title,
        x=alt.X("limit:O", title="budget", sort=list(BUDGETS.values())[::-1], axis=alt.Axis(labelAngle=0)),
        by="who",
        y_scale=alt.Scale(zero=False, padding=14),
        among=legend,
        width=width,
        **given,
    )


def over_tasks(value: str, y_title: str, title: str, *, among: Any = legend, rows: Rows = paths, **given: Any) -> Lines:
    """Return lines over the tasks."""
    return Lines(
        value=value, y_title=y_title, title=title, x=TASKS, by="who", among=among, rows=rows, points=False, **given
    )


def budget_tables(prefix: str = "", *, rows: Rows = lambda frame: frame) -> list[MeanTable]:
    """Return tables of gain, per cent of OPT and spending by budget.

    Args:
        prefix: Of the captions.
        rows: Which trials are shown; all by default.
    """
    values = {"gain": "Gain %", "pct_opt": "% of hindsight OPT", "spent_pct": "Spent, % of the budget"}

    def select_limited(frame: pl.DataFrame) -> pl.DataFrame:
        return rows(frame).filter(pl.col("asked_budget") != "inf")  # of no limit nothing is a share

    return [
        MeanTable(
            caption=f"{prefix}{{value}}, by budget (mean ± sd)",
            values={value: what},
            index="who",
            columns="limit",
            heading="policy",
            rows=select_limited if value == "spent_pct" else rows,
        )
        for value, what in values.items()
    ]
