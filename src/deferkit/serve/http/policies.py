"""Routes of policies: creating, changing and deleting them, and the dashboard."""

import asyncio
import functools
from typing import Any, cast

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import JSONBody

from deferkit.serve.api.common import Limit, PolicyName
from deferkit.serve.api.policies import (
    After,
    BudgetBody,
    BudgetReply,
    Deleted,
    EraseBody,
    EraseReply,
    ForgetBody,
    ForgetReply,
    PolicyPage,
    ResetBody,
    ResetReply,
    UpgradeBody,
)
from deferkit.serve.api.reports import (
    Buckets,
    EstimatesReply,
    Overview,
    ReviewersReply,
    SeriesReply,
    Standing,
    SummaryReply,
)
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.api_keys import SCOPES
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.domain.spec import PolicyChange, PolicySpec
from deferkit.serve.engine.commands.policy import ChangeBudget, ChangePolicy, delete_policy, delete_tenant
from deferkit.serve.engine.commands.relearn import ResetLearner, forget_task, upgrade_policy
from deferkit.serve.engine.commands.upkeep import Erase
from deferkit.serve.engine.engine import Elsewhere
from deferkit.serve.http.forwarding import ask_owner
from deferkit.serve.http.route_support import (
    AnyRequest,
    ask_policy,
    caller_of,
    engine_of,
    forward_to_owner,
    json_response,
    post_to_policy,
    raw_response,
    read_policy_row,
    route_options,
    run_at_owner,
    spec_of,
    submit_command,
)
from deferkit.serve.reports.budgets import tasks_left
from deferkit.serve.reports.series import Histories
from deferkit.serve.reports.standing import standing_of, unreachable
from deferkit.serve.reports.summary import estimates_of, reviewers_of, summary_of

NEW_POLICY = {
    "name": "spam",
    "features": 3,
    "budget": {"minutes": {"total": 600, "horizon": 10_000, "max_cost": 2}},
    "deadline_s": 3600,
}


@post("/v1/policies", opt=route_options("policies", "admin", problems=(409,), example=NEW_POLICY))
async def create_policy(request: AnyRequest, data: JSONBody[PolicySpec]) -> Response[PolicySpec]:
    """Create a policy. Repeating the same request changes nothing; another policy of the same name is a conflict."""
    return raw_response(await engine_of(request).create(caller_of(request).tenant, data), PolicySpec)


@get("/v1/policies", opt=route_options("policies", *SCOPES))
async def list_policies(request: AnyRequest, after: After = "", limit: Limit = 100) -> Response[PolicyPage]:
    """List policies by name."""
    tenant, store = caller_of(request).tenant, engine_of(request).store
    rows = await asyncio.to_thread(store.policies_of, tenant, after, limit)
    following = rows[-1].name if len(rows) == limit else None
    return json_response({"policies": [msgspec.Raw(row.spec.encode()) for row in rows], "next": following}, PolicyPage)


@get("/v1/policies/{name:str}", opt=route_options("policies", *SCOPES))
async def read_policy(request: AnyRequest, name: PolicyName) -> Response[PolicySpec]:
    """Read the settings of a policy. The state of its budget is in the summary."""
    row = await read_policy_row(request, name, lambda _, row: row)
    return json_response(msgspec.Raw(row.spec.encode()), PolicySpec)


@patch("/v1/policies/{name:str}", opt=route_options("policies", "admin", example={"deadline_s": 7200, "reviewers": 2}))
async def change_policy(request: AnyRequest, name: PolicyName, data: JSONBody[PolicyChange]) -> Response[PolicySpec]:
    """Change deadlines, leases, learning window, reviewers, review document; other settings are fixed.

    Of a budget, change its horizon, its end (`until`) or the `allowance` of each future period, whichever it has.
    """
    return await submit_command(request, name, ChangePolicy(data), PolicySpec)


@get("/v1/policies/{name:str}/summary", opt=route_options("policies", *SCOPES))
async def read_summary(request: AnyRequest, name: PolicyName) -> Response[SummaryReply]:
    """Read the summary of a policy: budget, price, deferral rate, expected gain, queue."""
    engine = engine_of(request)

    async def read_reply(owned: OwnedPolicy) -> SummaryReply:
        queue = await asyncio.to_thread(engine.store.queue, owned.id)
        return summary_of(owned, queue, owned.time(engine.clock.now()), owned.learner_summary())

    return await ask_policy(request, name, read_reply, SummaryReply)


@post_to_policy("budget", "policies", "admin", problems=(409,), example={"id": "top-up-1", "add": 60})
async def change_budget(request: AnyRequest, name: PolicyName, data: JSONBody[BudgetBody]) -> Response[BudgetReply]:
    """Increase or reduce a budget, once for each id; never below the reserved and posted amounts."""
    return await submit_command(request, name, ChangeBudget(data), BudgetReply)


@post_to_policy("reset", "policies", "admin", problems=(409,), example={"id": "reset-1"})
async def reset_learner(request: AnyRequest, name: PolicyName, data: JSONBody[ResetBody]) -> Response[ResetReply]:
    """Reset the learner of a policy, once for each id; accounts, log and open tasks are kept."""
    return await submit_command(request, name, ResetLearner(data), ResetReply)


@post_to_policy("forget", "policies", "admin", example={"task": "mail-1"})
async def forget(request: AnyRequest, name: PolicyName, data: JSONBody[ForgetBody]) -> Response[ForgetReply]:
    """Remove the outcome of a task from the estimates: the policy is rebuilt from its log without it."""
    forgotten = forget_task(engine_of(request), (caller_of(request).tenant, name), data.task)
    return await run_at_owner(request, forgotten, ForgetReply)


@post_to_policy("upgrade", "policies", "admin", problems=(409,), example={"defaults": "2026.12"})
async def upgrade(request: AnyRequest, name: PolicyName, data: JSONBody[UpgradeBody]) -> Response[PolicySpec]:
    """Upgrade a policy to another default rule: it is rebuilt from its log."""
    upgraded = upgrade_policy(engine_of(request), (caller_of(request).tenant, name), data)
    return await run_at_owner(request, upgraded, PolicySpec)


@post_to_policy("erase", "policies", "admin", example={"task": "mail-1"})
async def erase(request: AnyRequest, name: PolicyName, data: JSONBody[EraseBody]) -> Response[EraseReply]:
    """Erase payloads and model answers, of one task or of all ended tasks above an age."""
    return await submit_command(request, name, Erase(data), EraseReply)


@delete("/v1/policies/{name:str}", status_code=200, opt=route_options("policies", "admin"))
async def remove_policy(request: AnyRequest, name: PolicyName) -> Response[Deleted]:
    """Delete a policy with its log, decisions, reviews and snapshots. This cannot be undone."""
    try:
        await delete_policy(engine_of(request), (caller_of(request).tenant, name))
    except Elsewhere as elsewhere:
        return await forward_to_owner(request, elsewhere, Deleted)
    return json_response(Deleted(deleted=name), Deleted)


@delete("/v1/tenant", status_code=200, opt=route_options("policies", "admin", problems=(409,)))
async def remove_tenant(request: AnyRequest) -> Response[Deleted]:
    """Delete all policies of the caller's tenant, and revoke all its keys. This cannot be undone."""
    tenant = caller_of(request).tenant
    await delete_tenant(engine_of(request), tenant)
    return json_response(Deleted(deleted=tenant), Deleted)


POLICY_ROUTES = [
    create_policy,
    list_policies,
    read_policy,
    change_policy,
    read_summary,
    change_budget,
    reset_learner,
    forget,
    upgrade,
    erase,
    remove_policy,
    remove_tenant,
]


READ_S = 0.1  # how long a reply waits for the log to be read up to its end
ENOUGH = 0.9  # the share of a log that must have been read before it tells of gain and spending
MAX_POLICIES = 1000


def histories_of(request: AnyRequest) -> Histories:
    """Return the histories of the policies."""
    return cast("Histories", request.app.state.histories)


async def standing_here(request: AnyRequest, owned: OwnedPolicy) -> Standing:
    """Return the status of a policy that this process owns."""
    engine, records = engine_of(request), owned.policy.seq
    history = histories_of(request).of(owned)
    if (kept := history.standing.get(records)) is not None:
        return kept
    queue = await asyncio.to_thread(engine.store.queue, owned.id)
    await history.catch_up(records, READ_S)
    past = history.latest if history.read >= ENOUGH * records else None
    standing = standing_of(owned, past, queue, owned.time(engine.clock.now()), engine.failing)
    history.standing.store(records, standing)
    return standing


async def standing_anywhere(request: AnyRequest, row: PolicyRow) -> Any:
    """Return the status of a policy from its owner, or a note that the owner cannot be reached."""
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


@get("/v1/overview", opt=route_options("overview", "admin", "read"))
async def read_overview(request: AnyRequest) -> Response[Overview]:
    """Read the status of all policies of the tenant: pace, forecast, gain, queue, alarms."""
    engine = engine_of(request)
    rows = await asyncio.to_thread(engine.store.policies_of, caller_of(request).tenant, "", MAX_POLICIES)
    policies = await asyncio.gather(*(standing_anywhere(request, row) for row in rows))
    histories_of(request).forget({owned.id for owned in engine.owned.values()})
    return json_response({"now": engine.clock.now() / MICRO, "policies": policies}, Overview)


@get("/v1/policies/{name:str}/standing", opt=route_options("overview", "admin", "read"))
async def read_standing(request: AnyRequest, name: PolicyName) -> Response[Standing]:
    """Read the status of a policy: pace, forecast, gain, queue, alarms."""
    return await ask_policy(request, name, functools.partial(standing_here, request), Standing)


@get("/v1/policies/{name:str}/series", opt=route_options("overview", "admin", "read"))
async def read_series(request: AnyRequest, name: PolicyName, buckets: Buckets = 120) -> Response[SeriesReply]:
    """Read the time series of a policy: decisions, spending, price, gain."""

    async def read_reply(owned: OwnedPolicy) -> msgspec.Raw:
        left = tasks_left(owned, owned.policy.periods)
        return await histories_of(request).of(owned).series(buckets, owned.policy.seq, READ_S, left)

    return await ask_policy(request, name, read_reply, SeriesReply)


@get("/v1/policies/{name:str}/estimates", opt=route_options("overview", "admin", "read"))
async def read_estimates(request: AnyRequest, name: PolicyName) -> Response[EstimatesReply]:
    """Read the estimates of a policy: coefficients with standard errors, calibration, drifts."""

    async def read_reply(owned: OwnedPolicy) -> EstimatesReply:
        history = histories_of(request).of(owned)
        await history.catch_up(owned.policy.seq, READ_S)
        return await history.query(
            lambda fold: estimates_of(owned, {name: each.bins() for name, each in fold.calibrations.items()})
        )

    return await ask_policy(request, name, read_reply, EstimatesReply)


@get("/v1/policies/{name:str}/reviewers", opt=route_options("overview", "admin", "read"))
async def read_reviewers(request: AnyRequest, name: PolicyName) -> Response[ReviewersReply]:
    """Read the statistics of each reviewer: answers, declined and lapsed tasks, time, cost, agreement."""
    now = engine_of(request).clock.now()
    reply = await read_policy_row(request, name, lambda store, row: reviewers_of(store, row.id, spec_of(row), now))
    return json_response(reply, ReviewersReply)


OVERVIEW_ROUTES = [read_overview, read_standing, read_series, read_estimates, read_reviewers]
