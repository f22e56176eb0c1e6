"""Routes for those who run the service: is it alive, is it ready, how does it do."""

import asyncio

import msgspec
from litestar import Response, get

from deferkit.serve.api.service import (
    AnyRequest,
    ProblemReply,
    caller_of,
    documented,
    engine_of,
    problem_response,
    sent,
)
from deferkit.serve.metrics import CONTENT_TYPE, metrics_of
from deferkit.serve.problems import unavailable
from deferkit.version import __version__


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The service is there."""

    status: str
    version: str


@get("/healthz", responses=documented(), tags=["operation"])
async def healthz() -> Response[Health]:
    """Say that the process is alive."""
    return sent(Health(status="alive", version=__version__), Health)


@get("/readyz", responses=documented(), tags=["operation"])
async def readyz(request: AnyRequest) -> Response[Health] | Response[ProblemReply]:
    """Say whether decisions can be taken: the policies are loaded, and the last commit did not fail."""
    engine = engine_of(request)
    if not engine.ready:
        return problem_response(unavailable("The service is starting or stopping."))
    if engine.failing is not None:
        return problem_response(unavailable(f"The last commit failed: {engine.failing}"))
    return sent(Health(status="ready", version=__version__), Health)


@get("/metrics", opt={"scope": "admin"}, media_type=CONTENT_TYPE, responses=documented(), tags=["operation"])
async def metrics(request: AnyRequest) -> Response[str]:
    """Return metrics in Prometheus' form: those of the process, and those of the caller's own policies."""
    text = await asyncio.to_thread(metrics_of, engine_of(request), request.app.state.traffic, caller_of(request).tenant)
    return Response(content=text, media_type=CONTENT_TYPE)


ROUTES = [healthz, readyz, metrics]
