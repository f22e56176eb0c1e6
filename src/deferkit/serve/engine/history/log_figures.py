"""Figures of a policy from its log: now, and where recent spending began."""

from bisect import bisect_right
from operator import itemgetter
from typing import NamedTuple

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO
from deferkit.serve.engine.forecast import recent_from
from deferkit.serve.engine.history.log_fold import Figures, LogFold


class LogFigures(NamedTuple):
    """Figures of a policy at the end of what was read of its log."""

    figures: Figures
    recent: tuple[float, Figures]  # where recent spending begins: seconds, and the figures then
    buckets: tuple[tuple[int, float], ...] = ()  # of the series: decisions at the end, and seconds at the start

    def time_of(self, decision: int) -> float | None:
        """Return about when a decision was made, in seconds since 1970; None if that is not known.

        >>> LogFigures(None, None, ((3, 10.0), (7, 20.0))).time_of(3)
        20.0
        """
        place = bisect_right(self.buckets, decision, key=itemgetter(0))
        return self.buckets[place][1] if place < len(self.buckets) else None


def log_figures_of(fold: LogFold) -> LogFigures | None:
    """Return the figures of a fold; None before the first decision."""
    if not fold.decisions:
        return None
    figures = fold.figures()
    fold.close()
    begin = recent_from(figures.decisions)
    found = fold.series.before(lambda row: row.decisions > begin)
    if found is None:  # all in one bucket, or from the start on
        nothing = {name: Account(account.total) for name, account in figures.accounts.items()}
        found = fold.series.starts[0], figures._replace(decisions=0, accounts=nothing)
    else:
        found = found[0] + fold.series.width, found[1]  # the figures are those of the end of a bucket
    series = zip(fold.series.rows, fold.series.starts, strict=True)
    buckets = tuple((row.decisions, start / MICRO) for row, start in series)
    return LogFigures(figures, (found[0] / MICRO, found[1]), buckets)
