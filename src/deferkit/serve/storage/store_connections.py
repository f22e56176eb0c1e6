"""The connections of a store: one that writes, readers for all threads."""

from collections.abc import Callable
from typing import TypeVar

from deferkit.serve.storage.database import Connection, Database

Result = TypeVar("Result")


class StoreConnections:
    """One writer connection for the writer thread, read-only connections for all others."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writer: Connection | None = None

    @property
    def writer(self) -> Connection:
        """The connection of the writer thread; opened on first use."""
        if self._writer is None:
            self._writer = self.database.writer()
        return self._writer

    def close(self) -> None:
        """Close all connections; the writer last, so that SQLite removes its -wal and -shm files."""
        self.database.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def in_own_transaction(self, query: Callable[[Connection], Result]) -> Result:
        """Run a query in a transaction of its own, in any thread; also for a policy that another process owns."""
        with self.database.checkout() as connection:
            try:
                connection.begin()
                result = query(connection)
                connection.commit()
                return result
            finally:
                connection.rollback()
