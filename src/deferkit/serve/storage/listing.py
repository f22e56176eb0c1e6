"""Listings: the review queue and tasks, page by page."""

from typing import NamedTuple

from deferkit.serve.domain.rows import DONE, DecisionRow, SeatRow
from deferkit.serve.storage.connections import decision_row, from_json_column, seat_row, to_json_column
from deferkit.serve.storage.database import Database


class QueuedSeat(NamedTuple):
    """A seat of the review queue; the next page begins after its priority, time, task and number."""

    task: str
    seat: int
    state: str
    expert: str
    priority: float
    created: int
    lease_until: int
    reviewer: str | None
    deadline: int | None
    declines: int  # reviewers who did not want the task

    @property
    def cursor(self) -> str:
        """Where the next page begins."""
        return f"{self.priority!r} {self.created} {self.seat} {self.task}"


class ReviewerQueue(NamedTuple):
    """The seats that wait or are claimed, from one reviewer's side."""

    waiting: int  # that it could claim now
    claimed: int  # that others hold, and it could claim else
    next_free_at: int | None  # when the first lease of those ends
    declined: int  # that it did not want
    answered: int  # at tasks where it holds another seat, or has answered


def page_of_queue(database: Database, policy: int, states: list[str], after: str, limit: int) -> list[QueuedSeat]:
    """Return a page of the seats that wait or are claimed, in the order in which they are offered.

    Args:
        database: Where they are.
        policy: Number of the policy.
        states: Of "waiting" and "claimed".
        after: The cursor of the last seat of the page before; "" for the first page.
        limit: How many at most.

    Raises:
        ValueError: `after` is no cursor.
    """
    priority, created, seat, task = after.split(" ", 3) if after else ("0", "0", "0", "")
    rows = database.reader().run(
        "page_of_queue",
        policy=policy,
        states=states,
        first=int(not after),
        priority=float(priority),
        created=int(created),
        task=task,
        seat=int(seat),
        limit=limit,
    )
    return [QueuedSeat(*row) for row in rows]


class HeldPage(NamedTuple):
    """A page of the seats that a reviewer holds."""

    seats: list[SeatRow]
    next: str | None  # where the following page begins


def page_of_held(
    database: Database, policy: int, reviewer: str, after: str, limit: int, *, most_bytes: int
) -> HeldPage:
    """Return a page of the seats that a reviewer holds, sorted by the end of their leases.

    Args:
        database: Where they are.
        policy: Number of the policy.
        reviewer: Who holds them.
        after: `next` of the page before; "" for the first page.
        limit: How many at most.
        most_bytes: What payloads and answers of the model have at most, together; a single seat may have more.

    Raises:
        ValueError: `after` is no cursor.
    """
    lease_until, seat, task = after.split(" ", 2) if after else ("0", "0", "")
    rows = database.reader().run(
        "held_seats",
        policy=policy,
        reviewer=reviewer,
        first=int(not after),
        lease_until=int(lease_until),
        task=task,
        seat=int(seat),
        limit=limit,
        bytes=most_bytes,
    )
    seats = [seat_row(row[:-1]) for row in rows]
    more = bool(rows) and len(rows) < rows[0][-1]
    return HeldPage(seats, f"{seats[-1].lease_until} {seats[-1].seat} {seats[-1].task}" if more else None)


def queue_of_reviewer(database: Database, policy: int, reviewer: str, now: int, *, late: bool) -> ReviewerQueue:
    """Return the counts of seats that a reviewer can and cannot claim, by reason.

    Args:
        database: Where the queue is.
        policy: Number of the policy.
        reviewer: Whose queue it is.
        now: The time, in microseconds.
        late: Whether tasks are offered beyond their deadline.
    """
    rows = database.reader().run("queue_of_reviewer", policy=policy, reviewer=reviewer, now=now, late=int(late))
    return ReviewerQueue(*rows[0])


def count_answers(database: Database, policy: int, reviewer: str) -> int:
    """Return the number of a reviewer's answers."""
    return int(database.reader().run("count_answers", policy=policy, reviewer=reviewer)[0][0])


def costs_since(database: Database, policy: int, reviewer: str, since: int) -> list[dict[str, int]]:
    """Return the costs of a reviewer's answers to claims since a time; empty for an answer without a cost."""
    rows = database.reader().run("costs_since", policy=policy, reviewer=reviewer, since=since)
    return [from_json_column(cost) or {} for (cost,) in rows]


LATEST = 2**62


class TaskFilter(NamedTuple):
    """Which tasks are wanted; '' is any."""

    state: str = ""
    route: str = ""
    reason: str = ""
    since: int = 0  # microseconds; decided then or later
    until: int = LATEST  # decided before
    search: str = ""  # in the id of the task, whether upper case or lower


class ListedTask(NamedTuple):
    """A decision with its reviewers."""

    decision: DecisionRow
    reviewers: list[str]


def page_of_tasks(
    database: Database, policy: int, wanted: TaskFilter, *, before: int = LATEST, limit: int
) -> list[ListedTask]:
    """Return a page of tasks, the latest first.

    Args:
        database: Where they are.
        policy: Number of the policy.
        wanted: Which ones.
        before: The number of the last decision of the page before.
        limit: How many at most.
    """
    # the reply is JSON without spaces, in which quotes of other texts are escaped
    said = f'"reason":{to_json_column(wanted.reason)}'.encode() if wanted.reason else b""
    values = wanted._asdict() | {"reason": said, "any_reason": int(not wanted.reason)}
    found = database.reader().run("page_of_tasks", policy=policy, before=before, limit=limit, **values)
    return with_reviewers(database, policy, [decision_row(row) for row in found])


def tasks_from(database: Database, policy: int, start: int, limit: int) -> list[ListedTask]:
    """Return a page of tasks, the oldest first, from the decision of this number on."""
    found = database.reader().run("tasks_from", policy=policy, start=start, limit=limit)
    return with_reviewers(database, policy, [decision_row(row) for row in found])


def with_reviewers(database: Database, policy: int, decisions: list[DecisionRow]) -> list[ListedTask]:
    """Return decisions with their reviewers."""
    keys = [row.task for row in decisions]
    by_task: dict[str, list[str]] = {}
    for task, reviewer in database.reader().run("reviewers_of_tasks", policy=policy, keys=keys, state=DONE):
        by_task.setdefault(task, []).append(reviewer)
    return [ListedTask(row, by_task.get(row.task, [])) for row in decisions]
