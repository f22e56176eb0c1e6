"""Tasks that were decided, the latest first, as far as they match a filter."""

from typing import NamedTuple

from deferkit.serve.domain.rows import DONE, DecisionRow
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.row_codec import decision_row, to_json_column

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
    """A decision, and who has answered."""

    decision: DecisionRow
    reviewers: list[str]


def page_of_tasks(
    database: Database, policy: int, wanted: TaskFilter, *, before: int = LATEST, limit: int
) -> list[ListedTask]:
    """Return a page of tasks, the latest first.

    Parameters
    ----------
    database
        Where they are.
    policy
        Number of the policy.
    wanted
        Which ones.
    before
        The number of the last decision of the page before.
    limit
        How many at most.
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
    """Return decisions with who has answered."""
    keys = [row.task for row in decisions]
    by_task: dict[str, list[str]] = {}
    for task, reviewer in database.reader().run("reviewers_of_tasks", policy=policy, keys=keys, state=DONE):
        by_task.setdefault(task, []).append(reviewer)
    return [ListedTask(row, by_task.get(row.task, [])) for row in decisions]
