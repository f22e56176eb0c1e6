"""What is not exactly right is refused with a sentence, never with a 500."""

import json
from typing import Any

import pytest

from tests.serve.harness.clients import Client

DECISIONS = "/v1/policies/p/decisions"
GOOD = {"task": "strict", "context": [1.0, 0.5]}
NOT_JSON = {
    "nothing": b"",
    "spaces": b"  ",
    "a word": b"hello",
    "cut": b'{"task": "a", "context": [1',
    "two values": json.dumps(GOOD).encode() + b" {}",
    "a trailing comma": b'{"task": "a", "context": [1, 2,]}',
    "NaN": b'{"task": "a", "context": [NaN, 1]}',
    "Infinity": b'{"task": "a", "context": [Infinity, 1]}',
    "minus Infinity": b'{"task": "a", "context": [-Infinity, 1]}',
    "latin-1": '{"task": "é", "context": [1, 1]}'.encode("latin-1"),
    "UTF-16": json.dumps(GOOD).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(GOOD).encode(),
    "an encoded surrogate": b'{"task": "\xed\xa0\x80", "context": [1, 1]}',
    "half a surrogate": b'{"task": "\\ud800", "context": [1, 1]}',
    "the other half": b'{"task": "a", "context": [1, 1], "payload": "\\udc00"}',
    "a bare control character": b'{"task": "a\nb", "context": [1, 1]}',
    "a pickle": b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.",
    "an endless payload": b'{"task": "a", "context": [1, 1], "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
NOT_POSSIBLE: dict[str, Any] = {
    "1e999": b'{"task": "a", "context": [1e999, 1]}',
    "-1e999": b'{"task": "a", "context": [-1e999, 1]}',
    "1e999 in the payload": b'{"task": "a", "context": [1, 1], "payload": 1e999}',
    "1e51": GOOD | {"context": [1e51, 1]},
    "a key twice": b'{"task": "a", "task": "b", "context": [1, 1]}',
    "a key twice within": b'{"task": "a", "context": [1, 1], "payload": [{"x": 1, "x": 1}]}',
    "a key twice, escaped": b'{"task": "a", "context": [1, 1], "payload": {"x": 1, "\\u0078": 1}}',
    "an unknown field": GOOD | {"contexts": [1, 1]},
    "a list": [],
    "a hundred thousand brackets": b"[" * 100_000,
    "a key twice, between texts that look like names": (
        b'{"task": "a", "context": [1, 1], "payload": {"v":"y,",":x":1,":x":2}}'
    ),
    "null": b"null",
    "no context": {"task": "a"},
    "a boolean as a number": GOOD | {"context": [True, 1.0]},
    "a string as a number": GOOD | {"context": ["1", 1.0]},
    "null as a number": GOOD | {"context": [None, 1.0]},
    "a number as an id": GOOD | {"task": 1},
    "an empty id": GOOD | {"task": ""},
    "an id of 129 characters": GOOD | {"task": "x" * 129},
    "an id with NUL": GOOD | {"task": "a\0b"},
    "an id with a newline": GOOD | {"task": "a\nb"},
    "an id with a newline at its end": GOOD | {"task": "a\n"},
    "an id with DEL": GOOD | {"task": "a\x7f"},
    "an id with a control character of Latin-1": GOOD | {"task": "a\x85"},
    "too few features": GOOD | {"context": [1.0]},
    "too many features": GOOD | {"context": [1.0, 1.0, 1.0]},
    "no features": GOOD | {"context": []},
    "named features": GOOD | {"context": {"age": 1.0}},
    "a string as features": GOOD | {"context": "11"},
    "thousands of features": GOOD | {"context": [1.0] * 2001},
    "an unknown expert": GOOD | {"force": "nobody"},
    "an expert with a newline": GOOD | {"force": "human\n"},
    "an unknown expert on duty": GOOD | {"available": ["nobody"]},
    "a negative cost": GOOD | {"cost": -1},
    "a cost that is too fine": GOOD | {"cost": 0.0000001},
    "a cost of another expert": GOOD | {"cost": {"nobody": 1}},
    "a cost in another resource": GOOD | {"cost": {"human": {"euros": 1}}},
    "no reviewers": GOOD | {"reviewers": 0},
    "half a reviewer": GOOD | {"reviewers": 1.5},
    "a boolean as a count": GOOD | {"reviewers": True},
    "65 levels": GOOD | {"payload": json.loads("[" * 64 + "]" * 64)},
    "500 levels of objects": b'{"task": "a", "context": [1, 1], "payload": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
}


def refused(client: Client, path: str, body: Any) -> tuple[int, str]:
    """Return how a body is refused; the refusal is a problem as documented."""
    answer = client.post(path, body)
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"status", "code", "detail"}
    assert answer.json["status"] == answer.status
    assert 0 < len(answer.json["detail"]) <= 501
    return answer.status, answer.json["code"]


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_json_is_refused(client: Client, body: bytes) -> None:
    assert refused(client, DECISIONS, body) == (400, "not_json")


@pytest.mark.parametrize("body", NOT_POSSIBLE.values(), ids=NOT_POSSIBLE)
def test_what_is_not_possible_is_refused(client: Client, body: Any) -> None:
    assert refused(client, DECISIONS, body) == (422, "invalid")


def test_a_refused_body_decides_nothing(client: Client) -> None:
    for body in [*NOT_JSON.values(), *NOT_POSSIBLE.values()]:
        client.post(DECISIONS, body)
    assert client.get("/v1/policies/p/summary").json["records"] == 1


def test_the_largest_that_is_allowed_is_taken(client: Client) -> None:
    payload = json.loads("[" * 63 + "]" * 63)
    body = {"task": "é\u2028" * 64, "context": [1e50, -1e50], "payload": payload, "force": "human"}
    assert client.post(DECISIONS, body).status == 201
    claimed = client.post("/v1/policies/p/reviews/claim", {"reviewer": "ann"}).json
    assert (claimed["task"], claimed["payload"]) == (body["task"], payload)
    assert client.get(f"{DECISIONS}?task={'%C3%A9%E2%80%A8' * 64}").status == 200


def test_an_error_is_short_whatever_was_sent(client: Client) -> None:
    assert refused(client, DECISIONS, GOOD | {"x" * 100_000: 1}) == (422, "invalid")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_must_say_that_it_is_json(client: Client, kind: str) -> None:
    # a page of a foreign site may send these three, and no name at all, without asking first
    answer = client.post(DECISIONS, GOOD, headers={"content-type": kind})
    assert (answer.status, answer.json["code"]) == (415, "not_json")


def test_json_may_name_its_charset(client: Client) -> None:
    kind = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post(DECISIONS, GOOD | {"task": "charset", "force": "model"}, headers=kind).status == 201


QUERIES = {
    "a word as a number": "/v1/policies/p/log?limit=x",
    "too many": "/v1/policies/p/log?limit=1001",
    "none": "/v1/policies?limit=0",
    "a negative place": "/v1/policies/p/log?start=-1",
    "an endless number": f"/v1/policies/p/log?start={'9' * 5000}",
    "an unknown parameter": "/v1/policies/p/log?strat=1",
    "a parameter twice": "/v1/policies/p/log?limit=1&limit=2",
    "a parameter of a route that has none": "/v1/policies/p?x=1",
    "no task": DECISIONS,
    "an empty task": f"{DECISIONS}?task=",
    "a task with NUL": f"{DECISIONS}?task=%00",
    "a task with a newline": f"{DECISIONS}?task=a%0A",
    "a task that is too long": f"{DECISIONS}?task={'x' * 129}",
    "a name with NUL": "/v1/policies?after=%00",
    "a name that is none": "/v1/policies?after=%ff",
}


@pytest.mark.parametrize("path", QUERIES.values(), ids=QUERIES)
def test_parameters_are_as_strict_as_bodies(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status, answer.json["code"]) == (422, "invalid")


@pytest.mark.parametrize(
    "name", ["q", "%00", "p%0A", "p%0a%00", "%ff", "%ed%a0%80", "..", "x" * 65, "%F0%9F%92%A9", "p%20"]
)
def test_what_is_not_a_name_of_a_policy_is_not_there(client: Client, name: str) -> None:
    assert client.get(f"/v1/policies/{name}").status == 404
    assert client.get(f"/v1/policies/{name}/summary").status == 404
    assert client.post(f"/v1/policies/{name}/decisions", GOOD).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/policies", {"GET", "POST", "OPTIONS"}),
        ("PUT", "/v1/policies/p", {"GET", "PATCH", "DELETE", "OPTIONS"}),
        ("GET", "/v1/policies/p/outcomes", {"POST", "OPTIONS"}),
        ("POST", "/healthz", {"GET", "OPTIONS"}),
    ],
)
def test_another_method_is_refused_and_told_which_are_not(
    client: Client, method: str, path: str, allowed: set[str]
) -> None:
    answer = client.call(method, path)
    assert (answer.status, answer.json["code"]) == (405, "method")
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("path", ["/v2", "/v1", "/v1/policies/p/nope", "/schema", "/v1/policies/p/../../../etc/passwd"])
def test_there_is_nothing_else(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status, answer.json["code"]) == (404, "unknown")
