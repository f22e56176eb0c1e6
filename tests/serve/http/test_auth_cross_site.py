"""Pages of other sites: what their forms, scripts and frames get from the service is nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from deferkit.serve.http import auth
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import POLICY, Running, running

FOREIGN: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},  # another port of this machine, or a neighbour under the same domain
    {"sec-fetch-site": "cross-site", "origin": "OURS"},
    {"origin": "https://evil.example"},
    {"origin": "null"},  # a sandboxed frame, a file
    {"origin": "http://localhost:1"},
    {"origin": "http://127.0.0.1"},
]
OWN: list[dict[str, str]] = [
    {},  # no browser
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "same-origin", "origin": "OURS"},
    {"sec-fetch-site": "none"},
    {"origin": "OURS"},  # a browser of before 2023
]
FORMS = ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "application/json"]


@pytest.fixture(scope="module", params=["open", "keys"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that is open to this machine, and one with keys; both with the policy `p`."""
    tenants = request.param == "keys"
    with pytest.MonkeyPatch.context() as patch, running(tmp_path_factory.mktemp("service"), tenants=tenants) as service:
        patch.setattr(auth, "NEW_S", -1.0)  # a key that is made in a test is known at once
        client = service.client("acme") if tenants else service.client()
        assert client.post("/v1/policies", POLICY).status == 201
        yield service


@pytest.fixture
def browser(service: Running) -> Client:
    """A browser that is logged in."""
    key = service.key("acme") if service.store.keys() else None
    client = service.client()
    answer = client.post("/v1/session", {"key": key})
    assert answer.status == 201
    client.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
    return client


def headers_of(client: Client, headers: dict[str, str]) -> dict[str, str]:
    ours = f"http://{client.connection.host}:{client.connection.port}"
    return {name: ours if value == "OURS" else value for name, value in headers.items()}


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_site_changes_nothing(browser: Client, headers: dict[str, str]) -> None:
    before = browser.get("/v1/policies/p/summary").json
    foreign: dict[str, Any] = {"headers": headers_of(browser, headers)}
    for kind in FORMS:
        for path in ("/v1/policies/p/decisions", "/v1/policies/p/budget", "/v1/policies"):
            answer = browser.post(
                path, b'{"task": "t", "context": [1, 1]}', headers={**foreign["headers"], "content-type": kind}
            )
            assert (answer.status, answer.json["code"]) == (403, "cross_site"), (path, kind)
    assert browser.call("PATCH", "/v1/policies/p", {"deadline_s": 1}, **foreign).status == 403
    assert browser.call("DELETE", "/v1/policies/p", **foreign).status == 403
    assert browser.call("DELETE", "/v1/tenant", **foreign).status == 403
    assert browser.call("DELETE", "/v1/session", **foreign).status == 403
    assert browser.get("/v1/policies/p/summary").json == before


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_site_logs_nobody_in(service: Running, headers: dict[str, str]) -> None:
    client = service.client()
    key = service.key("acme") if service.store.keys() else None
    answer = client.post("/v1/session", {"key": key}, headers=headers_of(client, headers))
    assert (answer.status, answer.json["code"]) == (403, "cross_site")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_our_own_page_may_do_all(browser: Client, headers: dict[str, str]) -> None:
    own = headers_of(browser, headers)
    assert browser.get("/v1/session", headers=own).status == 200
    assert browser.post("/v1/policies/p/budget", {"id": str(headers), "add": 1}, headers=own).status == 200
    task = {"task": str(headers), "context": [1, 1]}
    assert browser.post("/v1/policies/p/decisions", task, headers=own).status == 201


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_without_keys_a_page_of_another_site_reads_nothing_either(service: Running, headers: dict[str, str]) -> None:
    client = service.client()
    answer = client.get("/v1/policies/p/summary", headers=headers_of(client, headers))
    if service.store.keys():
        assert answer.status == 401  # a browser sends a SameSite=Strict cookie to nobody else's page
    else:
        assert (answer.status, answer.json["code"]) == (403, "cross_site")
    assert client.get("/console", headers=headers_of(client, headers)).status == 200  # a link to the console works


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_key_is_good_from_wherever_it_is_sent(service: Running, headers: dict[str, str]) -> None:
    if service.store.keys():
        client = service.client("acme")
        given = headers_of(client, headers)
        assert client.post("/v1/policies/p/budget", {"id": f"k{headers}", "add": 1}, headers=given).status == 200


def test_a_name_that_points_to_this_machine_is_not_this_machine(service: Running) -> None:
    client = service.client()
    for host in ("evil.example", "evil.example:80", "localhost.evil.example"):
        rebound = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        assert client.get("/v1/policies", headers=rebound).status in (401, 403)
        assert client.post("/v1/session", {}, headers=rebound).status in (401, 403)
