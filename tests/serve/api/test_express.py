"""The short way to decide and the ordinary one give the same answers."""

from typing import Any

import pytest

from tests.serve.serving import Client

PATH = "/v1/policies/p/decisions"
ORDINARY = {"content-type": "application/json; charset=utf-8"}  # the short way is for those who say nothing more


def test_a_task_decided_one_way_has_the_same_reply_the_other_way(client: Client) -> None:
    for n, ways in enumerate([({}, ORDINARY), (ORDINARY, {})]):
        body = {"task": f"both ways {n}", "context": [0.3, n / 3], "force": "human"}
        first, second = (client.post(PATH, body, headers=way) for way in ways)
        assert (first.status, first.body) == (second.status, second.body)
        assert first.status == 201


@pytest.mark.parametrize(
    "body",
    [
        {"task": "t", "context": [1.0]},
        {"task": "t", "context": [1.0, "1"]},
        {"task": "t", "context": [1.0, 2.0], "unknown": 1},
        {"task": "", "context": [1.0, 2.0]},
        {"task": "t", "context": [1.0, 2.0], "force": "nobody"},
        b"",
        b"{",
        b'{"task": "t", "task": "u", "context": [1, 2]}',
    ],
)
def test_what_is_wrong_is_said_alike(client: Client, body: Any) -> None:
    short, ordinary = (client.post(PATH, body, headers=way) for way in ({}, ORDINARY))
    assert (short.status, short.body) == (ordinary.status, ordinary.body)
    assert short.status in (400, 422)


def test_conflicts_and_unknown_policies_are_said_alike(client: Client) -> None:
    assert client.decide("taken").status == 201
    for path, body, status in (
        (PATH, {"task": "taken", "context": [9.0, 9.0]}, 409),
        ("/v1/policies/nowhere/decisions", {"task": "t", "context": [1.0, 2.0]}, 404),
    ):
        short, ordinary = (client.post(path, body, headers=way) for way in ({}, ORDINARY))
        assert (short.status, short.body) == (ordinary.status, ordinary.body)
        assert short.status == status


def test_both_ways_are_counted_as_one_route(client: Client) -> None:
    def count() -> float:
        wanted = 'deferkit_requests_total{method="POST",path="/v1/policies/{name}/decisions",status="201"}'
        lines = client.get("/metrics").body.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(wanted))

    before = count()
    for n, way in enumerate(({}, ORDINARY)):
        assert client.post(PATH, {"task": f"counted {n}", "context": [1.0, 2.0]}, headers=way).status == 201
    assert count() == before + 2
