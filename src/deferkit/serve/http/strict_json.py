"""Strict decoding of JSON bodies.

Bodies are decoded in the event loop, where everybody else waits. So what one of them may take is bounded, by its size
and the number of its lists and objects, and large ones are decoded one at a time.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from litestar import Request
from litestar.types import Empty, HTTPScope, Receive

from deferkit.serve.domain.api_keys import Caller
from deferkit.serve.domain.problems import Problem, invalid
from deferkit.serve.http._json_scan import scan
from deferkit.serve.http.forwarding import header

DEEPEST = 64  # lists and objects within each other
RECURSION = 1000  # depth at which the decoder gives up by itself
MAX_CONTAINERS = 100_000  # lists and objects of one body
LARGE = 32_768  # bytes of a body that is decoded when no other large one is
EMPTY = "The body is empty; JSON is expected."
TWICE = "The body has a key twice."  # readers of JSON do not agree on which one counts
TOO_MANY = f"The body has more than {MAX_CONTAINERS:,} lists and objects."

decoder_of = lru_cache(maxsize=256)(msgspec.json.Decoder)
text_decoder = msgspec.json.Decoder(str)


def unescape(key: bytes) -> bytes:
    r"""Return a key without its quotes and escapes.

    >>> unescape(rb'"\u0061"'), unescape(rb'"\q"')
    (b'a', b'"\\q"')
    """
    try:
        return text_decoder.decode(key).encode()
    except (msgspec.DecodeError, UnicodeEncodeError):  # not JSON: the decoder of the whole body says so
        return key


def has_too_many_containers(raw: bytes) -> bool:
    """Return whether a body has too many lists and objects."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_CONTAINERS:
        return False
    depth, containers, _ = scan(raw, RECURSION, MAX_CONTAINERS, unescape)  # some brackets may stand in texts
    return containers > MAX_CONTAINERS and depth <= RECURSION


def decode(raw: bytes, kind: Any) -> Any:
    """Return the body of a request as a value of this kind.

    >>> decode(b'{"a": 1}', dict[str, int])
    {'a': 1}
    >>> decode(b'{"a": 1, "a": 2}', dict[str, int])
    Traceback (most recent call last):
    deferkit.serve.domain.problems.Problem: The body has a key twice.
    >>> decode(b'{"a": "1"}', dict[str, int])
    Traceback (most recent call last):
    deferkit.serve.domain.problems.Problem: Expected `int`, got `str` - at `$[...]`.
    """
    if has_too_many_containers(raw):
        raise invalid(TOO_MANY)
    try:
        value = decoder_of(kind).decode(raw)
    except msgspec.ValidationError as error:
        raise invalid(f"{error}.") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Problem(400, "not_json", f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise Problem(400, "not_json", "The body is nested too deeply.") from None
    depth, _, repeated = scan(raw, DEEPEST, MAX_CONTAINERS, unescape)
    if repeated:
        raise invalid(TWICE)
    if depth > DEEPEST:
        raise invalid(f"The body is nested deeper than {DEEPEST} levels.")
    return value


class BodyDecoder:
    """Decodes request bodies; large ones one at a time, with tenants in turn.

    After a large body, the event loop is free for as long as the decoding took.

    Args:
        charge: Called with the tenant and the seconds that decoding a large body took.
    """

    def __init__(self, charge: Callable[[str, float], None]) -> None:
        self.charge = charge
        self._turn = asyncio.Lock()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by tenant

    async def decode(self, raw: bytes, kind: Any, tenant: str) -> Any:
        """Decode the body of a tenant's request to a type; raise a `Problem` if it is invalid."""
        if len(raw) <= LARGE:
            return decode(raw, kind)
        async with self._turns[tenant], self._turn:
            began = time.perf_counter()
            try:
                return decode(raw, kind)
            finally:
                took = time.perf_counter() - began
                self.charge(tenant, took)
                await asyncio.sleep(took)


def check_json(scope: HTTPScope) -> None:
    """Raise if a body is not sent as JSON: a form on a foreign page can send anything but that unasked."""
    if header(scope, b"content-type").partition(b";")[0].strip().lower() != b"application/json":
        raise Problem(415, "not_json", "A body needs the header content-type: application/json.")


async def receive_body(receive: Receive) -> bytes:
    """Return the raw body of a request; most arrive in one piece."""
    parts = []
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Problem(408, "too_slow", "The request did not arrive.")  # nobody is there to read this
        parts.append(message["body"])
        more = message["more_body"]
    return parts[0] if len(parts) == 1 else b"".join(parts)


class StrictRequest(Request[Any, Any, Any]):
    """A request whose body is decoded strictly; Litestar would accept "1" for 1."""

    async def body(self) -> bytes:
        """Return the raw body; most arrive in one piece."""
        if self._body is Empty:
            self._body = await receive_body(self.receive)
        return self._body

    async def json(self) -> Any:
        """Return the body, decoded to the type that the handler declares."""
        check_json(self.scope)
        wanted = self.scope["route_handler"].parsed_data_field
        kind = Any if wanted is None else wanted.annotation
        caller: Caller | None = self.scope.get("caller")  # type: ignore[assignment]
        bodies: BodyDecoder = self.app.state.bodies
        return await bodies.decode(await self.body(), kind, "" if caller is None else caller.tenant)
