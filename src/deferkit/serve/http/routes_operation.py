"""Routes for those who run the service: is it alive, is it ready, how does it do."""

import asyncio
from typing import Any, cast

import msgspec
from litestar import Response, get

from deferkit.serve.domain.problems import unavailable
from deferkit.serve.domain.reply import Reply
from deferkit.serve.http.headers import header
from deferkit.serve.http.metrics import CONTENT_TYPE, metrics_of
from deferkit.serve.http.route_support import AnyRequest, about, answered, caller_of, engine_of, sent
from deferkit.version import __version__


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The service is there."""

    status: str
    version: str


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is, and where it is described."""

    service: str = "deferkit decision service"
    version: str = __version__
    console: str = "/console"
    routes: str = "/v1/openapi.json"
    health: str = "/healthz"
    readiness: str = "/readyz"
    metrics: str = "/metrics"
    guide: str = "docs/service-guide.md in the source of deferkit"


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


@get("/metrics", opt=about("operation", "admin", "operator"), media_type="text/plain")
async def metrics(request: AnyRequest) -> Response[str]:
    """Return metrics in Prometheus' form: of the tenant's policies (admin), of the whole process (operator)."""
    caller = caller_of(request)
    traffic = request.app.state.traffic if "operator" in caller.scopes else None
    tenant = caller.tenant if "admin" in caller.scopes else None
    text = await asyncio.to_thread(metrics_of, engine_of(request), traffic, tenant)
    return Response(content=text, media_type=CONTENT_TYPE)


@get("/v1/openapi.json", opt=about("operation"))
async def openapi(request: AnyRequest) -> Response[dict[str, Any]]:
    """Return the description of all routes, as an OpenAPI document."""
    return answered(Reply(200, request.app.state.document), dict[str, Any])


@get("/", opt=about("operation", also={303: None}))
async def index(request: AnyRequest) -> Response[Index]:
    """Say what this is, and where it is described; a browser is sent to the console."""
    if b"text/html" in header(request.scope, b"accept"):
        return cast("Response[Index]", Response(b"", status_code=303, headers={"location": "/console"}))
    return sent(Index(), Index)


ROUTES = [index, healthz, readyz, metrics, openapi]
