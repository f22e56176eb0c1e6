"""Who may call what, how often."""

import asyncio
import time
from typing import Any

from litestar import Request

from deferkit.serve.keys import SCOPES, Caller, key_fits, parts_of
from deferkit.serve.problems import Problem
from deferkit.serve.rows import KeyRow
from deferkit.serve.store import Store

FRESH_S = 1.0  # a revoked key is refused after this long at the latest
EVERYONE = Caller("default", frozenset(SCOPES))


class Access:
    """Knows the keys. Without any, on a loopback address, everyone is the tenant `default`."""

    def __init__(self, store: Store, *, open_without_keys: bool, rate: float) -> None:
        self.store = store
        self.open_without_keys = open_without_keys
        self.rate = rate
        self._keys: dict[str, KeyRow] | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._allowance: dict[str, tuple[float, float]] = {}  # tenant: calls left, since when

    async def keys(self) -> dict[str, KeyRow]:
        """Return the keys, as they were a moment ago."""
        if self._keys is None or time.monotonic() - self._read_at > FRESH_S:
            async with self._reading:
                if self._keys is None or time.monotonic() - self._read_at > FRESH_S:
                    rows = await asyncio.to_thread(self.store.keys)
                    self._keys = {row.id: row for row in rows}
                    self._read_at = time.monotonic()
        return self._keys

    async def caller(self, header: str) -> Caller:
        """Return who calls; raise if that is nobody."""
        keys = await self.keys()
        if not keys and self.open_without_keys:
            return EVERYONE
        scheme, _, key = header.partition(" ")
        parts = parts_of(key.strip()) if scheme.lower() == "bearer" else None
        row = keys.get(parts[0]) if parts is not None else None
        if row is None or not key_fits(key.strip(), row) or row.revoked is not None:
            raise Problem(401, "unauthorized", "A valid key is needed: Authorization: Bearer dk_…")
        return Caller(row.tenant, frozenset(row.scopes.split()))

    def count(self, tenant: str) -> None:
        """Take a call off the tenant's allowance; raise if there is none left."""
        if not self.rate:
            return
        now = time.monotonic()
        most = max(1.0, self.rate)
        left, since = self._allowance.get(tenant, (most, now))
        left = min(most, left + (now - since) * self.rate)
        if left < 1:
            self._allowance[tenant] = (left, now)
            wait = (1 - left) / self.rate
            raise Problem(429, "too_many", f"More than {self.rate:g} calls a second.", retry_after=wait)
        self._allowance[tenant] = (left - 1, now)


async def admit(request: Request[Any, Any, Any]) -> None:
    """Let a call through if its key is good for the route; before its body is read.

    Not a guard of Litestar's: those copy the route at each call, which takes as long as the rest of this.
    """
    scope = request.route_handler.opt.get("scope")
    if scope is None:
        return
    access: Access = request.app.state.access
    given = next((value for name, value in request.scope["headers"] if name == b"authorization"), b"")
    caller = await access.caller(given.decode("latin-1"))
    wanted = (scope,) if isinstance(scope, str) else scope
    if caller.scopes.isdisjoint(wanted):
        raise Problem(403, "forbidden", f"The key has not the scope {' or '.join(sorted(wanted))}.")
    access.count(caller.tenant)
    request.scope["caller"] = caller  # type: ignore[typeddict-unknown-key]
