"""The ASGI application: routes, limits, access control, and the lifespan of the engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ASGIApp

from deferkit.serve.api.common import ProblemReply
from deferkit.serve.domain.problems import Problem, invalid
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.http import keys, metrics, pages, policies, reviews, tasks, webhooks, what_if
from deferkit.serve.http.auth import Access, admit, page_headers
from deferkit.serve.http.forwarding import Messenger
from deferkit.serve.http.middleware import Traffic, limit_requests, trace_requests
from deferkit.serve.http.openapi import document
from deferkit.serve.http.pages import read_files
from deferkit.serve.http.route_support import problem_of, problem_response
from deferkit.serve.http.strict_json import EMPTY, BodyDecoder, StrictRequest
from deferkit.serve.http.tasks import with_decision_route
from deferkit.serve.http.what_if import WhatIfJobs
from deferkit.serve.reports.series import Histories
from deferkit.serve.service_settings import ServiceSettings
from deferkit.serve.storage.store import Store

if TYPE_CHECKING:
    from deferkit.serve.telemetry import Telemetry

AnyRequest = Request[Any, Any, Any]
LOADING_S = 3.0  # seconds to wait for policies before listening: small ones are loaded by then
ROUTES = [
    *policies.POLICY_ROUTES,
    *tasks.TASK_ROUTES,
    *tasks.HOLD_ROUTES,
    *tasks.LISTING_ROUTES,
    *tasks.EXPORT_ROUTES,
    *reviews.REVIEW_ROUTES,
    *reviews.QUEUE_ROUTES,
    *policies.OVERVIEW_ROUTES,
    *what_if.WHAT_IF_ROUTES,
    *keys.KEY_ROUTES,
    *keys.SESSION_ROUTES,
    *webhooks.WEBHOOK_ROUTES,
    *metrics.OPERATION_ROUTES,
]


def on_error(_: AnyRequest, error: Exception) -> Response[ProblemReply]:
    """Reply with a problem of the service's."""
    return problem_response(problem_of(error))


def on_http(_: AnyRequest, error: HTTPException) -> Response[ProblemReply]:
    """Reply with a problem found by the framework, such as an unknown route or a bad parameter."""
    if isinstance(error, ValidationException):
        return problem_response(parameter_problem(error))
    code, detail = FOUND.get(error.status_code, ("http", error.detail))
    return problem_response(Problem(error.status_code, code, detail), error.headers)


FOUND = {404: ("unknown", "There is nothing at this path."), 405: ("method", "The path does not take this method.")}


def parameter_problem(error: ValidationException) -> Problem:
    """Return the problem of an invalid parameter."""
    first = error.extra[0] if isinstance(error.extra, list) and error.extra else {"message": error.detail}
    key, message = str(first.get("key", "")), str(first.get("message", ""))
    if key == "data":
        return Problem(400, "not_json", EMPTY)
    return invalid(f"{key}: {message}" if key else message.partition(" for path")[0] + ".")


def application(
    settings: ServiceSettings,
    store: Store,
    *,
    failed: Callable[[Exception], None],
    telemetry: "Telemetry | None" = None,
) -> ASGIApp:
    """Return the application for a store; `failed` is called with the error if it cannot start."""
    engine = Engine(
        store,
        EngineSettings(
            queue_limit=settings.queue_limit,
            tenant_share=settings.tenant_share,
            group_limit=settings.group_limit,
            owner_lease_s=settings.owner_lease_s,
            max_clock_jump_s=settings.max_clock_jump_s,
            snapshot_every=settings.snapshot_every,
            max_policies=settings.max_policies,
            tenant_memory=settings.tenant_memory,
            tenant_disk=settings.tenant_disk,
            address=settings.address or None,
            webhook_private=settings.webhook_private,
            webhook_backlog=settings.webhook_backlog,
        ),
        telemetry=telemetry,
    )
    traffic = Traffic()

    @asynccontextmanager
    async def life(app: Litestar) -> AsyncIterator[None]:
        try:
            await engine.begin()
            await engine.wait_loaded(LOADING_S)
        except Exception as error:
            failed(error)
            raise
        access = app.state.access = Access(
            store, now=engine.clock.now, open_without_keys=settings.loopback, rate=settings.rate
        )
        messenger = app.state.messenger = Messenger(settings.tls_cert)
        histories = app.state.histories = Histories(store)
        what_ifs = app.state.what_ifs = WhatIfJobs(settings.store)
        app.state.engine, app.state.traffic, app.state.settings = engine, traffic, settings
        app.state.bodies = BodyDecoder(engine.queue.charge)
        app.state.files, app.state.page_headers = read_files(), page_headers(settings.image_hosts)
        app.state.document = msgspec.json.encode(document(ROUTES))
        recording = asyncio.create_task(access.record_use_regularly())
        try:
            yield
        finally:
            recording.cancel()
            messenger.close()
            await what_ifs.close()
            histories.close()
            await access.record_use()
            access.close()
            await engine.stop()
            if telemetry is not None:
                await asyncio.to_thread(telemetry.close)

    app = Litestar(
        route_handlers=[*ROUTES, *pages.PAGES],
        lifespan=[life],
        before_request=admit,
        request_class=StrictRequest,
        request_max_body_size=None,  # `limit_requests` does, before anything is buffered
        exception_handlers={HTTPException: on_http, Exception: on_error},
        openapi_config=None,  # `document` makes a better one
        logging_config=None,
    )
    served = limit_requests(
        with_decision_route(app), max_body=settings.max_body, traffic=traffic, access_log=settings.access_log
    )
    return served if telemetry is None else trace_requests(served, telemetry)
