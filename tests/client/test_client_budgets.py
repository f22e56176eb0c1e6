"""Renewing budgets, ends and holds through a client and over HTTP, on a real service."""

import math
import time
from datetime import UTC, datetime, timedelta

import pytest

from deferkit import Budget, Client, ConflictingObservation, InvalidArgument
from tests.serve.harness.client_fixtures import client, service
from tests.serve.harness.service_process import ServiceProcess

__all__ = ["client", "service"]


def test_a_client_makes_and_reads_a_renewing_budget(client: Client, service: ServiceProcess) -> None:
    budget = Budget(40, every="week", zone="Europe/Berlin", carry=math.inf, max_cost=2, hold="auto")
    made = client.create(features=2, budget=budget)
    kept = made["budget"]["cost"]
    assert [kept[name] for name in ("total", "every", "zone", "carry", "hold")] == [
        40,
        "week",
        "Europe/Berlin",
        None,
        "auto",
    ]
    client.decide([1.0, 0.5], task="t", force="human")
    period = client.summary().periods["cost"]
    assert period.start <= time.time() < period.end <= period.start + 7 * 86_400 + 3_600
    assert (period.total, client.summary().total) == (40, 40)
    client.change_budget(allowance=50)
    client.change_budget(add=5)
    assert client.summary().periods["cost"].total == 45
    metrics = service.get("/metrics").body.decode()
    assert f'deferkit_budget{{part="total",policy="{client.policy}",resource="cost"}} 45.0' in metrics
    assert f'deferkit_period_end_seconds{{policy="{client.policy}",resource="cost"}}' in metrics
    standing = client.figures.standing()
    assert "it is renewed on" in standing["state"] or "it lasts until it is renewed on" in standing["state"]
    assert standing["held"].startswith("1 pending review holds")
    with pytest.raises(InvalidArgument, match="where reviews can be stopped .hold or limit of cost."):
        client.figures.what_if(["2x"])
    with pytest.raises(InvalidArgument, match="has every, and no until to change"):
        client.change_budget(until=datetime.now(UTC) + timedelta(days=1))


def test_a_client_moves_the_end_of_a_budget(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="would have ended on"):
        client.create(features=2, budget=Budget(10, until=datetime(2001, 1, 1, tzinfo=UTC), max_cost=1))
    end = datetime.now(UTC) + timedelta(days=30)
    client.create(features=2, budget=Budget(10, until=end, max_cost=1))
    client.decide([1.0, 0.5])
    client.change_budget(until={"cost": end + timedelta(days=30)}, add=5)
    assert client.summary().periods["cost"].end == pytest.approx((end + timedelta(days=30)).timestamp())
    assert client.summary().total == 15


def test_a_client_extends_and_stops_reviews(client: Client) -> None:
    client.create(features=2, budget=Budget(10, horizon=100, max_cost=4, hold=1))
    decision = client.decide([1.0, 0.5], force="human")
    assert client.extend(decision, 2.5) == 2.5
    assert client.extend(decision, 2.5) == 0.5
    client.stop(decision, cost=4.0, rewards={"model": 1.0})
    with pytest.raises(ConflictingObservation):
        client.extend(decision, 1)
    assert (client.summary().spent, client.summary().stopped, client.summary().extended) == (4.0, 1, 2)
    client.decide([1.0, 0.5], task="queued", force="human")
    review = client.reviews.claim("ann")
    assert review is not None
    review = client.reviews.extend(review, cost=0.5)
    assert (review.hold, review.stopped) == (1.5, False)
    for cost in (1.5, 2.5, 3.5, 4.0):
        review = client.reviews.extend(review, cost=cost)
    assert review.stopped
    with pytest.raises(ConflictingObservation, match="was stopped"):
        client.reviews.complete(review, "too late", cost=5.0)
    assert client.read("queued")["final"] == "model"
