"""What policies came to over trials: as rows, and as a table."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.table import Table

from deferkit.cli.tables import number, plain_table
from deferkit.study.trial import FIGURES

SMALL = 100  # a sum of rewards below this is shown with decimals


def summaries(frame: pl.DataFrame, policies: Sequence[str]) -> list[dict[str, Any]]:
    """Return, for each policy, mean and standard deviation over trials of all that is measured; None if unknown.

    >>> frame = pl.DataFrame({"policy": ["a", "a"], **{name: [1.0, 3.0] for name in FIGURES}})
    >>> row = summaries(frame, ["a"])[0]
    >>> row["gain"], round(row["gain_sd"], 3)
    (2.0, 1.414)
    """
    result = []
    for policy in policies:
        row: dict[str, Any] = {"policy": policy}
        for name in FIGURES:
            values = frame.filter(policy=policy)[name].drop_nans().drop_nulls()
            row[name], row[f"{name}_sd"] = values.mean(), values.std()
        result.append(row)
    return result


def outcome_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of policies."""
    table = plain_table(title, ("policy",), ("reward", "% of OPT", "gain %", "regret", "spent %", "asked %", "µs"))
    digits = 0 if max(abs(row["reward"] or 0.0) for row in rows) >= SMALL else 2
    for row in rows:
        us = row["us_per_step"]
        table.add_row(
            row["policy"],
            number(row["reward"], digits),
            number(row["pct_opt"], 2),
            number(row["gain"], 1, row["gain_sd"]),
            number(row["regret"], digits),
            number(row["spent_pct"], 1),
            number(row["defer_rate"], 1),
            number(us, 2 if (us or 0) < 10 else 1 if us < 100 else 0).replace(",", ""),  # the line is full
        )
    return table
