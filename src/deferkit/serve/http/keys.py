"""Routes of API keys and of sessions in the browser."""

import asyncio
from collections.abc import Callable
from typing import cast

from litestar import Response, delete, get, post
from litestar.params import JSONBody

from deferkit.serve.api.keys import KeyBody, KeyLine, KeyPage, NewKeyReply, RevocationBody, SessionBody, SessionReply
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.api_keys import SCOPES, Caller, new_key
from deferkit.serve.domain.problems import Problem, unknown
from deferkit.serve.domain.rows import KeyRow, SessionRow
from deferkit.serve.http.auth import (
    EVERYONE,
    MAX_OF_A_KEY,
    NO_KEY,
    Access,
    check_open_call,
    check_same_origin,
    new_session,
    set_cookie,
)
from deferkit.serve.http.route_support import AnyRequest, caller_of, engine_of, json_response, line_of, route_options

MAX_KEYS = 1000  # of a tenant that are neither revoked nor expired: all are read once a second


def key_line(row: KeyRow) -> KeyLine:
    """Return the public fields of a key."""
    times = {name: seconds(getattr(row, name)) for name in ("created", "expires", "revoked", "last_used")}
    return line_of(KeyLine, row, scopes=row.scopes.split(), **times)


def seconds(micros: int | None) -> float | None:
    """Return a time in seconds."""
    return None if micros is None else micros / MICRO


def administrator(request: AnyRequest) -> Caller:
    """Return the caller; raise if the call has no key, because the first key locks out all calls without one."""
    caller = caller_of(request)
    if not caller.key:
        raise Problem(
            403, "forbidden", "Creating a key over HTTP needs a key. Create the first one with `deferkit keys create`."
        )
    return caller


async def write_key(request: AnyRequest, tenant: str, write: Callable[[], KeyRow]) -> KeyRow:
    """Write a key and return it; raise if the tenant has changed too many keys recently."""
    access = request.app.state.access
    access.key_changes.take(tenant)
    async with access.turn_to_write(tenant, engine_of(request).ownership.busy):
        row = await asyncio.to_thread(write)
    await access.put_key(row)
    return row


@post("/v1/keys", opt=route_options("keys", "admin", problems=(409,), example={"scopes": ["decide"], "name": "router"}))
async def create_key(request: AnyRequest, data: JSONBody[KeyBody]) -> Response[NewKeyReply]:
    """Create a key of the caller's tenant, with scopes that the caller has. Each call creates another key."""
    caller, store = administrator(request), engine_of(request).store
    if beyond := sorted(set(data.scopes) - caller.scopes):
        raise Problem(
            403, "forbidden", f"The key does not have the scope {' and '.join(beyond)}, which the new key would have."
        )
    now = engine_of(request).clock.now()
    key, row = new_key(caller.tenant, data.scopes, data.name, now=now, expires_s=data.expires_s, reviewer=data.reviewer)

    def add() -> KeyRow:
        rows = store.keys()
        if sum(each.tenant == caller.tenant and each.usable(now) for each in rows) >= MAX_KEYS:
            raise Problem(409, "too_many", f"There are {MAX_KEYS:,} keys: revoke some.")
        own = next(each for each in rows if each.id == caller.key)
        if own.reviewer is not None and data.reviewer != own.reviewer:
            raise Problem(403, "forbidden", f"The key is for reviewer {own.reviewer!r}, as is any that it makes.")
        ends = own.expires
        if ends is not None and (row.expires is None or row.expires > ends):
            raise Problem(403, "forbidden", "The key expires, and one that it makes must not outlive it: expires_s.")
        store.add_key(row)
        return row

    await write_key(request, caller.tenant, add)
    return json_response(line_of(NewKeyReply, key_line(row), key=key), NewKeyReply, 201)


@get("/v1/keys", opt=route_options("keys", "admin"))
async def list_keys(request: AnyRequest) -> Response[KeyPage]:
    """List the keys of the caller's tenant, without secrets: scopes, expiry, last use."""
    caller = administrator(request)
    rows = await asyncio.to_thread(engine_of(request).store.keys)
    return json_response(KeyPage(keys=[key_line(row) for row in rows if row.tenant == caller.tenant]), KeyPage)


@post(
    "/v1/keys/revoke",
    status_code=200,
    opt=route_options("keys", "admin", problems=(404,), example={"id": "0123456789ab"}),
)
async def revoke_key(request: AnyRequest, data: JSONBody[RevocationBody]) -> Response[KeyLine]:
    """Revoke a key of the caller's tenant. It is refused within a second; repeating the call changes nothing."""
    caller, store = administrator(request), engine_of(request).store

    def revoke() -> KeyRow:
        store.revoke_key(data.id, engine_of(request).clock.now(), tenant=caller.tenant)
        found = [row for row in store.keys() if row.id == data.id and row.tenant == caller.tenant]  # noqa: SIM118
        if not found:
            raise unknown("key", data.id)
        return found[0]

    return json_response(key_line(await write_key(request, caller.tenant, revoke)), KeyLine)


KEY_ROUTES = [create_key, list_keys, revoke_key]


ANN = "ann"


def session_reply(caller: Caller, session: SessionRow | None) -> SessionReply:
    """Return the caller's session info."""
    return SessionReply(
        tenant=caller.tenant,
        scopes=[scope for scope in SCOPES if scope in caller.scopes],
        reviewer=caller.reviewer,
        expires=None if session is None else session.expires / MICRO,
        open=not caller.key,
        key=caller.key,
    )


def access_of(request: AnyRequest) -> Access:
    """Return the access control of the application."""
    return cast("Access", request.app.state.access)


async def logging_in(access: Access, request: AnyRequest, body: SessionBody) -> Caller:
    """Return the caller who opens a session; raise if the key is invalid or belongs to another reviewer."""
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


@post(
    "/v1/session",
    opt=route_options("session", problems=(401, 403, 429), example={"key": "dk_0123_secret", "reviewer": ANN}),
)
async def open_session(request: AnyRequest, data: JSONBody[SessionBody]) -> Response[SessionReply]:
    """Open a session with a key: the reply sets a cookie with the permissions of the key.

    The session ends after `--session-s` seconds, when it is closed, or with the key.
    """
    access, store = access_of(request), engine_of(request).store
    caller = await logging_in(access, request, data)
    access.count(caller.tenant)
    seconds = request.app.state.settings.session_s
    token, row = new_session(caller.key, caller.tenant, caller.reviewer, seconds, access.now())
    before = await access.session(request.scope)
    async with access.turn_to_write(caller.tenant, engine_of(request).ownership.busy):
        if before is not None:
            await asyncio.to_thread(store.revoke_session, before.id, access.now())
        await asyncio.to_thread(store.add_session, row, most=MAX_OF_A_KEY)
    access.forget_sessions()
    response = json_response(session_reply(caller, row), SessionReply, 201)
    response.headers["set-cookie"] = set_cookie(request.scope, token, seconds)
    return response


@get("/v1/session", opt=route_options("session", *SCOPES))
async def read_session(request: AnyRequest) -> Response[SessionReply]:
    """Read the caller's session info: tenant, scopes, reviewer, expiry."""
    session = await access_of(request).session(request.scope)
    return json_response(session_reply(caller_of(request), session), SessionReply)


@delete("/v1/session", status_code=204, opt=route_options("session", *SCOPES))
async def close_session(request: AnyRequest) -> Response[None]:
    """Close the session of the cookie, if there is one."""
    access = access_of(request)
    session = await access.session(request.scope)
    if session is not None:
        async with access.turn_to_write(session.tenant, engine_of(request).ownership.busy):
            await asyncio.to_thread(engine_of(request).store.revoke_session, session.id, access.now())
        access.forget_sessions()
    return Response(None, status_code=204, headers={"set-cookie": set_cookie(request.scope, "", 0)})


SESSION_ROUTES = [open_session, read_session, close_session]
