"""The route that decides a task, before the framework's router.

It is called a thousand times as often as all others together, and the framework takes as long for a request as the
decision itself. `routes_tasks.decide` declares the route for the OpenAPI document and OPTIONS; nothing else answers it.
"""

import re
from collections.abc import Mapping
from typing import cast

from litestar import Litestar
from litestar.datastructures import State
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import TaskBody
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.engine import Elsewhere, Engine
from deferkit.serve.http.access import admitted, check_name, check_query
from deferkit.serve.http.connection import NO_STORE
from deferkit.serve.http.forwarding import forward
from deferkit.serve.http.route_support import problem_of, problem_parts
from deferkit.serve.http.strict_json import EMPTY, check_json, received

TEMPLATE = "/v1/policies/{name}/decisions"
PATH = re.compile("/+v1/+policies/+([^/]+)/+decisions/*")  # the router does not count slashes either
SCOPES = frozenset({"decide"})
JSON = b"application/json"


def with_decision_route(app: Litestar) -> ASGIApp:
    """Return the application with the route that decides a task in front of its router."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST" or not (found := PATH.fullmatch(scope["path"])):
            await app(scope, receive, send)
            return
        scope["path_template"] = TEMPLATE
        headers: Mapping[str, str] = {}
        try:
            reply = await decided(app.state, cast("HTTPScope", scope), receive, found[1])
        except Exception as error:
            problem = problem_of(error)
            headers, body = problem_parts(problem)
            reply = Reply(problem.status, body)
        lines = [(b"content-type", JSON), (b"content-length", b"%d" % len(reply.body)), NO_STORE]
        if headers:
            lines += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": lines})
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})

    return handle


async def decided(state: State, scope: HTTPScope, receive: Receive, name: str) -> Reply:
    """Return the reply to a task: by this process, or by the one that owns the policy."""
    caller = await admitted(state.access, scope, SCOPES)
    check_name(name)
    if scope["query_string"]:
        check_query(scope["query_string"], {})
    body = await received(receive)
    if not body:
        raise Problem(400, "not_json", EMPTY)
    check_json(scope)
    engine: Engine = state.engine
    task = await state.bodies.decode(body, TaskBody, caller.tenant)
    try:
        return await engine.submit((caller.tenant, name), Decide(task))
    except Elsewhere as elsewhere:
        return await forward(state, scope, body, elsewhere.address)
