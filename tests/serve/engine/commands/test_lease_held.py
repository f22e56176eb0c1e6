"""What one reviewer holds: a bounded number of claims, listed in pages of a bounded size."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferkit import Client
from deferkit.serve.api.reviews import ClaimBody
from deferkit.serve.engine.commands.lease import Claim
from deferkit.serve.engine.engine import Engine
from deferkit.serve.http import reviews
from deferkit.serve.storage.database import Database
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import KEY, POLICY, SPEC, Running, by_hand, complete, decide, play, running
from tests.serve.harness.in_process import claim as claim_one
from tests.serve.http.test_application import Checked

REVIEWS = "/v1/policies/p/reviews"
HELD = f"{REVIEWS}/held?reviewer=ann"
PLENTY = POLICY | {"budget": {"cost": {"total": 10_000, "horizon": 10_000, "max_cost": 1}}}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"store": url_of(request.getfixturevalue("postgres_url"))} if request.param == "postgres" else {}


@pytest.fixture
def service(store: dict[str, Any], tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, **store) as service:
        yield service


@pytest.fixture
def client(service: Running) -> Checked:
    client = Checked(service.url)
    service.clients.append(client)
    assert client.post("/v1/policies", PLENTY).status == 201
    return client


def claim(client: Checked, n: int, **given: Any) -> list[str]:
    """Decide tasks and let ann claim them; return them in the order of their claims."""
    for i in range(n):
        assert client.decide(f"t{i}", **given).status == 201
    return [client.post(f"{REVIEWS}/claim", {"reviewer": "ann"}).json["task"] for _ in range(n)]


def pages(client: Checked, path: str) -> list[list[Any]]:
    """Return all pages of a listing."""
    found, following = [], ""
    while following is not None:
        reply = client.get(f"{path}&after={following.replace(' ', '%20')}").json
        found.append(reply["held"])
        following = reply["next"]
    return found


def test_held_claims_with_large_payloads_come_in_pages(service: Running, client: Checked) -> None:
    payload = "ü" * 160_000  # 320 KB
    tasks = claim(client, 26, payload=payload)
    first = client.get(HELD)
    assert len(first.body) < reviews.MAX_SHOWN + 10_000
    found = pages(client, HELD)
    assert [len(page) for page in found] == [12, 12, 2]
    assert [each["task"] for page in found for each in page] == tasks  # the lease that ends first before the others
    assert all(each["payload"] == payload for page in found for each in page)
    with Client(service.url, policy="p") as ann:
        assert [(each.task, each.payload) for each in ann.reviews.held("ann")] == [(task, payload) for task in tasks]


def test_a_claim_that_is_larger_than_a_page_has_its_own(client: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "MAX_SHOWN", 1000)
    claim(client, 3, payload="x" * 990, model_answer="y" * 500)
    assert [len(page) for page in pages(client, HELD)] == [1, 1, 1]


def test_held_claims_are_listed_as_many_at_a_time_as_is_asked_for(client: Checked) -> None:
    tasks = claim(client, 5)
    found = pages(client, f"{HELD}&limit=2")
    assert [[each["task"] for each in page] for page in found] == [tasks[:2], tasks[2:4], tasks[4:]]
    assert client.get(f"{HELD}&limit=5").json["next"] is None
    for wrong in ("x", "1%202", "1%202%20a%0a"):
        assert client.get(f"{HELD}&after={wrong}").status == 422
    assert client.get(f"{HELD}&limit=1001").status == 422
    assert client.get(f"{REVIEWS}/held?reviewer=bo").json == {"held": [], "next": None}


def test_a_reviewer_holds_a_limited_number_of_claims(store: dict[str, Any], tmp_path: Path) -> None:
    with running(tmp_path, max_claims=3, **store) as service:
        service.clients.append(client := Checked(service.url))
        for name in ("p", "q"):
            assert client.post("/v1/policies", PLENTY | {"name": name}).status == 201
            for i in range(6):
                assert client.decide(f"t{i}", name).status == 201
        path = f"{REVIEWS}/claim"
        held = [client.post(path, {"reviewer": "ann"}).json for _ in range(3)]
        refused = client.post(path, {"reviewer": "ann"})
        assert (refused.status, refused.json["code"]) == (409, "too_many")
        assert "holds 3 tasks of this policy, which is the maximum" in refused.json["detail"]
        assert client.post(path, {"reviewer": "bo"}).status == 200  # each reviewer for itself, in each policy
        assert client.post("/v1/policies/q/reviews/claim", {"reviewer": "ann"}).status == 200
        done = {name: held[0][name] for name in ("task", "seat", "epoch", "token")}
        assert client.post(f"{REVIEWS}/complete", done | {"answer": "ham", "cost": 0.5}).status == 200
        assert client.post(path, {"reviewer": "ann"}).status == 200
        assert client.post(path, {"reviewer": "ann"}).status == 409
        assert client.post(path, {"reviewer": "bo"}).status == 200
        assert client.post(path, {"reviewer": "ann"}).status == 204  # nothing waits: that says more


def test_claims_at_once_keep_to_the_limit(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(8):
            await decide(engine, f"t{i}")
        calls = (engine.submit(KEY, Claim(ClaimBody(reviewer="ann"), 3)) for _ in range(8))
        assert sorted(reply.status for reply in await asyncio.gather(*calls)) == [200] * 3 + [409] * 5

        def directly() -> int:  # as another process does that shares the database
            query = Claim(ClaimBody(reviewer="bo"), 2).query(engine.owned[KEY].id, SPEC, engine.clock.now())
            return engine.store.in_own_transaction(query.run).status

        statuses = await asyncio.gather(*(asyncio.to_thread(directly) for _ in range(6)))
        assert sorted(statuses) == [200] * 2 + [409] * 4

    play(database, script)


def test_claims_from_before_the_limit_stay_and_those_that_lapsed_do_not_count(database: Database) -> None:
    async def script(engine: Engine) -> None:
        clock = by_hand(engine)
        for i in range(7):
            await decide(engine, f"t{i}")
        held = [await claim_one(engine, "ann") for i in range(4)]
        limited = Claim(ClaimBody(reviewer="ann"), 2)
        assert (await engine.submit(KEY, limited)).status == 409
        assert (await complete(engine, held[0], answer="ham", cost=0.5))["finished"]
        assert (await engine.submit(KEY, limited)).status == 409
        clock.advance(SPEC.lease_s + 1)
        assert [(await engine.submit(KEY, limited)).status for _ in range(3)] == [200, 200, 409]

    play(database, script)
