"""What a store needs of a database: SQLite and PostgreSQL have it."""

from collections.abc import Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]


class Connection(Protocol):
    """One connection, for one thread at a time."""

    def run(self, name: str, /, **values: Any) -> list[Row]:
        """Run a named query; return its rows."""
        ...

    def many(self, name: str, rows: Sequence[Row]) -> None:
        """Run a named query for each row of values, given in the order of its parameters."""
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

    def writer(self) -> Connection:
        """Return a new connection that may write."""
        ...

    def reader(self) -> Connection:
        """Return the connection of this thread that only reads."""
        ...

    def now(self) -> int:
        """Return the database's time in microseconds, or this machine's if it has none."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...
