"""OpenAPI document, generated from the routes and the types of their bodies."""

import inspect
import re
from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from litestar.handlers import HTTPRouteHandler

from deferkit.serve.api.common import ProblemReply
from deferkit.serve.http.route_support import PROBLEMS, Route, parameter_name, route_of
from deferkit.version import __version__

NAME = "name"  # the parameter in the path of most routes
DESCRIPTION = """Decisions between a model and experts under a budget, with a review queue.

Requests are idempotent unless their description says otherwise: a repeated request gets the same reply and changes
nothing. A request that contradicts an earlier one gets 409. After 429 and 503, retry after the time in Retry-After."""
KEY = "A key from `deferkit keys create`. A service on a loopback address needs none until the first key exists."
HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}}},
    429: {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}},
    503: {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}},
}


def document(handlers: Iterable[HTTPRouteHandler]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    handlers = list(handlers)
    kinds: set[Any] = {ProblemReply}
    for handler in handlers:
        kinds |= {body_of(handler), reply_of(handler), *route_of(handler).also.values()}
    structs = sorted(filter(is_struct, kinds), key=lambda kind: str(kind.__name__))
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for handler in handlers:
        path = next(iter(handler.paths)).replace(":str}", "}")
        method = next(iter(handler.http_methods)).lower()
        paths.setdefault(path, {})[method] = operation(handler)
    return {
        "openapi": "3.1.0",
        "info": {"title": "deferkit", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {f"Problem{status}": problem(status) for status in PROBLEMS},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": KEY,
                }
            },
        },
    }


def operation(handler: HTTPRouteHandler) -> dict[str, Any]:
    """Return the operation object of a route."""
    route = route_of(handler)
    text = inspect.getdoc(handler.fn) or ""
    found: dict[str, Any] = {
        "operationId": handler.fn.__name__,
        "summary": re.split(r"[.:;]\s|\.$", text)[0],
        "description": text + scopes_of(route),
        "tags": [route.tag],
        "security": [{"key": []}] if route.scopes else [],
    }
    if parameters := parameters_of(handler):
        found["parameters"] = parameters
    if body := body_of(handler):
        content: dict[str, Any] = {"schema": reference(body)}
        if route.example is not None:
            content["example"] = route.example
        found["requestBody"] = {"required": True, "content": {"application/json": content}}
    found["responses"] = responses_of(handler)
    return found


def scopes_of(route: Route) -> str:
    """Return the security requirement of a route, as a sentence."""
    return f"\n\nNeeds a key with the scope {' or '.join(sorted(route.scopes))}." if route.scopes else ""


def parameters_of(handler: HTTPRouteHandler) -> list[dict[str, Any]]:
    """Return the parameters of a route: the name in its path, the rest in the query."""
    found = []
    for name, field in handler.parsed_fn_signature.parameters.items():
        if name not in ("request", "data"):
            schema = msgspec.json.schema(field.raw)
            if field.has_default:
                schema["default"] = field.default
            where = "path" if name == NAME else "query"
            shown = parameter_name(name)
            found.append({"name": shown, "in": where, "required": not field.has_default, "schema": schema})
    return found


def body_of(handler: HTTPRouteHandler) -> Any:
    """Return the type of a route's body; None without a body."""
    field = handler.parsed_fn_signature.parameters.get("data")
    return None if field is None else field.annotation


def reply_of(handler: HTTPRouteHandler) -> Any:
    """Return the type of a route's reply."""
    return get_args(handler.parsed_fn_signature.return_type.annotation)[0]


def is_struct(kind: Any) -> bool:
    """Whether the document has a schema for a type."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def reference(kind: Any) -> dict[str, str]:
    """Return the reference to the schema of a type."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def response(kind: Any, what: str, text: str = "text/plain") -> dict[str, Any]:
    """Return the response object of a type; None has no content, and a text has this media type."""
    if kind in (None, type(None)):
        return {"description": what}
    schema = reference(kind) if is_struct(kind) else msgspec.json.schema(kind)
    return {"description": what, "content": {text if kind is str else "application/json": {"schema": schema}}}


def problem(status: int) -> dict[str, Any]:
    """Return the response object of a problem."""
    return response(ProblemReply, PROBLEMS[status]) | ({"headers": HEADERS[status]} if status in HEADERS else {})


def responses_of(handler: HTTPRouteHandler) -> dict[str, Any]:
    """Return the responses of a route, by status."""
    route, kind = route_of(handler), reply_of(handler)
    found: dict[int, dict[str, Any]] = {}
    for status, each in {handler.status_code: kind, **route.also}.items():
        said = (inspect.getdoc(each) if is_struct(each) else None) or "The reply."
        found[status] = response(each, said, str(handler.media_type or "text/plain"))
    for status in problems_of(handler):
        found[status] = {"$ref": f"#/components/responses/Problem{status}"}
    return {str(status): found[status] for status in sorted(found)}


def problems_of(handler: HTTPRouteHandler) -> set[int]:
    """Return the error statuses of a route."""
    route, parameters = route_of(handler), handler.parsed_fn_signature.parameters
    found = {500, 503, *route.problems}
    if route.scopes:
        found |= {401, 403, 422, 429}  # 422: a parameter that the route does not know
    if "data" in parameters:
        found |= {400, 408, 413, 415, 422}
    if NAME in parameters:
        found.add(404)
    return found
