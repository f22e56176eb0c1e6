"""Services in processes of their own, on both databases; none outlives its test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deferkit.serve.storage.database import Database
from deferkit.serve.storage.open_store import database_of
from tests.serve.harness.fault_injection import KillablePostgres, url_of
from tests.serve.harness.service_process import ForkServer, ServiceProcess, free_port


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def service_on(fork_server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    """Makes services, which end with the test."""
    made: list[ServiceProcess] = []

    def make(store: str, **settings: object) -> ServiceProcess:
        given = {"rate": 0} | settings
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        made.append(ServiceProcess(tmp_path, *options, store=store, port=free_port(), fork_server=fork_server))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def sqlite_path(tmp_path: Path) -> str:
    """The path of a database that is not there yet."""
    return str(tmp_path / "deferkit.db")


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A fresh store of each kind, as the command line takes it."""
    name = "sqlite_path" if request.param == "sqlite" else "postgres_store"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def postgres_store(postgres_url: str) -> str:
    """A fresh database on the server, as the command line takes it."""
    return url_of(postgres_url)


@pytest.fixture
def killable_postgres() -> Iterator[KillablePostgres]:
    """A server that may be killed."""
    made = KillablePostgres()
    yield made
    made.close()


@pytest.fixture
def soak() -> bool:
    """Whether there is time for many rounds (`make soak`)."""
    return bool(os.environ.get("DEFERKIT_SOAK"))


@pytest.fixture
def reading() -> Iterator[Callable[[str], Database]]:
    """Opens databases beside the services that use them."""
    made: list[Database] = []

    def make(store: str) -> Database:
        made.append(database_of(store))
        return made[-1]

    yield make
    for each in made:
        each.close()
