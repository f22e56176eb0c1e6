"""The places of reviewers at a task."""

from deferkit.serve.storage.rows import CLAIMED, CLOSED, WAITING, DecisionRow
from deferkit.serve.work import Work


def close(work: Work, row: DecisionRow) -> None:
    """Close the seats of a task that needs no reviewer any more. Their epochs stay: late answers are refused."""
    seats = work.seats.get((row.policy, row.task), [])
    if any(seat.state in (WAITING, CLAIMED) for seat in seats):
        work.put_seats([seat._replace(state=CLOSED) if seat.state in (WAITING, CLAIMED) else seat for seat in seats])
