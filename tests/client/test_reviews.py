"""The pages' calls of a `Client`: queue, held claims, decline, tasks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deferkit import Budget, Client
from deferkit.errors import ConflictingObservation, InvalidArgument, UnknownDecision
from tests.serve.harness.in_process import Running, running

REVIEW = {
    "form": [{"name": "spam", "kind": "boolean"}, {"name": "why", "kind": "text", "required": False}],
    "reward_rule": {"kind": "match"},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as service:
        yield service


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    with Client(service.url, policy="mail") as client:
        client.create(features=1, budget=Budget(10, horizon=100, max_cost=1), review=REVIEW, warm_up=0)
        yield client


def ask(client: Client, *tasks: str, reviewers: int = 1) -> None:
    for task in tasks:
        client.decide([1.0], force="human", task=task, payload=task, model_answer=True, reviewers=reviewers)


def test_a_form_is_read_and_changed(client: Client) -> None:
    read = client.reviews.document()
    assert [field["name"] for field in read["review"]["form"]] == ["spam", "why"]
    changed = client.change(lease_s=60, review=REVIEW | {"guidelines": "Think."})
    assert (changed["lease_s"], client.reviews.document()["review"]["guidelines"]) == (60, "Think.")
    with pytest.raises(InvalidArgument):
        client.change(review={"form": []})


def test_a_reviewer_goes_on_after_a_reload_and_declines(client: Client) -> None:
    ask(client, "a", "b & c")
    review = client.reviews.claim("ann ä")
    assert review is not None
    [held] = client.reviews.held("ann ä")
    assert held == review._replace(token=None)
    resumed = client.reviews.resume("ann ä", held)
    assert resumed.token not in (None, review.token)
    with pytest.raises(ConflictingObservation):
        client.reviews.resume("bo", held)
    with pytest.raises(InvalidArgument, match="The field 'spam' of the answer is missing"):
        client.reviews.complete(resumed, {"why": "?"})
    client.reviews.decline(resumed, "I know the sender.")
    client.reviews.decline(resumed, "I know the sender.")
    other = client.reviews.claim("ann ä")
    assert other is not None
    assert other.task != review.task
    assert client.reviews.complete(other, {"spam": True}, cost=0.5)
    status = client.reviews.status("ann ä")
    assert (status["done"], status["declined"], status["why_empty"]) == (1, 1, "declined")
    assert client.read(other.task)["rewards"] == {"human": 1.0, "model": 1.0}
    corrected = client.reviews.correct(other, {"spam": False}, cost=0.75, id="c")
    assert (corrected["rewards"], corrected["cost"]) == ({"human": 1.0, "model": 0.0}, 0.75)
    assert client.reviews.correct(other, {"spam": False}, cost=0.75, id="c") == corrected
    with pytest.raises(ConflictingObservation):
        client.reviews.correct(other, {"spam": True}, id="c")
    assert client.reviews.correct(other, {"spam": True})["rewards"] == {"human": 1.0, "model": 1.0}


def test_the_queue_and_the_tasks_are_listed_over_pages(client: Client) -> None:
    names = [f"t{n}" for n in range(5)]
    ask(client, *names, reviewers=2)
    claimed = client.reviews.claim("ann")
    assert claimed is not None
    assert len(list(client.reviews.list())) == 10
    [held] = client.reviews.list("claimed")
    assert (held["task"], held["reviewer"]) == (claimed.task, "ann")
    client.reviews.reassign(claimed.task, claimed.seat)
    assert list(client.reviews.list("claimed")) == []
    with pytest.raises(ConflictingObservation):
        client.reviews.reassign(claimed.task, claimed.seat)
    with pytest.raises(UnknownDecision):
        client.reviews.reassign("nope")
    assert [task["task"] for task in client.tasks(limit=2)] == names[::-1]
    assert [task["task"] for task in client.tasks(search="T3", state="open")] == ["t3"]
    assert list(client.tasks(route="model")) == []
