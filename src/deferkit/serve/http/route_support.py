"""Request and response handling that all routes share."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from litestar import Request, Response, post
from litestar.handlers import BaseRouteHandler

from deferkit.serve.api.common import ProblemReply, Reply
from deferkit.serve.domain.api_keys import Caller
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem, StoreFailed, unavailable, unknown
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.engine import Elsewhere, Engine
from deferkit.serve.engine.unit_of_work import Command
from deferkit.serve.http.forwarding import forward
from deferkit.serve.storage.store import Store
from deferkit.serve.structured_logs import logger

Body = TypeVar("Body")
Result = TypeVar("Result")
Line = TypeVar("Line", bound=msgspec.Struct)
AnyRequest = Request[Any, Any, Any]
JSON = "application/json"
MAX_DETAIL = 500


PROBLEMS = {
    400: "The body is not valid JSON",
    401: "No valid key",
    403: "The key does not permit this request",
    404: "The object does not exist",
    408: "The request took too long to arrive",
    409: "The request contradicts an earlier one or the current state",
    413: "The request is too large",
    415: "The content type is not application/json",
    422: "A value is invalid",
    429: "Too many calls; retry after Retry-After",
    500: "Internal error",
    503: "Unavailable, probably without any effect; retry after Retry-After",
}


class Route(NamedTuple):
    """Metadata of a route beside its types: scopes, error statuses, other replies."""

    tag: str
    scopes: frozenset[str] = frozenset()  # one of them is enough; without any, no key is needed
    problems: tuple[int, ...] = ()  # beside those that follow from its parameters
    also: Mapping[int, Any] = {}  # other successes, by status
    example: Any = None  # of a body


def route_options(tag: str, *scopes: str, problems: tuple[int, ...] = (), also: Any = None, example: Any = None) -> Any:
    """Return the options of a route."""
    route = Route(tag, frozenset(scopes), problems, also or {}, example)
    return {"route": route, "scopes": route.scopes or None}


def post_to_policy(path: str, tag: str, *scopes: str, **more: Any) -> post:
    """Return the decorator of a route `POST /v1/policies/{name}/path` that replies with 200.

    Args:
        path: The end of the path.
        tag: As for `route_options`.
        scopes: The same.
        more: Further arguments of `route_options`.
    """
    return post(f"/v1/policies/{{name:str}}/{path}", status_code=200, opt=route_options(tag, *scopes, **more))


def route_of(handler: BaseRouteHandler) -> Route:
    """Return the metadata of a route."""
    return cast("Route", handler.opt["route"])


def parameter_name(name: str) -> str:
    """Return the public name of a query parameter: `state` is reserved by the framework.

    >>> parameter_name("state_"), parameter_name("limit")
    ('state', 'limit')
    """
    return name.removesuffix("_")


def caller_of(request: AnyRequest) -> Caller:
    """Return the caller of a request."""
    return cast("Caller", request.scope["caller"])  # type: ignore[typeddict-item]


def engine_of(request: AnyRequest) -> Engine:
    """Return the engine of the application."""
    return cast("Engine", request.app.state.engine)


def raw_response(reply: Reply, kind: type[Body]) -> Response[Body]:  # noqa: ARG001  the kind is for the document
    """Return a reply as a response, with unchanged bytes."""
    media_type = JSON if reply.body else None
    return cast("Response[Body]", Response(content=reply.body, status_code=reply.status, media_type=media_type))


def json_response(value: Any, kind: type[Body], status: int = 200) -> Response[Body]:
    """Return a value as a JSON response."""
    return raw_response(Reply(status, msgspec.json.encode(value)), kind)


def line_of(kind: type[Line], row: Any, **fields: Any) -> Line:
    """Return a row for a reply: these fields, and the others as the row has them."""
    same = {name: getattr(row, name) for name in kind.__struct_fields__ if name not in fields}
    return kind(**same, **fields)


async def submit_command(request: AnyRequest, name: str, command: Command, kind: type[Body]) -> Response[Body]:
    """Submit a command to the owner of the policy: this process or another one."""
    return await run_at_owner(request, engine_of(request).submit((caller_of(request).tenant, name), command), kind)


async def ask_policy(
    request: AnyRequest,
    name: str,
    reply: Callable[[OwnedPolicy], Awaitable[Body | msgspec.Raw]],
    kind: type[Body],
    status: int = 200,
) -> Response[Body]:
    """Return a reply about a policy, by this process if it owns the policy, else by the owner."""
    try:
        owned = await engine_of(request).holding((caller_of(request).tenant, name))
    except Elsewhere as elsewhere:
        return await forward_to_owner(request, elsewhere, kind)
    return json_response(await reply(owned), kind, status)


async def run_at_owner(request: AnyRequest, run: Awaitable[Reply], kind: type[Body]) -> Response[Body]:
    """Return the reply of an operation on a policy: in this process if it owns the policy, else by the owner."""
    try:
        return raw_response(await run, kind)
    except Elsewhere as elsewhere:
        return await forward_to_owner(request, elsewhere, kind)


async def read_policy_row(request: AnyRequest, name: str, read: Callable[[Store, PolicyRow], Result]) -> Result:
    """Read from a policy in the database, in another thread; raise if the tenant has no such policy."""
    store, tenant = engine_of(request).store, caller_of(request).tenant

    def read_it() -> Result:
        row = store.policy(tenant, name)
        if row is None:
            raise unknown("policy", name)
        return read(store, row)

    return await asyncio.to_thread(read_it)


def spec_of(row: PolicyRow) -> PolicySpec:
    """Return the settings of a policy."""
    return msgspec.json.decode(row.spec, type=PolicySpec)


async def forward_to_owner(request: AnyRequest, elsewhere: Elsewhere, kind: type[Body]) -> Response[Body]:
    """Forward a call to the process that owns the policy."""
    return raw_response(await forward(request.app.state, request.scope, await request.body(), elsewhere.address), kind)


def problem_of(error: Exception) -> Problem:
    """Return the problem to report for an error; log errors that are not the caller's, without the request."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreFailed):
        logger.error("the store cannot be read", extra={"error": str(error)})
        return unavailable("The database does not answer.")
    logger.error("a call failed", exc_info=error)
    return Problem(500, "internal", f"The call failed: {type(error).__name__}.")


def problem_parts(problem: Problem) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a problem."""
    headers = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after)))
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    detail = str(problem)
    if len(detail) > MAX_DETAIL:  # it may quote what was sent
        detail = detail[:MAX_DETAIL] + "…"
    return headers, msgspec.json.encode(ProblemReply(status=problem.status, code=problem.code, detail=detail))


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response[ProblemReply]:
    """Return the response of a problem."""
    own, body = problem_parts(problem)
    response = Response(content=body, status_code=problem.status, media_type=JSON, headers={**(headers or {}), **own})
    return cast("Response[ProblemReply]", response)
