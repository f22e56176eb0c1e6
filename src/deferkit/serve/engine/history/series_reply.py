"""The series of a policy as a reply: columns over time."""

from typing import Any

import msgspec

from deferkit.serve.domain.money import MICRO
from deferkit.serve.engine.history.log_fold import Figures, LogFold
from deferkit.types import MODEL

Column = list[float]
Gaps = list[float | None]


class SeriesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Figures at the end of each of some buckets of time, which follow each other. Counts and sums are cumulative."""

    complete: bool  # false while a long log is still being read
    read: int  # records of the log that are in it
    records: int  # of the whole log
    width_s: float
    start: Column  # of each bucket, seconds since 1970
    decisions: list[int]
    deferred: list[int]
    routes: dict[str, list[int]]
    reasons: dict[str, list[int]]
    posted: dict[str, Column]
    reserved: dict[str, Column]
    plan: dict[str, Column | None]  # what even spending over the horizon would have spent by then; None: no limit
    price: dict[str, Gaps]
    gain: Column
    gain_error: Gaps


def series_reply(fold: LogFold, buckets: int, records: int) -> SeriesReply:
    """Return the series of a policy.

    Args:
        fold: What was read of its log.
        buckets: How many at most.
        records: How long the log is.
    """
    fold.close()
    width, starts, rows = fold.series.spread(buckets)
    resources = list(fold.accounts)
    return SeriesReply(
        complete=fold.seq >= records,
        read=fold.seq,
        records=max(records, fold.seq),
        width_s=width / MICRO,
        start=[start / MICRO for start in starts],
        decisions=[row.decisions for row in rows],
        deferred=[row.decisions - row.routes.get(MODEL, 0) for row in rows],
        routes={name: [row.routes.get(name, 0) for row in rows] for name in deciders(fold)},
        reasons={name: [row.reasons.get(name, 0) for row in rows] for name in fold.reasons},
        posted={name: [row.accounts[name].posted / MICRO for row in rows] for name in resources},
        reserved={name: [row.accounts[name].reserved / MICRO for row in rows] for name in resources},
        plan={name: plan_of(fold, name, rows) for name in resources},
        price={name: [None if row.price is None else row.price[name] for row in rows] for name in resources},
        gain=[row.gain for row in rows],
        gain_error=[row.gain_error for row in rows],
    )


def deciders(fold: LogFold) -> tuple[str, ...]:
    """Return the model and the experts."""
    return () if fold.spec is None else fold.spec.deciders


def plan_of(fold: LogFold, resource: str, rows: list[Figures]) -> Column | None:
    """Return what would have been spent at each row if the total of then was spent evenly over the horizon."""
    spec: Any = fold.spec
    horizon = spec.budget[resource].horizon
    if horizon is None or any(row.accounts[resource].total is None for row in rows):
        return None
    totals = [row.accounts[resource].total or 0 for row in rows]
    return [total / MICRO * min(1.0, row.decisions / horizon) for total, row in zip(totals, rows, strict=True)]
