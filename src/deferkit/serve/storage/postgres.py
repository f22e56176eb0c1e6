"""PostgreSQL: one database for several processes, on one machine or many."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from deferkit.errors import DeferkitError
from deferkit.serve.domain.problems import StoreFailed, Unconfirmed
from deferkit.serve.storage import database
from deferkit.serve.storage.database import Call, Row
from deferkit.serve.storage.sqlite import Columns, columns_at, foreign_error, table_names

Result = TypeVar("Result")
Session = psycopg.Connection[Row]

# keepalives detect a dead server within half a minute; of several hosts, connect to the primary
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "target_session_attrs": "primary",
    "client_encoding": "utf8",
    "fallback_application_name": "deferkit",
}
# Commits are durable on return. Lock waits are short: the caller is told to retry. A process that was paused within a
# transaction loses it and its locks about when its ownership leases expire; the URL may set other timeouts
SETTINGS = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
    SET lock_timeout = '5s';
    SELECT set_config(name, '15s', false) FROM pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout') AND setting = '0';
    SET jit = off
"""
NO_TIMEOUTS = """
    SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN ('lock_timeout', 'transaction_timeout')
"""
# required server settings: allowed values, and what happens otherwise
REQUIRED_SETTINGS = {
    "fsync": (("on",), "could lose what it has confirmed"),
    "full_page_writes": (("on",), "could lose what it has confirmed"),
    "synchronous_commit": (("on", "remote_apply"), "could lose what it has confirmed"),
    "server_encoding": (("UTF8",), "could not keep every text"),
}
MIGRATION_LOCK = "deferkit migrates"
VERSION: Columns = {("schema_version", "version")}
EXISTING_COLUMNS = """
    SELECT name, attname::text FROM unnest(ARRAY[{}]) AS name JOIN pg_attribute ON attrelid = to_regclass(name)
    WHERE attnum > 0 AND NOT attisdropped
"""
CONNECTION_LOST = "PostgreSQL: the connection was lost in a transaction."


class PostgresConnection:
    """A connection to the server, which reconnects after it was lost, except within a transaction.

    After any error the connection is closed, because its state is unknown.
    """

    def __init__(self, conninfo: str, *, writes: bool) -> None:
        self.conninfo = conninfo
        self.writes = writes
        self.queries = database.load_queries("postgres", "%b", "= ANY({})")
        self.session: Session | None = None
        self.in_transaction = False

    def _connect(self) -> Session:
        session = self.session = psycopg.connect(self.conninfo, autocommit=True)
        session.adapters.register_dumper(int, Int8BinaryDumper)  # one type for all integers: statements prepare once
        session.execute(SETTINGS)
        if not self.writes:
            session.execute("SET default_transaction_read_only = on")
        return session

    def _with_reconnect(self, action: Callable[[Session], Result]) -> Result:
        """Run an action; retry it once on a new connection if this one was lost outside of a transaction."""
        fresh = self.session is None
        if fresh and self.in_transaction:
            raise StoreFailed(CONNECTION_LOST)
        try:
            return action(self.session or self._connect())
        except psycopg.Error as error:
            self.close()
            if fresh or self.in_transaction or not isinstance(error, psycopg.OperationalError):
                # without the cause, which contains values of rows that must not be logged
                raise store_error(error) from None
        return self._with_reconnect(action)

    def execute(self, sql: str) -> list[Row]:
        """Run ad-hoc statements."""
        return self._with_reconnect(lambda session: rows_of(session.execute(sql)))

    def _send(self, session: Session, name: str, values: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        query = self.queries[name]
        return session.cursor(binary=True).execute(query.sql, [values[each] for each in query.names])

    def run(self, name: str, /, **values: Any) -> list[Row]:
        """Run a named query; return its rows."""
        return self._with_reconnect(lambda session: rows_of(self._send(session, name, values)))

    def run_all(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Run several named queries in one round trip; return the rows of each."""

        def send(session: Session) -> list[list[Row]]:
            with session.pipeline():
                cursors = [self._send(session, name, values) for name, values in calls]
            rearm_idle_timeout(session)
            return [rows_of(cursor) for cursor in cursors]

        return self._with_reconnect(send) if calls else []

    def write_all(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Run named queries for each of their rows of values, all in one round trip."""
        some = [(self.queries[name].sql, values) for name, values in rows.items() if values]

        def send(session: Session) -> None:
            with session.pipeline():
                for sql, values in some:
                    if "unnest(" in sql:  # a bulk insert, whose parameters are columns
                        session.execute(sql, [list(column) for column in zip(*values, strict=True)])
                    else:
                        session.cursor().executemany(sql, values)
            rearm_idle_timeout(session)

        if some:
            self._with_reconnect(send)

    def lock(self, what: str) -> None:
        """Acquire an advisory lock until the transaction ends."""
        self.run("lock", what=what)

    def begin(self) -> None:
        """Begin a transaction that writes."""
        # READ COMMITTED: statements after a lock see what its last holder has committed
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        self.in_transaction = True

    def commit(self) -> None:
        """Commit the transaction; it is durable on return. Raise `Unconfirmed` if the connection is lost meanwhile."""
        if self.session is None:
            raise StoreFailed(CONNECTION_LOST)
        try:
            done = self.session.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            self.close()
            raise Unconfirmed(f"{store_error(error)} It may have been written or not.") from None
        self.in_transaction = False
        if done != "COMMIT":
            raise StoreFailed(f"PostgreSQL: the transaction ended with {done}.")

    def rollback(self) -> None:
        """Roll back the transaction; the server does so by itself if the connection is lost."""
        in_transaction, self.in_transaction = self.in_transaction, False
        if in_transaction and self.session is not None:
            try:
                self.session.execute("ROLLBACK")
            except psycopg.Error:
                self.close()

    def close(self) -> None:
        """Close the connection."""
        if self.session is not None:
            self.session.close()
            self.session = None


def rearm_idle_timeout(session: Session) -> None:
    """Rearm idle_in_transaction_session_timeout after a pipeline.

    psycopg ends a pipeline with a flush, which stops the server's idle timer. PostgreSQL 17 and later have
    transaction_timeout instead.
    """
    if session.info.server_version < 170000:
        session.execute("SELECT 1")


def rows_of(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """Return the rows of a statement; empty if the statement returns no rows."""
    return cursor.fetchall() if cursor.description else []


def store_error(error: psycopg.Error) -> StoreFailed:
    """Return the `StoreFailed` of an error: only its primary message, which contains no values of rows."""
    text = error.diag.message_primary or str(error).partition("\n")[0]
    return StoreFailed(f"PostgreSQL: {text.strip().rstrip('.')}.")


class Postgres:
    """A database on a server, by its URL."""

    shared = True

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # without the cause, which contains the URL and perhaps a password
            raise DeferkitError("The URL of the database is postgresql://user:password@host/name.") from None
        self.conninfo = make_conninfo("", **{**DEFAULTS, **given})
        self.name = f"{given.get('host', 'localhost')}/{given.get('dbname', '')}"
        self._connections: dict[threading.Thread, PostgresConnection] = {}

    def prepare(self) -> None:
        """Check the server's settings, and apply the missing migrations, each in its own transaction."""
        with closing(self.writer()) as connection:
            check_settings(connection)
            while self._migrate(connection):
                pass

    def _migrate(self, connection: PostgresConnection) -> bool:
        """Apply the next migration and record its version in one transaction; False if there is none."""
        steps = database.migrations()
        connection.begin()
        try:
            connection.execute(NO_TIMEOUTS)  # another process may hold the lock for a long migration
            connection.lock(MIGRATION_LOCK)
            done = self._version(connection)
            if done > len(steps):
                raise DeferkitError(
                    f"{self.name} is of version {done}, this deferkit knows {len(steps)}: use a newer deferkit."
                )
            if done == len(steps):
                return False
            if done == 0:
                connection.execute("CREATE TABLE schema_version (version BIGINT PRIMARY KEY)")
            connection.execute(steps[done])
            connection.execute(f"INSERT INTO schema_version (version) VALUES ({done + 1})")
            connection.commit()
            return True
        finally:
            connection.rollback()

    def _version(self, connection: PostgresConnection) -> int:
        """Return the version of the schema, 0 if there is none; raise if the tables are not deferkit's."""
        names = ", ".join(f"'{name}'" for name in ["schema_version", *table_names()])
        found: Columns = {(table, column) for table, column in connection.execute(EXISTING_COLUMNS.format(names))}
        if not found:
            return 0
        if not found >= VERSION:
            raise foreign_error(self.name)
        [(version,)] = connection.execute("SELECT MAX(version) FROM schema_version")
        # the columns of newer versions are not known here
        if version is None or (version <= len(database.migrations()) and not found >= columns_at(version)):
            raise foreign_error(self.name)
        return int(version)

    def occupy(self) -> None:
        """Do nothing: any number of processes may serve from it."""

    def writer(self) -> PostgresConnection:
        """Return a new connection that may write."""
        return PostgresConnection(self.conninfo, writes=True)

    def reader(self) -> PostgresConnection:
        """Return the connection of this thread; it is read-only outside of `begin`."""
        thread = threading.current_thread()
        if thread not in self._connections:
            for each in [each for each in list(self._connections) if not each.is_alive()]:
                if (left := self._connections.pop(each, None)) is not None:
                    left.close()
            self._connections[thread] = PostgresConnection(self.conninfo, writes=False)
        return self._connections[thread]

    def checkout(self) -> AbstractContextManager[PostgresConnection]:
        """Return the connection of this thread, which stays open."""
        return nullcontext(self.reader())

    def has_room(self) -> bool:
        """Return True: the server alone knows."""
        return True

    def now(self) -> int:
        """Return the server's time in microseconds."""
        return int(self.reader().run("now")[0][0])

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._connections:
            self._connections.popitem()[1].close()


def check_settings(connection: PostgresConnection) -> None:
    """Raise if the server's settings do not guarantee durability, or its encoding is not UTF-8."""
    for name, (good, otherwise) in REQUIRED_SETTINGS.items():
        [(value,)] = connection.execute(f"SELECT current_setting('{name}')")
        if value not in good:
            raise DeferkitError(
                f"The database server runs with {name} = {value}, and {otherwise}: {name} = {good[0]} is needed."
            )
