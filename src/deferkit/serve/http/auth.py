"""Authentication: API keys, sessions, and the checks of requests that come from a browser."""

import asyncio
import hashlib
import math
import re
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar import Request, Response
from litestar.types import HTTPScope
from litestar.typing import FieldDefinition

from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.api_keys import SCOPES, Caller, key_fits, parts_of
from deferkit.serve.domain.problems import Problem, StoreFailed, invalid, unknown
from deferkit.serve.domain.rows import KeyRow, SessionRow
from deferkit.serve.domain.spec import NAME_PATTERN
from deferkit.serve.http.forwarding import header, is_this_machine
from deferkit.serve.http.route_support import parameter_name
from deferkit.serve.storage.store import Store
from deferkit.serve.structured_logs import logger

Id = TypeVar("Id")
Row = TypeVar("Row")


class FreshRows(Generic[Id, Row]):
    """All rows of a table by id, in memory.

    Args:
        read: Reads them from the database.
        thread: Where that is done.
    """

    def __init__(self, read: Callable[[], Mapping[Id, Row]], thread: Executor) -> None:
        self._read = read
        self._thread = thread
        self._rows: Mapping[Id, Row] | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def get(self, age_s: float) -> Mapping[Id, Row]:
        """Return the rows, as they were this long ago at most."""
        if self._rows is None or time.monotonic() - self._read_at > age_s:
            async with self._reading:
                if self._rows is None or time.monotonic() - self._read_at > age_s:
                    began = time.monotonic()
                    self._rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._read)
                    self._read_at = began
        return self._rows

    async def add(self, number: Id, row: Row) -> None:
        """Add a row that was just written, before the next reload."""
        async with self._reading:  # who reads them now may have begun before it was written
            if self._rows is not None:
                self._rows = {**self._rows, number: row}

    def forget(self) -> None:
        """Reload the rows at the next call, because one was written."""
        self._read_at = -math.inf


COOKIE = "deferkit_session"
MAX_OF_A_KEY = 100  # sessions; one more ends the oldest


def new_session(key: str, tenant: str, reviewer: str | None, session_s: float, now: int) -> tuple[str, SessionRow]:
    """Return the token of a new session, and its row in the store.

    Args:
        key: The id of the key that it is opened with; '' where everyone may call.
        tenant: Whose key that is.
        reviewer: The only reviewer that it claims reviews for; None: any.
        session_s: Seconds after which it ends.
        now: The time in microseconds.

    >>> token, row = new_session("0123", "acme", "ann", 3600, 0)
    >>> row.id == id_of(token), row.expires - row.created
    (True, 3600000000)
    """
    token = secrets.token_urlsafe(32)
    return token, SessionRow(id_of(token), key, tenant, reviewer, now, now + int(session_s * MICRO))


def id_of(token: str) -> bytes:
    """Return the session id of a token: its hash, so that the store does not contain the token."""
    return hashlib.sha256(token.encode("latin-1")).digest()


def token_of(scope: Mapping[str, Any]) -> str | None:
    """Return the session token of a request; None without a session cookie.

    >>> token_of({"headers": [(b"cookie", b"theme=dark; deferkit_session=abc")]})
    'abc'
    """
    for each in header(scope, b"cookie").decode("latin-1").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE and value:
            return value
    return None


def set_cookie(scope: Mapping[str, Any], token: str, age_s: float) -> str:
    """Return the header that sets the session cookie, or deletes it (0 seconds).

    A browser sends it back over TLS alone, if the page came over TLS: the service's own, or a proxy's.
    """
    secure = scope["scheme"] == "https" or header(scope, b"origin").startswith(b"https://")
    rest = "; Secure" if secure else ""
    return f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={int(age_s)}{rest}"


READS = ("GET", "HEAD", "OPTIONS")
OURS = (b"same-origin", b"none")  # none: a person typed the address


def check_same_origin(scope: Mapping[str, Any], *, reads: bool = False) -> None:
    """Raise if a page of another origin makes this request with rights that are not in the request itself.

    Args:
        scope: The request.
        reads: Refuse GET and HEAD as well.
    """
    if not reads and scope["method"] in READS:
        return
    site, origin = header(scope, b"sec-fetch-site"), header(scope, b"origin")
    refused = site not in OURS if site else origin and origin.partition(b"://")[2] != header(scope, b"host")
    if refused:
        raise Problem(403, "cross_site", "A page of another site may not call the service.")


def page_headers(image_hosts: str) -> dict[str, str]:
    """Return the headers of every page and file of the console.

    Args:
        image_hosts: Hosts whose images a page may show, separated by commas; as secure as the page, or more.

    >>> page_headers("")["content-security-policy"].split("; ")[3]
    "img-src 'self' data:"
    >>> page_headers("img.example, cdn.example:8443")["content-security-policy"].split("; ")[3]
    "img-src 'self' data: img.example cdn.example:8443"
    """
    images = "".join(f" {host.strip()}" for host in image_hosts.split(",") if host.strip())
    policy = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        f"img-src 'self' data:{images}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return {
        "content-security-policy": "; ".join(policy),
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }


FRESH_S = 1.0  # a revoked key is refused after this long at the latest
USE_S = 60.0  # how often the last use of keys is written
NEW_S = 0.05  # and a new one is known; what is not a key at all does not keep the database busier than this
KEY_CHANGES = 100  # keys that a tenant may make or revoke at once: after that one a second
clock = time.monotonic
EVERYONE = Caller("default", frozenset(SCOPES))
NO_KEY = "A valid key is needed: Authorization: Bearer dk_…"


def check_open_call(scope: Mapping[str, Any]) -> None:
    """Raise if a call without keys may come from a page of another site.

    Only those call who know this machine as such: a page that a browser got from elsewhere can give its own name our
    address, but then sends that name.
    """
    if not is_this_machine(header(scope, b"host")):
        raise Problem(403, "forbidden", "Without keys the service answers to localhost only. Make a key.")
    check_same_origin(scope, reads=True)


class CallAllowance:
    """Limits the rate of something, for each tenant.

    Args:
        rate: How many a second are allowed; 0 for any number.
        most: How many are allowed at once, if there were none for a while.
        what: What is counted, for the message.
    """

    def __init__(self, rate: float, most: float, what: str) -> None:
        self.rate = rate
        self.most = most
        self.what = what
        self._left: dict[str, tuple[float, float]] = {}  # by tenant: how many are left, since when

    def take(self, tenant: str) -> None:
        """Count a call; raise if none is left."""
        if not self.rate:
            return
        now = clock()
        left, since = self._left.get(tenant, (self.most, now))
        left = min(self.most, left + (now - since) * self.rate)
        if left < 1:
            self._left[tenant] = (left, now)
            wait = (1 - left) / self.rate
            raise Problem(429, "too_many", f"More than {self.rate:g} {self.what} a second.", retry_after=wait)
        self._left[tenant] = (left - 1, now)


class Access:
    """Knows the keys and sessions. Without any key, on a loopback address, everyone is the tenant `default`.

    Args:
        store: Where they are.
        now: Returns the time in microseconds, by a clock that nobody can set, so that keys do not expire early.
        open_without_keys: Whether everyone may call while there is no key.
        rate: How many calls a tenant may make in a second; 0 for any number.
    """

    def __init__(self, store: Store, *, now: Callable[[], int], open_without_keys: bool, rate: float) -> None:
        self.store = store
        self.now = now
        self.open_without_keys = open_without_keys
        self.calls = CallAllowance(rate, max(1.0, rate), "calls")
        self.key_changes = CallAllowance(1.0, KEY_CHANGES, "keys made or revoked")
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by tenant
        # a thread of its own: every call waits for this, and none is to wait behind callers that read long logs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keys")
        self._keys = FreshRows(lambda: {row.id: row for row in store.keys()}, self._thread)  # noqa: SIM118
        self._sessions = FreshRows(lambda: {row.id: row for row in store.sessions(now())}, self._thread)
        self._used: dict[str, int] = {}  # key: when, since the last time that was written

    async def keys(self, age_s: float) -> Mapping[str, KeyRow]:
        """Return the keys, read at most `age_s` seconds ago."""
        return await self._keys.get(age_s)

    @asynccontextmanager
    async def turn_to_write(self, tenant: str, busy: asyncio.Lock) -> AsyncIterator[None]:
        """Wait to write a key or session between two groups of commands, one of a tenant at a time.

        So waiting commands are delayed by at most one write of each tenant.
        """
        async with self._turns[tenant], busy:
            yield

    def count(self, tenant: str) -> None:
        """Count a call; raise if the tenant has none left."""
        self.calls.take(tenant)

    async def put_key(self, row: KeyRow) -> None:
        """Add a key that was just created or revoked, before the next reload."""
        await self._keys.add(row.id, row)

    def forget_sessions(self) -> None:
        """Reload the sessions at the next call, because one was opened or closed."""
        self._sessions.forget()

    def close(self) -> None:
        """Stop the reload thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def caller(self, scope: Mapping[str, Any]) -> Caller:
        """Return the caller, by API key or browser session; raise if neither is valid."""
        if await self.is_open():
            check_open_call(scope)
            session = await self.session(scope)
            return EVERYONE if session is None or session.key else EVERYONE._replace(reviewer=session.reviewer)
        if authorization := header(scope, b"authorization"):
            scheme, _, key = authorization.decode("latin-1").partition(" ")
            return self._calling(await self.key(key.strip() if scheme.lower() == "bearer" else ""))
        check_same_origin(scope)
        session = await self.session(scope)
        row = None if session is None else (await self.keys(FRESH_S)).get(session.key)
        if session is None or row is None or not row.usable(self.now()):
            raise Problem(401, "unauthorized", NO_KEY)
        return self._calling(row)._replace(reviewer=row.reviewer or session.reviewer, session=session.id.hex())

    def _calling(self, row: KeyRow) -> Caller:
        self._used[row.id] = self.now()
        return Caller(row.tenant, frozenset(row.scopes.split()), row.id, row.reviewer, bound=row.reviewer is not None)

    async def is_open(self) -> bool:
        """Whether everyone on this machine may call, because there are no keys."""
        return self.open_without_keys and not await self.keys(FRESH_S)

    async def key(self, key: str) -> KeyRow:
        """Return the row of a key; raise if it is not one that may be used."""
        parts = parts_of(key)
        row = (await self.keys(FRESH_S)).get(parts[0]) if parts is not None else None
        if row is None and parts is not None:
            row = (await self.keys(NEW_S)).get(parts[0])
        if row is None or not key_fits(key, row) or not row.usable(self.now()):
            raise Problem(401, "unauthorized", NO_KEY)
        return row

    async def session(self, scope: Mapping[str, Any]) -> SessionRow | None:
        """Return the session of a request's cookie; None without one, or if it has ended."""
        token = token_of(scope)
        if token is None:
            return None
        number = id_of(token)
        found = (await self._sessions.get(FRESH_S)).get(number) or (await self._sessions.get(NEW_S)).get(number)
        return found if found is not None and found.expires > self.now() else None

    async def record_use(self) -> None:
        """Write the last-used times of the keys that were used since the previous write."""
        used, self._used = self._used, {}
        if used:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self.store.use_keys, used)
            except StoreFailed as error:
                logger.warning("the last use of keys is not written", extra={"error": str(error)})

    async def record_use_regularly(self) -> None:
        """Write when keys were last used, once a minute: not one write for each call."""
        while True:
            await asyncio.sleep(USE_S)
            await self.record_use()


NOT_IN_QUERY = {"request", "name", "data"}
NAME = re.compile(NAME_PATTERN)


async def admit(request: Request[Any, Any, Any]) -> Response[None] | None:
    """Let a call through if its key has the scopes of the route; before its body is read.

    Not a guard of Litestar's: those copy the route at each call, which takes as long as the rest of this.
    """
    handler, scope = request.route_handler, request.scope
    wanted = handler.opt.get("scopes")
    if wanted is None:
        return options(request) if request.method == "OPTIONS" else None
    await admit_caller(request.app.state.access, scope, wanted)
    if (name := scope["path_params"].get("name")) is not None:
        check_name(name)
    if scope["query_string"]:
        parameters = handler.parsed_fn_signature.parameters
        known = {parameter_name(name): each for name, each in parameters.items() if name not in NOT_IN_QUERY}
        check_query(scope["query_string"], known)
    return None


async def admit_caller(access: Access, scope: HTTPScope, wanted: frozenset[str]) -> Caller:
    """Return the caller, and count the call; raise if the key has none of the required scopes."""
    caller = await access.caller(scope)
    if caller.scopes.isdisjoint(wanted):
        raise Problem(403, "forbidden", f"The key does not have the scope {' or '.join(sorted(wanted))}.")
    access.count(caller.tenant)
    scope["caller"] = caller  # type: ignore[typeddict-unknown-key]
    return caller


def check_name(name: str) -> None:
    """Raise if a policy name is invalid."""
    if not NAME.match(name):
        raise unknown("policy", name)


def options(request: Request[Any, Any, Any]) -> Response[None]:
    """Return the methods of a path; Litestar would leave out those of the path's later routes."""
    path = request.scope["path_template"]
    methods = {method for route in request.app.routes if route.path_format == path for method in route.methods}
    return Response(None, status_code=204, headers={"Allow": ", ".join(sorted(methods))})


def check_query(query: bytes, known: Mapping[str, FieldDefinition]) -> None:
    """Raise if the query is not as strict as a body: an unknown parameter, one twice, a value out of bounds."""
    seen: set[str] = set()
    for name, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise invalid(f"There is no parameter {name!r}. There is {', '.join(known) or 'none'}.")
        if name in seen:
            raise invalid(f"The parameter {name} is given twice.")
        seen.add(name)
        if known[name].annotation is int and not (text.isascii() and text.isdigit()):
            raise invalid(f"The parameter {name} is a whole number.")
        try:
            msgspec.convert(text, known[name].raw, strict=False)
        except msgspec.ValidationError as error:
            raise invalid(f"The parameter {name}: {error}.") from None
