"""Strict JSON: what is not exactly what was asked for is refused, with a sentence that says why."""

import json
import re
from typing import Any

import msgspec
from litestar import Request
from litestar.types import Empty, HTTPScope, Receive

from deferkit.serve.domain.problems import Problem, invalid
from deferkit.serve.http.headers import header

DEEPEST = 64  # lists and objects within each other
NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
TEXT = re.compile(rb'"[^"]*"')
EMPTY = "The body is empty; JSON is expected."
NAMED = re.compile(rb'"([^"]*)"(\s*:)?')  # all texts: what looks like a name may stand within another text


class RepeatedKey(ValueError):
    """An object has a key twice; readers of JSON do not agree on which one counts."""


def unique(pairs: list[tuple[str, Any]]) -> None:
    """Raise if a key comes twice."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise RepeatedKey


def depth(raw: bytes) -> int:
    r"""Return how deep a JSON document goes; 1 if it has not enough in it to go too deep.

    >>> depth(b"[" * 65 + b"]" * 65), depth(b"[]" * 70), depth(b'["[[ \\"[[ \\\\"]' * 70)
    (65, 1, 1)
    """
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return 1
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, NOT_STRUCTURE)
    level = deepest = 0
    for each in TEXT.sub(b"", bare):
        level += 1 if each in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


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
    try:
        value = msgspec.json.decode(raw, type=kind)
        names = [name for name, colon in NAMED.findall(raw) if colon]
        if len(set(names)) != len(names) or b"\\" in raw:  # the same name in two objects, or one spelled differently
            json.loads(raw, object_pairs_hook=unique)
    except RepeatedKey:
        raise invalid("The body has a key twice.") from None
    except msgspec.ValidationError as error:
        raise invalid(f"{error}.") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Problem(400, "not_json", f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise Problem(400, "not_json", "The body is nested too deeply.") from None
    if depth(raw) > DEEPEST:
        raise invalid(f"The body is nested deeper than {DEEPEST} levels.")
    return value


def check_json(scope: HTTPScope) -> None:
    """Raise if a body is not sent as JSON: a form on a foreign page can send anything but that unasked."""
    if header(scope, b"content-type").partition(b";")[0].strip().lower() != b"application/json":
        raise Problem(415, "not_json", "A body is sent as content-type: application/json.")


async def received(receive: Receive) -> bytes:
    """Return the body of a request as it came; most come in one piece."""
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
    """A request whose body is read strictly; Litestar by itself would take "1" for 1."""

    async def body(self) -> bytes:
        """Return the body as it came; most come in one piece."""
        if self._body is Empty:
            self._body = await received(self.receive)
        return self._body

    async def json(self) -> Any:
        """Return the body as what the handler asks for."""
        check_json(self.scope)
        wanted = self.scope["route_handler"].parsed_data_field
        return decode(await self.body(), Any if wanted is None else wanted.annotation)
