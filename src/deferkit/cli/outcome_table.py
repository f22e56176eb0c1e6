"""Outcomes of policies over trials: as rows, and as a table."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.table import Table

from deferkit.cli.tables import number, plain_table
from deferkit.study.achievable import with_shares
from deferkit.study.trial import FIGURES

UNSPENT_PCT = 50  # of the budget: a learner that leaves more says why
AS_GOOD = {
    "model-only": "asking brings nothing",
    "arbitrary-human": "",
    "random": "",
    "threshold": "",
    "best-reject": "it knows its best threshold in advance",
    "confidence-quantile": "",
}  # rules that need no learner, the simplest first, and what to know about one
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


def remarks_on_default(frame: pl.DataFrame, policies: Sequence[str], default: str = "default") -> list[str]:
    """Return remarks on the default: the reason if it left most of its budget, and a simple rule that did as well.

    A rule did as well if the default was ahead by no more than two standard errors of the paired differences.

    >>> rows = {"policy": ["default", "best-reject"], "seed": [0, 0], "reward": [7.0, 7.5], "spent_pct": [3.0, 90.0]}
    >>> remarks = {"remark": ["asked 3 of 100; 97 % of the budget unspent: no cost is known yet.", None]}
    >>> for said in remarks_on_default(pl.DataFrame(rows | remarks), ["default", "best-reject"]):
    ...     print(said)
    default asked 3 of 100; 97 % of the budget unspent: no cost is known yet.
    best-reject does as well here (it knows its best threshold in advance).
    """
    own = frame.filter(policy=default).sort("seed")
    said = []
    spent = own["spent_pct"].drop_nans().drop_nulls()
    left = own.filter((pl.col("spent_pct") < 100 - UNSPENT_PCT) & (pl.col("remark") != ""))
    if len(left) and float(spent.to_numpy().mean()) < 100 - UNSPENT_PCT:
        of = "" if len(own) == 1 else f" in the stream of seed {left['seed'][0]}"
        said.append(f"{default}{of} {left['remark'][0]}")
    for rule, note in AS_GOOD.items() if len(own) else ():
        if rule in policies:
            ahead = (own["reward"] - frame.filter(policy=rule).sort("seed")["reward"]).to_numpy()
            error = float(ahead.std(ddof=1)) / len(ahead) ** 0.5 if len(ahead) > 1 else 0.0
            if float(ahead.mean()) <= 2 * error:
                said.append(f"{rule} does as well here{f' ({note})' if note else ''}.")
                break
    return said


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
