"""What an experiment is: trials to run, a figure to draw, claims to judge."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.study.spec import Spec
from deferkit.study.store import Trial

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"
REGIMES = ("complementary", "dominant")
SETTINGS = ("asked_budget", "feedback", "regime", "horizon", "noise", "family", "kind", "world_model", "order")
"""Columns that tell settings apart, in one world or another."""


class Finding(NamedTuple):
    """A claim, what was measured, and whether it holds."""

    claim: str
    source: str  # where the claim stands: "paper" or "deferkit"
    measured: str
    verdict: str


class Experiment(NamedTuple):
    """An experiment; `quick` everywhere means fewer trials of the same thing."""

    name: str
    title: str
    what: str  # a sentence or two on what is done and shown
    trials: Callable[[bool], list[Trial]]
    figure: Callable[[pl.DataFrame], alt.TopLevelMixin]
    findings: Callable[[pl.DataFrame], list[Finding]]
    tables: Callable[[pl.DataFrame], dict[str, pl.DataFrame]]  # by caption


def trials_of(
    policies: Iterable[str],
    budgets: Iterable[float | str],
    seeds: int,
    worlds: Iterable[Mapping[str, Any]] = ({},),
    *,
    world: str = "synthetic",
    feedbacks: Iterable[str] = ("full",),
    trace: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> list[Trial]:
    """Return every combination, for seeds 0 to seeds − 1.

    >>> len(trials_of(["default", "paper"], [500, 1000], 3))
    12
    """
    budgets, feedbacks, policies = list(budgets), list(feedbacks), list(policies)
    specs = [
        Spec.of(
            world,
            given,
            policy=policy,
            budget=str(budget),
            feedback=feedback,
            trace=trace,
            policy_parameters=dict(parameters or {}),
        )
        for given in worlds
        for budget in budgets
        for policy in policies
        for feedback in feedbacks
    ]
    return [(spec, seed) for spec in specs for seed in range(seeds)]


def over_trials(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Return mean, standard deviation, their band and the number of trials for each group.

    >>> frame = pl.DataFrame({"policy": ["a", "a"], "gain": [1.0, 3.0]})
    >>> over_trials(frame, ["policy"], "gain").rows()
    [('a', 2.0, 1.4142135623730951, 2, 0.5857864376269049, 3.414213562373095)]
    """
    known = pl.col(value).fill_nan(None)
    grouped = frame.group_by(by, maintain_order=True).agg(
        known.mean().alias("mean"), known.std().alias("sd"), known.count().alias("trials")
    )
    spread = pl.col("sd").fill_null(0.0)  # of one trial nothing is known
    return grouped.with_columns(low=pl.col("mean") - spread, high=pl.col("mean") + spread)


def cell(mean: float | None, sd: float | None, digits: int) -> str:
    """Return a mean and its standard deviation over trials as text.

    >>> cell(2.0, 1.0, 1), cell(2.0, None, 1), cell(None, None, 1)
    ('2.0 ± 1.0', '2.0', '–')
    """
    if mean is None:
        return "–"
    return f"{mean:,.{digits}f}" + ("" if sd is None else f" ± {sd:,.{digits}f}")


def cell_of(frame: pl.DataFrame, value: str, digits: int) -> str:
    """Return the mean ± standard deviation of a column over all rows."""
    row = over_trials(frame.with_columns(all=pl.lit(0)), ["all"], value).row(0, named=True)
    return cell(row["mean"], row["sd"], digits)


def pivot(frame: pl.DataFrame, rows: str, columns: str, value: str, digits: int = 1) -> pl.DataFrame:
    """Return a table of means ± standard deviations over trials.

    >>> frame = pl.DataFrame({"policy": ["a", "a"], "budget": [500.0, 500.0], "gain": [1.0, 3.0]})
    >>> pivot(frame, "policy", "budget", "gain").rows()
    [('a', '2.0 ± 1.4')]
    """
    summary = over_trials(frame, [rows, columns], value).with_columns(
        cell=pl.struct("mean", "sd").map_elements(lambda s: cell(s["mean"], s["sd"], digits), return_dtype=pl.String)
    )
    wide = summary.pivot(on=columns, index=rows, values="cell")
    return wide.rename({name: shown(name) for name in wide.columns[1:]})


def shown(name: str) -> str:
    """Return a number with separators for thousands; anything else as it is.

    >>> shown("32000.0"), shown("0.25"), shown("full")
    ('32,000', '0.25', 'full')
    """
    try:
        number = float(name)
    except ValueError:
        return name
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


def mean_of(frame: pl.DataFrame, value: str, **where: Any) -> float:
    """Return the mean of a column over the rows where these columns have these values."""
    rows = frame.filter(**where)[value].drop_nulls().drop_nans()
    if rows.is_empty():
        raise ValueError(f"nothing was measured of {value} for {where}")
    return as_float(rows.mean())


def paired(
    frame: pl.DataFrame, one: str, other: str, value: str = "gain", *, by: str = "policy"
) -> tuple[float, float]:
    """Return how much more of something a policy has than another, seed by seed: the mean and its standard error.

    >>> frame = pl.DataFrame({"policy": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1], "gain": [3.0, 5.0, 1.0, 1.0]})
    >>> paired(frame, "a", "b")
    (3.0, 1.0)
    """
    both = frame.filter(**{by: one}).join(frame.filter(**{by: other}), on="seed", suffix="_other")
    return mean_and_error((both[value] - both[f"{value}_other"]).to_numpy())


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and its standard error; that of one value is infinite."""
    if not len(values):
        raise ValueError("nothing was measured")
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.inf
    return float(values.mean()), error


def as_float(value: Any) -> float:
    """Return what a column came to as a number: its least, largest or mean may be anything to a type checker."""
    return float(value)


def seeds_text(frame: pl.DataFrame, variant: str = "policy") -> str:
    """Say how many trials there are for each setting."""
    settings = [name for name in SETTINGS if name in frame.columns]
    counts = frame.group_by(variant, *settings).len()["len"]
    low, high = as_float(counts.min()), as_float(counts.max())
    return f"{high:.0f} trials" if low == high else f"{low:.0f} to {high:.0f} trials"
