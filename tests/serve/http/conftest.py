"""One service for the tests of a file: they use task ids of their own."""

from collections.abc import Iterator

import pytest

from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without keys, with the policy `p`."""
    with running(tmp_path_factory.mktemp("service")) as service:
        assert service.client().post("/v1/policies", POLICY).status == 201
        yield service


@pytest.fixture
def client(service: Running) -> Client:
    """A client of the service."""
    return service.client()
