"""Keys: who has none, a bad one or a revoked one, and what each is good for."""

import hashlib
import hmac
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferkit.serve.domain import api_keys as keys
from deferkit.serve.http import auth
from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.route_support import route_of
from tests.serve.harness.clients import Client, until
from tests.serve.harness.in_process import POLICY, Running, running

CALLS = [
    (next(iter(route.http_methods)), next(iter(route.paths)).replace("{name:str}", "p"), route_of(route).scopes)
    for route in ROUTES
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with keys, which looks at them at each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "FRESH_S", -1.0)
        with running(tmp_path_factory.mktemp("service"), tenants=True) as service:
            assert service.client("acme").post("/v1/policies", POLICY).status == 201
            yield service


def called(client: Client, method: str, path: str) -> int:
    return client.call(method, path, None if method == "GET" else {}).status


def test_without_a_key_nothing_is_told(service: Running) -> None:
    client = service.client()
    for method, path, scopes in CALLS:
        answer = client.call(method, path, None if method == "GET" else {})
        if scopes or path == "/v1/session":
            assert (answer.status, answer.json["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        else:
            assert answer.status == 200
    without = {"/", "/healthz", "/readyz", "/v1/openapi.json", "/v1/session"}
    assert {path for _, path, scopes in CALLS if not scopes} == without


def test_a_bad_key_is_none(service: Running) -> None:
    key = service.key("acme")
    number, secret = keys.parts_of(key) or ("", "")
    assert service.client(key=key).get("/v1/policies").status == 200
    other = keys.parts_of(service.key("acme")) or ("", "")
    bad = [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {key}",
        key,
        f"Bearer {key}x",
        f"Bearer {key[:-1]}",
        f"Bearer {key.swapcase()}",
        f"Bearer dk_{number}_",
        f"Bearer dk__{secret}",
        f"Bearer dk_{number}_{other[1]}",
        f"Bearer dk_unknown_{secret}",
        f"Bearer dk_{number}_{hashlib.sha256(secret.encode()).hexdigest()}",
        f"Bearer dk_{number}_\xff\xfe",
        f"Bearer {key} {key}",
        "Bearer " + "x" * 50_000,
    ]
    client = service.client()
    for header in bad:
        assert client.get("/v1/policies", headers={"authorization": header}).status == 401, header
    assert client.get("/v1/policies", headers={"authorization": f"bearer   {key} "}).status == 200


def test_two_keys_at_once_are_none(service: Running) -> None:
    client = service.client()
    client.connection.putrequest("GET", "/v1/policies")
    for _ in range(2):
        client.connection.putheader("authorization", f"Bearer {service.key('acme')}")
    client.connection.endheaders()
    response = client.connection.getresponse()
    response.read()
    assert response.status == 401


@pytest.mark.parametrize("scope", keys.SCOPES)
def test_a_key_is_good_for_its_scope_only(service: Running, scope: str) -> None:
    client = service.client(f"{scope} only", scope)
    for method, path, scopes in sorted(CALLS, key=lambda call: call[1] == "/v1/tenant"):  # that revokes the key
        if scopes:
            assert (called(client, method, path) != 403) == (scope in scopes), (method, path)


def test_a_key_of_two_scopes_is_good_for_both(service: Running) -> None:
    client = service.client("acme", "decide", "review")
    assert client.decide("two scopes").status == 201
    assert client.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).status == 200
    assert client.post("/v1/policies/p/outcomes", {"task": "two scopes", "cost": 1}).status == 403


def test_a_revoked_key_is_none(service: Running) -> None:
    client, other = service.client("acme"), service.client("acme")
    assert client.get("/v1/policies").status == 200
    number, _ = keys.parts_of(client.headers["authorization"].removeprefix("Bearer ")) or ("", "")
    assert service.store.revoke_key(number, 1)
    assert client.get("/v1/policies").status == 401
    assert other.get("/v1/policies").status == 200


def test_a_revoked_key_is_refused_within_a_moment(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        client = service.client("acme")
        assert client.get("/v1/policies").status == 200
        number, _ = keys.parts_of(client.headers["authorization"].removeprefix("Bearer ")) or ("", "")
        service.store.revoke_key(number, 1)
        until(lambda: client.get("/v1/policies").status == 401, seconds=10)


def test_a_new_key_is_known_at_once(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        first = service.client("acme")
        assert first.get("/v1/policies").status == 200  # the keys are known now, and not read again for a second
        time.sleep(2 * auth.NEW_S)
        assert service.client("acme").get("/v1/policies").status == 200


def test_keys_are_kept_as_hashes(service: Running) -> None:
    key = service.key("acme")
    number, secret = keys.parts_of(key) or ("", "")
    [row] = [row for row in service.store.keys() if row.id == number]  # noqa: SIM118
    assert row.hash == hashlib.sha256(secret.encode()).digest()
    path = Path(service.store.database.path)  # type: ignore[attr-defined]
    for file in (path, path.with_name(f"{path.name}-wal")):
        assert secret.encode() not in file.read_bytes()


def test_secrets_are_compared_in_constant_time(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []

    def spy(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return compare(a, b)

    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", spy)
    key = service.key("acme")
    assert service.client(key=key).get("/v1/policies").status == 200
    assert service.client(key=f"{key}x").get("/v1/policies").status == 401
    assert [len(a) == len(b) == 32 for a, b in compared] == [True, True]


def test_a_body_of_nobody_is_not_read(service: Running) -> None:
    client = service.client()
    assert client.post("/v1/policies", b"[" * 900_000).status == 401
    assert client.get("/healthz").status == 200


def test_without_keys_only_this_machine_may_call(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        assert client.post("/v1/policies", POLICY).status == 201
        for host in ("localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:8080", "[::1]", "[::1]:8080"):
            assert client.get("/v1/policies", headers={"host": host}).status == 200, host
        # a page of evil.example whose name was made to mean 127.0.0.1 after it had been loaded
        for host in (
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "::1",
        ):
            answer = client.get("/v1/policies", headers={"host": host})
            assert (answer.status, answer.json["code"]) == (403, "forbidden"), host
        assert client.get("/healthz", headers={"host": "evil.example"}).status == 200


def test_the_first_key_closes_an_open_service_and_revoking_it_does_not_open_it(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        assert client.post("/v1/policies", POLICY).status == 201
        key = service.key("default")
        until(lambda: client.get("/v1/policies/p").status == 401, seconds=10)
        keyed = service.client(key=key)
        assert keyed.get("/v1/policies/p", headers={"host": "deferkit.example"}).status == 200
        service.store.revoke_key((keys.parts_of(key) or ("", ""))[0], 1)
        until(lambda: keyed.get("/v1/policies/p").status == 401, seconds=10)
        assert client.get("/v1/policies/p").status == 401
    with running(tmp_path) as service:
        assert service.client().get("/v1/policies/p").status == 401
