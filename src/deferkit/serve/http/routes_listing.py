"""Routes that list what was decided."""

from typing import Annotated, Literal

import msgspec
from litestar import Response, get
from litestar.params import QueryParameter

from deferkit.serve.domain.log_records import DecisionReply
from deferkit.serve.domain.money import MICRO, all_in_reply
from deferkit.serve.domain.policy_spec import NO_CONTROL
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.http.route_support import AnyRequest, Limit, PolicyName, about, sent
from deferkit.serve.http.routes_queue import read_policy_row
from deferkit.serve.storage.store import Store
from deferkit.serve.storage.task_listing import ListedTask, TaskFilter, page_of_tasks
from deferkit.types import MODEL

Time = Annotated[float, msgspec.Meta(ge=0, le=1e11, description="seconds since 1970")]
State = Annotated[
    Literal["", "model", "open", "posted", "void"],
    msgspec.Meta(description="model, open, posted or void"),
    QueryParameter(name="state"),
]
Text = Annotated[str, msgspec.Meta(max_length=128, pattern=NO_CONTROL, description="a part of the task's id")]
Route = Annotated[str, msgspec.Meta(max_length=64, pattern=NO_CONTROL, description="who decides")]
Reason = Annotated[str, msgspec.Meta(max_length=64, pattern=NO_CONTROL, description="why, as in a decision")]
Before = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1, description="`next` of the page before")]


class TaskLine(msgspec.Struct, frozen=True, kw_only=True):
    """A task in a listing; amounts are numbers, or by resource where there are several."""

    task: str
    id: int
    at: float
    route: str
    reason: str
    state: str  # model, open, posted or void
    final: str | None  # whose answer is used; null while it is open
    price: float | dict[str, float]
    estimates: dict[str, float]
    expected_gain: float  # of the route, above the model
    cost: float | dict[str, float] | None
    rewards: dict[str, float]
    reviewers: list[str]  # who have answered


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks, the latest first; `next` is where the following page begins."""

    tasks: list[TaskLine]
    next: int | None


@get("/v1/policies/{name:str}/tasks", opt=about("tasks", "admin", "read"))
async def list_tasks(
    request: AnyRequest,
    name: PolicyName,
    state_: State = "",
    route: Route = "",
    reason: Reason = "",
    since: Time = 0.0,
    until: Time = 1e11,
    search: Text = "",
    before: Before = 2**53 - 1,
    limit: Limit = 100,
) -> Response[TaskPage]:
    """List decided tasks that match all that is given, the latest first."""
    wanted = TaskFilter(state_, route, reason, int(since * MICRO), int(until * MICRO), search)

    def read(store: Store, row: PolicyRow) -> list[ListedTask]:
        return page_of_tasks(store.database, row.id, wanted, before=before, limit=limit)

    found = await read_policy_row(request, name, read)
    following = found[-1].decision.id if len(found) == limit else None
    return sent(TaskPage(tasks=[line_of(each) for each in found], next=following), TaskPage)


def line_of(listed: ListedTask) -> TaskLine:
    """Return a task for a reply."""
    row = listed.decision
    said = msgspec.json.decode(bytes(row.reply), type=DecisionReply)
    return TaskLine(
        task=row.task,
        id=row.id,
        at=row.at / MICRO,
        route=row.route,
        reason=said.reason,
        state=row.state,
        final=row.final,
        price=said.price,
        estimates=said.estimates,
        expected_gain=said.estimates[row.route] - said.estimates[MODEL],
        cost=None if row.cost is None else all_in_reply(row.cost),
        rewards=row.rewards,
        reviewers=listed.reviewers,
    )


ROUTES = [list_tasks]
