"""SQLite: connections, the schema and its versions."""

import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain.problems import StoreBroken, StoreFailed
from deferkit.serve.storage import database
from deferkit.serve.storage.database import Call, Row
from deferkit.serve.structured_logs import logger

APPLICATION_ID = 0x44464B54  # "DFKT", in the header of an SQLite file
COLUMNS = """
    SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite_%'
"""

Columns = set[tuple[str, str]]
"""Tables and their columns."""


def columns_at(version: int) -> Columns:
    """Return the tables and columns of a store of this version of the schema.

    >>> ("policies", "tenant") in columns_at(1), columns_at(0)
    (True, set())
    """
    connection = apsw.Connection(":memory:")
    try:
        for step in database.migrations()[:version]:
            connection.execute(step)
        return {(table, column) for table, column in connection.execute(COLUMNS)}
    finally:
        connection.close()


def table_names() -> list[str]:
    """Return the tables that a store of any version has had.

    >>> table_names()[:3]
    ['policies', 'budgets', 'log']
    """
    return [name for step in database.migrations() for name in re.findall(r"CREATE TABLE (\w+)", step)]


def foreign_error(name: str) -> DeferkitError:
    """Return the error for a database of another program."""
    return DeferkitError(
        f"{name} has tables of another program, and is no store of deferkit. Nothing was changed in it: give the store"
        " another place."
    )


MIN_VERSION = (3, 51, 3)  # before it a reset of the write-ahead log could corrupt the file
BUSY_S = 5  # how long a connection waits for others
FSYNC_ERRORS = {apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC}
NOT_WRITTEN = {apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_TRUNCATE}
MIN_ROOM = 262_144  # bytes that must be free on the disk for a store that has failed to be called writable again
PAGES_BETWEEN_CHECKPOINTS = 4000
PAGES_COPIED_AT_ONCE = 1000


def check_version(version: str) -> None:
    """Raise if SQLite is too old to be trusted.

    >>> check_version("3.45.1")
    Traceback (most recent call last):
    deferkit.errors.DeferkitError: SQLite 3.45.1 can corrupt its file; 3.51.3 or later is needed: install a newer apsw.
    """
    if tuple(map(int, version.split("."))) < MIN_VERSION:
        needed = ".".join(map(str, MIN_VERSION))
        raise DeferkitError(
            f"SQLite {version} can corrupt its file; {needed} or later is needed: install a newer apsw."
        )


class SqliteConnection:
    """A connection to the file."""

    def __init__(self, path: str, *, writes: bool, synchronous: str, vfs: str | None) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writes else apsw.SQLITE_OPEN_READONLY
        self.queries = database.load_queries("sqlite", "?", "IN (SELECT value FROM json_each({}))")
        if writes and vfs is None:
            make_private(path)
        try:
            self.connection = apsw.Connection(path, flags=flags, vfs=vfs)
        except apsw.Error as error:
            raise StoreFailed(f"{path} cannot be opened: {error}.") from error
        self.path = path
        self.connection.set_busy_timeout(BUSY_S * 1000)
        self._pages = 0  # of the write-ahead log
        if writes:
            # WAL: others may read meanwhile; synchronous FULL: commits are durable on return
            self._switch_to_wal()
            self.execute(f"PRAGMA synchronous = {synchronous}")
            self.execute("PRAGMA foreign_keys = ON")
            # manual checkpoints: SQLite does not report the errors of automatic ones
            self.execute("PRAGMA wal_autocheckpoint = 0")
            self.connection.set_wal_hook(self._on_wal_commit)
        self.execute("PRAGMA cache_size = -65536")

    def _switch_to_wal(self) -> None:
        """Switch to WAL mode. The busy timeout does not apply to that, so that it is retried here."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL").fetchall()
                return
            except apsw.BusyError as error:
                if time.monotonic() > deadline:
                    raise store_error(error) from error
                time.sleep(0.01)
            except apsw.NotADBError as error:
                raise StoreFailed(f"{self.path} is no store: {error}.") from error
            except apsw.Error as error:
                raise store_error(error) from error

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement; raise errors of SQLite as `StoreFailed` or `StoreBroken`."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise store_error(error) from error

    def run(self, name: str, /, **values: Any) -> list[Row]:
        """Run a named query; return its rows."""
        query = self.queries[name]
        return self.execute(query.sql, [as_json(values[each]) for each in query.names])

    def run_all(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Run several named queries; return the rows of each."""
        return [self.run(name, **values) for name, values in calls]

    def write_all(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Run each named query once for each row of its values."""
        try:
            for name, values in rows.items():
                self.connection.executemany(self.queries[name].sql, values).fetchall()
        except apsw.Error as error:
            raise store_error(error) from error

    def lock(self, what: str) -> None:
        """Do nothing: a write transaction locks the whole file."""

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the transaction; it is durable on return. Then checkpoint the write-ahead log if it is long."""
        self.execute("COMMIT")
        if self._pages >= PAGES_BETWEEN_CHECKPOINTS:
            self._checkpoint()

    def _on_wal_commit(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Checkpoint the write-ahead log. A failure is only logged, and retried later, unless fsync failed."""
        try:
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            if isinstance(broken := store_error(error), StoreBroken):
                raise broken from error
            logger.warning("a checkpoint failed", extra={"error": str(error)})

    def rollback(self) -> None:
        """Roll back the transaction; do nothing if none is open."""
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def make_private(path: str) -> None:
    """Create a file with mode 0600 unless it exists; errors are left to SQLite.

    An existing file is not opened: closing it would release this process's POSIX locks on it.
    """
    with suppress(OSError, ValueError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def as_json(value: Any) -> Any:
    """Return a list as JSON text for `json_each`; anything else unchanged."""
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value


def store_error(error: apsw.Error) -> DeferkitError:
    """Return the error of a store for one of SQLite: `StoreBroken` if fsync failed, else `StoreFailed`."""
    if getattr(error, "extendedresult", None) in FSYNC_ERRORS:
        return StoreBroken(f"The disk did not confirm a write ({error}).")
    return StoreFailed(f"SQLite: {error}.")


@contextmanager
def written_to(target: apsw.Connection) -> Iterator[None]:
    """Raise OSError where a file cannot be written: a copy by SQLite fails with "not an error"."""
    try:
        yield
    except apsw.Error as error:
        full = isinstance(error, apsw.FullError)
        if not full and getattr(error, "extendedresult", None) not in NOT_WRITTEN:
            raise
        number = target.system_errno or (errno.ENOSPC if full else errno.EIO)
        raise OSError(number, os.strerror(number), target.filename) from error


def is_deferkit_store(connection: SqliteConnection) -> bool:
    """Whether a file is a store of deferkit, or empty. Stores of old versions have no application id."""
    [(mark,)] = connection.execute("PRAGMA application_id")
    if mark:
        return bool(mark == APPLICATION_ID)
    [(version,)] = connection.execute("PRAGMA user_version")
    if version == 0:
        return not connection.execute("SELECT 1 FROM sqlite_master")
    return columns_at(version) <= set(connection.execute(COLUMNS))


class Sqlite:
    """A database in one file, which is created if it does not exist."""

    shared = False

    def __init__(self, path: str, *, synchronous: str = "FULL", vfs: str | None = None) -> None:
        self.path = path
        self.synchronous = synchronous
        self.vfs = vfs
        self._local = threading.local()
        self._open: list[SqliteConnection] = []
        self._lock: apsw.Connection | None = None

    def _check(self) -> None:
        check_version(apsw.sqlite_lib_version())
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise DeferkitError(f"There is no folder {folder} to put the database in.")
        self._check_is_store()

    def _check_is_store(self) -> None:
        """Raise if the file is another program's database, before anything in it is changed."""
        if not Path(self.path).is_file() or not Path(self.path).stat().st_size:
            return
        try:
            with closing(self._reader()) as connection:
                ours = is_deferkit_store(connection)
        except (StoreFailed, apsw.Error):  # the writer connection will report it
            return
        if not ours:
            raise foreign_error(self.path)

    def prepare(self) -> None:
        """Check SQLite's version, and apply the missing migrations, each in its own transaction."""
        self._check()
        with closing(self.writer()) as connection:
            while self._migrate(connection):
                pass

    def _migrate(self, connection: SqliteConnection) -> bool:
        """Apply the next migration and record its version in one transaction; False if there is none."""
        steps = database.migrations()
        connection.begin()
        try:
            if not is_deferkit_store(connection):
                raise foreign_error(self.path)
            done = connection.execute("PRAGMA user_version")[0][0]
            if done > len(steps):
                raise DeferkitError(
                    f"{self.path} is of version {done}, this deferkit knows {len(steps)}: use a newer deferkit."
                )
            marked = connection.execute("PRAGMA application_id") == [(APPLICATION_ID,)]
            if done == len(steps) and marked:
                return False
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            if done < len(steps):
                connection.execute(steps[done])
                connection.execute(f"PRAGMA user_version = {done + 1}")
            connection.commit()
            return True
        finally:
            connection.rollback()

    def occupy(self) -> None:
        """Acquire the exclusive serving lock of the file; it is released by `close`, or when the process ends."""
        self._check()
        path = f"{os.path.realpath(self.path)}-served"  # symbolic links to one file share its lock
        make_private(path)
        try:
            self._lock = apsw.Connection(path)
            self._lock.execute("PRAGMA journal_mode = MEMORY")  # a lock needs no journal, nor room for one
            self._lock.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError:
            raise DeferkitError(
                f"{self.path} is served by another process. Stop that one first, or serve another file."
            ) from None
        except apsw.CantOpenError as error:
            raise StoreFailed(f"{self.path} cannot be opened, or nothing written beside it: {error}.") from error
        except apsw.Error as error:
            raise store_error(error) from error

    def copy_to(self, path: str, progress: Callable[[int, int], None] = lambda _done, _all: None) -> None:
        """Copy a consistent snapshot of the database to a new, private file, while others may write.

        `progress` is called with the number of copied pages and of all pages.

        Raises:
            OSError: The new file cannot be written, as on a full disk.
        """
        make_private(path)
        try:
            with closing(self._reader()) as source, closing(apsw.Connection(path)) as target, written_to(target):
                source.execute("BEGIN")  # a read transaction: later writes are not seen
                with target.backup("main", source.connection, "main") as backup:
                    while not backup.step(PAGES_COPIED_AT_ONCE):
                        progress(backup.page_count - backup.remaining, backup.page_count)
                source.execute("ROLLBACK")
                target.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
                # release the ownership leases in the copy, so that it can be served at once
                target.execute("UPDATE policies SET owner = NULL, address = NULL, expires = 0")
        except apsw.Error as error:
            raise store_error(error) from error

    def writer(self) -> SqliteConnection:
        """Return a new connection that may write."""
        return SqliteConnection(self.path, writes=True, synchronous=self.synchronous, vfs=self.vfs)

    def reader(self) -> SqliteConnection:
        """Return the read-only connection of this thread."""
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._reader()
            self._local.connection = connection
            self._open.append(connection)
        return connection

    def _reader(self) -> SqliteConnection:
        return SqliteConnection(self.path, writes=False, synchronous=self.synchronous, vfs=self.vfs)

    def checkout(self) -> AbstractContextManager[SqliteConnection]:
        """Return a new connection that may write; it is closed after use."""
        return closing(self.writer())

    def has_room(self) -> bool:
        """Return whether the disk has room. A lease fits into the existing log even on a full disk."""
        return shutil.disk_usage(Path(self.path).parent).free >= MIN_ROOM

    def now(self) -> int:
        """Return this machine's time in microseconds."""
        return time.time_ns() // 1000

    def close(self) -> None:
        """Close the read-only connections, and release the lock of `occupy`; `reader` opens new ones."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._local = threading.local()
        while self._open:
            self._open.pop().close()
        self._local = threading.local()
