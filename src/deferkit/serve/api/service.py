"""From a request to the engine and back: the part that all routes share."""

from typing import Any, TypeVar, cast

import msgspec
from litestar import Request, Response
from litestar.openapi.datastructures import ResponseSpec

from deferkit.serve.api.forward import forward
from deferkit.serve.engine import Elsewhere, Engine
from deferkit.serve.keys import Caller
from deferkit.serve.problems import Problem
from deferkit.serve.work import Command, Reply

Body = TypeVar("Body")
AnyRequest = Request[Any, Any, Any]
JSON = "application/json"


class ProblemReply(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call could not be done."""

    status: int
    code: str
    detail: str


PROBLEMS = {
    400: "The body is not JSON",
    401: "No valid key",
    403: "The key is not good for this",
    404: "There is no such thing",
    408: "The request came too slowly",
    409: "It contradicts what is known",
    413: "The request is too large",
    422: "A value is not possible",
    429: "Too many calls; Retry-After says when",
    500: "A fault of ours",
    503: "Nothing was done; Retry-After says when to try again",
}


def documented(*statuses: int, also: dict[int, type[Any] | None] | None = None) -> dict[int, ResponseSpec]:
    """Return what a route may answer beside its success, for the OpenAPI document."""
    found = {
        status: ResponseSpec(ProblemReply, generate_examples=False, description=PROBLEMS[status])
        for status in (401, 403, 408, 413, 422, 429, 500, 503, *statuses)
    }
    for status, kind in (also or {}).items():
        found[status] = ResponseSpec(kind, generate_examples=False, description="Done")
    return dict(sorted(found.items()))


def caller_of(request: AnyRequest) -> Caller:
    """Return who calls."""
    return cast("Caller", request.scope["caller"])  # type: ignore[typeddict-item]


def engine_of(request: AnyRequest) -> Engine:
    """Return the engine."""
    return cast("Engine", request.app.state.engine)


def answered(reply: Reply, kind: type[Body]) -> Response[Body]:  # noqa: ARG001  the kind is for the document
    """Return the bytes of a reply as a response, unchanged."""
    media_type = JSON if reply.body else None
    return cast("Response[Body]", Response(content=reply.body, status_code=reply.status, media_type=media_type))


def sent(value: Any, kind: type[Body], status: int = 200) -> Response[Body]:
    """Return a value as a response."""
    return answered(Reply(status, msgspec.json.encode(value)), kind)


async def done(request: AnyRequest, name: str, command: Command, kind: type[Body]) -> Response[Body]:
    """Have a command done, here or by the process that owns the policy."""
    try:
        reply = await engine_of(request).submit((caller_of(request).tenant, name), command)
    except Elsewhere as elsewhere:
        reply = await forward(request, elsewhere.address)
    return answered(reply, kind)


def problem_response(problem: Problem) -> Response[ProblemReply]:
    """Return the response of a problem."""
    headers = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(problem.retry_after)))
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = ProblemReply(status=problem.status, code=problem.code, detail=str(problem))
    return Response(content=body, status_code=problem.status, media_type=JSON, headers=headers)
