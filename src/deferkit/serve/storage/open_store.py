"""Opening of stores by path or URL: to read, to replay, to add keys."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from deferkit.errors import DeferkitError, InvalidArgument
from deferkit.extras import needs
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.storage import database as queries
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite, foreign_error, is_deferkit_store
from deferkit.serve.storage.store import Store

URLS = ("postgresql://", "postgres://")
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def database_of(store: str) -> Database:
    """Return the database of a path (SQLite) or a URL (PostgreSQL).

    >>> database_of("deferkit.db").shared
    False
    """
    if store.startswith(URLS):
        needs("postgres")
        from deferkit.serve.storage.postgres import Postgres  # noqa: PLC0415  psycopg is optional

        return Postgres(store)
    if URL.match(store):
        # only the scheme: the rest of the URL may hold a password
        raise InvalidArgument(f"A store is a file or a postgresql:// URL. Got {store.partition(':')[0]}:// instead.")
    return Sqlite(store)


def store_to_read(store: str) -> Store:
    """Open an existing store read-only: nothing is created or migrated.

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
        raise DeferkitError(f"{redact_store(store)} is no store of deferkit, or cannot be read. {error}") from error
    return Store(database)


@contextmanager
def store_to_replay(store: str) -> Iterator[Store]:
    """Open a store as `store_to_read` does; of an older schema version, a temporary copy that is migrated."""
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
    """Whether a file exists and has an older schema version than this deferkit."""
    if not Path(database.path).is_file():
        return False
    try:
        done: int = database.reader().execute("PRAGMA user_version")[0][0]
        return is_deferkit_store(database.reader()) and 0 < done < len(queries.migrations())
    except StoreFailed:
        return False


def store_of_keys(store: str) -> Store:
    """Open a store to add keys; it is created or migrated, unless another process serves from its file."""
    database = database_of(store)
    if isinstance(database, Sqlite) and not is_current(database):
        database.occupy()
    database.prepare()
    return Store(database)


def is_current(database: Sqlite) -> bool:
    """Whether a file exists and has the schema version of this deferkit."""
    if not Path(database.path).is_file():
        return False
    try:
        return database.reader().execute("PRAGMA user_version") == [(len(queries.migrations()),)]
    except StoreFailed:
        return False


def check_file(database: Sqlite) -> None:
    """Raise if a file does not exist, or has a schema version that this deferkit cannot read."""
    done, known = check_is_store(database), len(queries.migrations())
    if 0 < done < known:
        raise DeferkitError(
            f"{database.path} is of version {done}, this deferkit has {known}: start the service once, to update it."
        )


def check_is_store(database: Sqlite) -> int:
    """Return the schema version of a file; raise if there is none, or it is not a store or too new."""
    if not Path(database.path).is_file():
        raise InvalidArgument(f"There is no file {database.path}.")
    try:
        ours = is_deferkit_store(database.reader())
        done: int = database.reader().execute("PRAGMA user_version")[0][0]
    except StoreFailed as error:
        raise DeferkitError(f"{database.path} is no store of deferkit, or cannot be read. {error}") from error
    if not ours:
        raise foreign_error(database.path)
    known = len(queries.migrations())
    if done > known:
        raise DeferkitError(f"{database.path} is of version {done}, this deferkit knows {known}: use a newer deferkit.")
    return int(done)


def redact_store(store: str) -> str:
    """Return the name of a store with credentials and parameters redacted, for messages.

    >>> redact_store("postgresql://ann:secret@db.example:5432/deferkit?password=secret"), redact_store("a.db")
    ('postgresql://db.example:5432/deferkit', 'a.db')
    """
    if not store.startswith(URLS):
        return store
    parts = urlsplit(store)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
