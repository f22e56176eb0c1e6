"""The connections of a store: one that writes, readers for all threads."""

from collections.abc import Callable
from typing import TypeVar

from deferkit.serve.storage.database import Connection, Database

Result = TypeVar("Result")


class StoreConnections:
    """One writer connection for the thread that writes, readers for all others."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writer: Connection | None = None

    @property
    def writer(self) -> Connection:
        """The connection that writes; opened by the thread that first asks for it."""
        if self._writer is None:
            self._writer = self.database.writer()
        return self._writer

    def close(self) -> None:
        """Close all connections; the one that writes last, because SQLite then leaves one file and no other."""
        self.database.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def directly(self, query: Callable[[Connection], Result]) -> Result:
        """Run a query of the queue in a transaction of its own, from any thread of any process."""
        with self.database.lend() as connection:
            try:
                connection.begin()
                result = query(connection)
                connection.commit()
                return result
            finally:
                connection.rollback()
