"""A short way for the one call that is made a thousand times as often as all others: decide a task.

The framework takes as long for a request as the decision itself. What goes without a hitch is answered here; whatever
is out of the ordinary takes the ordinary way, with its body again, and is told there what is wrong with it.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from litestar import Litestar
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from deferkit.serve.domain.policy_spec import NAME_PATTERN
from deferkit.serve.domain.problems import Problem, StoreFailed
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import TaskBody
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.engine import Elsewhere, Engine
from deferkit.serve.engine.ownership import Key
from deferkit.serve.http.access import Access
from deferkit.serve.http.headers import header
from deferkit.serve.http.route_support import problem_parts
from deferkit.serve.http.strict_json import decode

TEMPLATE = "/v1/policies/{name}/decisions"
PATH = re.compile(TEMPLATE.replace("{name}", f"({NAME_PATTERN.strip('^$')})"))
JSON = b"application/json"


class Order(NamedTuple):
    """A decision that is asked for, and for whom."""

    key: Key
    command: Decide


def express(app: Litestar) -> ASGIApp:
    """Return the application with a short way to decide."""

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST" or not (found := PATH.fullmatch(scope["path"])) or scope["query_string"]:
            await app(scope, receive, send)
            return
        try:
            first = await receive()
        except Problem as problem:  # it is too large
            scope["path_template"] = TEMPLATE
            await refuse(send, problem)
            return

        async def again() -> Any:
            nonlocal first
            message, first = first, None  # type: ignore[assignment]
            return await receive() if message is None else message

        order = await ordered(app, cast("HTTPScope", scope), found[1], first)
        if order is None:
            await app(scope, again, send)
            return
        engine: Engine = app.state.engine
        try:
            reply = await engine.submit(order.key, order.command)
        except Elsewhere:
            await app(scope, again, send)
            return
        except Problem as problem:
            scope["path_template"] = TEMPLATE
            await refuse(send, problem)
            return
        except Exception:  # to decide again is to ask again: the ordinary way says what is wrong
            await app(scope, again, send)
            return
        scope["path_template"] = TEMPLATE
        await answer(send, reply)

    return either


async def ordered(app: Litestar, scope: HTTPScope, name: str, first: Any) -> Order | None:
    """Return what is asked for; None if that is not plain to see."""
    if first["type"] != "http.request" or first["more_body"] or header(scope, b"content-type") != JSON:
        return None
    access: Access = app.state.access
    try:
        caller = await access.caller(header(scope, b"authorization"), header(scope, b"host"))
        if "decide" not in caller.scopes:
            return None
        body = decode(first["body"], TaskBody)
        access.count(caller.tenant)
    except (Problem, StoreFailed):
        return None
    scope["caller"] = caller  # type: ignore[typeddict-unknown-key]
    return Order((caller.tenant, name), Decide(body))


async def answer(send: Send, reply: Reply, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Send a reply, unchanged."""
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(reply.body))]
    headers += [(name.lower().encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body, "more_body": False})


async def refuse(send: Send, problem: Problem) -> None:
    """Say why not."""
    more, body = problem_parts(problem)
    await answer(send, Reply(problem.status, body), more)
