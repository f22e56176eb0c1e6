"""One context of 1e50 (or 1e6) does not ruin the estimates: features beyond a plausible range are cut or refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from deferkit import Budget, Deferrer
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain import records
from deferkit.serve.domain.feature_scales import GROWTH, PLAUSIBLE, PLAUSIBLE_NAMED, FeatureScales
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import with_defaults
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicySpec
from deferkit.serve.engine.commands.decide import check_finite, decide
from deferkit.serve.engine.commands.outcome import book
from deferkit.serve.engine.engine import Engine
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.database import Database
from tests.serve.harness import in_process
from tests.serve.harness.in_process import KEY, POLICY, SPEC, observe, play, problem_of, replayed, running

TASKS = 500
AT = {100: 1e50, 150: 1e6}  # where an outlier comes instead of a feature
FEATURES = 4


def spec_of(outliers: str, **given: Any) -> PolicySpec:
    values: dict[str, Any] = {"features": FEATURES, "forget": "never", "representation": "linear", "warm_up": 20}
    budget = {"cost": BudgetSpec(total=TASKS / 5, horizon=TASKS, max_cost=1)}
    return with_defaults(PolicySpec(name="p", budget=budget, outliers=outliers, **values | given))  # type: ignore[arg-type]


def live(policy: Policy, contexts: list[Any], rewards: Any) -> list[str]:
    """Let a policy decide tasks, and hear of the rewards of both; return who decided."""
    owned = OwnedPolicy(1, "default", policy, 1, 0)
    routes = []
    for number, (context, (model, human)) in enumerate(zip(contexts, rewards, strict=True)):
        work, task = UnitOfWork(), f"t{number}"
        work.decisions[1, task] = None
        routes.append(
            msgspec.json.decode(decide(owned, work, number, TaskBody(task=task, context=context), b""))["route"]
        )
        row = work.decisions[1, task]
        assert row is not None
        cost = None if row.route == "model" else {"cost": 1_000_000}
        book(owned, work, number, row, {"model": model, "human": human}, cost)
    return routes


def world(seed: int) -> tuple[list[list[float]], Any, Any]:
    """Return contexts, what model and human earn on average, and what they earn."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(TASKS, FEATURES))
    contexts[:, 0] = 1.0
    model = np.clip(0.5 + 0.2 * contexts[:, 1], 0, 1)
    human = np.clip(0.5 - 0.2 * contexts[:, 1] + 0.1 * contexts[:, 2], 0, 1)
    means = np.stack([model, human], axis=1)
    return contexts.tolist(), means, (rng.random((TASKS, 2)) < means).astype(float).tolist()


def gain(outliers: str, seed: int, *, injected: bool, **given: Any) -> float:
    """Return what experts earned above the model in the tasks after the outliers."""
    contexts, means, rewards = world(seed)
    for place, value in AT.items() if injected else ():
        contexts[place] = [1.0, value, contexts[place][2], -value]
    routes = live(Policy(spec_of(outliers, **given)), contexts, rewards)
    return float(sum(means[i, 1] - means[i, 0] for i in range(max(AT) + 1, TASKS) if routes[i] == "human"))


@pytest.mark.parametrize("defaults", ["2026.11", "2026.12"])
@pytest.mark.parametrize("given", [{}, {"forget": "auto"}, {"link": "logistic"}], ids=["plain", "forgets", "logistic"])
def test_one_context_of_1e50_does_not_ruin_the_estimates(given: dict[str, Any], defaults: str) -> None:
    given = given | {"defaults": defaults}
    seeds = range(24)
    clean = np.array([gain("clip", seed, injected=False, **given) for seed in seeds])
    clipped = np.array([gain("clip", seed, injected=True, **given) for seed in seeds])
    kept = np.array([gain("keep", seed, injected=True, **given) for seed in seeds])
    lost = clean - clipped
    error = lost.std() / np.sqrt(len(seeds))
    assert lost.mean() < 3 * error + 0.02 * clean.mean()
    if defaults == "2026.11":
        assert kept.mean() < 0.6 * clean.mean()  # else there was nothing to repair
    else:  # the learner cuts outliers itself
        assert kept.mean() > 0.9 * clean.mean()


def test_a_broken_sensor_costs_at_most_2_right_answers() -> None:
    """It sends 1e50 in 16 tasks on end: clipped to plausible sizes, these would be extreme values of tasks like others.

    Whoever decides these tasks is right, so that a loss is what they do to the other tasks.
    """
    lost = []
    for seed in range(10):
        contexts, _, rewards = world(seed)
        for place in range(200, 216):
            rewards[place] = [1.0, 1.0]
        broken = [list(context) for context in contexts]
        for place in range(200, 216):
            broken[place][1:] = [1e50, -1e50, 1e50]
        clips, keeps = (Policy(spec_of(outliers)) for outliers in ("clip", "keep"))
        earned = []
        for policy, given in ((keeps, contexts), (clips, broken)):
            routes = live(policy, given, rewards)
            earned.append(sum(pair[route == "human"] for pair, route in zip(rewards, routes, strict=True)))
        lost.append(earned[0] - earned[1])
        assert clips.scales is not None
        assert clips.scales.clipped == 48
        median = sorted(context[1] for context in contexts[:100])[50]
        assert clips.learner._ledger.view("context")[200:216, 0, 1].tolist() == [median] * 16
    assert np.mean(lost) <= 2.0


def test_the_learner_gets_outliers_as_they_are_where_it_cuts_them_itself(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(30):
            await in_process.decide(engine, f"t{i}", context=[1.0, -(i % 3) / 2], force=None)
        await in_process.decide(engine, "wild", context=[-1e50, 1.0], force=None)
        owned = engine.owned[KEY]
        [line] = engine.store.log_of_task(owned.id, "wild", 10)
        record = msgspec.json.decode(bytes(line.body))
        assert (record["context"], record["clipped"]) == ([-1e50, 1.0], 1)
        assert owned.policy.scales is not None
        assert (owned.policy.scales.clipped, owned.policy.scales.largest) == (1, [GROWTH, 1.0])
        assert owned.policy.learner._ledger.view("context")[30, 0, 0] == 1.0  # the median
        assert owned.policy.learner._ledger.view("rank_count").tolist() == [30, 31]
        assert replayed(engine.store) == owned.policy == Policy.from_bytes(owned.policy.to_bytes())
        assert replay(engine.store, *KEY).faults == []

    play(database, script)


def test_a_learner_with_the_rule_of_before_gets_logged_outliers_clipped() -> None:
    """As when a policy goes back to the rule that it was created with, and learns its log again."""
    contexts = [[1.0, (i % 5) / 5, 0.0, 1.0] for i in range(40)]
    contexts[20] = [1.0, 1e50, 0.0, 1.0]
    new, old = Policy(spec_of("clip")), Policy(spec_of("clip", defaults="2026.11"))
    owned = OwnedPolicy(1, "default", new, 1, 0)
    work = UnitOfWork()
    for i, context in enumerate(contexts):
        work.decisions[1, f"t{i}"] = None
        decide(owned, work, i, TaskBody(task=f"t{i}", context=context, force="model"), b"")
    for line in work.log:
        old.apply(records.decode(bytes(line.body)))
    assert new.scales == old.scales
    assert new.learner._ledger.view("context")[20, 0, 1] == 0.4
    assert old.learner._ledger.view("context")[20, 0, 1] == pytest.approx(GROWTH * 0.8)


STREAMS: dict[str, Callable[[np.random.Generator], Any]] = {
    "normal": lambda rng: rng.normal(size=(TASKS, FEATURES)),
    "uniform": lambda rng: rng.random((TASKS, FEATURES)),
    "exponential": lambda rng: rng.exponential(size=(TASKS, FEATURES)),
    "lognormal": lambda rng: rng.lognormal(sigma=0.75, size=(TASKS, FEATURES)),
    "one-hot": lambda rng: np.eye(FEATURES)[rng.integers(0, FEATURES, TASKS)],
    "rare indicators": lambda rng: (rng.random((TASKS, FEATURES)) < 0.01).astype(float),
    "rare amounts": lambda rng: (rng.random((TASKS, FEATURES)) < 0.02) * rng.exponential(size=(TASKS, FEATURES)) * 50,
    "tiny": lambda rng: 1e-9 * rng.normal(size=(TASKS, FEATURES)),
    "large": lambda rng: 1e5 * rng.normal(size=(TASKS, FEATURES)),
    "growing": lambda rng: rng.normal(size=(TASKS, FEATURES)) * np.exp(np.arange(TASKS) / 50)[:, None],
    "shrinking": lambda rng: rng.normal(size=(TASKS, FEATURES)) * np.exp(-np.arange(TASKS) / 20)[:, None],
    "constant": lambda rng: np.ones((TASKS, FEATURES)) * rng.random(FEATURES),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_without_outliers_are_decided_as_if_they_were_kept(name: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng([seed, 7])
        contexts, rewards = STREAMS[name](rng).tolist(), rng.integers(0, 2, (TASKS, 2)).astype(float).tolist()
        if seed >= 3:  # the scales alone
            scales = FeatureScales(largest=[0.0] * FEATURES, seen=[0] * FEATURES)
            for context in contexts:
                assert scales.clip(context) == (context, 0)
                scales.see(context, 0)
            continue
        policies = [Policy(spec_of(outliers)) for outliers in ("clip", "keep")]
        routes = [live(policy, contexts, rewards) for policy in policies]
        assert routes[0] == routes[1]
        assert policies[0].learner.to_bytes() == policies[1].learner.to_bytes()
        assert policies[0].scales is not None
        assert policies[0].scales.clipped == 0


def test_a_scale_that_stays_large_is_followed() -> None:
    scales = FeatureScales(largest=[0.0], seen=[0])
    for _ in range(100):
        scales.see([1.0], 0)
    cut = 0
    for _ in range(100):  # milliseconds instead of seconds, from now on
        context, clipped = scales.clip([1000.0])
        scales.see(context, clipped)
        cut += clipped
    assert cut == scales.clipped == 29  # 1.2 ** 28 < 1000 / 6.25 … by then 1,000 is plausible
    assert scales.clip([1000.0]) == ([1000.0], 0)


def test_before_anything_is_known_there_is_an_absolute_bound() -> None:
    scales = FeatureScales(largest=[0.0], seen=[0])
    assert scales.clip([-1e50]) == ([-PLAUSIBLE], 1)
    assert scales.clip([PLAUSIBLE]) == ([PLAUSIBLE], 0)
    named = FeatureScales(largest=[0.0], seen=[0], names=["time"])
    assert named.clip({"time": 1.7e18, "country": "fr"}) == ({"time": 1.7e18, "country": "fr"}, 0)
    assert named.clip({"time": 1e50}) == ({"time": PLAUSIBLE_NAMED}, 1)
    assert named.clip({"time": None}) == ({"time": None}, 0)
    for wrong in ([1.0, 2.0], {"time": "noon"}, {"time": 10**60}, {"other": 1e40}):  # the learner says what is wrong
        assert named.clip(wrong) == (wrong, 0)


def test_named_numbers_keep_their_scale() -> None:
    """The encoder learns the scale of a number in the warm-up: one of 1e50 there would make all others the same."""
    features = FeatureSpec(numbers=["amount"], categories={"country": ["de", "fr"]})
    rng = np.random.default_rng(1)
    contexts: list[Any] = [{"amount": float(a), "country": "de"} for a in rng.lognormal(5, 1, 60)]
    contexts[7] = {"amount": 1e50, "country": "fr"}
    policy = Policy(spec_of("clip", features=features))
    live(policy, contexts, [(0.5, 0.5)] * 60)
    assert policy.scales is not None
    assert policy.scales.clipped == 1
    scores = policy.learner.vectors([{"amount": 50.0, "country": "de"}, {"amount": 500.0, "country": "de"}])
    assert abs(scores[0][1] - scores[1][1]) > 0.01  # tasks are still told apart by their amounts


def test_what_the_learner_saw_is_in_the_log_and_is_replayed(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(30):
            await in_process.decide(engine, f"t{i}", context=[1.0, -(i % 3) / 2], force=None)
            await observe(engine, f"t{i}", rewards={"model": 0.5, "human": 1.0})
        first = await in_process.decide(engine, "wild", context=[-1e50, 1.0], force=None)
        assert await in_process.decide(engine, "wild", context=[-1e50, 1.0], force=None) == first
        assert (await problem_of(in_process.decide(engine, "wild", context=[-1.2, 1.0], force=None))).status == 409
        owned = engine.owned[KEY]
        [line] = engine.store.log_of_task(owned.id, "wild", 10)
        record = msgspec.json.decode(bytes(line.body))
        assert (record["context"], record["clipped"]) == ([-GROWTH, 1.0], 1)
        assert owned.policy.scales is not None
        assert owned.policy.scales.clipped == 1
        assert replayed(engine.store) == owned.policy == Policy.from_bytes(owned.policy.to_bytes())
        assert replay(engine.store, *KEY).faults == []

    play(database, script, spec=msgspec.structs.replace(SPEC, defaults="2026.11"))


def test_outliers_are_refused_where_the_policy_says_so(database: Database) -> None:
    async def script(engine: Engine) -> None:
        for i in range(30):
            await in_process.decide(engine, f"t{i}", context=[1.0, 0.5], force=None)
        before = engine.owned[KEY].policy.to_bytes()
        refused = await problem_of(in_process.decide(engine, "wild", context=[1.0, 1e6], force=None))
        assert (refused.status, str(refused)) == (
            422,
            "The context has features that are many times larger than all before: 1.",
        )
        assert engine.owned[KEY].policy.to_bytes() == before

    play(database, script, spec=msgspec.structs.replace(SPEC, outliers="refuse"))


def test_policies_clip_unless_they_say_otherwise_and_old_ones_keep() -> None:
    assert with_defaults(SPEC).outliers == "clip"
    old = Policy(SPEC)  # as its log has it
    assert old.scales is None
    assert b"scales" not in old.to_bytes()
    assert SPEC.with_defaults_of(with_defaults(SPEC)).outliers == "clip"
    assert msgspec.structs.replace(SPEC, outliers="keep").with_defaults_of(SPEC) == SPEC


def test_clipped_features_are_counted_over_http(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        assert client.post("/v1/policies", POLICY).json["outliers"] == "clip"
        for i in range(10):
            assert client.decide(f"t{i}", force="model").status == 201
        assert client.decide("wild", context=[1e6, 1e50], force="model").status == 201
        assert client.get("/v1/policies/p/summary").json["clipped_features"] == 2
        assert 'deferkit_clipped_features_total{policy="p"} 2.0' in client.get("/metrics").body.decode()


def test_a_decision_that_is_not_a_number_is_refused_before_it_is_logged() -> None:
    """JSON has no word for it: a log with such a record could not be read."""
    decision = Deferrer(n_features=1, budget=Budget(10, horizon=10, max_cost=1)).decide([1.0], force="human")
    check_finite(decision)
    for bad in (
        decision._replace(estimates=decision.estimates | {"human": math.nan}),
        decision._replace(costs={"human": math.inf}),
        decision._replace(price={"cost": math.nan}),
    ):
        with pytest.raises(Problem, match="the estimates are not finite"):
            check_finite(bad)


def test_a_learner_without_numbers_gets_nothing_into_the_log(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await in_process.decide(engine, "a")
        policy = engine.owned[KEY].policy
        policy.learner._ledger.view("theta")[:] = math.nan
        for force in ("human", "model"):
            problem = await problem_of(in_process.decide(engine, "b", force=force))
            assert (problem.status, problem.code) == (422, "invalid")
        assert policy.seq == 2
        assert replay(engine.store, *KEY).faults == []

    play(database, script)
