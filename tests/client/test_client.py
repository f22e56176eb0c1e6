"""A client against a real service: the decisions of a Deferrer, bit for bit, and the errors of the library."""

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deferkit import (
    Budget,
    BudgetExhausted,
    Client,
    ConflictingObservation,
    Decision,
    Deferrer,
    Encoder,
    InvalidArgument,
    ServiceError,
    UnknownDecision,
)
from deferkit.serve.domain.api_keys import new_key
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from deferkit.types import Amount
from tests.conftest import draw_tasks
from tests.serve.harness.client_fixtures import client, service
from tests.serve.harness.clients import until
from tests.serve.harness.service_process import ServiceProcess

__all__ = ["client", "service"]

BUDGET = Budget(10, horizon=100, max_cost=1)
RULE: dict[str, Any] = {"defaults": "2026.12"}  # of new policies


SETTINGS: dict[str, dict[str, Any]] = {
    "one": {},
    "several": {"experts": ["ann", "bo"], "resources": ["minutes", "euros"], "explore_floor": 0.1, "seed": 5},
    "logistic": {"link": "logistic", "pacing": "adaptive"},
    "trees": {"representation": "auto"},
}


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_client_decides_as_a_deferrer_does(client: Client, name: str) -> None:
    given = {"representation": "linear"} | SETTINGS[name]
    resources = given.pop("resources", ["cost"])
    experts = given.get("experts", ["human"])
    n = 130
    tasks = draw_tasks(n, 4, experts=len(experts), resources=len(resources), binary=name == "logistic", seed=3)
    costs = tasks.costs.round(6)
    budget = {each: Budget(20, horizon=n, max_cost=1) for each in resources}
    deferrer = Deferrer(n_features=4, budget=budget, **RULE, **given)
    client.create(features=4, budget=budget, **given)
    reasons = set()
    for t in range(n):
        if t == n - 5:  # less than the next one may cost
            totals = {each: round(left + 0.5, 6) for each, left in by_name(deferrer.summary().spent).items()}
            deferrer.change_budget(totals)
            client.change_budget(totals)
        expected = deferrer.decide(tasks.contexts[t])
        decision = client.decide(tasks.contexts[t])
        assert decision == expected
        assert isinstance(decision, Decision)
        assert decision.explain() == expected.explain()
        reasons.add((decision.route, decision.reason))
        place = deferrer.settings.deciders.index(decision.route)
        rewards = {"model": float(tasks.rewards[t, 0]), decision.route: float(tasks.rewards[t, place])}
        each = dict(zip(resources, costs[t, place - 1].tolist(), strict=True))
        cost = None if place == 0 else each if len(each) > 1 else each[resources[0]]
        for learner in (deferrer, client):
            learner.observe(decision.id, rewards, cost)
    assert {("model", "not worth it"), ("model", "budget")} <= reasons
    assert {(expert, "worth it") for expert in experts} & reasons
    ours, theirs = client.summary(), deferrer.summary()
    assert (ours.decisions, ours.routes, ours.price) == (theirs.decisions, theirs.routes, theirs.price)
    assert by_name(ours.spent) == pytest.approx(by_name(theirs.spent))
    assert (ours.samples, ours.samples_in_use) == (theirs.samples, theirs.samples_in_use)
    assert (ours.estimates, ours.remark) == (theirs.estimates, theirs.remark)
    assert (ours.drifts, ours.drifted) == (theirs.drifts, deferrer.drifts())


def by_name(amount: Amount) -> dict[str, float]:
    return dict(amount) if isinstance(amount, Mapping) else {"cost": amount}


def test_a_batch_is_that_many_decisions(client: Client) -> None:
    contexts = draw_tasks(1500, 3).contexts
    budget = Budget(50, horizon=5000, max_cost=1)
    client.create(features=3, budget=budget)
    decisions = client.decide_many(contexts)
    assert decisions == Deferrer(n_features=3, budget=budget, **RULE).decide_many(contexts)
    client.observe(decisions[1200], {"model": 0.5})
    tasks = [client.task_of(decision) for decision in decisions]
    assert client.decide_many(contexts, tasks=tasks) == decisions, "the same tasks were decided before"
    assert client.summary().decisions == 1500
    with pytest.raises(InvalidArgument, match="3 numbers"):
        client.decide_many([[0.1, 0.2, 0.3], [0.1]], tasks=["good", "bad"])
    assert client.read("good")["decision"]["id"] == 1500


def test_named_features_as_the_encoder_takes_them(client: Client) -> None:
    numbers = ["amount", "age"]
    categories: dict[str, Sequence[str] | int] = {"country": ["de", "3"], "new": 2}
    deferrer = Deferrer(encoder=Encoder(numbers=numbers, categories=categories), budget=BUDGET, **RULE)
    client.create(features={"numbers": numbers, "categories": categories}, budget=BUDGET)
    rng = np.random.default_rng(0)
    for i in range(60):
        row = {
            "amount": rng.random() if i % 3 else float("nan"),
            "age": int(rng.integers(90)) if i % 5 else None,
            "country": ["de", 3, np.int64(3), "it"][i % 4],
            "new": bool(i % 2),
        }
        assert client.decide(row) == deferrer.decide(row)
    frame = {"amount": [1.0, 2.0], "age": [30, 40], "country": ["de", None], "new": [True, False]}
    assert client.decide_many(frame) == deferrer.decide_many(frame)


def test_a_budget_without_end(client: Client) -> None:
    client.create(features=1, budget=Budget.unlimited())
    decision = client.decide([1.0])
    assert decision.budget_left == math.inf
    assert client.summary().total == client.summary().left == math.inf


def test_a_decision_is_known_by_its_number_and_everywhere_by_its_task(service: ServiceProcess, client: Client) -> None:
    client.create(features=1, budget=BUDGET)
    decision = client.decide([1.0], force="human", task="t 1/ü", payload={"text": "…"}, model_answer="pay")
    assert client.task_of(decision) == "t 1/ü"
    with service.client(client.policy) as other:
        with pytest.raises(UnknownDecision, match="name its task"):
            other.observe(decision.id, {"human": 0.9})
        other.observe("t 1/ü", {"human": 0.9}, cost=0.1234567)
    client.observe(decision.id, {"human": 0.9}, cost=0.1234567)
    client.observe(decision, {"model": 0.25})
    assert client.read(decision.id)["rewards"] == {"human": 0.9, "model": 0.25}
    assert client.summary().spent == 0.123457
    client.correct(decision.id, cost=0.5)
    client.correct("t 1/ü", rewards={"human": 0.8}, id="c-1")
    client.correct("t 1/ü", rewards={"human": 0.8}, id="c-1")
    summary = client.summary()
    assert (summary.spent, summary.corrected, summary.outcomes) == (0.5, 2, 2)
    client.expire(decision)  # nothing is reserved any more
    waiting = client.decide([1.0], force="human")
    assert client.summary().reserved == 1.0
    client.expire(waiting.id)
    assert (client.summary().reserved, client.summary().expired) == (0.0, 1)


def test_only_so_many_numbers_are_remembered(service: ServiceProcess) -> None:
    with service.client("forgetful", memory=3) as client:
        client.create(features=1, budget=BUDGET)
        decisions = [client.decide([1.0], force="model") for _ in range(4)]
        client.observe(decisions[1], {"model": 0.5})
        with pytest.raises(UnknownDecision, match="last 3"):
            client.observe(decisions[0], {"model": 0.5})


def test_what_the_service_refuses_is_what_the_library_raises(client: Client) -> None:
    with pytest.raises(ServiceError, match="no policy") as missing:
        client.decide([1.0])
    assert missing.value.status == 404
    client.create(features=2, budget=Budget(1, horizon=100, max_cost=1))
    client.create(features=2, budget=Budget(1, horizon=100, max_cost=1))
    with pytest.raises(ServiceError, match="another policy"):
        client.create(features=3, budget=Budget(1, horizon=100, max_cost=1))
    with pytest.raises(InvalidArgument, match="unknown field `warmup`"):
        client.create(features=2, budget=BUDGET, warmup=3)
    for context in ([1.0], [1.0, math.nan], "ab", 3.0, {"a": 1.0}, [1.0, "x"], np.ones((2, 2))):
        with pytest.raises(InvalidArgument):
            client.decide(context)
    decision = client.decide([1.0, 0.5], force="human", task="a")
    with pytest.raises(ConflictingObservation, match="another body"):
        client.decide([1.0, 0.25], task="a")
    with pytest.raises(BudgetExhausted, match="0 is free"):
        client.decide([1.0, 0.5], force="human")
    with pytest.raises(BudgetExhausted, match="cannot be cut"):
        client.change_budget(0.5)
    client.observe(decision.id, {"human": 0.5})
    with pytest.raises(ConflictingObservation, match="observed as 0.5"):
        client.observe(decision.id, {"human": 0.75})
    for call in (client.observe, client.correct, client.expire, client.read):
        with pytest.raises(UnknownDecision, match="no task 'b'"):
            call("b", *([{"model": 0.5}] if call in (client.observe, client.correct) else []))
    with pytest.raises(InvalidArgument, match="no decider 'bo'"):
        client.observe("a", {"bo": 0.5})
    for cost in (-1.0, math.inf, "1", {"minutes": 1.0}):
        with pytest.raises(InvalidArgument):
            client.observe("a", cost=cost)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="JSON"):
        client.decide([1.0, 0.5], payload={1, 2})
    with pytest.raises(InvalidArgument, match="id of its task"):
        client.observe(1.5, {"model": 1.0})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="a list of names"):
        client.decide([1.0, 0.5], available="human")


def test_an_outcome_may_come_first(client: Client) -> None:
    client.create(features=1, budget=BUDGET)
    client.observe("early", {"model": 0.5}, park=True)
    assert client.summary().parked == 1
    client.decide([1.0], task="early", force="model")
    assert (client.summary().parked, client.summary().outcomes) == (0, 1)


def test_budgets_are_topped_up_once(client: Client) -> None:
    client.create(features=1, budget={"minutes": BUDGET, "euros": BUDGET})
    for _ in range(2):
        client.change_budget(add={"minutes": 5}, id="june")
    client.change_budget({"minutes": 20, "euros": 7.5})
    client.change_budget(add={"euros": -1})
    assert client.summary().total == {"minutes": 20.0, "euros": 6.5}
    with pytest.raises(InvalidArgument, match="by resource"):
        client.change_budget(3)


def test_reviews(client: Client) -> None:
    client.create(features=1, budget=BUDGET, experts=["ann", "bo"])
    assert client.reviews.claim("ann") is None
    client.decide([1.0], task="t", force="bo", payload=np.arange(3), model_answer={"pay": True})
    assert client.reviews.claim("ann", experts=["ann"]) is None
    first = client.reviews.claim("ann", experts=["bo"], lease_s=0.001)
    assert first is not None
    assert (first.payload, first.model_answer, first.expert) == ([0, 1, 2], {"pay": True}, "bo")
    second = until(lambda: client.reviews.claim("cy", lease_s=600))  # the first lease is over
    assert (second.task, second.epoch) == ("t", 2)
    with pytest.raises(ConflictingObservation, match="another reviewer"):
        client.reviews.complete(first, "pay", cost=0.5)
    client.reviews.release(first)
    client.reviews.effort(first, 0.25)
    assert client.reviews.extend(second, lease_s=6000).lease_until > second.lease_until
    client.reviews.release(second)
    third = client.reviews.claim("cy")
    assert third is not None
    assert client.reviews.complete(third, "refuse", rewards={"bo": 1.0, "model": 0.0}, cost=0.4)
    assert client.reviews.complete(third, "refuse", rewards={"bo": 1.0, "model": 0.0}, cost=0.4)
    task = client.read("t")
    assert (task["final"], task["answer"], task["cost"]) == ("bo", "refuse", 0.4)
    assert client.summary().spent == 0.65


def test_one_client_for_many_threads(client: Client) -> None:
    client.create(features=1, budget=Budget(1000, horizon=1000, max_cost=1))
    numbers: list[int] = []

    def work() -> None:
        for _ in range(20):
            decision = client.decide([1.0])
            client.observe(decision.id, {decision.route: 0.5}, 0.5 if decision.route == "human" else None)
            numbers.append(decision.id)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(120))
    summary = client.summary()
    assert (summary.outcomes, summary.reserved, summary.spent) == (120, 0.0, 0.5 * summary.routes["human"])


def test_keys(tmp_path: Path) -> None:
    store = tmp_path / "keys.db"
    database = Sqlite(str(store))
    database.prepare()
    kept = Store(database)
    admin, admin_row = new_key("acme", ["decide", "observe", "admin"], "")
    reviewer, reviewer_row = new_key("acme", ["review"], "")
    for row in (admin_row, reviewer_row):
        kept.add_key(row)
    kept.close()
    with ServiceProcess(tmp_path, store=store) as service:
        with service.client("a") as client, pytest.raises(ServiceError, match="valid key") as refused:
            client.create(features=1, budget=BUDGET)
        assert refused.value.status == 401
        with service.client("a", key=admin) as client:
            client.create(features=1, budget=BUDGET)
            client.decide([1.0], task="t", force="human")
            with pytest.raises(ServiceError, match="scope review"):
                client.reviews.claim("ann")
        with service.client("a", key=reviewer) as client:
            review = client.reviews.claim("ann")
            assert review is not None
            assert review.task == "t"
