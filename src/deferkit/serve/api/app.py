"""The application: routes, limits, access, and an engine that lives as long as it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp

from deferkit.serve.api import operation, policies, reviews, tasks
from deferkit.serve.api.access import Access, admit
from deferkit.serve.api.limits import limited
from deferkit.serve.api.service import ProblemReply, problem_response
from deferkit.serve.api.strict import StrictRequest
from deferkit.serve.engine import Engine, EngineSettings
from deferkit.serve.logs import logger
from deferkit.serve.problems import Problem, StoreFailed, unavailable
from deferkit.serve.settings import Settings
from deferkit.serve.store import Store
from deferkit.serve.traffic import Traffic
from deferkit.version import __version__

AnyRequest = Request[Any, Any, Any]


def on_problem(_: AnyRequest, problem: Problem) -> Response[ProblemReply]:
    """Reply with a problem of the service's."""
    return problem_response(problem)


def on_store(_: AnyRequest, error: StoreFailed) -> Response[ProblemReply]:
    """Reply that the store could not be read or asked, and may be later."""
    return problem_response(unavailable(str(error)))


def on_http(_: AnyRequest, error: HTTPException) -> Response[ProblemReply]:
    """Reply with a problem that the framework found: no such route, a bad parameter."""
    detail = error.detail
    if isinstance(error.extra, list) and error.extra and isinstance(error.extra[0], dict):
        key, message = str(error.extra[0].get("key", "")), error.extra[0].get("message", detail)
        detail = "The body is empty; JSON is expected." if key == "data" else f"{key}: {message}"
    return problem_response(Problem(error.status_code, "http", detail))


def on_fault(_: AnyRequest, error: Exception) -> Response[ProblemReply]:
    """Reply to a fault of ours, without a word of what was sent."""
    logger.error("a call failed", exc_info=error)
    return problem_response(Problem(500, "internal", f"The call failed: {type(error).__name__}."))


def application(settings: Settings, store: Store) -> ASGIApp:
    """Return the application for a store."""
    engine = Engine(
        store,
        EngineSettings(
            queue_limit=settings.queue_limit,
            tenant_share=settings.tenant_share,
            group_limit=settings.group_limit,
            owner_lease_s=settings.owner_lease_s,
            snapshot_every=settings.snapshot_every,
            address=settings.address or None,
        ),
    )
    traffic = Traffic()

    @asynccontextmanager
    async def life(app: Litestar) -> AsyncIterator[None]:
        await engine.start()
        app.state.access = Access(store, open_without_keys=settings.loopback, rate=settings.rate)
        app.state.engine, app.state.traffic = engine, traffic
        try:
            yield
        finally:
            await engine.stop()

    app = Litestar(
        route_handlers=[*policies.ROUTES, *tasks.ROUTES, *reviews.ROUTES, *operation.ROUTES],
        lifespan=[life],
        before_request=admit,
        request_class=StrictRequest,
        request_max_body_size=None,  # `limited` sees to it, before anything is buffered
        exception_handlers={
            Problem: on_problem,
            StoreFailed: on_store,
            HTTPException: on_http,
            Exception: on_fault,
        },
        openapi_config=OpenAPIConfig(
            title="deferkit",
            version=__version__,
            description="Who decides, the model or an expert? Decisions under a budget, and a review queue.",
            path="/v1",
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
            components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
            security=[{"key": []}],
        ),
        logging_config=None,
    )
    return limited(app, max_body=settings.max_body, traffic=traffic)
