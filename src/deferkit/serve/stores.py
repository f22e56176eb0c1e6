"""From what a user calls a store to a database."""

from deferkit.serve.database import Database
from deferkit.serve.sqlite import Sqlite

URLS = ("postgresql://", "postgres://")


def database_of(store: str) -> Database:
    """Return the database that a path or a URL means.

    >>> database_of("deferkit.db").shared
    False
    """
    if store.startswith(URLS):
        from deferkit.serve.postgres import Postgres  # noqa: PLC0415  psycopg is wanted by those who use it

        return Postgres(store)
    return Sqlite(store)
