"""Routes for those who run the service: is it alive, is it ready, how does it do."""

import asyncio
from typing import Any

import msgspec
from litestar import Response, get

from deferkit.serve.domain.problems import unavailable
from deferkit.serve.domain.reply import Reply
from deferkit.serve.http.metrics import CONTENT_TYPE, metrics_of
from deferkit.serve.http.route_support import AnyRequest, about, answered, caller_of, engine_of, sent
from deferkit.version import __version__


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The service is there."""

    status: str
    version: str


@get("/healthz", opt=about("operation"))
async def healthz() -> Response[Health]:
    """Say that the process is alive."""
    return sent(Health(status="alive", version=__version__), Health)


@get("/readyz", opt=about("operation"))
async def readyz(request: AnyRequest) -> Response[Health]:
    """Say whether decisions can be taken: the policies are loaded, and the last commit did not fail."""
    engine = engine_of(request)
    if not engine.ready:
        raise unavailable("The service is starting or stopping.")
    if engine.failing is not None:
        raise unavailable("The last commit failed; the log says why.")
    return sent(Health(status="ready", version=__version__), Health)


@get("/metrics", opt=about("operation", "admin"), media_type="text/plain")
async def metrics(request: AnyRequest) -> Response[str]:
    """Return metrics in Prometheus' form: those of the process, and those of the caller's own policies."""
    text = await asyncio.to_thread(metrics_of, engine_of(request), request.app.state.traffic, caller_of(request).tenant)
    return Response(content=text, media_type=CONTENT_TYPE)


@get("/v1/openapi.json", opt=about("operation"))
async def openapi(request: AnyRequest) -> Response[dict[str, Any]]:
    """Return the description of all routes, as an OpenAPI document."""
    return answered(Reply(200, request.app.state.document), dict[str, Any])


ROUTES = [healthz, readyz, metrics, openapi]
