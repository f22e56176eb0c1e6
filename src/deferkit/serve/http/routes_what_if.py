"""Routes of what-ifs: what other budgets would have done with the same tasks."""

from typing import Annotated, cast

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody

from deferkit.errors import InvalidArgument
from deferkit.serve.audit.counterfactual.scenario import logged_budgets, scenario_of
from deferkit.serve.domain.problems import invalid
from deferkit.serve.engine.engine import Elsewhere
from deferkit.serve.http.route_support import AnyRequest, PolicyName, about, caller_of, engine_of, passed_on, sent
from deferkit.serve.http.what_if_jobs import WhatIfJobs, WhatIfReply

Budgets = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=200)]],
    msgspec.Meta(min_length=1, max_length=10, description="500, 2x, 50% or inf; by resource minutes=500,euros=2x"),
]
JobId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,32}$", description="the job, as its start has named it")]


class WhatIfBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other budgets to replay the log with."""

    budgets: Budgets


class WhatIfStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has begun."""

    job: str


def jobs_of(request: AnyRequest) -> WhatIfJobs:
    """Return the jobs of the service."""
    return cast("WhatIfJobs", request.app.state.what_ifs)


@post(
    "/v1/policies/{name:str}/what-if",
    status_code=202,
    opt=about("overview", "admin", "read", problems=(409,), example={"budgets": ["0.5x", "2x"]}),
)
async def start_what_if(request: AnyRequest, name: PolicyName, data: JSONBody[WhatIfBody]) -> Response[WhatIfStarted]:
    """Compute what other budgets would have done: a job, in a process of its own, one at a time for a tenant."""
    engine, tenant = engine_of(request), caller_of(request).tenant
    try:
        owned = await engine.holding((tenant, name))
    except Elsewhere as elsewhere:
        return await passed_on(request, elsewhere, WhatIfStarted)
    try:
        logged = logged_budgets(owned.policy.spec, owned.policy.accounts)
        for text in data.budgets:
            scenario_of(text, logged)
    except InvalidArgument as error:
        raise invalid(str(error)) from error
    return sent(WhatIfStarted(job=jobs_of(request).start(tenant, name, data.budgets).id), WhatIfStarted, 202)


@get("/v1/policies/{name:str}/what-if", opt=about("overview", "admin", "read"))
async def read_what_if(request: AnyRequest, name: PolicyName, job: JobId) -> Response[WhatIfReply]:
    """Read how far a what-if is, and what it came to. It is kept for an hour."""
    tenant = caller_of(request).tenant
    try:
        await engine_of(request).holding((tenant, name))
    except Elsewhere as elsewhere:
        return await passed_on(request, elsewhere, WhatIfReply)
    return sent(jobs_of(request).find(tenant, name, job).reply(), WhatIfReply)


ROUTES = [start_what_if, read_what_if]
