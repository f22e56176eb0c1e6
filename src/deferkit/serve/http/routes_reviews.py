"""Routes of the review queue."""

import asyncio
from typing import TypeVar

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody

from deferkit.serve.domain.money import from_micros
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.problems import unknown
from deferkit.serve.domain.request_bodies import ClaimBody, CompleteBody, EffortBody, ExtendBody, LeaseBody
from deferkit.serve.domain.seats import check_bound
from deferkit.serve.engine.commands.hold import ExtendReview
from deferkit.serve.engine.commands.lease import Claim, ClaimReply, Extend, LeaseCommand, LeaseReply, Release
from deferkit.serve.engine.commands.review import Complete, CompleteReply, Effort, EffortReply
from deferkit.serve.engine.engine import Elsewhere
from deferkit.serve.http.route_support import (
    AnyRequest,
    PolicyName,
    about,
    answered,
    caller_of,
    done,
    engine_of,
    passed_on,
    sent,
)

Kind = TypeVar("Kind")
MOST_LISTED = 1000  # unconfirmed costs
LEASE = {"task": "mail-1", "seat": 0, "epoch": 1, "token": "tVbJr-w9H5Zl0cBOyK2mZ6bX8Qv3nYd1sUe7FgAiPkE"}


class UnconfirmedCost(msgspec.Struct, frozen=True, kw_only=True):
    """A reported cost above max_reported_cost: neither booked nor learned until a correction says what it is."""

    task: str
    cost: float | dict[str, float]  # as reported; the sum of all reports of the task


class UnconfirmedCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Reported costs that wait to be confirmed, the oldest first."""

    total: int
    costs: list[UnconfirmedCost]


async def leased(request: AnyRequest, name: str, command: LeaseCommand, kind: type[Kind]) -> Response[Kind]:
    """Have a lease command done by the owner of the policy, or here if that is another and the database is shared."""
    engine, tenant = engine_of(request), caller_of(request).tenant
    if not engine.store.database.shared or (tenant, name) in engine.owned:
        return await done(request, name, command, kind)
    row = await asyncio.to_thread(engine.store.policy, tenant, name)
    if row is None:
        raise unknown("policy", name)
    query = command.query(row.id, msgspec.json.decode(row.spec, type=PolicySpec), engine.clock.now())
    with engine.span((tenant, name), command):
        return answered(await asyncio.to_thread(engine.store.in_own_transaction, query.run), kind)


def check_reviewer(request: AnyRequest, reviewer: str) -> None:
    """Raise if the key of a call was made for another reviewer."""
    check_bound(caller_of(request).reviewer, reviewer)


@post(
    "/v1/policies/{name:str}/reviews/claim",
    status_code=200,
    opt=about("reviews", "review", problems=(409,), also={204: None}, example={"reviewer": "ann"}),
)
async def claim(request: AnyRequest, name: PolicyName, data: JSONBody[ClaimBody]) -> Response[ClaimReply]:
    """Get the task that is worth most to review, for as long as the lease lasts; 204 if there is none.

    The reply has a token, which every other call of this claim must send: nobody else can answer for this reviewer. A
    reviewer who holds `max_claims` tasks of the policy gets 409.
    """
    check_reviewer(request, data.reviewer)
    return await leased(request, name, Claim(data, request.app.state.settings.max_claims), ClaimReply)


@post(
    "/v1/policies/{name:str}/reviews/extend",
    status_code=200,
    opt=about("reviews", "review", problems=(409,), example={**LEASE, "lease_s": 600}),
)
async def extend(request: AnyRequest, name: PolicyName, data: JSONBody[ExtendBody]) -> Response[LeaseReply]:
    """Hold a task for longer. Where reviews can be stopped, with what it has cost so far.

    Then more is reserved for it while there is room, and the reply says what it may cost before it asks again
    (`hold`), or that it was `stopped`.
    """
    if data.cost is not None:
        return await done(request, name, ExtendReview(data, caller_of(request).reviewer), LeaseReply)
    return await leased(request, name, Extend(data, caller_of(request).reviewer), LeaseReply)


@post(
    "/v1/policies/{name:str}/reviews/release",
    status_code=200,
    opt=about("reviews", "review", problems=(409,), example=LEASE),
)
async def release(request: AnyRequest, name: PolicyName, data: JSONBody[LeaseBody]) -> Response[LeaseReply]:
    """Give a task back to the queue."""
    return await leased(request, name, Release(data, caller_of(request).reviewer), LeaseReply)


@post(
    "/v1/policies/{name:str}/reviews/complete",
    status_code=200,
    opt=about(
        "reviews",
        "review",
        problems=(409,),
        example={**LEASE, "answer": "spam", "rewards": {"human": 1.0}, "cost": 1.25},
    ),
)
async def complete(request: AnyRequest, name: PolicyName, data: JSONBody[CompleteBody]) -> Response[CompleteReply]:
    """Answer a task. The last of its reviewers settles it: rewards are averaged, costs added up."""
    return await done(request, name, Complete(data, caller_of(request).reviewer), CompleteReply)


@post(
    "/v1/policies/{name:str}/reviews/effort",
    status_code=200,
    opt=about("reviews", "review", problems=(409,), example={**LEASE, "cost": 0.5}),
)
async def effort(request: AnyRequest, name: PolicyName, data: JSONBody[EffortBody]) -> Response[EffortReply]:
    """Book, once, what work has cost that came to nothing because its lease had lapsed."""
    return await done(request, name, Effort(data, caller_of(request).reviewer), EffortReply)


@get("/v1/policies/{name:str}/costs/unconfirmed", opt=about("reviews", "admin"))
async def list_unconfirmed_costs(request: AnyRequest, name: PolicyName) -> Response[UnconfirmedCosts]:
    """List the oldest 1,000 reported costs above max_reported_cost: a correction says what each is, and books it."""
    try:
        owned = await engine_of(request).holding((caller_of(request).tenant, name))
    except Elsewhere as elsewhere:
        return await passed_on(request, elsewhere, UnconfirmedCosts)
    waiting = owned.policy.unconfirmed
    costs = [UnconfirmedCost(task=task, cost=from_micros(waiting[task])) for task in [*waiting][:MOST_LISTED]]  # type: ignore[arg-type]
    return sent(UnconfirmedCosts(total=len(waiting), costs=costs), UnconfirmedCosts)


ROUTES = [claim, extend, release, complete, effort, list_unconfirmed_costs]
