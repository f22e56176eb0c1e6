"""Webhooks over HTTP: made, listed, deleted by administrators of their tenant; and what became of deliveries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deferkit
from deferkit.client import verify_webhook
from deferkit.errors import InvalidArgument, ServiceError
from deferkit.serve.domain.api_keys import SCOPES
from deferkit.serve.http import auth, webhooks
from tests.serve.harness.clients import until
from tests.serve.harness.in_process import POLICY, Running, running
from tests.serve.harness.webhook_receiver import Receiver

URL = "https://example.org/hook"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FRESH_S", -1.0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, tenants=True, webhook_private=True) as service:
        for tenant in ("acme", "other"):
            assert service.client(tenant).post("/v1/policies", POLICY).status == 201
        yield service


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def test_webhooks_are_made_listed_and_deleted(service: Running) -> None:
    admin = service.client("acme", "admin")
    made = admin.post("/v1/webhooks", {"url": URL, "events": ["budget", "decided"], "policies": ["q", "p", "p"]})
    assert made.status == 201
    reply = made.json
    secret = reply.pop("secret")
    assert secret.startswith("whsec_")
    assert len(secret) > 40
    assert reply == {
        "id": reply["id"],
        "url": URL,
        "events": ["decided", "budget"],
        "policies": ["p", "q"],
        "models": False,
        "created": reply["created"],
    }
    listed = admin.get("/v1/webhooks")
    assert listed.json == {"webhooks": [reply], "backlogs": {reply["id"]: {"waiting": 0, "dropped": 0}}}
    assert secret.encode() not in listed.body
    again = admin.post("/v1/webhooks", {"url": URL, "events": ["budget"]}).json
    assert again["id"] != reply["id"]
    assert again["secret"] != secret
    assert admin.post("/v1/webhooks/delete", {"id": reply["id"]}).json == {"deleted": reply["id"]}
    assert admin.post("/v1/webhooks/delete", {"id": reply["id"]}).status == 404
    assert [each["id"] for each in admin.get("/v1/webhooks").json["webhooks"]] == [again["id"]]


def test_only_administrators_see_and_change_webhooks(service: Running) -> None:
    for scope in SCOPES:
        client = service.client("acme", scope)
        expected = 200 if scope == "admin" else 403
        assert client.get("/v1/webhooks").status == expected
        body = {"url": URL, "events": ["decided"]}
        assert client.post("/v1/webhooks", body).status == (201 if scope == "admin" else 403)
        assert client.post("/v1/webhooks/delete", {"id": "00"}).status == (404 if scope == "admin" else 403)
        assert client.get("/v1/webhooks/deliveries?id=00").status == (404 if scope == "admin" else 403)


def test_webhooks_of_another_tenant_are_not_there_and_hear_nothing(service: Running, receiver: Receiver) -> None:
    mine, theirs = service.client("acme"), service.client("other")
    number = theirs.post("/v1/webhooks", {"url": receiver.url, "events": ["decided"]}).json["id"]
    assert mine.get("/v1/webhooks").json == {"webhooks": [], "backlogs": {}}
    assert mine.post("/v1/webhooks/delete", {"id": number}).status == 404
    assert mine.get(f"/v1/webhooks/deliveries?id={number}").status == 404
    assert mine.decide("mine").status == 201
    assert theirs.decide("theirs").status == 201
    until(receiver.events)
    assert [event["data"]["task"] for event in receiver.events()] == ["theirs"]
    assert mine.call("DELETE", "/v1/tenant").status == 200
    assert [each["id"] for each in theirs.get("/v1/webhooks").json["webhooks"]] == [number]
    assert theirs.call("DELETE", "/v1/tenant").status == 200
    assert service.store.database.reader().run("webhooks") == []


BAD: list[dict[str, Any]] = [
    {},
    {"url": URL},
    {"events": ["decided"]},
    {"url": URL, "events": []},
    {"url": URL, "events": ["decide"]},
    {"url": URL, "events": "decided"},
    {"url": URL, "events": ["decided"] * 5},
    {"url": URL, "events": ["decided"], "secret": "mine"},
    {"url": URL, "events": ["decided"], "policies": []},
    {"url": URL, "events": ["decided"], "policies": ["a b"]},
    {"url": URL, "events": ["decided"], "models": "true"},
    {"url": "ftp://example.org/", "events": ["decided"]},
    {"url": "https://ann:secret@example.org/", "events": ["decided"]},
    {"url": "https://example.org/" + "a" * 2000, "events": ["decided"]},
]


@pytest.mark.parametrize("body", BAD)
def test_bodies_are_strict(service: Running, body: dict[str, Any]) -> None:
    answer = service.client("acme").post("/v1/webhooks", body)
    assert answer.status == 422
    assert b"ann:secret" not in answer.body
    assert service.client("acme").get("/v1/webhooks").json == {"webhooks": [], "backlogs": {}}


def test_private_addresses_are_refused_unless_the_settings_allow_them(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        for host in ("127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254", "localhost"):
            answer = client.post("/v1/webhooks", {"url": f"http://{host}/", "events": ["decided"]})
            assert (answer.status, answer.json["code"]) == (422, "invalid")
        assert client.post("/v1/webhooks", {"url": URL, "events": ["decided"]}).status == 201


def test_a_tenant_has_so_many_webhooks(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_WEBHOOKS", 2)
    body = {"url": URL, "events": ["decided"]}
    assert service.client("other").post("/v1/webhooks", body).status == 201
    admin = service.client("acme")
    assert [admin.post("/v1/webhooks", body).status for _ in range(3)] == [201, 201, 409]


def test_deliveries_and_metrics_tell_what_became_of_events(service: Running, receiver: Receiver) -> None:
    admin = service.client("acme")
    receiver.statuses = [500]
    number = admin.post("/v1/webhooks", {"url": receiver.url, "events": ["decided"]}).json["id"]
    path = f"/v1/webhooks/deliveries?id={number}"
    assert admin.get(path).json == {"deliveries": []}
    assert admin.decide("a").status == 201
    [failed] = until(lambda: [each for each in admin.get(path).json["deliveries"] if each["attempts"]])
    assert (failed["state"], failed["status"], failed["error"]) == ("waiting", 500, "The receiver answered 500.")
    assert failed["due"] > failed["created"]
    nothing_waits = b'deferkit_webhook_oldest_seconds{policy="p"} 0.0\n'
    assert nothing_waits not in admin.get("/metrics").body
    until(lambda: b'deferkit_webhook_deliveries_total{policy="p",state="failed"} 1.0' in admin.get("/metrics").body)
    until(lambda: admin.get(path).json["deliveries"][0]["state"] == "delivered")
    [done] = admin.get(path).json["deliveries"]
    assert (done["attempts"], done["status"], done["error"], done["due"]) == (2, 204, None, None)
    assert done["ended"] >= done["created"]
    assert (done["id"], done["event"]) == (receiver.calls[0].id, "decided")
    assert nothing_waits in admin.get("/metrics").body
    until(lambda: b'deferkit_webhook_deliveries_total{policy="p",state="delivered"} 1.0' in admin.get("/metrics").body)
    assert admin.decide("b").status == 201
    until(lambda: len(admin.get(path).json["deliveries"]) == 2)
    assert len(admin.get(f"{path}&limit=1").json["deliveries"]) == 1
    assert admin.get("/v1/webhooks/deliveries").status == 422
    assert admin.get("/v1/webhooks/deliveries?id=no'sql").status == 422


def test_events_that_are_given_up_are_counted_for_their_tenant(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True, webhook_private=True, webhook_backlog=5) as service:
        admin, other = service.client("acme"), service.client("other")
        assert admin.post("/v1/policies", POLICY).status == 201
        made = admin.post("/v1/webhooks", {"url": "http://127.0.0.1:1/", "events": ["decided"], "models": True})
        number = made.json["id"]
        for task in range(12):
            assert admin.decide(f"t{task}", force="model").status == 201

        def backlog() -> Any:
            return admin.get("/v1/webhooks").json["backlogs"][number]

        until(lambda: backlog() == {"waiting": 5, "dropped": 7})
        page = admin.get(f"/v1/webhooks/deliveries?id={number}").json["deliveries"]
        assert len(page) == 5
        dropped = b'deferkit_webhook_deliveries_total{policy="p",state="dropped"}'
        assert dropped + b" 7.0\n" in admin.get("/metrics").body
        assert dropped not in other.get("/metrics").body
        assert other.get("/v1/webhooks").json["backlogs"] == {}


def test_a_client_has_webhooks(service: Running, receiver: Receiver) -> None:
    with deferkit.Client(service.url, policy="p", key=service.key("acme")) as client:
        secret, webhook = client.webhooks.create(receiver.url, ["completed"], policies=["p"])
        assert (webhook.events, webhook.policies, webhook.models) == (("completed",), ("p",), False)
        assert client.webhooks.list() == [webhook]
        client.decide([1.0, 0.5], task="a", force="human")
        review = client.reviews.claim("ann")
        assert review is not None
        client.reviews.complete(review, "spam", rewards={"human": 1.0}, cost=0.5)
        [call] = until(lambda: receiver.calls)
        assert verify_webhook(call.body, call.headers["deferkit-signature"], secret)
        assert not verify_webhook(call.body, call.headers["deferkit-signature"], secret[:-1])
        assert call.event["data"]["answer"] == "spam"
        [delivery] = until(lambda: [each for each in client.webhooks.deliveries(webhook) if each.ended])
        assert (delivery.id, delivery.state, delivery.status) == (call.id, "delivered", 204)
        everything = client.webhooks.create(receiver.url, ["decided"], models=True)[1]
        assert everything.policies is None
        client.decide([1.0, 0.5], task="b", force="model")
        until(lambda: receiver.events("decided"))
        client.webhooks.delete(webhook)
        client.webhooks.delete(everything.id)
        assert client.webhooks.list() == []
        with pytest.raises(ServiceError) as caught:
            client.webhooks.deliveries(webhook)
        assert caught.value.status == 404
        with pytest.raises(InvalidArgument):
            client.webhooks.create("no url", ["decided"])
        with pytest.raises(InvalidArgument):
            client.webhooks.create(URL, "decided")


def test_secrets_and_urls_are_not_logged(
    service: Running, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    admin = service.client("acme")
    receiver.statuses = [500, 302]
    urls = [receiver.url.replace("a=1", "token=s3cret"), "http://127.0.0.1:1/s3cret", "http://s3cret.invalid/"]
    made = [admin.post("/v1/webhooks", {"url": url, "events": ["decided"]}).json for url in urls]
    assert admin.decide("a").status == 201

    def attempted() -> list[Any]:
        paths = [f"/v1/webhooks/deliveries?id={each['id']}" for each in made]
        return [each for path in paths for each in admin.get(path).json["deliveries"] if each["attempts"]]

    until(lambda: len(attempted()) == len(made))
    assert "s3cret" not in str(attempted())
    logged = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert "s3cret" not in logged
    assert not [each for each in made if each["secret"] in logged]
