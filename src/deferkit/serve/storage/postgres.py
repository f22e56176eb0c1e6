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
from deferkit.serve.storage import queries
from deferkit.serve.storage.database import Call, Row
from deferkit.serve.storage.schema import Columns, columns_at, foreign, table_names

Result = TypeVar("Result")
Session = psycopg.Connection[Row]

# a server that has gone is noticed within half a minute, also when it does not say so; of several, the one that writes
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
# a commit returns when it is on the disk. Nobody waits long for a lock: the caller is told to try again. A process that
# was paused in a transaction loses it, and its locks, as soon as it may lose its policies; the URL may say otherwise
SETTINGS = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
    SET lock_timeout = '5s';
    SELECT set_config(name, '15s', false) FROM pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout') AND setting = '0';
    SET jit = off
"""
UNHURRIED = """
    SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN ('lock_timeout', 'transaction_timeout')
"""
# what the server must be set to, and why
NEEDED = {
    "fsync": (("on",), "could lose what it has confirmed"),
    "full_page_writes": (("on",), "could lose what it has confirmed"),
    "synchronous_commit": (("on", "remote_apply"), "could lose what it has confirmed"),
    "server_encoding": (("UTF8",), "could not keep every text"),
}
MIGRATING = "deferkit migrates"
VERSION: Columns = {("schema_version", "version")}
THERE = """
    SELECT name, attname::text FROM unnest(ARRAY[{}]) AS name JOIN pg_attribute ON attrelid = to_regclass(name)
    WHERE attnum > 0 AND NOT attisdropped
"""
LOST = "PostgreSQL: the connection was lost in a transaction."


class PostgresConnection:
    """A connection to the server. When it is lost a new one takes its place, as soon as no transaction is open.

    After an error a connection is not used again, so that nothing need be known of the state that it is in.
    """

    def __init__(self, conninfo: str, *, writes: bool) -> None:
        self.conninfo = conninfo
        self.writes = writes
        self.queries = queries.read("postgres", "%b", "= ANY({})")
        self.session: Session | None = None
        self.within = False  # a transaction

    def _connect(self) -> Session:
        session = self.session = psycopg.connect(self.conninfo, autocommit=True)
        session.adapters.register_dumper(int, Int8BinaryDumper)  # one type for all: statements are prepared once
        session.execute(SETTINGS)
        if not self.writes:
            session.execute("SET default_transaction_read_only = on")
        return session

    def _do(self, action: Callable[[Session], Result]) -> Result:
        """Do something; on a new connection, if the one there was is lost and there is no transaction to lose."""
        fresh = self.session is None
        if fresh and self.within:
            raise StoreFailed(LOST)
        try:
            return action(self.session or self._connect())
        except psycopg.Error as error:
            self.close()
            if fresh or self.within or not isinstance(error, psycopg.OperationalError):
                # without the cause: that has the values of a row in it, and is not to be logged
                raise failure(error) from None
        return self._do(action)

    def execute(self, sql: str) -> list[Row]:
        """Run statements that are not among the named ones."""
        return self._do(lambda session: rows_of(session.execute(sql)))

    def _send(self, session: Session, name: str, values: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        query = self.queries[name]
        return session.cursor(binary=True).execute(query.sql, [values[each] for each in query.names])

    def run(self, name: str, /, **values: Any) -> list[Row]:
        """Run a named query; return its rows."""
        return self._do(lambda session: rows_of(self._send(session, name, values)))

    def run_all(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Run several named queries in one round trip; return the rows of each."""

        def send(session: Session) -> list[list[Row]]:
            with session.pipeline():
                cursors = [self._send(session, name, values) for name, values in calls]
            rearm(session)
            return [rows_of(cursor) for cursor in cursors]

        return self._do(send) if calls else []

    def write_all(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Run named queries for each of their rows of values, all in one round trip."""
        some = [(self.queries[name].sql, values) for name, values in rows.items() if values]

        def send(session: Session) -> None:
            with session.pipeline():
                for sql, values in some:
                    if "unnest(" in sql:  # it takes columns
                        session.execute(sql, [list(column) for column in zip(*values, strict=True)])
                    else:
                        session.cursor().executemany(sql, values)
            rearm(session)

        if some:
            self._do(send)

    def lock(self, what: str) -> None:
        """Wait until no other transaction has locked the same."""
        self.run("lock", what=what)

    def begin(self) -> None:
        """Begin a transaction that writes."""
        # each statement sees what was committed before it: after a lock was waited for, what that protects is read anew
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        self.within = True

    def commit(self) -> None:
        """End it; on return it is on the server's disk."""
        if self.session is None:
            raise StoreFailed(LOST)
        try:
            done = self.session.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            self.close()
            raise Unconfirmed(f"{failure(error)} It may have been written or not.") from None
        self.within = False
        if done != "COMMIT":
            raise StoreFailed(f"PostgreSQL: the transaction ended with {done}.")

    def rollback(self) -> None:
        """Undo it; the server does so by itself where the connection is lost."""
        within, self.within = self.within, False
        if within and self.session is not None:
            try:
                self.session.execute("ROLLBACK")
            except psycopg.Error:
                self.close()

    def close(self) -> None:
        """Close the connection."""
        if self.session is not None:
            self.session.close()
            self.session = None


def rearm(session: Session) -> None:
    """Have the server watch for a client that does nothing in its transaction.

    After a pipeline it does not: psycopg ends one with a flush, which counts as the beginning of something. Since
    PostgreSQL 17 a transaction as a whole has its time.
    """
    if session.info.server_version < 170000:
        session.execute("SELECT 1")


def rows_of(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """Return the rows of a statement; none if it is not one that has rows."""
    return cursor.fetchall() if cursor.description else []


def failure(error: psycopg.Error) -> StoreFailed:
    """Return what a store says when PostgreSQL fails: its first line, which has no values of rows in it."""
    text = error.diag.message_primary or str(error).partition("\n")[0]
    return StoreFailed(f"PostgreSQL: {text.strip().rstrip('.')}.")


class Postgres:
    """A database on a server, by its URL."""

    shared = True

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # the URL may have a password in it, and the error has the URL
            raise DeferkitError("The URL of the database is postgresql://user:password@host/name.") from None
        self.conninfo = make_conninfo("", **{**DEFAULTS, **given})
        self.name = f"{given.get('host', 'localhost')}/{given.get('dbname', '')}"
        self._open: dict[threading.Thread, PostgresConnection] = {}

    def prepare(self) -> None:
        """Check the server's settings, and bring the schema up to date, one numbered step at a time."""
        with closing(self.writer()) as connection:
            check_settings(connection)
            while self._migrate(connection):
                pass

    def _migrate(self, connection: PostgresConnection) -> bool:
        """Go one step towards the newest schema, in a transaction with the number of it; False if there is none."""
        steps = queries.migrations()
        connection.begin()
        try:
            connection.execute(UNHURRIED)  # another process may be at it, for as long as it takes
            connection.lock(MIGRATING)
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
        """Return the version of the schema, 0 if there is none; raise if its tables are another program's."""
        names = ", ".join(f"'{name}'" for name in ["schema_version", *table_names()])
        found: Columns = {(table, column) for table, column in connection.execute(THERE.format(names))}
        if not found:
            return 0
        if not found >= VERSION:
            raise foreign(self.name)
        [(version,)] = connection.execute("SELECT MAX(version) FROM schema_version")
        # tables of a newer version may be others; those of this one and of older ones are known
        if version is None or (version <= len(queries.migrations()) and not found >= columns_at(version)):
            raise foreign(self.name)
        return int(version)

    def occupy(self) -> None:
        """Do nothing: any number of processes may serve from it."""

    def writer(self) -> PostgresConnection:
        """Return a new connection that may write."""
        return PostgresConnection(self.conninfo, writes=True)

    def reader(self) -> PostgresConnection:
        """Return the connection of this thread, which only reads unless a transaction is begun on it."""
        thread = threading.current_thread()
        if thread not in self._open:
            for each in [each for each in list(self._open) if not each.is_alive()]:
                if (left := self._open.pop(each, None)) is not None:
                    left.close()
            self._open[thread] = PostgresConnection(self.conninfo, writes=False)
        return self._open[thread]

    def lend(self) -> AbstractContextManager[PostgresConnection]:
        """Lend the connection of this thread: one that was opened is worth keeping."""
        return nullcontext(self.reader())

    def now(self) -> int:
        """Return the server's time in microseconds."""
        return int(self.reader().run("now")[0][0])

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._open:
            self._open.popitem()[1].close()


def check_settings(connection: PostgresConnection) -> None:
    """Raise if the server may lose what it has confirmed, or cannot take what it is given."""
    for name, (good, otherwise) in NEEDED.items():
        [(value,)] = connection.execute(f"SELECT current_setting('{name}')")
        if value not in good:
            raise DeferkitError(
                f"The database server runs with {name} = {value}, and {otherwise}: {name} = {good[0]} is needed."
            )
