"""From what a user calls a store to a database."""

from urllib.parse import urlsplit

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


def shown(store: str) -> str:
    """Return a store as it may be printed: without what comes with a URL, where passwords are.

    >>> shown("postgresql://ann:secret@db.example:5432/deferkit?password=secret"), shown("deferkit.db")
    ('postgresql://db.example:5432/deferkit', 'deferkit.db')
    """
    if not store.startswith(URLS):
        return store
    parts = urlsplit(store)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
