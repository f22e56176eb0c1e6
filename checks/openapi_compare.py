"""Compare two OpenAPI documents: `python -m checks.openapi_compare BEFORE.json [AFTER.json]`.

AFTER is the document of this code by default; `--write FILE` writes that document. Texts (`description`, `summary`),
the version, and the allowed values of fields in `OPEN_FIELDS` may differ. Every other difference is printed, and the
exit code is then 1.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document

TEXTS = {"description", "summary"}
OPEN_FIELDS = {"representation", "embedding"}
# The keys of these objects are names, of a field, path, schema or status: a field may be called `description`.
NAME_MAPS = {"properties", "paths", "schemas", "responses", "securitySchemes", "headers"}
VALUES = {"example", "default", "const"}  # compared as they are
SETS = {"enum", "required"}  # in which order does not matter
MISSING = object()


def current_document() -> dict[str, Any]:
    """Return the document of this code, as JSON has it."""
    found: dict[str, Any] = json.loads(json.dumps(document(ROUTES)))
    return found


def operation_ids(described: dict[str, Any]) -> dict[str, str]:
    """Return the operationId of each method and path."""
    return {
        f"{method.upper()} {path}": operation["operationId"]
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


def keyed_items(key: str, items: list[Any]) -> dict[str, Any]:
    """Return the items of a list by what identifies them: a parameter's place and name, a set's value, or an index."""
    if key == "parameters":
        return {f"{each['in']} {each['name']}": each for each in items}
    if key in SETS:
        return {json.dumps(each): each for each in items}
    return {str(i): each for i, each in enumerate(items)}


def find_differences(before: Any, after: Any, at: tuple[str, ...] = (), *, named: bool = False) -> Iterator[str]:
    """Yield a line for each difference that is not allowed; `named` if the keys of an object are names."""
    key = at[-1] if at else ""
    is_value = not named and key in VALUES
    if isinstance(before, list) and isinstance(after, list) and not is_value:
        yield from find_differences(keyed_items(key, before), keyed_items(key, after), at, named=True)
    elif isinstance(before, dict) and isinstance(after, dict) and not is_value:
        in_schema_of_open_field = at[-2:-1] == ("properties",) and key in OPEN_FIELDS
        for each in dict.fromkeys([*before, *after]):
            is_text = not named and each in TEXTS
            is_allowed_value = in_schema_of_open_field and each != "default"
            if not is_text and not is_allowed_value and (*at, each) != ("info", "version"):
                here, there = before.get(each, MISSING), after.get(each, MISSING)
                is_map = not named and each in NAME_MAPS
                yield from find_differences(here, there, (*at, each), named=is_map)
    elif before is MISSING:
        yield f"{' > '.join(at)}: added {json.dumps(after)[:200]}"
    elif after is MISSING:
        yield f"{' > '.join(at)}: removed {json.dumps(before)[:200]}"
    elif before != after or type(before) is not type(after):
        yield f"{' > '.join(at)}: {json.dumps(before)[:200]} became {json.dumps(after)[:200]}"


def main() -> int:
    """Compare the documents that the command line names; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.write:
        given.write.write_text(json.dumps(current_document(), indent=1, ensure_ascii=False) + "\n")
    if given.before is None:
        return 0
    before = json.loads(given.before.read_text())
    after = json.loads(given.after.read_text()) if given.after else current_document()
    found = list(find_differences(before, after))
    print("\n".join(found) or "No difference but in texts and allowed values.")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
