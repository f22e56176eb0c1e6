"""Routes of reviews: the queue, claims, answers and corrections."""

import asyncio
from typing import Annotated, TypeVar

from litestar import Response, get
from litestar.params import JSONBody, QueryParameter

from deferkit.serve.api.common import Limit, PolicyName
from deferkit.serve.api.reviews import (
    AnswerCorrectionBody,
    AnswerCorrectionReply,
    ClaimBody,
    ClaimReply,
    CompleteBody,
    CompleteReply,
    Cursor,
    DeclineBody,
    EffortBody,
    EffortReply,
    ExtendBody,
    HeldClaim,
    HeldCursor,
    HeldReply,
    LeaseBody,
    LeaseReply,
    QueueLine,
    QueuePage,
    ReassignBody,
    ResumeBody,
    ReviewerName,
    ReviewReply,
    SeatState,
    StatusReply,
    UnconfirmedCost,
    UnconfirmedCosts,
)
from deferkit.serve.domain.accounts import MICRO, from_micros
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem, invalid
from deferkit.serve.domain.review import DEFAULT
from deferkit.serve.domain.rows import CLAIMED, WAITING, PolicyRow
from deferkit.serve.engine.commands.hold import ExtendReview
from deferkit.serve.engine.commands.lease import (
    Claim,
    Decline,
    Extend,
    LeaseCommand,
    Reassign,
    Release,
    Resume,
    check_bound,
    held_claim,
)
from deferkit.serve.engine.commands.review import Complete, CorrectAnswer, Effort
from deferkit.serve.http.route_support import (
    AnyRequest,
    ask_policy,
    caller_of,
    engine_of,
    json_response,
    line_of,
    post_to_policy,
    raw_response,
    read_policy_row,
    route_options,
    spec_of,
    submit_command,
)
from deferkit.serve.reports.summary import status_of
from deferkit.serve.storage.listing import QueuedSeat, page_of_held, page_of_queue
from deferkit.serve.storage.store import Store

Kind = TypeVar("Kind")
MAX_LISTED = 1000  # unconfirmed costs
LEASE = {"task": "mail-1", "seat": 0, "epoch": 1, "token": "tVbJr-w9H5Zl0cBOyK2mZ6bX8Qv3nYd1sUe7FgAiPkE"}


async def submit_lease_command(
    request: AnyRequest, name: str, command: LeaseCommand, kind: type[Kind]
) -> Response[Kind]:
    """Submit a lease command to the policy's owner, or run it here if another process owns it on a shared database."""
    engine, tenant = engine_of(request), caller_of(request).tenant
    if not engine.store.database.shared or (tenant, name) in engine.owned:
        return await submit_command(request, name, command, kind)
    row = await read_policy_row(request, name, lambda _, row: row)
    query = command.query(row.id, spec_of(row), engine.clock.now())
    with engine.span((tenant, name), command):
        return raw_response(await asyncio.to_thread(engine.store.in_own_transaction, query.run), kind)


def check_reviewer(request: AnyRequest, reviewer: str) -> None:
    """Raise if the key of a call was made for another reviewer."""
    check_bound(caller_of(request).reviewer, reviewer)


@post_to_policy("reviews/claim", "reviews", "review", problems=(409,), also={204: None}, example={"reviewer": "ann"})
async def claim(request: AnyRequest, name: PolicyName, data: JSONBody[ClaimBody]) -> Response[ClaimReply]:
    """Claim the most valuable task in the review queue, for the duration of a lease; 204 without one.

    The reply contains a token that all other calls of this claim must send, so that only this reviewer can answer. A
    reviewer who holds `max_claims` tasks of the policy gets 409.
    """
    check_reviewer(request, data.reviewer)
    command = Claim(data, request.app.state.settings.max_claims, caller_of(request).origin)
    return await submit_lease_command(request, name, command, ClaimReply)


@post_to_policy("reviews/extend", "reviews", "review", problems=(409,), example={**LEASE, "lease_s": 600})
async def extend(request: AnyRequest, name: PolicyName, data: JSONBody[ExtendBody]) -> Response[LeaseReply]:
    """Renew the lease of a task. Where reviews can be stopped, also report the cost so far.

    The hold is then extended while budget is left. The reply contains the amount that the review may cost before the
    next call (`hold`), or reports that it was `stopped`.
    """
    if data.cost is not None:
        return await submit_command(request, name, ExtendReview(data, caller_of(request).reviewer), LeaseReply)
    return await submit_lease_command(request, name, Extend(data, caller_of(request).reviewer), LeaseReply)


@post_to_policy("reviews/release", "reviews", "review", problems=(409,), example=LEASE)
async def release(request: AnyRequest, name: PolicyName, data: JSONBody[LeaseBody]) -> Response[LeaseReply]:
    """Return a task to the queue."""
    return await submit_lease_command(request, name, Release(data, caller_of(request).reviewer), LeaseReply)


@post_to_policy(
    "reviews/complete",
    "reviews",
    "review",
    problems=(409,),
    example={**LEASE, "answer": "spam", "rewards": {"human": 1.0}, "cost": 1.25},
)
async def complete(request: AnyRequest, name: PolicyName, data: JSONBody[CompleteBody]) -> Response[CompleteReply]:
    """Answer a task. The answer of its last reviewer ends the task: rewards are averaged, costs are added up."""
    return await submit_command(request, name, Complete(data, caller_of(request).reviewer), CompleteReply)


@post_to_policy("reviews/effort", "reviews", "review", problems=(409,), example={**LEASE, "cost": 0.5})
async def effort(request: AnyRequest, name: PolicyName, data: JSONBody[EffortBody]) -> Response[EffortReply]:
    """Book the cost of work that was lost because its lease had lapsed; once for each claim."""
    return await submit_command(request, name, Effort(data, caller_of(request).reviewer), EffortReply)


@get("/v1/policies/{name:str}/costs/unconfirmed", opt=route_options("reviews", "admin"))
async def list_unconfirmed_costs(request: AnyRequest, name: PolicyName) -> Response[UnconfirmedCosts]:
    """List the oldest 1,000 reported costs above max_reported_cost; a correction books each of them."""

    async def read_reply(owned: OwnedPolicy) -> UnconfirmedCosts:
        waiting = owned.policy.unconfirmed
        costs = [UnconfirmedCost(task=task, cost=from_micros(waiting[task])) for task in [*waiting][:MAX_LISTED]]  # type: ignore[arg-type]
        return UnconfirmedCosts(total=len(waiting), costs=costs)

    return await ask_policy(request, name, read_reply, UnconfirmedCosts)


REVIEW_ROUTES = [claim, extend, release, complete, effort, list_unconfirmed_costs]


MAX_SHOWN = 4_000_000  # bytes of payloads and answers of the model in one reply, unless a single claim has more


@get("/v1/policies/{name:str}/review", opt=route_options("reviews", "review", "admin", "read"))
async def read_review(request: AnyRequest, name: PolicyName) -> Response[ReviewReply]:
    """Read the review document of a policy: form, guidelines, timer."""
    spec = await read_policy_row(request, name, lambda _, row: spec_of(row))
    document = spec.review_used or DEFAULT
    unit = spec.resources[0] if document.timer is None else document.timer.resource
    reply = ReviewReply(
        policy=name,
        review=document,
        lease_s=spec.lease_s,
        reviewers=spec.reviewers,
        experts=spec.experts,
        unit=unit,
        max_cost=spec.budget[unit].max_cost,
        stops=spec.budget[unit].can_be_stopped and len(spec.budget) == 1,
    )
    return json_response(reply, ReviewReply)


@get("/v1/policies/{name:str}/reviews", opt=route_options("reviews", "admin", "read"))
async def list_reviews(
    request: AnyRequest,
    name: PolicyName,
    state_: Annotated[SeatState, QueryParameter(name="state")] = "all",
    after: Cursor = "",
    limit: Limit = 100,
) -> Response[QueuePage]:
    """List the review queue: waiting and claimed seats, in the order of claims."""
    states: list[str] = [WAITING, CLAIMED] if state_ == "all" else [state_]

    def read_page(store: Store, row: PolicyRow) -> list[QueuedSeat]:
        try:
            return page_of_queue(store.database, row.id, states, after, limit)
        except ValueError:
            raise invalid("The parameter after is `next` of the page before.") from None

    seats = await read_policy_row(request, name, read_page)
    following = seats[-1].cursor if len(seats) == limit else None
    return json_response(QueuePage(seats=[queue_line(seat) for seat in seats], next=following), QueuePage)


def queue_line(seat: QueuedSeat) -> QueueLine:
    """Return a seat of the queue for a reply."""
    until = seat.lease_until / MICRO if seat.state == CLAIMED else None
    deadline = None if seat.deadline is None else seat.deadline / MICRO
    return line_of(QueueLine, seat, created=seat.created / MICRO, lease_until=until, deadline=deadline)


@get("/v1/policies/{name:str}/reviews/status", opt=route_options("reviews", "review"))
async def read_review_status(request: AnyRequest, name: PolicyName, reviewer: ReviewerName) -> Response[StatusReply]:
    """Read the queue of a reviewer: waiting tasks, the reason for an empty queue, own statistics."""
    check_reviewer(request, reviewer)
    now = engine_of(request).clock.now()
    reply = await read_policy_row(
        request, name, lambda store, row: status_of(store, row.id, spec_of(row), reviewer, now)
    )
    return json_response(reply, StatusReply)


@get("/v1/policies/{name:str}/reviews/held", opt=route_options("reviews", "review"))
async def list_held(
    request: AnyRequest, name: PolicyName, reviewer: ReviewerName, after: HeldCursor = "", limit: Limit = 1000
) -> Response[HeldReply]:
    """List the claims of a reviewer, without their tokens; `resume` returns a new token.

    Payloads and model answers of a page have at most 4 MB, except for a page with a single claim.
    """
    check_reviewer(request, reviewer)

    def read_page(store: Store, row: PolicyRow) -> HeldReply:
        spec = spec_of(row)
        page = page_of_held(store.database, row.id, reviewer, after, limit, most_bytes=MAX_SHOWN)
        return HeldReply(held=[HeldClaim(**held_claim(seat, spec)) for seat in page.seats], next=page.next)

    return json_response(await read_policy_row(request, name, read_page), HeldReply)


@post_to_policy(
    "reviews/resume", "reviews", "review", problems=(409,), example={"reviewer": "ann", "task": "mail-1", "seat": 0}
)
async def resume(request: AnyRequest, name: PolicyName, data: JSONBody[ResumeBody]) -> Response[ClaimReply]:
    """Resume a claim whose token was lost: with a new token, a new lease and the same epoch.

    This needs a key that is bound to the reviewer of the claim, or the session of the reviewer in which the claim was
    made (or a session of the key with which it was made), unless the service has no keys.
    """
    check_reviewer(request, data.reviewer)
    caller = caller_of(request)
    if caller.key and caller.reviewer is None:
        await read_policy_row(request, name, lambda _, row: row)  # another tenant's is not there
        raise Problem(403, "forbidden", "A claim is resumed with a key or session of its reviewer alone.")
    return await submit_lease_command(request, name, Resume(data, caller.resumes), ClaimReply)


@post_to_policy(
    "reviews/decline", "reviews", "review", problems=(409,), example={**LEASE, "reason": "I know the sender."}
)
async def decline(request: AnyRequest, name: PolicyName, data: JSONBody[DeclineBody]) -> Response[LeaseReply]:
    """Decline a task permanently, with a reason. This reviewer does not get it again."""
    return await submit_lease_command(request, name, Decline(data, caller_of(request).reviewer), LeaseReply)


@post_to_policy("reviews/reassign", "reviews", "admin", problems=(409,), example={"task": "mail-1", "seat": 0})
async def reassign(request: AnyRequest, name: PolicyName, data: JSONBody[ReassignBody]) -> Response[LeaseReply]:
    """End the claim of an absent reviewer: the task returns to the queue."""
    return await submit_lease_command(request, name, Reassign(data), LeaseReply)


@post_to_policy(
    "reviews/correct",
    "reviews",
    "review",
    problems=(409,),
    example={**LEASE, "id": "a-1", "answer": "ham", "cost": 1.5},
)
async def correct_answer(
    request: AnyRequest, name: PolicyName, data: JSONBody[AnswerCorrectionBody]
) -> Response[AnswerCorrectionReply]:
    """Correct an own answer, with the token of its claim; once for each id.

    The reward rule is applied again. A cost of the new answer replaces that of the old one.
    """
    return await submit_command(request, name, CorrectAnswer(data, caller_of(request).reviewer), AnswerCorrectionReply)


QUEUE_ROUTES = [read_review, list_reviews, read_review_status, list_held, resume, decline, reassign, correct_answer]
