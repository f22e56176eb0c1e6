"""What the experiments with people share: budgets, who is compared under which name, what has to be said."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import polars as pl

from deferkit.errors import MissingData
from deferkit.study.drawing.charts import bands
from deferkit.study.experiments.experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    Finding,
    mean_of,
    over_trials,
    paired,
    pivot,
    seeds_text,
    trials_of,
)
from deferkit.study.store import Trial
from deferkit.worlds import make_world

OF_PAPER = ("inf", "0.5T", "0.25T")
SMALL = ("0.1T", "0.05T")
BUDGETS = {"inf": "no limit", "0.5T": "T/2", "0.25T": "T/4", "0.1T": "T/10", "0.05T": "T/20"}
SEEDS, SLOW_SEEDS, QUICK_SEEDS = 20, 10, 2
"""Trials of everything, of what takes longest, and in a quick run."""
PRINTED = ", printed price"
PRICED = {"pacing": "paper"}
OPT = "hindsight OPT"
DEFAULT = "default"
CLOSE = 1.0  # gain % that the default may be below the best of the others


class Entrant(NamedTuple):
    """A policy with its parameters."""

    policy: str
    parameters: Mapping[str, Any] = {}


def names(kind: str) -> dict[str, str]:
    """Return what policies are called where rewards are Linear or Logistic.

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


def count(quick: bool, *, slow: bool = False) -> int:
    """Return how many trials there are of everything, or of what is slow."""
    return QUICK_SEEDS if quick else SLOW_SEEDS if slow else SEEDS


def trials_with(
    entrants: Iterable[Entrant],
    budgets: Iterable[str],
    seeds: int,
    world: str,
    worlds: Sequence[Mapping[str, Any]] = ({},),
    feedback: str = "full",
) -> list[Trial]:
    """Return the trials of these entrants, with their paths."""
    budgets = list(budgets)
    return [
        trial
        for policy, parameters in entrants
        for trial in trials_of(
            [policy],
            budgets,
            seeds,
            worlds,
            world=world,
            feedbacks=[feedback],
            parameters=parameters,
            trace="" if policy == "opt" else "path",
        )
    ]


def named(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Return the trials with who it was (`who`) and the budget (`limit`) as figures call them."""
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


def compare(frame: pl.DataFrame, one: str, other: str, value: str = "gain") -> tuple[float, float]:
    """Return how much more `one` has than `other`, paired by seed: the mean and its standard error."""
    return paired(frame, one, other, value, by="who")


def default_is_best(parts: Mapping[str, pl.DataFrame], kind: str, where: str) -> Finding:
    """Judge whether the default, which chooses its representation itself, is at least the best of the others less 1."""
    short, texts = [], []
    for label, part in parts.items():
        for b in both_ran(part, DEFAULT, kind):
            here = part.filter(asked_budget=b)
            others = ran(here, kind, f"Tree{kind}", "BestReject")
            best = max(others, key=lambda who: mean_of(here, "gain", who=who))
            behind, error = compare(here, DEFAULT, best)
            short.append(behind >= -CLOSE)
            texts.append(f"{label}{BUDGETS[b]} {difference((behind, error))} ({best})")
    return Finding(
        f"The default gains at most {CLOSE:g} less than the best of {kind}, Tree{kind} and BestReject ({where}).",
        "deferkit",
        f"Gain %, default less the best of them: {', '.join(texts)}.",
        share_verdict(short),
    )


def difference(found: tuple[float, float], digits: int = 1) -> str:
    """Return a difference with its standard error as text.

    >>> difference((1.26, 0.04))
    '+1.3 (± 0.0)'
    """
    return f"{round(found[0], digits) + 0.0:+,.{digits}f} (± {found[1]:,.{digits}f})"


def surely(found: tuple[float, float]) -> bool:
    """Return whether a difference is above 0 by more than two standard errors."""
    return found[0] > 2 * found[1]


def not_below(found: tuple[float, float]) -> bool:
    """Return whether a difference is not below 0 by more than two standard errors."""
    return found[0] >= -2 * found[1]


def share_verdict(held: Iterable[bool]) -> str:
    """Return the verdict on a claim about several settings.

    >>> share_verdict([True, True]), share_verdict([True, False]), share_verdict([False])
    ('holds', 'holds in part', 'does not hold')
    """
    each = list(held)
    return HOLDS if each and all(each) else PARTLY if any(each) else FAILS


def at_budgets(frame: pl.DataFrame, who: str, value: str, digits: int = 1) -> str:
    """Return the means of someone at all budgets as text."""
    there = [b for b in present(frame) if not frame.filter(who=who, asked_budget=b)[value].drop_nans().is_empty()]
    each = [f"{BUDGETS[b]} {mean_of(frame, value, who=who, asked_budget=b):.{digits}f}" for b in there]
    return ", ".join(each)


def tasks(frame: pl.DataFrame) -> str:
    """Return how many tasks there are."""
    counts = sorted(set(frame["at"].list.last().drop_nulls().to_list()))
    return " and ".join(f"{n:,.0f}" for n in counts)


def budgets_text(frame: pl.DataFrame) -> str:
    """Return how many budgets there are."""
    n = len(present(frame))
    return "one budget" if n == 1 else f"{n} budgets"


def remark(world: str, given: Mapping[str, Any]) -> str:
    """Return what has to be said wherever these data are shown."""
    try:
        return make_world(world, given).draw(0).remark
    except MissingData:
        return "the data are not here, so that what has to be said of them is not known"


def subtitle(frame: pl.DataFrame, said: str) -> list[str]:
    """Return number of tasks, trials and seeds, and what has to be said."""
    trials = seeds_text(frame, "who")
    last = int(max(frame["seed"]))
    first = f"T = {tasks(frame)}; mean ± sd over {trials} (seeds 0 to {last}: the people in another order)"
    return [first, said] if said else [first]


def by_budget(frame: pl.DataFrame, value: str, y_title: str, *, among: Sequence[str], width: int = 400) -> Any:
    """Return lines over the budgets, the smallest at the left."""
    x = alt.X("limit:O", title="budget", sort=list(BUDGETS.values())[::-1], axis=alt.Axis(labelAngle=0))
    shown = over_trials(frame, ["who", "limit"], value).filter(pl.col("mean").is_not_null())
    return bands(
        shown, x=x, y_title=y_title, by="who", among=among, width=width, y_scale=alt.Scale(zero=False, padding=14)
    )


def over_time(frame: pl.DataFrame, value: str, y_title: str, *, among: Sequence[str], **given: Any) -> Any:
    """Return lines over the tasks, from a frame with a row for each point."""
    x = alt.X("at:Q", title="tasks", axis=alt.Axis(format="~s"))
    dash = given.get("dash")
    lines = over_trials(frame, ["who", "at", *([dash] if dash else [])], value)
    if dash:  # too many lines for bands
        lines = lines.with_columns(low="mean", high="mean")
    return bands(lines, x=x, y_title=y_title, by="who", among=among, points=False, **given)


def tables_by_budget(frame: pl.DataFrame, prefix: str = "") -> dict[str, pl.DataFrame]:
    """Return gain, per cent of OPT and spending, who against budget."""
    result = {}
    for value, what in (("gain", "Gain %"), ("pct_opt", "% of hindsight OPT"), ("spent_pct", "Spent, % of the budget")):
        rows = frame.filter(pl.col("asked_budget") != "inf") if value == "spent_pct" else frame
        if len(rows):
            result[f"{prefix}{what}, by budget (mean ± sd)"] = wide(rows, value)
    return result


def wide(frame: pl.DataFrame, value: str) -> pl.DataFrame:
    """Return means ± standard deviations with a column for each budget."""
    return pivot(frame, "who", "limit", value).rename({"who": "policy"})
