"""From what a caller hands in to JSON, and from the service's JSON to what the library returns."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from deferkit.errors import BudgetExhausted, DeferkitError, InvalidArgument, ServiceError, expected
from deferkit.types import Amount, Decision, is_number, plain

DECIMALS = 6  # of money: the service counts whole micro-units
EXHAUSTED = "exhausted"
NO_SUCH_ROUTE = (404, 405, 501)  # what a web server that is not ours says to a call
Failures = Mapping[int, type[DeferkitError]]
"""Errors of the library by status."""


def to_json(body: Any) -> bytes:
    """Return plain data as JSON; arrays within it as lists.

    >>> to_json({"answer": {1, 2}})
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: The call cannot be written as JSON: Object of type set is not JSON serializable.
    """
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":"), default=to_list).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"The call cannot be written as JSON: {error}.") from error


def to_list(value: Any) -> Any:
    """Return an array or column as a list; raise TypeError for other objects."""
    for name in ("tolist", "to_list"):
        if hasattr(value, name):
            return getattr(value, name)()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def from_json(body: bytes, url: str) -> Any:
    """Return the reply of a service."""
    try:
        return json.loads(body)
    except ValueError:
        raise ServiceError(f"{url} does not answer as a deferkit service does.") from None


def problem_of(status: int, body: bytes, failures: Failures) -> DeferkitError:
    """Return the error that a reply stands for.

    >>> problem_of(422, b'{"status": 422, "code": "invalid", "detail": "Too long."}', {})
    InvalidArgument('Too long.')
    """
    try:
        said = json.loads(body)
        detail, code = str(said["detail"]), said.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        detail, code = f"The service answered with status {status}.", None
    if status in (400, 422):
        return InvalidArgument(detail)
    if code == EXHAUSTED:
        return BudgetExhausted(detail)
    if status in failures:
        return failures[status](detail)
    return ServiceError(detail, status=status)


def is_foreign(status: int, body: bytes) -> bool:
    """Return whether a reply says that there is no such route, and is not a problem as the service writes it.

    >>> is_foreign(404, b'{"status": 404, "code": "unknown", "detail": "No policy."}'), is_foreign(404, b"<html>")
    (False, True)
    """
    if status not in NO_SUCH_ROUTE:
        return False
    try:
        said = json.loads(body)
    except ValueError:
        return True
    return not (isinstance(said, dict) and {"status", "code", "detail"} <= set(said))


def context_of(context: Any) -> list[Any] | dict[str, Any]:
    """Return a context as JSON can hold it: numbers, or named features.

    >>> context_of({"amount": 3, "age": float("nan"), "new": True})
    {'amount': 3, 'age': None, 'new': 'True'}
    """
    if isinstance(context, Mapping):
        return {str(name): feature_of(value) for name, value in context.items()}
    if hasattr(context, "tolist") or hasattr(context, "to_list"):
        context = to_list(context)
    if isinstance(context, str | bytes) or not isinstance(context, Iterable):
        raise expected("context", "Client", "numbers, or named features", context)
    numbers = [float(value) if is_number(value) else value for value in context]
    for place, value in enumerate(numbers):
        if isinstance(value, float) and not math.isfinite(value):
            raise expected("context", "Client", f"finite numbers (element {place})", value)
    return numbers


def feature_of(value: Any) -> Any:
    """Return a named feature as the encoder reads it: a number, a text, None if it is missing."""
    value = plain(value)
    try:
        if value is None or value != value:
            return None
    except TypeError:  # pandas' NA is neither equal nor unequal
        return None
    return value if is_number(value) or isinstance(value, str) else str(value)


def contexts_of(contexts: Any) -> list[list[Any] | dict[str, Any]]:
    """Return several contexts: rows of numbers, or named features as rows, as a frame or as columns.

    >>> contexts_of({"amount": [3, 4], "kind": ["a", "b"]})
    [{'amount': 3, 'kind': 'a'}, {'amount': 4, 'kind': 'b'}]
    """
    if hasattr(contexts, "columns") and hasattr(contexts, "to_numpy"):
        contexts = {name: contexts[name] for name in contexts.columns}
    if isinstance(contexts, Mapping):
        columns = {name: to_list(c) if hasattr(c, "to_list") else list(c) for name, c in contexts.items()}
        if len({len(column) for column in columns.values()}) > 1:
            raise expected("contexts", "Client", "columns of one length", list(columns))
        contexts = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(contexts, str | bytes) or not isinstance(contexts, Iterable):
        raise expected("contexts", "Client", "rows of numbers, or named features", contexts)
    return [context_of(each) for each in contexts]


def amount_of(name: str, amount: Any) -> Any:
    """Return an amount, or amounts by name, rounded to the decimals that the service books.

    >>> amount_of("cost", 0.12345678), amount_of("cost", {"minutes": 2, "euros": 1.2345674})
    (0.123457, {'minutes': 2.0, 'euros': 1.234567})
    """
    if amount is None:
        return None
    if isinstance(amount, Mapping):
        return {str(each): amount_of(name, value) for each, value in amount.items()}
    if not is_number(amount) or not math.isfinite(amount):
        raise expected(name, "Client", "a finite number, or one for each name", amount)
    return round(float(amount), DECIMALS)


def rewards_of(rewards: Mapping[str, float] | None) -> dict[str, float]:
    """Return rewards by decider.

    >>> rewards_of({"human": 1, "model": False})
    {'human': 1.0, 'model': 0.0}
    """
    if rewards is None:
        return {}
    if not isinstance(rewards, Mapping):
        raise expected("rewards", "Client", "numbers by decider", rewards)
    for value in rewards.values():
        if not isinstance(value, bool) and not (is_number(value) and math.isfinite(value)):
            raise expected("rewards", "Client", "finite numbers by decider", value)
    return {str(name): float(value) for name, value in rewards.items()}


def names_of(name: str, names: Any) -> list[str] | None:
    """Return names as a list; a text is not one, although its letters are.

    >>> names_of("available", ("ann", "bo"))
    ['ann', 'bo']
    """
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise expected(name, "Client", "a list of names", names)
    return list(names)


def drop_none(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None.

    >>> drop_none(task="a", cost=None)
    {'task': 'a'}
    """
    return {name: value for name, value in fields.items() if value is not None}


def unending(amount: Any) -> Amount:
    """Return an amount with infinity where the service says null: a budget without end.

    >>> unending(None), unending({"minutes": 2.0, "euros": None})
    (inf, {'minutes': 2.0, 'euros': inf})
    """
    if isinstance(amount, Mapping):
        return {name: math.inf if value is None else value for name, value in amount.items()}
    return math.inf if amount is None else float(amount)


def decision_of(reply: Mapping[str, Any]) -> Decision:
    """Return a decision as the library has it."""
    fields = {name: reply[name] for name in Decision._fields}
    return Decision(**fields | {"budget_left": unending(reply["budget_left"])})
