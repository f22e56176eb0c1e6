"""The named queries of `sql/`, read once, in the form that a database wants its parameters in."""

import re
from importlib import resources
from typing import NamedTuple

PARAMETER = re.compile(r"(?<!:):([a-z_0-9]+)")
LIST = re.compile(r"IN \((:[a-z_0-9]+)\)")
HEAD = re.compile(r"^-- name: (\w+)(?: \((\w+)\))?$", re.MULTILINE)


class Query(NamedTuple):
    """A statement and the order of its parameters."""

    sql: str
    names: tuple[str, ...]


def read(dialect: str, mark: str, among: str) -> dict[str, Query]:
    """Return the queries for a dialect, with `mark` in the place of each parameter.

    A list of values cannot be written in the same way for all databases: `among` is this one's for `IN (:values)`.

    >>> read("sqlite", "?", "IN ({})")["drop_parked"]
    Query(sql='DELETE FROM parked WHERE policy = ? AND task = ?', names=('policy', 'task'))
    """
    text = resources.files("deferkit.serve.storage").joinpath("sql/queries.sql").read_text()
    _, *parts = HEAD.split(text)
    found: dict[str, Query] = {}
    for name, only, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if only is None or only == dialect:
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            sql = "\n".join(lines).strip().removesuffix(";")
            if mark.startswith("%"):
                sql = sql.replace("%", "%%")  # or it would be taken for a parameter
            names = tuple(PARAMETER.findall(sql))
            found[name] = Query(PARAMETER.sub(mark, LIST.sub(lambda m: among.format(m[1]), sql)), names)
    return found


def migrations() -> list[str]:
    """Return the numbered files that make the schema, in order."""
    folder = resources.files("deferkit.serve.storage").joinpath("sql/schema")
    return [each.read_text() for each in sorted(folder.iterdir(), key=lambda f: f.name) if each.name.endswith(".sql")]
