"""What one tenant asks for, however much or strange, does not take the service from the others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deferkit.serve.domain.problems import StoreFailed
from deferkit.serve.engine.commands import decide
from deferkit.serve.engine.engine import EngineSettings
from deferkit.serve.http import application, auth
from tests.serve.harness.clients import Client, until
from tests.serve.harness.in_process import POLICY, Running, running

EXPERTS = [f"expert{n}" for n in range(32)]
RESOURCES = {f"r{n}": {"total": 1, "horizon": 10, "max_cost": 1} for n in range(8)}


@pytest.fixture
def tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(auth, "FRESH_S", -1.0)
    with running(tmp_path, tenants=True, max_policies=3) as service:
        yield service


TOO_LARGE: dict[str, Any] = {
    "features": {"features": 2001},
    "hidden units": {"embedding": {"kind": "neural", "hidden": 10**9}},
    "trees of an embedding": {"embedding": {"kind": "trees", "folds": 10**9}},
    "tasks of an embedding": {"embedding": {"kind": "gradient", "memory": 10**9}},
    "time of an embedding": {"embedding": {"kind": "neural", "batch": 1, "memory": 2_000_000}},
    "features, experts and resources": {"features": 2000, "experts": EXPERTS, "budget": RESOURCES},
    "a memory": {"features": 2000, "memory": 1_000_000},
    "levels": {"features": {"categories": {f"c{n}": 1000 for n in range(100)}}},
    "numbers": {"features": {"numbers": [f"n{n}" for n in range(1001)]}},
    "levels of a category": {"features": {"categories": {"c": [str(n) for n in range(1001)]}}},
}


@pytest.mark.parametrize("change", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_policy_that_would_take_all_memory_is_refused(client: Client, change: Any) -> None:
    answer = client.post("/v1/policies", POLICY | {"name": "large"} | change)
    assert (answer.status, answer.json["code"]) == (422, "invalid")


NO_POLICY: dict[str, Any] = {
    "an unknown embedding": {"embedding": {"kind": "oracle"}},
    "an embedding out of a module": {"embedding": {"kind": "os:getcwd"}},
    "an embedding without a kind": {"embedding": {"hidden": 8}},
    "a kind that is a list": {"embedding": {"kind": ["neural"]}},
    "an unknown setting of an embedding": {"embedding": {"kind": "neural", "hiden": 8}},
    "a module of an embedding": {"embedding": {"kind": "neural", "module": "torch.nn:Linear"}},
    "a negative size of an embedding": {"embedding": {"kind": "trees", "leaves": -5}},
    "more leaves than LightGBM takes": {"embedding": {"kind": "trees", "leaves": 131_073, "trees": 1}},
    "an embedding that forgets": {"embedding": {"kind": "trees"}, "forget": "auto"},
    "an embedding beside trees": {"embedding": {"kind": "trees"}, "representation": "auto"},
    "a total without a horizon": {"budget": {"cost": {"total": 1, "max_cost": 1}}},
    "a total without a cap": {"budget": {"cost": {"total": 1, "horizon": 1}}},
    "no resource": {"budget": {}},
    "a total that is too fine": {"budget": {"cost": {"total": 1e-7, "horizon": 1, "max_cost": 1}}},
    "an expert twice": {"experts": ["ann", "ann"]},
    "an expert named model": {"experts": ["model"]},
    "no features": {"features": {}},
    "a feature twice": {"features": {"numbers": ["a"], "categories": {"a": 2}}},
    "a range upside down": {"reward_range": [1, 0]},
    "a range of nothing": {"reward_range": [0, 0]},
    "a range without end": {"reward_range": [0, 1e308]},
    "a name with a newline": {"name": "p\n"},
    "a name with a slash": {"name": "a/b"},
    "a name of dots": {"name": ".."},
}


@pytest.mark.parametrize("change", NO_POLICY.values(), ids=NO_POLICY)
def test_a_policy_that_makes_no_sense_is_refused(client: Client, change: Any) -> None:
    answer = client.post("/v1/policies", POLICY | {"name": "other"} | change)
    assert (answer.status, answer.json["code"]) == (422, "invalid")


@pytest.mark.parametrize("kind", ["neural", "trees", "gradient"])
def test_an_embedding_is_stored_with_its_defaults_and_a_bounded_memory(client: Client, kind: str) -> None:
    policy = POLICY | {"name": kind, "embedding": {"kind": kind, "memory": None}}
    made = client.post("/v1/policies", policy)
    assert made.status == 201
    assert made.json["embedding"]["memory"] == made.json["memory"]
    assert (made.json["representation"], made.json["forget"]) == ("linear", "never")
    assert client.post("/v1/policies", policy).json == made.json
    assert client.post("/v1/policies", policy | {"embedding": made.json["embedding"]}).json == made.json
    other = client.post("/v1/policies", policy | {"embedding": {"kind": kind, "memory": 500}})
    assert other.status == 409
    assert "made with other settings: embedding" in other.json["detail"]


def test_the_largest_schedule_of_an_embedding_is_never_due(client: Client) -> None:
    policy = POLICY | {"name": "late", "embedding": {"kind": "neural", "every": 2**53 - 1}}
    assert client.post("/v1/policies", policy).status == 201


def test_a_tenant_has_so_many_policies_and_no_more(tenants: Running) -> None:
    a, b = tenants.client("a"), tenants.client("b")
    assert [a.post("/v1/policies", POLICY | {"name": f"p{n}"}).status for n in range(3)] == [201] * 3
    answer = a.post("/v1/policies", POLICY | {"name": "p3"})
    assert (answer.status, answer.json["code"]) == (409, "too_many")
    assert a.post("/v1/policies", POLICY | {"name": "p0"}).status == 201  # the same again
    assert a.post("/v1/policies", POLICY | {"name": "p0", "seed": 1}).json["code"] == "conflict"
    assert b.post("/v1/policies", POLICY | {"name": "p3"}).status == 201


def number_of(client: Client, name: str) -> float:
    """Return a metric that has no labels."""
    text = client.get("/metrics").body.decode()
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


def waiting(client: Client) -> float:
    """Return how many calls wait for the writer."""
    return number_of(client, "deferkit_queue_length")


def test_a_command_that_fails_fails_alone(tenants: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    propose = decide.propose

    def failing(owned: Any, body: Any, now: int) -> Any:
        if body.task == "poison":
            raise ZeroDivisionError("s3cret")
        return propose(owned, body, now)

    monkeypatch.setattr(decide, "propose", failing)
    a, b = [[tenants.client(name) for _ in range(3)] for name in "ab"]
    for client in (a[0], b[0]):
        assert client.post("/v1/policies", POLICY).status == 201
    tasks = ["poison", "a1", "a2", "b0", "b1", "b2"]
    with tenants.held_up() as gate, ThreadPoolExecutor(7) as pool:
        pool.submit(tenants.client("a").decide, "first", force="model")  # the others gather behind it
        assert gate.reached.wait(60)
        calls = [pool.submit(client.decide, task, force="model") for client, task in zip(a + b, tasks, strict=True)]
        watch = tenants.client("a")
        until(lambda: waiting(watch) == 6)
        gate.open.set()
        answers = [call.result() for call in calls]
    assert answers[0].json == {"status": 500, "code": "internal", "detail": "The call failed: ZeroDivisionError."}
    assert {answer.status for answer in answers[1:3]} <= {201, 503}
    assert {answer.status for answer in answers[3:]} == {201}
    assert [client.decide(task, force="model").status for client, task in zip(a, tasks, strict=False)] == [
        500,
        201,
        201,
    ]
    assert a[0].get("/v1/policies/p/summary").json["decisions"] == 3
    assert b[0].get("/v1/policies/p/summary").json["decisions"] == 3
    assert a[0].get("/readyz").status == 200


def test_batches_share_groups_by_their_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "EngineSettings", partial(EngineSettings, group_s=60.0))  # by tasks, not by time
    with running(tmp_path, group_limit=100) as service:
        client, watch = service.client(), service.client()
        client.post("/v1/policies", POLICY)
        before = number_of(watch, "deferkit_commits_total")
        with service.held_up() as gate, ThreadPoolExecutor(7) as pool:
            pool.submit(client.decide, "first", force="model")
            assert gate.reached.wait(60)
            for n in range(6):
                tasks = [{"task": f"{n} {i}", "context": [1, i], "force": "model"} for i in range(50)]
                pool.submit(service.client().post, "/v1/policies/p/decisions/batch", {"tasks": tasks})
            until(lambda: waiting(watch) == 6)
            gate.open.set()
        assert number_of(watch, "deferkit_commits_total") == before + 1 + 3
        assert client.get("/v1/policies/p/summary").json["decisions"] == 301


def test_what_the_learner_cannot_expect_is_refused(client: Client) -> None:
    policy = POLICY | {"name": "endless", "budget": {"cost": {}}, "pacing": "adaptive"}
    assert client.post("/v1/policies", policy).status == 201
    statuses = set()
    for n in range(30):
        answer = client.decide(f"t{n}", "endless", context=[1e50 if n % 2 else 1.0, 1e-50], force=None)
        statuses.add(answer.status)
        client.post("/v1/policies/endless/outcomes", {"task": f"t{n}", "rewards": {"model": 0.5}, "cost": 9007199254})
    assert statuses <= {201, 422}


def test_when_the_database_cannot_be_read_callers_are_told_to_come_again(
    service: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreFailed("SQLite: s3cret.")

    monkeypatch.setattr(service.store, "policy", fail)
    answer = client.get("/v1/policies/p")
    assert (answer.status, answer.json["code"], answer.headers["retry-after"]) == (503, "unavailable", "1")
    assert "s3cret" not in answer.json["detail"]
