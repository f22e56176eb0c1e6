"""Routes of tasks: decisions, outcomes, history."""

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody

from deferkit.serve.domain import log_records
from deferkit.serve.domain.log_records import DecisionReply
from deferkit.serve.domain.money import MICRO, all_in_reply
from deferkit.serve.domain.policy_spec import TaskId
from deferkit.serve.domain.problems import unknown
from deferkit.serve.domain.request_bodies import BatchBody, CorrectionBody, ExpirationBody, OutcomeBody, TaskBody
from deferkit.serve.domain.rows import ClaimRow, LogRow, SeatRow
from deferkit.serve.engine.commands.correction import Correct, CorrectionReply
from deferkit.serve.engine.commands.decide import BatchReply, DecideMany
from deferkit.serve.engine.commands.expire import ExpirationReply, Expire
from deferkit.serve.engine.commands.lease import plain
from deferkit.serve.engine.commands.outcome import Observe, OutcomeReply
from deferkit.serve.http.route_support import AnyRequest, Limit, PolicyName, about, caller_of, done, engine_of, sent

MOST_HISTORY = 1000
TASK = {"task": "mail-1", "context": [0.2, 0.7, 1.0], "payload": {"subject": "You have won"}, "model_answer": "spam"}
OUTCOME = {"task": "mail-1", "rewards": {"model": 0.0, "human": 1.0}, "cost": 1.25}


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the log: what happened, as it was recorded."""

    seq: int
    at: float
    kind: str
    task: str | None
    record: dict[str, Any]
    hash: str


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the log in order; `next` is where the following page begins."""

    rows: list[LogLine]
    next: int | None


class ClaimLine(msgspec.Struct, frozen=True, kw_only=True):
    """Who held a seat of a task."""

    seat: int
    epoch: int
    reviewer: str
    at: float
    effort: float | dict[str, float] | None


class SeatLine(msgspec.Struct, frozen=True, kw_only=True):
    """A place of one reviewer at a task, and the answer."""

    seat: int
    reviewer: str | None
    state: str  # waiting, claimed, done or closed
    answer: Any
    cost: float | dict[str, float] | None
    visible: bool | None  # whether the reviewer was shown the model's answer; null where that is not known


class TaskReply(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, why it was taken, and what became of it."""

    decision: DecisionReply
    explanation: str
    at: float
    state: str  # model, open, posted or void
    rewards: dict[str, float]
    cost: float | dict[str, float] | None
    final: str | None  # whose answer is used; null while it is open
    answer: Any
    history: list[LogLine]
    claims: list[ClaimLine]
    payload: Any  # what reviewers were shown, until it is erased; null for tasks that nobody was asked about
    model_answer: Any
    seats: list[SeatLine]


def line_of(row: LogRow) -> dict[str, Any]:
    """Return a row of the log for a reply."""
    body = msgspec.Raw(bytes(row.body))
    shown = {"seq": row.seq, "at": row.at / MICRO, "kind": row.kind, "task": row.task}
    return {**shown, "record": body, "hash": bytes(row.hash).hex()}


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


@post("/v1/policies/{name:str}/decisions", opt=about("tasks", "decide", problems=(409,), example=TASK))
async def decide(name: PolicyName, data: JSONBody[TaskBody]) -> Response[DecisionReply]:
    """Decide a task. The same task again gets the same reply, byte for byte; with another body it is a conflict."""
    raise NotImplementedError  # `decision_route` answers before the router: here the route is only declared


@post(
    "/v1/policies/{name:str}/decisions/batch",
    status_code=200,
    opt=about("tasks", "decide", example={"tasks": [{"task": "mail-2", "context": [0.4, 0.1, 1.0]}]}),
)
async def decide_batch(request: AnyRequest, name: PolicyName, data: JSONBody[BatchBody]) -> Response[BatchReply]:
    """Decide several tasks in one call; each is decided, or refused, by itself. A batch sent again goes on."""
    return await done(request, name, DecideMany(data), BatchReply)


@get("/v1/policies/{name:str}/decisions", opt=about("tasks", "admin", "read"))
async def read_decision(request: AnyRequest, name: PolicyName, task: TaskId) -> Response[TaskReply]:
    """Read a decision with its explanation and all that happened to the task since."""
    store = engine_of(request).store
    tenant = caller_of(request).tenant

    def read() -> dict[str, Any]:
        policy = store.policy(tenant, name)
        if policy is None:
            raise unknown("policy", name)
        row = store.decision(policy.id, task)
        if row is None:
            raise unknown("task", task)
        history = store.log_of_task(policy.id, task, MOST_HISTORY)
        decided = log_records.decode(bytes(history[0].body))
        explanation = decided.decision.explain() if isinstance(decided, log_records.DecidedRecord) else ""
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
            "history": [line_of(line) for line in history],
            "claims": [
                {
                    "seat": claim.seat,
                    "epoch": claim.epoch,
                    "reviewer": claim.reviewer,
                    "at": claim.at / MICRO,
                    "effort": None if claim.effort is None else all_in_reply(claim.effort),
                }
                for claim in claims
            ],
            "payload": plain(seats[0].payload) if seats else None,
            "model_answer": plain(seats[0].model_answer) if seats else None,
            "seats": [seat_line(seat, claims) for seat in seats],
        }

    return sent(await asyncio.to_thread(read), TaskReply)


@post(
    "/v1/policies/{name:str}/outcomes",
    status_code=200,
    opt=about("tasks", "observe", problems=(409,), also={202: OutcomeReply}, example=OUTCOME),
)
async def observe(request: AnyRequest, name: PolicyName, data: JSONBody[OutcomeBody]) -> Response[OutcomeReply]:
    """Report rewards and the cost of a task: early (202: kept until its decision comes), late, in parts, or again."""
    return await done(request, name, Observe(data, caller_of(request).key), OutcomeReply)


@post(
    "/v1/policies/{name:str}/corrections",
    status_code=200,
    opt=about("tasks", "observe", problems=(409,), example={"id": "c-1", "task": "mail-1", "cost": 1.5}),
)
async def correct(request: AnyRequest, name: PolicyName, data: JSONBody[CorrectionBody]) -> Response[CorrectionReply]:
    """Replace values that were observed: the explicit way to contradict an outcome.

    A reported cost above `max_reported_cost` is not booked until a correction says what it is. A correction to a cost
    above it needs the scope admin.
    """
    command = Correct(data, unlimited="admin" in caller_of(request).scopes)
    return await done(request, name, command, CorrectionReply)


@post(
    "/v1/policies/{name:str}/expirations",
    status_code=200,
    opt=about("tasks", "admin", "observe", problems=(409,), example={"task": "mail-1"}),
)
async def expire(request: AnyRequest, name: PolicyName, data: JSONBody[ExpirationBody]) -> Response[ExpirationReply]:
    """Give up waiting for a task: the model's answer is used, what was reserved is released."""
    return await done(request, name, Expire(data.task), ExpirationReply)


@get("/v1/policies/{name:str}/log", opt=about("tasks", "admin", "read"))
async def read_log(
    request: AnyRequest,
    name: PolicyName,
    start: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1, description="the first row")] = 0,
    limit: Limit = 100,
) -> Response[LogPage]:
    """Page through the log of a policy."""
    store = engine_of(request).store
    tenant = caller_of(request).tenant

    def read() -> list[LogRow]:
        policy = store.policy(tenant, name)
        if policy is None:
            raise unknown("policy", name)
        return store.log_page(policy.id, start, limit)

    rows = await asyncio.to_thread(read)
    following = rows[-1].seq + 1 if len(rows) == limit else None
    return sent({"rows": [line_of(row) for row in rows], "next": following}, LogPage)


ROUTES = [decide, decide_batch, read_decision, observe, correct, expire, read_log]
