"""The series of a policy as a reply: columns over time."""

from collections.abc import Mapping

import msgspec

from deferkit.serve.domain.money import MICRO
from deferkit.serve.engine.history.log_fold import Figures, LogFold
from deferkit.serve.engine.history.spending_plan import PlanPoint, planned_spending
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
    plan: dict[str, Gaps | None]  # even spending over the tasks of the horizon, or of each period; None: no limit
    price: dict[str, Gaps]
    gain: Column
    gain_error: Gaps


def series_reply(
    fold: LogFold, buckets: int, records: int, tasks_left: Mapping[str, float | None] | None = None
) -> SeriesReply:
    """Return the series of a policy.

    Args:
        fold: What was read of its log.
        buckets: How many at most.
        records: How long the log is.
        tasks_left: How many tasks are expected until the end of the current period, by resource that has one.
    """
    fold.close()
    width, starts, rows = fold.series.spread(buckets)
    resources = list(fold.accounts)
    left = (tasks_left or {}) if fold.seq >= records else None
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
        plan={name: plan_of(fold, name, rows, None if left is None else left.get(name) or 0.0) for name in resources},
        price={name: [None if row.price is None else row.price[name] for row in rows] for name in resources},
        gain=[row.gain for row in rows],
        gain_error=[row.gain_error for row in rows],
    )


def deciders(fold: LogFold) -> tuple[str, ...]:
    """Return the model and the experts."""
    return () if fold.spec is None else fold.spec.deciders


def plan_of(fold: LogFold, resource: str, rows: list[Figures], left: float | None) -> Gaps | None:
    """Return the planned spending at each row; None if the resource has no limit.

    Args:
        fold: What was read of the log.
        resource: Whose plan it is.
        rows: The rows of the series.
        left: Tasks that are still expected in the current period; None if that is not known, so that it has no plan.
    """
    if fold.spec is None or fold.accounts[resource].total is None:
        return None
    budget, current = fold.spec.budget[resource], fold.period_tasks.get(resource)
    found: Gaps = []
    for row in rows:
        tasks = row.period_tasks.get(resource)
        to_come = 0.0 if tasks is None or tasks is not current else left
        point = PlanPoint(row.decisions, row.accounts[resource], row.periods.get(resource), tasks)
        found.append(None if to_come is None else planned_spending(budget, point, to_come))
    return found
