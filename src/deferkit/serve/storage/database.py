"""Databases: the interface that the store needs, and named queries."""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import resources
from typing import Any, NamedTuple, Protocol

Row = tuple[Any, ...]
Call = tuple[str, Mapping[str, Any]]
"""A named query and its values."""


class Connection(Protocol):
    """One connection, for one thread at a time."""

    def run(self, name: str, /, **values: Any) -> list[Row]:
        """Run a named query; return its rows."""
        ...

    def run_all(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Run several named queries as a batch (pipelined); return the rows of each."""
        ...

    def write_all(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Run each named query once for each row of its values (executemany), in the order of the parameters."""
        ...

    def lock(self, what: str) -> None:
        """Acquire an advisory lock; it is released when the transaction ends."""
        ...

    def begin(self) -> None:
        """Begin a transaction that writes."""
        ...

    def commit(self) -> None:
        """Commit the transaction; it is durable on return."""
        ...

    def rollback(self) -> None:
        """Roll back the transaction; do nothing if none is open."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Database(Protocol):
    """A database: its schema, its connections, and its clock."""

    shared: bool
    """Whether several processes may serve from it; each of them claims reviews without the policy's owner."""

    def prepare(self) -> None:
        """Check that the database can be used, and migrate its schema."""
        ...

    def occupy(self) -> None:
        """Acquire the lock of the one process that may serve from it; raise if another has it. See `shared`."""
        ...

    def writer(self) -> Connection:
        """Return a new connection that may write."""
        ...

    def reader(self) -> Connection:
        """Return the read-only connection of this thread."""
        ...

    def checkout(self) -> AbstractContextManager[Connection]:
        """Return a connection for one write transaction, in any thread."""
        ...

    def has_room(self) -> bool:
        """Return whether the disk has room for more than a lease, as far as that can be determined."""
        ...

    def now(self) -> int:
        """Return the time in microseconds: the server's, or this machine's where there is no server."""
        ...

    def close(self) -> None:
        """Close all connections, and release the lock of `occupy`."""
        ...


PARAMETER = re.compile(r"(?<!:):([a-z_0-9]+)")
LIST = re.compile(r"IN \((:[a-z_0-9]+)\)")
HEAD = re.compile(r"^-- name: (\w+)(?: \((\w+)\))?$", re.MULTILINE)


class Query(NamedTuple):
    """A statement and the order of its parameters."""

    sql: str
    names: tuple[str, ...]


def load_queries(dialect: str, placeholder: str, in_list: str) -> dict[str, Query]:
    """Return the named queries for a dialect.

    Args:
        dialect: "sqlite" or "postgres"; queries of the other one are left out.
        placeholder: What replaces each parameter `:name`.
        in_list: What replaces `IN (:values)`, as a format string: drivers differ in how a list is passed.

    >>> load_queries("sqlite", "?", "IN ({})")["drop_parked"]
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
