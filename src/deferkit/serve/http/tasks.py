"""Routes of tasks: decisions, outcomes, holds, listings and exports."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Any, cast

import msgspec
from litestar import Litestar, Response, get, post
from litestar.datastructures import State
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from deferkit.serve import export
from deferkit.serve.api.common import Limit, PolicyName, Reply
from deferkit.serve.api.tasks import (
    BatchBody,
    BatchReply,
    Before,
    ClaimLine,
    CorrectionBody,
    CorrectionReply,
    DecisionReply,
    ExpirationBody,
    ExpirationReply,
    HoldBody,
    HoldReply,
    LogPage,
    OutcomeBody,
    OutcomeReply,
    ReasonFilter,
    RouteFilter,
    SeatLine,
    StopBody,
    TaskBody,
    TaskLine,
    TaskPage,
    TaskReply,
    TaskSearch,
    TaskState,
    TimeFilter,
)
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO, all_in_reply
from deferkit.serve.domain.problems import Problem, unknown
from deferkit.serve.domain.rows import ClaimRow, LogRow, PolicyRow, SeatRow
from deferkit.serve.domain.spec import TaskId
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.decide import Decide, DecideMany
from deferkit.serve.engine.commands.hold import ExtendHold, StopReview
from deferkit.serve.engine.commands.lease import plain
from deferkit.serve.engine.commands.outcome import Observe
from deferkit.serve.engine.commands.upkeep import Expire
from deferkit.serve.engine.engine import Elsewhere, Engine
from deferkit.serve.export import decision_table, header_of, pieces
from deferkit.serve.http.auth import admit_caller, check_name, check_query
from deferkit.serve.http.connection import NO_STORE
from deferkit.serve.http.forwarding import forward
from deferkit.serve.http.route_support import (
    AnyRequest,
    caller_of,
    engine_of,
    json_response,
    line_of,
    post_to_policy,
    problem_of,
    problem_parts,
    read_policy_row,
    route_options,
    spec_of,
    submit_command,
)
from deferkit.serve.http.strict_json import EMPTY, check_json, receive_body
from deferkit.serve.storage.listing import ListedTask, TaskFilter, page_of_tasks
from deferkit.serve.storage.store import Store
from deferkit.types import MODEL

MAX_HISTORY = 1000
TASK = {"task": "mail-1", "context": [0.2, 0.7, 1.0], "payload": {"subject": "You have won"}, "model_answer": "spam"}
OUTCOME = {"task": "mail-1", "rewards": {"model": 0.0, "human": 1.0}, "cost": 1.25}


def log_line(row: LogRow) -> dict[str, Any]:
    """Return a row of the log for a reply."""
    body = msgspec.Raw(bytes(row.body))
    shown = {"seq": row.seq, "at": row.at / MICRO, "kind": row.kind, "task": row.task}
    return {**shown, "record": body, "hash": bytes(row.hash).hex()}


def claim_line(row: ClaimRow) -> ClaimLine:
    """Return a claim for a reply."""
    effort = None if row.effort is None else all_in_reply(row.effort)
    return ClaimLine(seat=row.seat, epoch=row.epoch, reviewer=row.reviewer, at=row.at / MICRO, effort=effort)


def seat_line(seat: SeatRow, claims: list[ClaimRow]) -> SeatLine:
    """Return a seat for a reply."""
    shown = [claim.visible for claim in claims if (claim.seat, claim.epoch) == (seat.seat, seat.epoch)]
    return SeatLine(
        seat=seat.seat,
        reviewer=seat.reviewer,
        state=seat.state,
        answer=plain(seat.answer),
        cost=None if seat.cost is None else all_in_reply(seat.cost),
        visible=shown[0] if shown else None,
    )


@post("/v1/policies/{name:str}/decisions", opt=route_options("tasks", "decide", problems=(409,), example=TASK))
async def decide(name: PolicyName, data: JSONBody[TaskBody]) -> Response[DecisionReply]:
    """Decide a task. Repeating the request returns the same reply, byte for byte; another body is a conflict."""
    raise NotImplementedError  # `decision_route` answers before the router: here the route is only declared


@post_to_policy(
    "decisions/batch", "tasks", "decide", example={"tasks": [{"task": "mail-2", "context": [0.4, 0.1, 1.0]}]}
)
async def decide_batch(request: AnyRequest, name: PolicyName, data: JSONBody[BatchBody]) -> Response[BatchReply]:
    """Decide several tasks in one call. Each is decided or refused on its own; a repeated batch continues."""
    return await submit_command(request, name, DecideMany(data), BatchReply)


@get("/v1/policies/{name:str}/decisions", opt=route_options("tasks", "admin", "read"))
async def read_decision(request: AnyRequest, name: PolicyName, task: TaskId) -> Response[TaskReply]:
    """Read a decision with its explanation and the history of the task."""

    def read_task(store: Store, policy: PolicyRow) -> dict[str, Any]:
        row = store.decision(policy.id, task)
        if row is None:
            raise unknown("task", task)
        history = store.log_of_task(policy.id, task, MAX_HISTORY)
        decided = records.decode(bytes(history[0].body))
        explanation = decided.decision.explain() if isinstance(decided, records.DecidedRecord) else ""
        seats, claims = store.seats(policy.id, task), store.claims(policy.id, task)
        return {
            "decision": msgspec.Raw(bytes(row.reply)),
            "explanation": explanation,
            "at": row.at / MICRO,
            "state": row.state,
            "rewards": row.rewards,
            "cost": None if row.cost is None else all_in_reply(row.cost),
            "final": row.final,
            "answer": None if row.answer is None else msgspec.Raw(row.answer.encode()),
            "history": [log_line(line) for line in history],
            "claims": [claim_line(claim) for claim in claims],
            "payload": plain(seats[0].payload) if seats else None,
            "model_answer": plain(seats[0].model_answer) if seats else None,
            "seats": [seat_line(seat, claims) for seat in seats],
        }

    return json_response(await read_policy_row(request, name, read_task), TaskReply)


@post_to_policy("outcomes", "tasks", "observe", problems=(409,), also={202: OutcomeReply}, example=OUTCOME)
async def observe(request: AnyRequest, name: PolicyName, data: JSONBody[OutcomeBody]) -> Response[OutcomeReply]:
    """Report the outcome of a task: rewards and cost, also in parts. An early outcome is parked (202)."""
    return await submit_command(request, name, Observe(data, caller_of(request).key), OutcomeReply)


@post_to_policy(
    "corrections", "tasks", "observe", problems=(409,), example={"id": "c-1", "task": "mail-1", "cost": 1.5}
)
async def correct(request: AnyRequest, name: PolicyName, data: JSONBody[CorrectionBody]) -> Response[CorrectionReply]:
    """Replace observed values of a task. Only a correction may contradict an outcome.

    A reported cost above `max_reported_cost` is not booked until a correction confirms or replaces it. A correction
    to a cost above that ceiling needs the scope admin.
    """
    command = Correct(data, unlimited="admin" in caller_of(request).scopes)
    return await submit_command(request, name, command, CorrectionReply)


@post_to_policy("expirations", "tasks", "admin", "observe", problems=(409,), example={"task": "mail-1"})
async def expire(request: AnyRequest, name: PolicyName, data: JSONBody[ExpirationBody]) -> Response[ExpirationReply]:
    """Expire a task: the model's answer is used, and the reservation is released."""
    return await submit_command(request, name, Expire(data.task), ExpirationReply)


@get("/v1/policies/{name:str}/log", opt=route_options("tasks", "admin", "read"))
async def read_log(
    request: AnyRequest,
    name: PolicyName,
    start: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1, description="The number of the first row.")] = 0,
    limit: Limit = 100,
) -> Response[LogPage]:
    """Page through the log of a policy."""
    rows = await read_policy_row(request, name, lambda store, row: store.log_page(row.id, start, limit))
    following = rows[-1].seq + 1 if len(rows) == limit else None
    return json_response({"rows": [log_line(row) for row in rows], "next": following}, LogPage)


TASK_ROUTES = [decide, decide_batch, read_decision, observe, correct, expire, read_log]


TEMPLATE = "/v1/policies/{name}/decisions"
PATH = re.compile("/+v1/+policies/+([^/]+)/+decisions/*")  # the router does not count slashes either
SCOPES = frozenset({"decide"})
JSON = b"application/json"


def with_decision_route(app: Litestar) -> ASGIApp:
    """Return the application with the route that decides a task in front of its router."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST" or not (found := PATH.fullmatch(scope["path"])):
            await app(scope, receive, send)
            return
        scope["path_template"] = TEMPLATE
        headers: Mapping[str, str] = {}
        try:
            reply = await reply_to_task(app.state, cast("HTTPScope", scope), receive, found[1])
        except Exception as error:
            problem = problem_of(error)
            headers, body = problem_parts(problem)
            reply = Reply(problem.status, body)
        lines = [(b"content-type", JSON), (b"content-length", b"%d" % len(reply.body)), NO_STORE]
        if headers:
            lines += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": lines})
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})

    return handle


async def reply_to_task(state: State, scope: HTTPScope, receive: Receive, name: str) -> Reply:
    """Return the reply to a task: by this process, or by the one that owns the policy."""
    caller = await admit_caller(state.access, scope, SCOPES)
    check_name(name)
    if scope["query_string"]:
        check_query(scope["query_string"], {})
    body = await receive_body(receive)
    if not body:
        raise Problem(400, "not_json", EMPTY)
    check_json(scope)
    engine: Engine = state.engine
    task = await state.bodies.decode(body, TaskBody, caller.tenant)
    try:
        return await engine.submit((caller.tenant, name), Decide(task))
    except Elsewhere as elsewhere:
        return await forward(state, scope, body, elsewhere.address)


@post_to_policy("holds", "tasks", "observe", problems=(409,), example={"id": "h-1", "task": "mail-1", "amount": 2.5})
async def extend_hold(request: AnyRequest, name: PolicyName, data: JSONBody[HoldBody]) -> Response[HoldReply]:
    """Extend the hold of a pending review, once for each id; by less than requested if less budget is left."""
    return await submit_command(request, name, ExtendHold(data), HoldReply)


@post_to_policy("stops", "tasks", "observe", problems=(409,), example={"task": "mail-1", "cost": 7.5})
async def stop_review(request: AnyRequest, name: PolicyName, data: JSONBody[StopBody]) -> Response[OutcomeReply]:
    """Stop a pending review: its cost so far is booked, and the model's answer is used."""
    return await submit_command(request, name, StopReview(data), OutcomeReply)


HOLD_ROUTES = [extend_hold, stop_review]


@get("/v1/policies/{name:str}/tasks", opt=route_options("tasks", "admin", "read"))
async def list_tasks(
    request: AnyRequest,
    name: PolicyName,
    state_: Annotated[TaskState, QueryParameter(name="state")] = "",
    route: RouteFilter = "",
    reason: ReasonFilter = "",
    since: TimeFilter = 0.0,
    until: TimeFilter = 1e11,
    search: TaskSearch = "",
    before: Before = 2**53 - 1,
    limit: Limit = 100,
) -> Response[TaskPage]:
    """List decided tasks that match all filters, latest first."""
    wanted = TaskFilter(state_, route, reason, int(since * MICRO), int(until * MICRO), search)

    def read_page(store: Store, row: PolicyRow) -> list[ListedTask]:
        return page_of_tasks(store.database, row.id, wanted, before=before, limit=limit)

    found = await read_policy_row(request, name, read_page)
    following = found[-1].decision.id if len(found) == limit else None
    return json_response(TaskPage(tasks=[task_line(each) for each in found], next=following), TaskPage)


def task_line(listed: ListedTask) -> TaskLine:
    """Return a task for a reply."""
    row = listed.decision
    said = msgspec.json.decode(bytes(row.reply), type=DecisionReply)
    return line_of(
        TaskLine,
        row,
        at=row.at / MICRO,
        reason=said.reason,
        price=said.price,
        estimates=said.estimates,
        expected_gain=said.estimates[row.route] - said.estimates[MODEL],
        cost=None if row.cost is None else all_in_reply(row.cost),
        reviewers=listed.reviewers,
    )


LISTING_ROUTES = [list_tasks]


CSV = "text/csv"


async def in_threads(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of an iterator that reads the database, each computed in another thread."""
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part


def table(parts: Iterator[bytes], name: str) -> Response[str]:
    """Return a table as a file to be saved."""
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return cast("Response[str]", Stream(in_threads(parts), media_type=CSV, headers=headers))


@get("/v1/policies/{name:str}/export/decisions.csv", opt=route_options("tasks", "admin", "read"), media_type=CSV)
async def export_decisions(request: AnyRequest, name: PolicyName) -> Response[str]:
    """Export all decisions as CSV, oldest first, with reasons and outcomes."""
    row, store = await read_policy_row(request, name, lambda _, row: row), engine_of(request).store
    spec = spec_of(row)
    return table(pieces(header_of(spec), decision_table(store, row.id, spec)), f"{name}-decisions")


@get("/v1/policies/{name:str}/export/ledger.csv", opt=route_options("tasks", "admin", "read"), media_type=CSV)
async def export_ledger(request: AnyRequest, name: PolicyName) -> Response[str]:
    """Export the ledger as CSV: holds, releases and costs of each log record, and the account after it."""
    row, store = await read_policy_row(request, name, lambda _, row: row), engine_of(request).store
    return table(pieces(export.HEADER, export.ledger_table(store, row.id)), f"{name}-ledger")


EXPORT_ROUTES = [export_decisions, export_ledger]
