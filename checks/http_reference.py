"""The page of the site on the HTTP interface, made of the OpenAPI document."""

import json
import re
from typing import Any

from checks.docstring_markdown import cell
from checks.web_types import type_of
from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document


def kind_of(schema: dict[str, Any]) -> str:
    """Return the kind of a value, with links to the schemas that it refers to.

    >>> kind_of({"anyOf": [{"$ref": "#/components/schemas/Timer"}, {"type": "null"}]})
    '[Timer](#schema-timer) \\\\| null'
    """
    text = cell(type_of(schema))
    for name in sorted(re.findall(r"/schemas/(\w+)", json.dumps(schema)), key=len, reverse=True):
        text = re.sub(rf"(?<![\[\w#-]){name}\b(?!\])", f"[{name}](#schema-{name.lower()})", text)
    return text


def schema_of(content: dict[str, Any]) -> str:
    """Return the kind of a body or reply, with its media type if that is not JSON."""
    [(media, each)] = content.items()
    kind = kind_of(each["schema"])
    return kind if media == "application/json" else f"{kind} ({media})"


def route_lines(method: str, path: str, route: dict[str, Any]) -> list[str]:
    """Return the part of the page on one route."""
    lines = [f"### {route['summary']}", "", f"`{method.upper()} {path}`", "", route["description"], ""]
    if parameters := [each for each in route.get("parameters", []) if each["in"] == "query"]:
        lines += ["| query | | default |", "|---|---|---|"]
        for each in parameters:
            schema = each["schema"]
            default = json.dumps(schema["default"]) if "default" in schema else "–"
            lines.append(f"| `{each['name']}` | {cell(schema.get('description', ''))} | {default} |")
        lines.append("")
    if body := route.get("requestBody"):
        lines += [f"Body: {schema_of(body['content'])}", ""]
        if "example" in body["content"]["application/json"]:
            lines += ["```json", json.dumps(body["content"]["application/json"]["example"], indent=2), "```", ""]
    lines += ["| status | |", "|---|---|"]
    for status, reply in route["responses"].items():
        if "$ref" in reply:
            continue
        kind = f": {schema_of(reply['content'])}" if "content" in reply else ""
        lines.append(f"| {status} | {cell(reply['description'])}{kind} |")
    problems = [status for status, reply in route["responses"].items() if "$ref" in reply]
    return [*lines, "", f"Problems: {', '.join(problems)}." if problems else "", ""]


def schema_lines(name: str, schema: dict[str, Any]) -> list[str]:
    """Return the part of the page on one schema."""
    lines = [f"### Schema: {name}", "", schema.get("description", ""), ""]
    fields = schema.get("properties")
    if not fields:
        return [*lines, f"`{type_of(schema)}`" if schema.get("type") != "object" else "", ""]
    lines += ["| field | kind | | default |", "|---|---|---|---|"]
    for field, each in fields.items():
        default = f"`{json.dumps(each['default'])}`" if "default" in each else ""
        if field in schema.get("required", ()):
            default = "required"
        lines.append(f"| `{field}` | {kind_of(each)} | {cell(said_of(each))} | {default} |")
    return [*lines, ""]


def said_of(schema: dict[str, Any]) -> str:
    """Return what is said of a value, or of one of its alternatives."""
    parts = [schema, *schema.get("anyOf", [])]
    return next((str(each["description"]) for each in parts if "description" in each and "$ref" not in each), "")


def http_page() -> str:
    """Return the page."""
    described = document(ROUTES)
    lines = [
        "# HTTP",
        "",
        described["info"]["description"],
        "",
        "A running service has the same as an OpenAPI document at `/v1/openapi.json`. "
        "[Settings and routes](service.md) has all routes in one table.",
        "",
    ]
    by_tag: dict[str, list[str]] = {}
    for path, routes in described["paths"].items():
        for method, route in routes.items():
            by_tag.setdefault(route["tags"][0], []).extend(route_lines(method, path, route))
    for tag, routes in by_tag.items():
        lines += [f"## {tag.capitalize()}", "", *routes]
    lines += ["## Schemas", ""]
    for name, schema in described["components"]["schemas"].items():
        lines += schema_lines(name, schema)
    return "\n".join(lines).rstrip() + "\n"
