"""From what a user calls a store to a database."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from deferkit.errors import DeferkitError, InvalidArgument
from deferkit.extras import needs
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.storage import queries
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.schema import foreign
from deferkit.serve.storage.sqlite import Sqlite, is_ours
from deferkit.serve.storage.store import Store

URLS = ("postgresql://", "postgres://")
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


def store_to_read(store: str) -> Store:
    """Return a store that is there, to be read only: nothing is made, and nothing is brought up to date.

    >>> store_to_read("/nowhere/deferkit.db")
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: There is no file /nowhere/deferkit.db.
    """
    database = database_of(store)
    if isinstance(database, Sqlite):
        check_file(database)
    try:
        database.reader().run("policies")
    except StoreFailed as error:
        raise DeferkitError(f"{shown(store)} is no store of deferkit, or cannot be read. {error}") from error
    return Store(database)


@contextmanager
def store_to_replay(store: str) -> Iterator[Store]:
    """Open a store as `store_to_read` does; of an older version, a copy that is brought up to date and not kept."""
    database = database_of(store)
    if not isinstance(database, Sqlite) or not is_older(database):
        database.close()
        with closing(store_to_read(store)) as kept:
            yield kept
        return
    with tempfile.TemporaryDirectory(prefix="deferkit-replay-") as folder:
        copy = Sqlite(f"{folder}/{Path(store).name}")
        database.copy_to(copy.path)
        database.close()
        copy.prepare()
        with closing(Store(copy)) as kept:
            yield kept


def is_older(database: Sqlite) -> bool:
    """Return whether a file is there, of a version before that of this deferkit."""
    if not Path(database.path).is_file():
        return False
    try:
        done: int = database.reader().execute("PRAGMA user_version")[0][0]
        return is_ours(database.reader()) and 0 < done < len(queries.migrations())
    except StoreFailed:
        return False


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


def check_file(database: Sqlite) -> None:
    """Raise if a file is not there, or of a version that this deferkit does not read."""
    done, known = check_ours(database), len(queries.migrations())
    if 0 < done < known:
        raise DeferkitError(
            f"{database.path} is of version {done}, this deferkit has {known}: start the service once, to update it."
        )


def check_ours(database: Sqlite) -> int:
    """Return the version of a file; raise if it is not there, no store of deferkit, or of a newer version."""
    if not Path(database.path).is_file():
        raise InvalidArgument(f"There is no file {database.path}.")
    try:
        ours = is_ours(database.reader())
        done: int = database.reader().execute("PRAGMA user_version")[0][0]
    except StoreFailed as error:
        raise DeferkitError(f"{database.path} is no store of deferkit, or cannot be read. {error}") from error
    if not ours:
        raise foreign(database.path)
    known = len(queries.migrations())
    if done > known:
        raise DeferkitError(f"{database.path} is of version {done}, this deferkit knows {known}: use a newer deferkit.")
    return int(done)


def shown(store: str) -> str:
    """Return a store as it may be printed: without what comes with a URL, where passwords are.

    >>> shown("postgresql://ann:secret@db.example:5432/deferkit?password=secret"), shown("deferkit.db")
    ('postgresql://db.example:5432/deferkit', 'deferkit.db')
    """
    if not store.startswith(URLS):
        return store
    parts = urlsplit(store)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
