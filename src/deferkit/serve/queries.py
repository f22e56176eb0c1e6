"""The named queries of `sql/`, read once, in the form that a database wants its parameters in."""

import re
from importlib import resources
from typing import NamedTuple

PARAMETER = re.compile(r"(?<!:):([a-z_0-9]+)")
HEAD = re.compile(r"^-- name: (\w+)(?: \((\w+)\))?$", re.MULTILINE)


class Query(NamedTuple):
    """A statement and the order of its parameters."""

    sql: str
    names: tuple[str, ...]


def read(dialect: str, mark: str) -> dict[str, Query]:
    """Return the queries for a dialect, with `mark` in the place of each parameter.

    >>> read("sqlite", "?")["parked"]
    Query(sql='SELECT policy, task, body, at FROM parked WHERE policy = ? AND task = ?', names=('policy', 'task'))
    """
    text = resources.files("deferkit.serve").joinpath("sql/queries.sql").read_text()
    _, *parts = HEAD.split(text)
    found: dict[str, Query] = {}
    for name, only, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if only is None or only == dialect:
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            sql = "\n".join(lines).strip().removesuffix(";")
            found[name] = Query(PARAMETER.sub(mark, sql), tuple(PARAMETER.findall(sql)))
    return found


def migrations() -> list[str]:
    """Return the numbered files that make the schema, in order."""
    folder = resources.files("deferkit.serve").joinpath("sql/schema")
    return [each.read_text() for each in sorted(folder.iterdir(), key=lambda f: f.name) if each.name.endswith(".sql")]
