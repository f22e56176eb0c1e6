"""From what a user calls a store to a database."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from deferkit.errors import DeferkitError, InvalidArgument
from deferkit.extras import needs
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.storage import queries
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store

URLS = ("postgresql://", "postgres://")
LOG_SINCE = 4  # the version of the schema since when everything that a replay reads is as it is now
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def database_of(store: str) -> Database:
    """Return the database that a path or a URL means.

    >>> database_of("deferkit.db").shared
    False
    """
    if store.startswith(URLS):
        needs("postgres")
        from deferkit.serve.storage.postgres import Postgres  # noqa: PLC0415  psycopg is wanted by those who use it

        return Postgres(store)
    if URL.match(store):
        # without the rest of it, where passwords are
        raise InvalidArgument(f"A store is a file or a postgresql:// URL. Got {store.partition(':')[0]}:// instead.")
    return Sqlite(store)


def store_to_read(store: str, *, since: int | None = None) -> Store:
    """Return a store that is there, to be read only: nothing is made, and nothing is brought up to date.

    `since` is the oldest version of its schema that the caller reads; unless given, only the newest will do.

    >>> store_to_read("/nowhere/deferkit.db")
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: There is no file /nowhere/deferkit.db.
    """
    database = database_of(store)
    if isinstance(database, Sqlite):
        check_file(database, since)
    try:
        database.reader().run("policies")
    except StoreFailed as error:
        raise DeferkitError(f"{shown(store)} is no store of deferkit, or cannot be read. {error}") from error
    return Store(database)


def store_of_keys(store: str) -> Store:
    """Return a store to put a key in; it is made or brought up to date, unless a process serves from its file."""
    database = database_of(store)
    if isinstance(database, Sqlite) and not is_current(database):
        database.occupy()
    database.prepare()
    return Store(database)


def is_current(database: Sqlite) -> bool:
    """Return whether a file is there, of the version that this deferkit has."""
    if not Path(database.path).is_file():
        return False
    try:
        return database.reader().execute("PRAGMA user_version") == [(len(queries.migrations()),)]
    except StoreFailed:
        return False


def check_file(database: Sqlite, since: int | None = None) -> None:
    """Raise if a file is not there, or of a version that this deferkit does not read."""
    if not Path(database.path).is_file():
        raise InvalidArgument(f"There is no file {database.path}.")
    try:
        done = database.reader().execute("PRAGMA user_version")[0][0]
    except StoreFailed as error:
        raise DeferkitError(f"{database.path} is no store of deferkit, or cannot be read. {error}") from error
    known = len(queries.migrations())
    if done > known:
        raise DeferkitError(f"{database.path} is of version {done}, this deferkit knows {known}: use a newer deferkit.")
    if 0 < done < (since or known):
        raise DeferkitError(
            f"{database.path} is of version {done}, this deferkit has {known}: start the service once, to update it."
        )


def shown(store: str) -> str:
    """Return a store as it may be printed: without what comes with a URL, where passwords are.

    >>> shown("postgresql://ann:secret@db.example:5432/deferkit?password=secret"), shown("deferkit.db")
    ('postgresql://db.example:5432/deferkit', 'deferkit.db')
    """
    if not store.startswith(URLS):
        return store
    parts = urlsplit(store)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
