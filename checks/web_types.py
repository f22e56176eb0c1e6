"""The types of replies that the pages read, made of the OpenAPI document: `python -m checks.web_types` writes them."""

import json
from pathlib import Path
from typing import Any

from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document

PAGE = Path(__file__).parent / "web" / "types" / "api.d.ts"
HEAD = "// Replies of the service; `python -m checks.web_types` writes this file from its OpenAPI document."
REPLIES = (  # those that the pages read; all that they consist of follow
    "Overview",
    "SeriesReply",
    "EstimatesReply",
    "ReviewersReply",
    "WhatIfReply",
    "QueuePage",
    "TaskPage",
    "TaskReply",
    "PolicySpec",
    "ReviewReply",
    "KeyPage",
    "NewKeyReply",
    "WebhookPage",
    "NewWebhookReply",
    "DeliveryPage",
)
SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def type_of(schema: dict[str, Any]) -> str:
    """Return the TypeScript of a schema.

    >>> type_of({"anyOf": [{"type": "object", "additionalProperties": {"type": "number"}}, {"type": "null"}]})
    'Record<string, number> | null'
    >>> type_of({"type": "array", "items": {"enum": ["model", "wait"]}})
    '("model" | "wait")[]'
    """
    match schema:
        case {"$ref": reference}:
            found = str(reference).rpartition("/")[2]
        case {"anyOf": several}:
            found = " | ".join(dict.fromkeys(type_of(each) for each in several))
        case {"enum": values}:
            found = " | ".join(json.dumps(each) for each in values)
        case {"prefixItems": items}:
            found = f"[{', '.join(type_of(each) for each in items)}]"
        case {"type": "array", "items": item}:
            found = type_of(item)
            found = f"({found})[]" if "|" in found else f"{found}[]"
        case {"type": "object", "additionalProperties": {} as value}:
            found = f"Record<string, {type_of(value)}>"
        case {"type": "object"}:
            found = "Record<string, unknown>"
        case _:
            found = SIMPLE.get(str(schema.get("type")), "unknown")
    return found


def interface_of(name: str, schema: dict[str, Any]) -> list[str]:
    """Return an object as an interface. A field with a default is in every reply."""
    lines = [f"  /** {schema['description']} */"] if "description" in schema else []
    lines.append(f"  interface {name} {{")
    for field, each in schema["properties"].items():
        sure = field in schema.get("required", ()) or "default" in each
        lines.append(f"    {field}{'' if sure else '?'}: {type_of(each)};")
    return [*lines, "  }"]


def references(schema: Any) -> set[str]:
    """Return the names of all that a schema refers to."""
    if isinstance(schema, dict):
        found = {str(schema["$ref"]).rpartition("/")[2]} if "$ref" in schema else set()
        return found.union(*(references(each) for each in schema.values()))
    return set().union(*(references(each) for each in schema)) if isinstance(schema, list) else set()


def types() -> str:
    """Return the file."""
    schemas = document(ROUTES)["components"]["schemas"]
    wanted, queue = set(REPLIES), list(REPLIES)
    while queue:
        new = references(schemas[queue.pop()]) - wanted
        wanted |= new
        queue += sorted(new)
    blocks = ["\n".join(interface_of(name, schemas[name])) for name in sorted(wanted)]
    return f"{HEAD}\ndeclare namespace Api {{\n" + "\n\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    PAGE.write_text(types())
