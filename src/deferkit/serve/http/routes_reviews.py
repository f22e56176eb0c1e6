"""Routes of the review queue."""

import asyncio
from typing import TypeVar

import msgspec
from litestar import Response, post
from litestar.params import JSONBody

from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.problems import unknown
from deferkit.serve.domain.request_bodies import ClaimBody, CompleteBody, EffortBody, ExtendBody, LeaseBody
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.engine.commands.lease import (
    Claim,
    ClaimReply,
    Extend,
    LeaseReply,
    Release,
    check_experts,
    claiming,
    extending,
    releasing,
)
from deferkit.serve.engine.commands.review import Complete, CompleteReply, Effort, EffortReply
from deferkit.serve.http.route_support import AnyRequest, PolicyName, about, answered, caller_of, done, engine_of
from deferkit.serve.storage.transaction import QueueQuery

Kind = TypeVar("Kind")
LEASE = {"task": "mail-1", "seat": 0, "epoch": 1}


async def policy_of(request: AnyRequest, name: str) -> tuple[PolicyRow, PolicySpec]:
    """Return a policy as the store has it."""
    row = await asyncio.to_thread(engine_of(request).store.policy, caller_of(request).tenant, name)
    if row is None:
        raise unknown("policy", name)
    return row, msgspec.json.decode(row.spec, type=PolicySpec)


def directly(request: AnyRequest, name: str) -> bool:
    """Whether this process may ask the queue by itself: the database is shared, and another process owns the policy."""
    engine = engine_of(request)
    return engine.store.database.shared and (caller_of(request).tenant, name) not in engine.owned


async def asked(request: AnyRequest, question: QueueQuery, kind: type[Kind]) -> Response[Kind]:
    """Ask the queue in a transaction of its own."""
    return answered(await asyncio.to_thread(engine_of(request).store.directly, question.run), kind)


@post(
    "/v1/policies/{name:str}/reviews/claim",
    status_code=200,
    opt=about("reviews", "review", also={204: None}, example={"reviewer": "ann"}),
)
async def claim(request: AnyRequest, name: PolicyName, data: JSONBody[ClaimBody]) -> Response[ClaimReply]:
    """Get the task that is worth most to review, for as long as the lease lasts; 204 if there is none."""
    if not directly(request, name):
        return await done(request, name, Claim(data), ClaimReply)
    row, spec = await policy_of(request, name)
    check_experts(data, spec)
    now, late = engine_of(request).clock.now(), spec.after_deadline == "wait"
    return await asked(request, claiming(row.id, data, spec.lease_s, late=late, now=now), ClaimReply)


@post(
    "/v1/policies/{name:str}/reviews/extend",
    status_code=200,
    opt=about("reviews", "review", problems=(409,), example={**LEASE, "lease_s": 600}),
)
async def extend(request: AnyRequest, name: PolicyName, data: JSONBody[ExtendBody]) -> Response[LeaseReply]:
    """Hold a task for longer."""
    if not directly(request, name):
        return await done(request, name, Extend(data), LeaseReply)
    row, spec = await policy_of(request, name)
    now = engine_of(request).clock.now()
    return await asked(request, extending(row.id, data, spec.lease_s, now=now), LeaseReply)


@post(
    "/v1/policies/{name:str}/reviews/release",
    status_code=200,
    opt=about("reviews", "review", problems=(409,), example=LEASE),
)
async def release(request: AnyRequest, name: PolicyName, data: JSONBody[LeaseBody]) -> Response[LeaseReply]:
    """Give a task back to the queue."""
    if not directly(request, name):
        return await done(request, name, Release(data), LeaseReply)
    row, _ = await policy_of(request, name)
    return await asked(request, releasing(row.id, data), LeaseReply)


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
    return await done(request, name, Complete(data), CompleteReply)


@post(
    "/v1/policies/{name:str}/reviews/effort",
    status_code=200,
    opt=about("reviews", "review", problems=(409,), example={**LEASE, "cost": 0.5}),
)
async def effort(request: AnyRequest, name: PolicyName, data: JSONBody[EffortBody]) -> Response[EffortReply]:
    """Book, once, what work has cost that came to nothing because its lease had lapsed."""
    return await done(request, name, Effort(data), EffortReply)


ROUTES = [claim, extend, release, complete, effort]
