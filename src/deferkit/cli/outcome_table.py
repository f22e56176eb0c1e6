"""Outcomes of policies over trials: as rows, and as a table."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.table import Table

from deferkit.cli.tables import number, plain_table
from deferkit.study.achievable import with_shares
from deferkit.study.trial import FIGURES

SMALL = 100  # a sum of rewards below this is shown with decimals


def summaries(frame: pl.DataFrame, policies: Sequence[str]) -> list[dict[str, Any]]:
    """Return, for each policy, mean and standard deviation over trials of all that is measured; None if unknown.

    >>> names = (*FIGURES, "model", "seed", "asked_budget", "representation")
    >>> frame = pl.DataFrame({"policy": ["a", "a"], **{name: [1.0, 3.0] for name in names}})
    >>> row = summaries(frame, ["a"])[0]
    >>> row["gain"], round(row["gain_sd"], 3)
    (2.0, 1.414)
    """
    result = []
    frame = with_shares(frame)
    for policy in policies:
        own = frame.filter(policy=policy)
        row: dict[str, Any] = {"policy": policy}
        for name in (*FIGURES, "of_achievable"):
            values = own[name].drop_nans().drop_nulls()
            row[name], row[f"{name}_sd"] = values.mean(), values.std()
        for suffix in ("", "_sd"):  # a fraction, as the library and the service have it; defer_rate is in per cent
            rate = row[f"defer_rate{suffix}"]
            row[f"deferral_rate{suffix}"] = None if rate is None else rate / 100
        row["representation"] = own["representation"][0]
        result.append(row)
    return result


def has_achievable(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether it is known what was achievable."""
    return any(row["of_achievable"] is not None for row in rows)


def legend(rows: Sequence[dict[str, Any]], *, truth_known: bool) -> str:
    """Return the legend of the table; where the truth is known, OPT is what is achievable."""
    said = "mean ± sd over trials, µs a step; gain = (reward − ModelOnly)/(OPT − ModelOnly)"
    if has_achievable(rows):
        said += "; ach. = (reward − ModelOnly)/(achievable − ModelOnly)."
        if not truth_known:
            said += (
                " OPT knows every outcome beforehand; achievable is what a rule of these columns could get, from"
                " predictions that have not seen the row"
            )
    return said


def outcome_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of policies."""
    known = has_achievable(rows)  # where it is, it says more than per cent of a reward that the model has by itself
    share, shown = ("of_achievable", "ach. %") if known else ("pct_opt", "% of OPT")
    table = plain_table(title, ("policy",), ("reward", shown, "gain %", "regret", "spent %", "asked %", "µs"))
    digits = 0 if max(abs(row["reward"] or 0.0) for row in rows) >= SMALL else 2
    for row in rows:
        us = row["us_per_step"]
        table.add_row(
            row["policy"],
            number(row["reward"], digits),
            number(row[share], 1 if known else 2),
            number(row["gain"], 1, row["gain_sd"]),
            number(row["regret"], digits),
            number(row["spent_pct"], 1),
            number(row["defer_rate"], 1),
            number(us, 2 if (us or 0) < 10 else 1 if us < 100 else 0).replace(",", ""),  # the line is full
        )
    return table
