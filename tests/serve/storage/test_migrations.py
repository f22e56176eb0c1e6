"""The schema comes in numbered steps, each done whole or not at all, on both databases."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from deferkit.errors import DeferkitError
from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.domain.rows import KeyRow
from deferkit.serve.storage import database as queries
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import add, again, decision, seat, write

STEPS = queries.migrations()
TABLES = [(number, name) for number, step in enumerate(STEPS) for name in re.findall(r"CREATE TABLE (\w+)", step)]


def select(database: Database, sql: str) -> list[tuple[Any, ...]]:
    """Ask something that is not among the named queries."""
    connection = database.writer()
    try:
        return connection.execute(sql)  # type: ignore[attr-defined,no-any-return]
    finally:
        connection.close()


def version(database: Database) -> int:
    if isinstance(database, Sqlite):
        return int(select(database, "PRAGMA user_version")[0][0])
    if select(database, "SELECT to_regclass('schema_version')") == [(None,)]:
        return 0
    return int(select(database, "SELECT MAX(version) FROM schema_version")[0][0])


def schema(database: Database) -> list[tuple[Any, ...]]:
    """Return all that the schema is made of, in a fixed order."""
    if isinstance(database, Sqlite):
        return select(database, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
    mine = "current_schema()"
    return [
        *select(
            database,
            "SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default"
            f" FROM information_schema.columns WHERE table_schema = {mine} ORDER BY 1, 2",
        ),
        *select(
            database,
            f"SELECT indexname, replace(indexdef, {mine}, '') FROM pg_indexes WHERE schemaname = {mine} ORDER BY 1",
        ),
        *select(
            database,
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
            f" WHERE connamespace = {mine}::regnamespace ORDER BY 1, 2, 3",
        ),
    ]


def migrate(database: Database, monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    """Bring a database up to date for a deferkit that knows these steps."""
    with monkeypatch.context() as patch:
        patch.setattr(queries, "migrations", lambda: steps)
        database.prepare()


def test_from_nothing_to_the_newest_and_again(database: Database) -> None:
    assert version(database) == 0
    database.prepare()
    before = schema(database)
    database.prepare()
    assert (version(database), schema(database)) == (len(STEPS), before)
    assert {"policies", "seats", "keys"} <= {name for _, name in TABLES}


def test_step_by_step_is_the_same_as_at_once(
    sqlite: Sqlite, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Sqlite(str(tmp_path / "other.db"))
    for number in range(1, len(STEPS) + 1):
        migrate(file, monkeypatch, STEPS[:number])
        migrate(postgres, monkeypatch, STEPS[:number])
        assert (version(file), version(postgres)) == (number, number)
    sqlite.prepare()
    assert schema(file) == schema(sqlite)
    stepped = schema(postgres)
    for _, table in reversed(TABLES):
        select(postgres, f"DROP TABLE {table}")
    select(postgres, "DROP TABLE schema_version")
    assert schema(postgres) == []
    postgres.prepare()
    assert schema(postgres) == stepped


@pytest.mark.parametrize("known", range(1, len(STEPS)))
def test_an_upgrade_keeps_what_is_there(database: Database, known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(database, monkeypatch, STEPS[:known])
    store = Store(database)
    owned = add(store)
    write(store, owned, fill=lambda work: work.put_decision(decision(owned, "t")))
    if known > 1:
        write(store, owned, fill=lambda work: work.put_seats(owned, [seat(owned, "t")]))
    before = store.policies(), list(store.log(owned.id)), store.budgets(owned.id), store.decision(owned.id, "t")
    store.close()
    database.prepare()
    assert before == (
        store.policies(),
        list(store.log(owned.id)),
        store.budgets(owned.id),
        store.decision(owned.id, "t"),
    )
    assert len(store.seats(owned.id, "t")) == (known > 1)
    store.add_key(KeyRow("k", "default", b"", "", "", 1, None))
    store.close()


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_a_step_that_fails_leaves_the_version_before_it(
    database: Database, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [*STEPS[:number], STEPS[number] + "\nCREATE TABLE half (a BIGINT);\nCREATE TABLE policies (a BIGINT);"]
    with pytest.raises(StoreFailed):
        migrate(database, monkeypatch, broken)
    assert version(database) == number
    for step, table in TABLES:
        if step < number:
            select(database, f"SELECT * FROM {table}")
        else:
            with pytest.raises(StoreFailed):
                select(database, f"SELECT * FROM {table}")
    with pytest.raises(StoreFailed):
        select(database, "SELECT * FROM half")
    database.prepare()
    assert version(database) == len(STEPS)


KILLED = """
import os, signal, sys
from deferkit.serve.storage.postgres import Postgres, PostgresConnection
from deferkit.serve.storage.sqlite import Sqlite, SqliteConnection
kind, place = sys.argv[1:]
made, connection = (Sqlite, SqliteConnection) if kind == "Sqlite" else (Postgres, PostgresConnection)
commit, commits = connection.commit, []
def die(self):
    commits.append(self)
    if len(commits) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self)
connection.commit = die
made(place).prepare()
"""


def test_a_process_that_is_killed_in_a_step_leaves_the_version_before_it(database: Database) -> None:
    place = database.path if isinstance(database, Sqlite) else database.conninfo  # type: ignore[attr-defined]
    done = subprocess.run([sys.executable, "-c", KILLED, type(database).__name__, place], timeout=120, check=False)
    assert done.returncode == -9
    assert version(database) == 1
    with pytest.raises(StoreFailed):
        select(database, "SELECT * FROM seats")
    database.prepare()
    assert version(database) == len(STEPS)
    assert select(database, "SELECT * FROM seats") == []


def test_a_newer_database_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(database, monkeypatch, [*STEPS, "CREATE TABLE more (a BIGINT);"])
    known = len(STEPS)
    with pytest.raises(
        DeferkitError, match=f"is of version {known + 1}, this deferkit knows {known}: use a newer deferkit"
    ):
        database.prepare()
    assert version(database) == known + 1


def test_several_processes_may_start_at_once(database: Database) -> None:
    each = [again(database) for _ in range(4)]
    failed: list[BaseException] = []

    def prepare(mine: Database) -> None:
        try:
            mine.prepare()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=prepare, args=(mine,)) for mine in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert version(database) == len(STEPS)
