"""The service decides as the library does, bit for bit, when nothing is late: what was studied is what is served."""

import asyncio
import math
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from deferkit import Budget, Decision, Deferrer, Encoder, HorizonWarning, Observed
from deferkit.serve.api.tasks import BatchBody, TaskBody
from deferkit.serve.domain.records import without_infinity
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicySpec
from deferkit.serve.engine.commands.decide import DecideMany
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from tests.conftest import draw_tasks
from tests.serve.harness.in_process import KEY, call, check_in_step, decide, observe, play, replayed

N, D = 100, 3
BOUNDED = BudgetSpec(total=9, horizon=N, max_cost=1)
TWO = {"minutes": BOUNDED, "euros": BudgetSpec(total=7, horizon=N, max_cost=1)}

GIVEN: dict[str, dict[str, Any]] = {
    "re-solved": {},
    "adaptive": {"pacing": "adaptive", "exploration": 1.5, "seed": 3},
    "gradient": {"pacing": "gradient", "warm_up": 0},
    "as printed": {"pacing": "paper", "warm_up": 20},
    "logistic": {"link": "logistic"},
    "logistic costs": {"cost_link": "logistic"},
    "both logistic": {"link": "logistic", "cost_link": "logistic", "pacing": "gradient"},
    "explored": {"explore_floor": 0.3, "seed": 11},
    "experts and resources": {"experts": ["ann", "bo"], "budget": TWO, "explore_floor": 0.1},
    "a wide range": {"reward_range": (-3.0, 3.0)},
    "without end": {"budget": {"cost": BudgetSpec()}},
    "without end, capped": {"budget": {"cost": BudgetSpec(max_cost=1)}},
    "beyond the horizon": {"budget": {"cost": BudgetSpec(total=9, horizon=70, max_cost=1)}},
    "forgets nothing": {"link": "logistic", "forget": "never"},
    "trees": {"representation": "auto"},
    "trees, experts and resources": {"representation": "auto", "experts": ["ann", "bo"], "budget": TWO},
    "zeros and ones": {"link": "auto"},
    "zeros and ones, trees": {"link": "auto", "representation": "auto"},
    "confidence": {"confidence": 1},
    "the rule of November": {"defaults": "2026.11"},
    "nothing": {"budget": {"cost": BudgetSpec(total=0, horizon=N, max_cost=1)}},
}


def spec_of(name: str, features: int | FeatureSpec = D) -> PolicySpec:
    usual = {"budget": {"cost": BOUNDED}, "forget": "auto", "representation": "linear"}
    return PolicySpec(name="p", features=features, **(usual | GIVEN[name]))


def library_of(spec: PolicySpec) -> Deferrer:
    """Return the library's own learner, made as a user would."""
    budget = {
        name: Budget(
            math.inf if each.total is None else float(each.total),
            horizon=each.horizon,
            max_cost=None if each.max_cost is None else float(each.max_cost),
        )
        for name, each in spec.budget.items()
    }
    features: dict[str, Any] = {"n_features": spec.features}
    if isinstance(spec.features, FeatureSpec):
        features = {"encoder": Encoder(numbers=spec.features.numbers, categories=spec.features.categories)}
    return Deferrer(
        **features,
        budget=budget,
        experts=spec.experts,
        link="auto" if spec.link is msgspec.UNSET else spec.link,
        cost_link=spec.cost_link,
        pacing=spec.pacing,
        exploration=spec.exploration,
        explore_floor=spec.explore_floor,
        warm_up=spec.warm_up,
        reward_range=spec.reward_range,
        forget=spec.forget_used,
        representation=spec.representation_used,
        seed=spec.seed,
        confidence=None if spec.confidence is msgspec.UNSET else spec.confidence,
        defaults="2026.12" if spec.defaults is msgspec.UNSET else spec.defaults,
    )


def reply_of(task: str, decision: Decision) -> Any:
    """Return the reply that a decision of the library would get, as plain data."""
    fields = {"task": task} | decision._asdict() | {"budget_left": without_infinity(decision.budget_left)}
    return msgspec.json.decode(msgspec.json.encode(fields))


def outcomes(spec: PolicySpec, seed: int = 5) -> tuple[list[Any], Any, Any]:
    experts, resources = len(spec.experts), len(spec.budget)
    tasks = draw_tasks(N, D, experts=experts, resources=resources, binary=spec.link in ("logistic", "auto"), seed=seed)
    return tasks.contexts.tolist(), tasks.rewards, np.round(tasks.costs, 6)


def seen(spec: PolicySpec, decision: Any, rewards: Any, costs: Any) -> tuple[dict[str, float], Any]:
    """Return what becomes known of a decision: the model's reward, and that and the cost of who was asked."""
    route = spec.deciders.index(decision["route"])
    known = {"model": float(rewards[0]), decision["route"]: float(rewards[route])}
    if route == 0:
        return known, None
    amounts = dict(zip(spec.resources, costs[route - 1].tolist(), strict=True))
    return known, amounts if len(amounts) > 1 else next(iter(amounts.values()))


def check_alike(database: Database, spec: PolicySpec, contexts: list[Any], rewards: Any, costs: Any) -> Deferrer:
    library = library_of(spec)

    async def script(engine: Engine) -> None:
        outcome = None
        for i, context in enumerate(contexts):
            if outcome is not None and spec.representation == "auto":
                await outcome  # it may wait for trees, and a decision does not wait with it
                outcome = None
            deciding = decide(engine, f"t{i}", context=context, force=None)
            # the outcome of the task before goes into the same commit
            _, reply = await asyncio.gather(asyncio.sleep(0) if outcome is None else outcome, deciding)
            decision = library.decide(context)
            assert reply == reply_of(f"t{i}", decision)
            known, cost = seen(spec, reply, rewards[i], costs[i])
            library.apply(Observed(decision.id, known, cost))  # which does not warn of another link
            outcome = observe(engine, f"t{i}", rewards=known, cost=cost)
        await cast(Awaitable[Any], outcome)
        policy = engine.owned[KEY].policy
        assert policy.learner == library
        assert not policy.out_of_sync
        check_in_step(policy)
        assert replayed(engine.store) == policy

    play(database, script, spec=spec)
    return library


@pytest.mark.parametrize("name", GIVEN)
def test_the_service_decides_as_the_library(name: str, database: Database) -> None:
    spec = spec_of(name)
    stream = outcomes(spec)
    if name == "beyond the horizon":
        with pytest.warns(HorizonWarning):  # the library's, once; the service's would be an error
            library = check_alike(database, spec, *stream)
    else:
        library = check_alike(database, spec, *stream)
    asked = sum(library.summary().routes.values()) - library.summary().routes["model"]
    assert (asked == 0) == (name == "nothing")


def test_named_features_are_encoded_as_the_library_encodes_them(database: Database) -> None:
    features = FeatureSpec(numbers=["age", "amount"], categories={"kind": ["a", "b"], "city": 3})
    rng = np.random.default_rng(2)
    rows: list[Mapping[str, Any]] = [
        {
            "age": None if rng.random() < 0.1 else float(rng.integers(18, 90)),
            "amount": float(rng.lognormal(3, 2)),
            "kind": str(rng.choice(["a", "b", "other"])),
            "city": str(rng.choice(["Rome", "Oslo", "Łódź", "Bern", "Kyiv"])),
        }
        for _ in range(N)
    ]
    _, rewards, costs = outcomes(spec_of("re-solved"))
    library = check_alike(database, spec_of("re-solved", features), rows, rewards, costs)
    assert library.summary().routes["human"] > 0


def test_a_batch_is_its_tasks_one_after_the_other(database: Database) -> None:
    spec = spec_of("explored")
    contexts, _, _ = outcomes(spec)
    library = library_of(spec)
    library.observe(library.decide(contexts[0], force="human").id, cost=0.0)
    wanted = [reply_of(f"t{i}", decision) for i, decision in enumerate(library.decide_many(contexts[1:]))]

    async def script(engine: Engine) -> None:
        await decide(engine, "one with a cost", context=contexts[0])
        await observe(engine, "one with a cost", cost=0)
        tasks = [TaskBody(task=f"t{i}", context=context) for i, context in enumerate(contexts[1:])]
        reply = await call(engine, DecideMany(BatchBody(tasks=tasks)))
        assert [each["decision"] for each in reply["results"]] == wanted
        assert engine.owned[KEY].policy.learner == library

    play(database, script, spec=spec)
    assert math.isclose(sum(each["reserved"] for each in wanted), 9.0)  # nothing else came back: all is held in the end
