"""What a store needs of a database: SQLite and PostgreSQL have it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]
Call = tuple[str, Mapping[str, Any]]
"""A named query and its values."""


class Connection(Protocol):
    """One connection, for one thread at a time."""

    def run(self, name: str, /, **values: Any) -> list[Row]:
        """Run a named query; return its rows."""
        ...

    def run_all(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Run several named queries, without waiting for each; return the rows of each."""
        ...

    def write_all(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Run named queries for each of their rows of values, which are given in the order of the parameters."""
        ...

    def lock(self, what: str) -> None:
        """Wait until no other transaction has locked the same; it is let go of when this one ends."""
        ...

    def begin(self) -> None:
        """Begin a transaction that writes."""
        ...

    def commit(self) -> None:
        """End it; on return it survives a loss of power."""
        ...

    def rollback(self) -> None:
        """Undo it; nothing if none is open."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Database(Protocol):
    """Where connections come from."""

    shared: bool
    """Whether several processes may serve from it, each of them claiming reviews by itself."""

    def prepare(self) -> None:
        """Check that the database can be used, and bring its schema up to date."""
        ...

    def occupy(self) -> None:
        """Raise if another process serves from it and only one may; keep others from it from now on."""
        ...

    def writer(self) -> Connection:
        """Return a new connection that may write."""
        ...

    def reader(self) -> Connection:
        """Return the connection of this thread that only reads."""
        ...

    def lend(self) -> AbstractContextManager[Connection]:
        """Lend a connection that may write to any thread, for one transaction."""
        ...

    def now(self) -> int:
        """Return the database's time in microseconds, or this machine's if it has none."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...
