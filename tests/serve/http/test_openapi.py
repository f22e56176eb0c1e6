"""The OpenAPI document: what it promises holds for whatever is sent."""

import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document
from tests.serve.harness.in_process import POLICY, running

SOAK = bool(os.environ.get("DEFERKIT_SOAK"))
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    allow_header_conformance,
]
schema = schemathesis.openapi.from_dict(document(ROUTES))


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A service with keys: its URL, and a key that is good for everything."""
    with running(tmp_path_factory.mktemp("service"), tenants=True) as service:
        client = service.client("acme")
        assert client.post("/v1/policies", POLICY).status == 201
        for n in range(3):
            assert client.decide(f"t{n}").status == 201
        yield service.url, client.headers["authorization"]


@schema.parametrize()
@hypothesis.settings(
    max_examples=2000 if SOAK else 15,
    suppress_health_check=list(hypothesis.HealthCheck),
    derandomize=not SOAK,
)
def test_whatever_is_sent_the_answer_is_as_documented(case: schemathesis.Case[Any], keyed: tuple[str, str]) -> None:
    url, key = keyed
    if len(case.path_parameters.get("name", "")) % 4:  # three in four for a policy that is there
        case.path_parameters["name"] = "p"
    headers = {} if schema.is_security_param_negated(case) else {"authorization": key}
    case.call_and_validate(base_url=url, headers=headers, checks=CHECKS)
