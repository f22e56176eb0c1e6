"""What one reviewer holds: listed in pages of a bounded size."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferkit import Client
from deferkit.serve.http import routes_queue
from tests.serve.api.test_routes import Checked
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import POLICY, Running, running

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
    assert len(first.body) < routes_queue.MOST_SHOWN + 10_000
    found = pages(client, HELD)
    assert [len(page) for page in found] == [12, 12, 2]
    assert [each["task"] for page in found for each in page] == tasks  # the lease that ends first before the others
    assert all(each["payload"] == payload for page in found for each in page)
    with Client(service.url, policy="p") as ann:
        assert [(each.task, each.payload) for each in ann.reviews.held("ann")] == [(task, payload) for task in tasks]


def test_a_claim_that_is_larger_than_a_page_has_its_own(client: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_queue, "MOST_SHOWN", 1000)
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
