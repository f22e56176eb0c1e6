"""Routes for those who pay: where all policies stand, and how each came there."""

import asyncio
from typing import Annotated, Any, cast

import msgspec
from litestar import Response, get

from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.problems import Problem, unknown
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.engine.budget_state import tasks_left
from deferkit.serve.engine.engine import Elsewhere
from deferkit.serve.engine.estimates import EstimatesReply, estimates_of
from deferkit.serve.engine.history.log_fold import LogFold
from deferkit.serve.engine.history.policy_history import Histories
from deferkit.serve.engine.history.series_reply import SeriesReply
from deferkit.serve.engine.reviewers import ReviewersReply, reviewers_of
from deferkit.serve.engine.standing import Standing, standing_of, unreachable
from deferkit.serve.http.forwarding import ask_owner
from deferkit.serve.http.route_support import (
    AnyRequest,
    PolicyName,
    about,
    caller_of,
    engine_of,
    passed_on,
    sent,
)

READ_S = 0.1  # how long a reply waits for the log to be read up to its end
ENOUGH = 0.9  # the share of a log that must have been read before it tells of gain and spending
MOST_POLICIES = 1000
Buckets = Annotated[int, msgspec.Meta(ge=1, le=2000, description="how many at most")]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Where all policies of a tenant stand."""

    now: float  # seconds since 1970
    policies: list[Standing]


def histories_of(request: AnyRequest) -> Histories:
    """Return the histories of the policies."""
    return cast("Histories", request.app.state.histories)


async def standing_here(request: AnyRequest, owned: OwnedPolicy) -> Standing:
    """Return where a policy stands that this process owns."""
    engine, records = engine_of(request), owned.policy.seq
    history = histories_of(request).of(owned)
    if (kept := history.standing.get(records)) is not None:
        return kept
    queue = await asyncio.to_thread(engine.store.queue, owned.id)
    await history.catch_up(records, READ_S)
    past = history.latest if history.read >= ENOUGH * records else None
    standing = standing_of(owned, past, queue, owned.time(engine.clock.now()), engine.failing)
    history.standing.put(records, standing)
    return standing


async def standing_anywhere(request: AnyRequest, row: PolicyRow) -> Any:
    """Return where a policy stands, whoever owns it; one that cannot be asked says so."""
    engine = engine_of(request)
    try:
        owned = await engine.holding((row.tenant, row.name))
        return await standing_here(request, owned)
    except Elsewhere as elsewhere:
        path = f"/v1/policies/{row.name}/standing"
        try:
            return msgspec.Raw((await ask_owner(request.app.state, request.scope, path, b"", elsewhere.address)).body)
        except Problem as problem:
            return unreachable(row, await asyncio.to_thread(engine.store.budgets, row.id), str(problem))
    except Problem as problem:
        return unreachable(row, await asyncio.to_thread(engine.store.budgets, row.id), str(problem))


@get("/v1/overview", opt=about("overview", "admin", "read"))
async def read_overview(request: AnyRequest) -> Response[Overview]:
    """Read where all policies of the tenant stand: on plan or not, when each runs out, gain, queue, alarms."""
    engine = engine_of(request)
    rows = await asyncio.to_thread(engine.store.policies_of, caller_of(request).tenant, "", MOST_POLICIES)
    policies = await asyncio.gather(*(standing_anywhere(request, row) for row in rows))
    histories_of(request).forget({owned.id for owned in engine.owned.values()})
    return sent({"now": engine.clock.now() / MICRO, "policies": policies}, Overview)


@get("/v1/policies/{name:str}/standing", opt=about("overview", "admin", "read"))
async def read_standing(request: AnyRequest, name: PolicyName) -> Response[Standing]:
    """Read where a policy stands: on plan or not, when it runs out, gain, queue, alarms."""
    try:
        owned = await engine_of(request).holding((caller_of(request).tenant, name))
    except Elsewhere as elsewhere:
        return await passed_on(request, elsewhere, Standing)
    return sent(await standing_here(request, owned), Standing)


@get("/v1/policies/{name:str}/series", opt=about("overview", "admin", "read"))
async def read_series(request: AnyRequest, name: PolicyName, buckets: Buckets = 120) -> Response[SeriesReply]:
    """Read how a policy came where it stands: decisions, spending, price and gain over time."""
    try:
        owned = await engine_of(request).holding((caller_of(request).tenant, name))
    except Elsewhere as elsewhere:
        return await passed_on(request, elsewhere, SeriesReply)
    history = histories_of(request).of(owned)
    left = tasks_left(owned, owned.policy.periods)
    return sent(await history.series(buckets, owned.policy.seq, READ_S, left), SeriesReply)


@get("/v1/policies/{name:str}/estimates", opt=about("overview", "admin", "read"))
async def read_estimates(request: AnyRequest, name: PolicyName) -> Response[EstimatesReply]:
    """Read what a policy has learned: coefficients with their errors, predicted against observed, drifts."""
    try:
        owned = await engine_of(request).holding((caller_of(request).tenant, name))
    except Elsewhere as elsewhere:
        return await passed_on(request, elsewhere, EstimatesReply)
    history = histories_of(request).of(owned)
    await history.catch_up(owned.policy.seq, READ_S)

    def ask(fold: LogFold) -> EstimatesReply:
        return estimates_of(owned, {name: each.bins() for name, each in fold.calibrations.items()})

    return sent(await history.query(ask), EstimatesReply)


@get("/v1/policies/{name:str}/reviewers", opt=about("overview", "admin", "read"))
async def read_reviewers(request: AnyRequest, name: PolicyName) -> Response[ReviewersReply]:
    """Read what each reviewer has done: answers, declined and lapsed tasks, time, cost, agreement."""
    engine, tenant = engine_of(request), caller_of(request).tenant

    def read() -> ReviewersReply:
        row = engine.store.policy(tenant, name)
        if row is None:
            raise unknown("policy", name)
        spec = msgspec.json.decode(row.spec, type=PolicySpec)
        return reviewers_of(engine.store, row.id, spec, engine.clock.now())

    return sent(await asyncio.to_thread(read), ReviewersReply)


ROUTES = [read_overview, read_standing, read_series, read_estimates, read_reviewers]
