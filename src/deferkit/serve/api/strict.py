"""Strict JSON: what is not exactly what was asked for is refused, with a sentence that says why."""

import json
import re
from typing import Any

import msgspec
from litestar import Request

from deferkit.serve.problems import Problem, invalid

NAME = re.compile(rb'"([^"]*)"\s*:')


class RepeatedKey(ValueError):
    """An object has a key twice; readers of JSON do not agree on which one counts."""


def unique(pairs: list[tuple[str, Any]]) -> None:
    """Raise if a key comes twice."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise RepeatedKey


def decode(raw: bytes, kind: Any) -> Any:
    """Return the body of a request as a value of this kind.

    >>> decode(b'{"a": 1}', dict[str, int])
    {'a': 1}
    >>> decode(b'{"a": 1, "a": 2}', dict[str, int])
    Traceback (most recent call last):
    deferkit.serve.problems.Problem: The body has a key twice.
    >>> decode(b'{"a": "1"}', dict[str, int])
    Traceback (most recent call last):
    deferkit.serve.problems.Problem: Expected `int`, got `str` - at `$[...]`.
    """
    try:
        value = msgspec.json.decode(raw, type=kind)
        names = NAME.findall(raw)
        if len(set(names)) != len(names) or b"\\" in raw:  # the same name in two objects, or one spelled differently
            json.loads(raw, object_pairs_hook=unique)
    except RepeatedKey:
        raise invalid("The body has a key twice.") from None
    except msgspec.ValidationError as error:
        raise invalid(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise Problem(400, "not_json", f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise Problem(400, "not_json", "The body is nested too deeply.") from None
    return value


class StrictRequest(Request[Any, Any, Any]):
    """A request whose body is read strictly; Litestar by itself would take "1" for 1."""

    async def json(self) -> Any:
        """Return the body as what the handler asks for."""
        wanted = self.scope["route_handler"].parsed_data_field
        return decode(await self.body(), Any if wanted is None else wanted.annotation)
