"""What the log has told of a policy so far: the figures now, and where the spending of late began."""

from typing import NamedTuple

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO
from deferkit.serve.engine.forecast import recent_from
from deferkit.serve.engine.history.log_fold import Figures, LogFold


class Past(NamedTuple):
    """What the log has told so far."""

    figures: Figures
    recent: tuple[float, Figures]  # where the spending of late begins: seconds, and the figures then


def past_of(fold: LogFold) -> Past | None:
    """Return what a fold tells of the past; None before the first decision."""
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
    return Past(figures, (found[0] / MICRO, found[1]))
