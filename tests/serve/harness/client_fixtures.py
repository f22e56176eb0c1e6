"""A service in a process for the tests of a file, and a client for each: import both fixtures to use them."""

import re
from collections.abc import Iterator

import pytest

from deferkit import Client
from tests.serve.harness.service_process import ServiceProcess


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service")) as started:
        yield started
        assert started.stop() in (0, 143)


@pytest.fixture
def client(service: ServiceProcess, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a policy of its own."""
    with service.client(re.sub(r"\W+", "-", request.node.name)[-60:].lstrip("-_")) as made:
        yield made
