"""Statistics of trials: means, paired differences and slopes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Difference = tuple[float, float]
"""A mean difference and its standard error."""


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
    return wide.rename({name: with_separators(name) for name in wide.columns[1:]})


def with_separators(name: str) -> str:
    """Return a number with separators for thousands; anything else as it is.

    >>> with_separators("32000.0"), with_separators("0.25"), with_separators("full")
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


def compare_paired(frame: pl.DataFrame, one: str, other: str, value: str = "gain", *, by: str = "policy") -> Difference:
    """Return the mean difference between two policies, paired by seed, and its standard error.

    >>> frame = pl.DataFrame({"policy": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1], "gain": [3.0, 5.0, 1.0, 1.0]})
    >>> compare_paired(frame, "a", "b")
    (3.0, 1.0)
    """
    both = frame.filter(**{by: one}).join(frame.filter(**{by: other}), on="seed", suffix="_other")
    return mean_and_error((both[value] - both[f"{value}_other"]).to_numpy())


def mean_and_error(values: NDArray[np.float64]) -> Difference:
    """Return the mean and its standard error; that of one value is infinite."""
    if not len(values):
        raise ValueError("nothing was measured")
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.inf
    return float(values.mean()), error


def as_float(value: Any) -> float:
    """Return an aggregate of a column as a float; its minimum, maximum or mean may have any type for a type checker."""
    return float(value)


def difference(found: Difference, digits: int = 1) -> str:
    """Return a difference with its standard error as text.

    >>> difference((1.26, 0.04))
    '+1.3 (± 0.0)'
    """
    return f"{round(found[0], digits) + 0.0:+,.{digits}f} (± {found[1]:,.{digits}f})"


def surely(found: Difference) -> bool:
    """Return whether a difference is above 0 by more than two standard errors."""
    return found[0] > 2 * found[1]


def not_below(found: Difference) -> bool:
    """Return whether a difference is not below 0 by more than two standard errors."""
    return found[0] >= -2 * found[1]


def paired_cells(
    frame: pl.DataFrame, cells: Sequence[str], one: str, other: str, value: str = "gain", *, by: str = "policy"
) -> dict[str, Difference]:
    """Return the difference between two policies in each cell where both were run, paired by seed.

    Args:
        frame: Trials, a row each.
        cells: Columns whose values make a cell; its label is their values with spaces between.
        one: The value of `by` that is compared.
        other: The one that it is compared with.
        value: The column of numbers.
        by: The column of names.

    >>> rows = {"policy": ["a", "b"] * 2, "seed": [0, 0, 1, 1], "budget": ["0.1T"] * 4, "gain": [3.0, 1.0, 5.0, 1.0]}
    >>> paired_cells(pl.DataFrame(rows), ["budget"], "a", "b")
    {'0.1T': (3.0, 1.0)}
    """
    return {
        " ".join(map(str, key)): compare_paired(part, one, other, value, by=by)
        for key, part in frame.group_by(cells, maintain_order=True)
        if {one, other} <= set(part[by])
    }


def cells_text(cells: Mapping[str, Difference], digits: int = 1) -> str:
    """Return differences by cell as text.

    >>> cells_text({"0.1T": (3.0, 1.0), "0.25T": (2.0, 0.5)})
    '0.1T +3.0 (± 1.0), 0.25T +2.0 (± 0.5)'
    """
    return ", ".join(f"{label} {difference(found, digits)}" for label, found in cells.items())


def power_of(at: NDArray[np.float64], regret: NDArray[np.float64]) -> float:
    """Return the slope of log regret over log t; NaN where a regret is not above 0, or there are fewer than two.

    >>> round(power_of(np.array([1.0, 4.0, 9.0]), np.array([2.0, 4.0, 6.0])), 3)
    0.5
    """
    if len(regret) < 2 or regret.min() <= 0:
        return math.nan
    return float(np.polyfit(np.log(at), np.log(regret), 1)[0])


TOLERANCE = 1e-9  # what sums of rewards lose to rounding, of their size


def pool_adjacent(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nearest values that never fall: neighbours that do are pooled into their weighted mean.

    >>> pool_adjacent([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0])
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values, weights, strict=True):
        mean, heavy, count = float(value), float(weight), 1
        while pools and pools[-1][0] > mean:
            other, more, n = pools.pop()
            mean, heavy, count = (other * more + mean * heavy) / (more + heavy), more + heavy, count + n
        pools.append((mean, heavy, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def slopes(budgets: Sequence[float], rewards: Sequence[float]) -> list[float]:
    """Return the marginal reward of budget between consecutive points: never increasing, never below 0.

    These are the slopes of the lowest curve above all points that bends down only. What lies on it can be had: by
    taking one of two budgets at random, or for a part of the time each.

    >>> slopes([0.0, 1.0, 2.0, 4.0], [0.0, 1.0, 3.0, 2.0])
    [1.5, 1.5, 0.0]
    """
    widths = np.diff(np.asarray(budgets, dtype=float))
    rises = np.diff(np.asarray(rewards, dtype=float)) / widths
    return [max(0.0, -slope) for slope in pool_adjacent((-rises).tolist(), widths.tolist())]


def rising_of(gained: Sequence[float]) -> list[float]:
    """Return a curve that never falls: more budget does no harm, and what looks so is chance.

    >>> rising_of([0.0, 3.0, 2.0])
    [0.0, 2.5, 2.5]
    """
    return pool_adjacent(gained, [1.0] * len(gained))


def crossing(budgets: Sequence[float], gained: Sequence[float], level: float) -> float | None:
    """Return the smallest budget that gains so much, on straight lines between points; None if none does.

    >>> crossing([0.0, 10.0, 20.0], [0.0, 8.0, 10.0], 9.0), crossing([0.0, 10.0], [0.0, 8.0], 9.0)
    (15.0, None)
    """
    i = reached_at(gained, level)
    if i is None or i == 0:
        return None if i is None else float(budgets[0])
    rising = rising_of(gained)
    part = (min(level, rising[i]) - rising[i - 1]) / (rising[i] - rising[i - 1])
    return float(budgets[i - 1] + part * (budgets[i] - budgets[i - 1]))


def reached_at(gained: Sequence[float], level: float) -> int | None:
    """Return the place of the first point of the rising curve that gains so much; None if none does.

    >>> reached_at([0.0, 8.0, 10.0], 9.0), reached_at([0.0, 8.0], 9.0)
    (2, None)
    """
    # what a sum of rewards loses to rounding shall not make a level unreachable
    enough = level - TOLERANCE * abs(level)
    return next((i for i, reached in enumerate(rising_of(gained)) if reached >= enough), None)
