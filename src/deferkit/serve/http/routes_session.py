"""Routes of sessions: a browser exchanges a key for a cookie, once."""

import asyncio
from typing import Annotated, cast

import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody

from deferkit.serve.domain.api_keys import SCOPES, Caller
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.request_bodies import Reviewer
from deferkit.serve.domain.rows import SessionRow
from deferkit.serve.http.access import EVERYONE, NO_KEY, Access, check_open_call, now_micros
from deferkit.serve.http.browser_safety import check_same_origin
from deferkit.serve.http.route_support import AnyRequest, about, caller_of, engine_of, sent
from deferkit.serve.http.sessions import MOST_OF_A_KEY, new_session, set_cookie

ANN = "ann"


class SessionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to open."""

    key: Annotated[str, msgspec.Meta(max_length=256, description="none where there are no keys")] | None = None
    reviewer: Annotated[Reviewer, msgspec.Meta(description="the only reviewer it may claim reviews for")] | None = None


class SessionReply(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and what that caller may do."""

    tenant: str
    scopes: list[str]
    reviewer: str | None  # the only one that it may claim reviews for
    expires: float | None  # seconds since 1970; None: it is no session, but a key, or everyone
    open: bool  # there are no keys: everyone on this machine may call
    key: str  # the id of the key; '' where everyone may call


def session_reply(caller: Caller, session: SessionRow | None) -> SessionReply:
    """Return what is told of a caller."""
    return SessionReply(
        tenant=caller.tenant,
        scopes=[scope for scope in SCOPES if scope in caller.scopes],
        reviewer=caller.reviewer,
        expires=None if session is None else session.expires / MICRO,
        open=not caller.key,
        key=caller.key,
    )


def access_of(request: AnyRequest) -> Access:
    """Return what knows keys and sessions."""
    return cast("Access", request.app.state.access)


async def logging_in(access: Access, request: AnyRequest, body: SessionBody) -> Caller:
    """Return who opens a session; raise if the key is none, or is for another reviewer."""
    if await access.is_open() and body.key is None:
        check_open_call(request.scope)
        return EVERYONE._replace(reviewer=body.reviewer)
    check_same_origin(request.scope)
    if body.key is None:
        raise Problem(401, "unauthorized", NO_KEY)
    row = await access.key(body.key.strip())
    if row.reviewer is not None and body.reviewer not in (None, row.reviewer):
        raise Problem(403, "forbidden", f"The key is for the reviewer {row.reviewer!r} alone.")
    return Caller(row.tenant, frozenset(row.scopes.split()), row.id, row.reviewer or body.reviewer)


@post("/v1/session", opt=about("session", problems=(401, 403, 429), example={"key": "dk_0123_secret", "reviewer": ANN}))
async def open_session(request: AnyRequest, data: JSONBody[SessionBody]) -> Response[SessionReply]:
    """Open a session with a key: the reply sets a cookie, which is then good for what the key is good for.

    It ends after `--session-s` seconds, when it is closed, or with the key.
    """
    access, store = access_of(request), engine_of(request).store
    caller = await logging_in(access, request, data)
    access.count(caller.tenant)
    seconds = request.app.state.settings.session_s
    token, row = new_session(caller.key, caller.tenant, caller.reviewer, seconds)
    before = await access.session(request.scope)
    async with access.turn_to_write(caller.tenant, engine_of(request).ownership.busy):
        if before is not None:
            await asyncio.to_thread(store.revoke_session, before.id, now_micros())
        await asyncio.to_thread(store.add_session, row, most=MOST_OF_A_KEY)
    access.forget_sessions()
    response = sent(session_reply(caller, row), SessionReply, 201)
    response.headers["set-cookie"] = set_cookie(request.scope, token, seconds)
    return response


@get("/v1/session", opt=about("session", *SCOPES))
async def read_session(request: AnyRequest) -> Response[SessionReply]:
    """Say who calls, and what that caller may do."""
    session = await access_of(request).session(request.scope)
    return sent(session_reply(caller_of(request), session), SessionReply)


@delete("/v1/session", status_code=204, opt=about("session", *SCOPES))
async def close_session(request: AnyRequest) -> Response[None]:
    """End the session of the cookie, if there is one."""
    access = access_of(request)
    session = await access.session(request.scope)
    if session is not None:
        async with access.turn_to_write(session.tenant, engine_of(request).ownership.busy):
            await asyncio.to_thread(engine_of(request).store.revoke_session, session.id, now_micros())
        access.forget_sessions()
    return Response(None, status_code=204, headers={"set-cookie": set_cookie(request.scope, "", 0)})


ROUTES = [open_session, read_session, close_session]
