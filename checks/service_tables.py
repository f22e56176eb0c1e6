"""The tables of docs/service.md, made of the settings and the routes: `python -m checks.service_tables` writes them."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from deferkit.serve.domain.api_keys import SCOPES
from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document
from deferkit.serve.service_settings import PREFIX, ServiceSettings, default_text

PAGE = Path(__file__).parents[1] / "docs" / "service.md"


def settings_table() -> list[str]:
    """Return the table of settings."""
    rows = ["| option | variable | default | |", "|---|---|---|---|"]
    for each in fields(ServiceSettings):
        option = f"--{each.name.replace('_', '-')}"
        variable = f"{PREFIX}{each.name.upper()}"
        rows.append(f"| `{option}` | `{variable}` | {default_text(each) or '–'} | {each.metadata['what']} |")
    return rows


def routes_table() -> list[str]:
    """Return the table of routes."""
    rows = ["| | scopes | |", "|---|---|---|"]
    for path, routes in document(ROUTES)["paths"].items():
        for method, each in routes.items():
            said = each["description"].partition("\n\nNeeds a key with the scope ")
            scopes = said[2].rstrip(".").replace(" or ".join(sorted(SCOPES)), "any") or "–"
            text = " ".join(said[0].split())
            rows.append(f"| `{method.upper()} {path}` | {scopes.replace(' or ', ', ')} | {text}{query_of(each)} |")
    return rows


def query_of(route: dict[str, Any]) -> str:
    """Return a sentence on the query parameters of a route; empty without any."""
    found = []
    for each in route.get("parameters", []):
        if each["in"] == "query":
            schema = each["schema"]
            default = f"; default {schema['default']}" if schema.get("default") not in (None, "") else ""
            most = f"; at most {schema['maximum']:,}" if schema.get("maximum", 2**53) < 2**53 - 1 else ""
            found.append(f"`{each['name']}` ({schema['description'].rstrip('.')}{default}{most})")
    return f" Query: {', '.join(found)}." if found else ""


def place_of(rows: list[str], lines: list[str]) -> slice:
    """Return the lines of the table that begins with the first of these rows."""
    start = lines.index(rows[0])
    return slice(start, next(i for i in range(start, len(lines) + 1) if i == len(lines) or not lines[i]))


def main() -> None:
    lines = PAGE.read_text().splitlines()
    for rows in (settings_table(), routes_table()):
        lines[place_of(rows, lines)] = rows
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
