"""Sessions of browsers: opened with a key, carried by a cookie, ended with either."""

import time
from pathlib import Path
from typing import Any

import pytest

from deferkit.serve.domain.api_keys import new_key, parts_of
from deferkit.serve.http import auth
from deferkit.serve.http.auth import MAX_OF_A_KEY, id_of, new_session
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import Answer, Client, until
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import POLICY, Running, running


def log_in(service: Running, key: str | None, **given: Any) -> Client:
    """Return a client that has a cookie and no key."""
    client = service.client()
    answer = client.post("/v1/session", {"key": key, **given})
    assert answer.status == 201, answer.body
    client.headers["cookie"] = cookie_of(answer)
    return client


def cookie_of(answer: Answer) -> str:
    """Return what a browser sends back."""
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture(autouse=True)
def known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is made in a test is known at once."""
    monkeypatch.setattr(auth, "NEW_S", -1.0)


@pytest.fixture(params=["sqlite", "postgres"])
def keyed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A service with keys and the policy `p` of the tenant acme, on each database."""
    given = {"store": url_of(request.getfixturevalue("postgres_url"))} if request.param == "postgres" else {}
    with running(tmp_path, tenants=True, **given) as service:
        assert service.client("acme").post("/v1/policies", POLICY).status == 201
        yield service


def test_a_session_is_good_for_what_its_key_is_good_for(keyed: Running) -> None:
    client = log_in(keyed, keyed.key("acme", "admin", "decide"))
    assert client.get("/v1/policies/p/summary").status == 200
    assert client.decide("t").status == 201  # the route before the router
    assert client.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).status == 403
    assert client.get("/v1/keys").status == 200
    reviewer = log_in(keyed, keyed.key("acme", "review"))
    assert reviewer.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).json["task"] == "t"
    assert reviewer.get("/v1/keys").status == 403
    assert log_in(keyed, keyed.key("other")).get("/v1/policies/p/summary").status == 404


def test_a_session_says_who_it_is(keyed: Running) -> None:
    key = keyed.key("acme", "review", "read")
    began = time.time()
    client = log_in(keyed, key, reviewer="ann")
    found = client.get("/v1/session").json
    assert began + 43_000 < found.pop("expires") < began + 44_000
    number = (parts_of(key) or ("", ""))[0]
    assert found == {"tenant": "acme", "scopes": ["review", "read"], "reviewer": "ann", "open": False, "key": number}
    assert keyed.client(key=key).get("/v1/session").json == found | {"reviewer": None, "expires": None}
    assert keyed.client().get("/v1/session").status == 401


def test_no_script_and_no_other_site_gets_the_cookie(keyed: Running) -> None:
    body = {"key": keyed.key("acme")}
    name, *rest = keyed.client().post("/v1/session", body).headers["set-cookie"].split("; ")
    assert name.startswith("deferkit_session=")
    assert rest == ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"]
    host = keyed.url.removeprefix("http://")
    secure = keyed.client().post("/v1/session", body, headers={"origin": f"https://{host}"})  # a proxy has the TLS
    assert secure.headers["set-cookie"].endswith("; Secure")


def test_a_bad_key_opens_no_session(keyed: Running) -> None:
    client = keyed.client()
    key = keyed.key("acme")
    for bad in (None, "", "dk_1_2", key + "x", key[:-1], f"Bearer {key}"):
        answer = client.post("/v1/session", {"key": bad})
        assert (answer.status, answer.json["code"]) == (401, "unauthorized"), bad
        assert "set-cookie" not in answer.headers
    for cookie in (
        "deferkit_session=",
        "deferkit_session=x",
        f"deferkit_session={key}",
        "other=1",
        "deferkit_session=\xff",
    ):
        assert client.get("/v1/session", headers={"cookie": cookie}).status == 401, cookie


def test_a_session_that_was_closed_is_none(keyed: Running) -> None:
    client = log_in(keyed, keyed.key("acme"))
    other = log_in(keyed, keyed.key("acme"))
    answer = client.call("DELETE", "/v1/session")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["set-cookie"].startswith("deferkit_session=; ")
    assert "; Max-Age=0" in answer.headers["set-cookie"]
    assert client.get("/v1/session").status == 401
    assert other.get("/v1/session").status == 200


def test_a_session_ends_with_its_key_within_a_second(keyed: Running) -> None:
    key = keyed.key("acme")
    client = log_in(keyed, key)
    assert client.get("/v1/session").status == 200
    keyed.store.revoke_key((parts_of(key) or ("", ""))[0], 1)  # as another process does
    revoked = time.monotonic()
    until(lambda: client.get("/v1/session").status == 401)
    assert time.monotonic() - revoked < 2 * auth.FRESH_S  # a second, and a slow machine


def test_a_session_that_another_process_closed_ends_within_a_second(keyed: Running) -> None:
    client = log_in(keyed, keyed.key("acme"))
    keyed.store.revoke_session(id_of(client.headers["cookie"].partition("=")[2]), 1)
    closed = time.monotonic()
    until(lambda: client.get("/v1/session").status == 401)
    assert time.monotonic() - closed < 2 * auth.FRESH_S


def test_a_session_expires(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True, session_s=1) as service:
        client = log_in(service, service.key("acme"))
        assert client.get("/v1/session").status == 200
        until(lambda: client.get("/v1/session").status == 401, seconds=10)


def test_who_logs_in_again_has_one_session(keyed: Running) -> None:
    key = keyed.key("acme")
    client = log_in(keyed, key)
    before = client.headers["cookie"]
    client.headers["cookie"] = cookie_of(client.post("/v1/session", {"key": key}))
    assert client.get("/v1/session").status == 200
    assert client.get("/v1/session", headers={"cookie": before}).status == 401


def test_a_session_with_a_reviewer_claims_for_that_reviewer_alone(keyed: Running) -> None:
    assert keyed.client("acme").decide("t").status == 201
    client = log_in(keyed, keyed.key("acme", "review"), reviewer="ann")
    answer = client.post("/v1/policies/p/reviews/claim", {"reviewer": "bo"})
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert client.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).json["task"] == "t"


def test_a_key_of_a_reviewer_opens_sessions_of_that_reviewer_alone(keyed: Running) -> None:
    key, row = new_key("acme", ["review", "admin"], "", reviewer="ann")
    keyed.store.add_key(row)
    assert keyed.client().post("/v1/session", {"key": key, "reviewer": "bo"}).status == 403
    assert log_in(keyed, key).get("/v1/session").json["reviewer"] == "ann"
    client = log_in(keyed, key, reviewer="ann")
    assert client.post("/v1/keys", {"scopes": ["review"], "reviewer": "bo"}).status == 403


def test_an_administrator_who_reviews_makes_keys_for_others(keyed: Running) -> None:
    client = log_in(keyed, keyed.key("acme", "review", "admin"), reviewer="ann")
    assert client.post("/v1/keys", {"scopes": ["review"], "reviewer": "bo"}).status == 201


def test_the_key_of_a_call_goes_before_its_cookie(keyed: Running) -> None:
    client = log_in(keyed, keyed.key("other"))
    client.headers["authorization"] = f"Bearer {keyed.key('acme')}"
    assert client.get("/v1/session").json["tenant"] == "acme"
    client.headers["authorization"] = "Bearer dk_1_2"
    assert client.get("/v1/session").status == 401


def test_the_store_has_a_hash_of_the_cookie_only(keyed: Running, tmp_path: Path) -> None:
    token = log_in(keyed, keyed.key("acme")).headers["cookie"].partition("=")[2]
    [row] = keyed.store.sessions(0)
    assert row.id == id_of(token)
    assert token.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


def test_only_the_latest_sessions_of_a_key_stay(database: Database) -> None:
    database.prepare()
    store = Store(database)
    made = [new_session("k", "acme", None, 60, 0)[1]._replace(created=n) for n in range(MAX_OF_A_KEY + 3)]
    other = new_session("l", "acme", None, 60, 0)[1]._replace(created=0)
    gone = new_session("k", "acme", None, 60, 0)[1]._replace(created=0, expires=1)
    for row in (other, gone, *made):
        store.add_session(row, most=MAX_OF_A_KEY)
    assert {row.id for row in store.sessions(0)} == {row.id for row in (other, *made[3:])}
    store.close()


def test_without_keys_a_session_names_the_reviewer(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        assert client.get("/v1/session").json["open"] is True
        assert client.post("/v1/policies", POLICY).status == 201
        assert client.decide("t").status == 201
        ann = log_in(service, None, reviewer="ann")
        found = ann.get("/v1/session").json
        assert (found["open"], found["reviewer"], found["key"]) == (True, "ann", "")
        assert ann.post("/v1/policies/p/reviews/claim", {"reviewer": "bo"}).status == 403
        assert ann.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).status == 200
        assert service.client().post("/v1/session", {"key": "dk_1_2"}).status == 401
        service.key("acme")  # from the first key on, nothing is open, and no session of before is one
        until(lambda: ann.get("/v1/session").status == 401)
