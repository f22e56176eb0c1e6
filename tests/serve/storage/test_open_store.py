"""A store is put into a database of its own: one that another program has made is refused and stays as it is."""

import lzma
from pathlib import Path

import apsw
import psycopg
import pytest

from deferkit.errors import DeferkitError
from deferkit.serve.storage import database as queries
from deferkit.serve.storage.open_store import store_of_keys, store_to_read
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.sqlite import APPLICATION_ID, Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.service_process import command

GOLDEN = Path(__file__).parents[2] / "golden"
FOREIGN = {
    "tables": "CREATE TABLE songs (title TEXT)",
    "tables of the same name": "CREATE TABLE policies (id INTEGER, holder TEXT); PRAGMA user_version = 1",
    "a version that deferkit has": f"CREATE TABLE songs (a TEXT); PRAGMA user_version = {len(queries.migrations())}",
    "a version that deferkit has not": "CREATE TABLE songs (title TEXT); PRAGMA user_version = 999",
    "an application id": "PRAGMA application_id = 252006673",
}


def made(path: Path, sql: str) -> bytes:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize("sql", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_refused_and_stays_as_it_is(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "foreign.db"
    before = made(path, sql)
    database = Sqlite(str(path))
    for start in (
        database.occupy,
        database.prepare,
        lambda: store_of_keys(str(path)),
        lambda: store_to_read(str(path)),
    ):
        with pytest.raises(
            DeferkitError, match=r"foreign.db has tables of another program, and is no store of deferkit"
        ):
            start()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["foreign.db"]


@pytest.mark.parametrize("arguments", [("serve", "--port", "0"), ("keys", "create"), ("replay", "p")])
def test_a_foreign_file_gets_one_clear_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "foreign.db"
    before = made(path, FOREIGN["tables"])
    ended = command(*arguments, "--store", str(path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"error: {path} has tables of another program, and is no store of deferkit. Nothing was changed in it: give the"
        " store another place.\n"
    )
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store_with_an_application_id(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    database = Sqlite(str(path))
    database.occupy()
    database.prepare()
    assert database.reader().execute("PRAGMA application_id") == [(APPLICATION_ID,)]
    database.close()


@pytest.mark.parametrize("name", ["store.db.xz", "store-with-trees.db.xz"])
def test_an_older_store_is_known_by_its_tables_and_gets_the_id(tmp_path: Path, name: str) -> None:
    path = tmp_path / "before.db"
    path.write_bytes(lzma.decompress((GOLDEN / name).read_bytes()))
    database = Sqlite(str(path))
    assert database.reader().execute("PRAGMA application_id") == [(0,)]
    before = list(Store(database).log(1))
    database.prepare()
    assert database.reader().execute("PRAGMA application_id") == [(APPLICATION_ID,)]
    assert list(Store(database).log(1)) == before
    database.close()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE policies (id BIGINT, holder TEXT)",
        "CREATE TABLE schema_version (name TEXT)",
        "CREATE TABLE schema_version (version BIGINT)",
        "CREATE TABLE schema_version (version BIGINT); INSERT INTO schema_version VALUES (3)",
    ],
)
def test_foreign_tables_of_the_same_names_are_refused(postgres: Postgres, postgres_url: str, sql: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql)
        tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        before = connection.execute(tables).fetchall()
        with pytest.raises(DeferkitError, match="has tables of another program, and is no store of deferkit"):
            postgres.prepare()
        assert connection.execute(tables).fetchall() == before


def test_other_tables_may_stand_beside_those_of_a_store(postgres: Postgres, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    postgres.prepare()
    postgres.prepare()
