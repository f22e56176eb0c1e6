"""Named queries and migrations of `sql/`, with parameters in the style of a database driver."""

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


def read(dialect: str, placeholder: str, in_list: str) -> dict[str, Query]:
    """Return the named queries for a dialect.

    Parameters
    ----------
    dialect
        "sqlite" or "postgres"; queries of the other one are left out.
    placeholder
        What replaces each parameter `:name`.
    in_list
        What replaces `IN (:values)`, as a format string: drivers differ in how a list is passed.

    >>> read("sqlite", "?", "IN ({})")["drop_parked"]
    Query(sql='DELETE FROM parked WHERE policy = ? AND task = ?', names=('policy', 'task'))
    """
    text = resources.files("deferkit.serve.storage").joinpath("sql/queries.sql").read_text()
    _, *parts = HEAD.split(text)
    found: dict[str, Query] = {}
    for name, restricted_to, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if restricted_to is None or restricted_to == dialect:
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            sql = "\n".join(lines).strip().removesuffix(";")
            if placeholder.startswith("%"):
                sql = sql.replace("%", "%%")  # escaped, because it begins a placeholder
            names = tuple(PARAMETER.findall(sql))
            found[name] = Query(PARAMETER.sub(placeholder, LIST.sub(lambda m: in_list.format(m[1]), sql)), names)
    return found


def migrations() -> list[str]:
    """Return the SQL of all migrations, in order."""
    folder = resources.files("deferkit.serve.storage").joinpath("sql/schema")
    return [each.read_text() for each in sorted(folder.iterdir(), key=lambda f: f.name) if each.name.endswith(".sql")]
