"""Numbers, case by case: features that teach nothing break nothing, and a logged chance is the chance there was."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from deferkit.serve.api.tasks import BatchBody, TaskBody
from deferkit.serve.domain import records
from deferkit.serve.domain.policy_learner import learner_of
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.decide import DecideMany
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import KEY, SPEC, call, decide, observe, play, problem_of, replayed
from tests.serve.harness.policy_histories import RandomHistory

MILLION = 1_000_000
TINY = 5e-324  # the smallest number above 0


def contexts(kind: str, n: int) -> Any:
    """Return contexts that all lie on one line, or less."""
    drawn = np.random.default_rng(0).random((n, 1))
    match kind:
        case "zero":
            return np.zeros((n, 4))
        case "constant":
            return np.full((n, 4), 0.3)
        case "collinear":
            return drawn * [[1.0, 2.0, -1.0, 0.5]]
        case _:
            return drawn * [[1e-310, -1e-320, 1e-308, TINY]]


@pytest.mark.parametrize(
    ("kind", "link"),
    [("zero", "identity"), ("constant", "identity"), ("collinear", "identity"), ("collinear", "logistic")],
)
def test_after_a_million_useless_features_the_matrix_is_positive_definite(kind: str, link: Any) -> None:
    """The learner that a policy has, in the compiled loop: as the service would feed it, one task after the other."""
    budget = {"cost": BudgetSpec(total=MILLION / 5, horizon=MILLION, max_cost=1)}
    learner = learner_of(PolicySpec(name="p", features=4, link=link, budget=budget, explore_floor=0.1))
    rng = np.random.default_rng(1)
    rewards = (rng.random((MILLION, 2)) < [0.4, 0.6]).astype(float)
    run = learner.run(
        contexts(kind, MILLION), {"model": rewards[:, 0], "human": rewards[:, 1]}, rng.random(MILLION).round(6)
    )
    assert 0.01 < run.deferral_rate < 0.5
    for name, each in learner.coefficients().items():
        assert np.isfinite(each.theta).all(), name
        values = np.linalg.eigvalsh(each.inverse)
        assert values.min() > 0, name
        assert values.max() < 1 / learner.settings.ridge_used + 1e-6, name
    scores = learner.score([[1.0, 0.0, 0.0, 0.0], [1e6, -1e6, 1e6, 1e6]])
    assert all(np.isfinite(widths).all() for widths in scores.widths.values())


@pytest.mark.parametrize("kind", ["zero", "constant", "collinear", "denormal"])
def test_denormal_numbers_are_taken_and_replies_are_finite(kind: str, database: Database) -> None:
    spec = PolicySpec(name="p", features=4, budget=SPEC.budget, explore_floor=0.3)

    async def script(engine: Engine) -> None:
        rows = contexts(kind, 60).tolist()
        for start in range(0, 60, 20):
            bodies = [TaskBody(task=f"t{i}", context=rows[i]) for i in range(start, start + 20)]
            for each in (await call(engine, DecideMany(BatchBody(tasks=bodies))))["results"]:
                decision = each["decision"]
                for values in (decision["estimates"], decision["widths"], decision["costs"], decision["cost_widths"]):
                    assert all(math.isfinite(value) for value in values.values())
                cost = 0.05 if decision["route"] == "human" else None
                await observe(engine, decision["task"], rewards={decision["route"]: 1.0}, cost=cost)
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(database, script, spec=spec)


def test_denormal_numbers_of_every_kind_come_back_from_the_log_as_they_were(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a", context=[TINY, -TINY])
        await decide(engine, "b", context=[-0.0, 2.2e-308])
        await observe(engine, "a", rewards={"human": TINY, "model": 0.0}, cost=0.000_001)
        await observe(engine, "b", rewards={"human": 2.2e-308}, cost=0.0)
        lines = [records.decode(bytes(row.body)) for row in engine.store.log(engine.owned[KEY].id)]
        decided = [each.context for each in lines if isinstance(each, records.DecidedRecord)]
        assert repr(decided) == repr([[TINY, -TINY], [-0.0, 2.2e-308]])
        assert replayed(engine.store) == engine.owned[KEY].policy
        for wrong in ([math.nan, 0.0], [math.inf, 0.0], [1e51, 0.0], [1.0], [1.0, 1.0, 1.0], {"a": 1.0}):
            assert (await problem_of(decide(engine, "c", context=wrong))).status == 422

    play(database, script)


def test_a_propensity_is_a_chance_and_what_is_logged_was_done(database: Database) -> None:
    spec = msgspec.structs.replace(SPEC, experts=["ann", "bo"], explore_floor=0.4, warm_up=20)

    async def script(engine: Engine) -> None:
        life = RandomHistory(1, spec)
        for _ in range(150):
            await life.step(engine)
        reasons = set()
        for row in engine.store.log(engine.owned[KEY].id):
            record = records.decode(bytes(row.body))
            if isinstance(record, records.DecidedRecord):
                assert 0 < record.propensity <= 1
                decision = engine.store.decision(engine.owned[KEY].id, record.task)
                assert decision is not None
                reply = msgspec.json.decode(decision.reply)
                assert (reply["route"], reply["propensity"]) == (record.route, record.propensity)
                assert (decision.route, decision.held) == (record.route, record.held)
                seats = engine.store.seats(engine.owned[KEY].id, record.task)
                assert {seat.expert for seat in seats} == ({record.route} - {"model"})
                reasons.add(record.reason)
        assert {"explored", "forced", "warm-up", "budget"} <= reasons

    play(database, script, spec=spec)


def test_routes_are_taken_as_often_as_their_propensities_say(database: Database) -> None:
    """Weighted by 1 / propensity, each route counts for every task: 400 in the mean, ± 5 standard deviations."""
    n = 400
    budget = {"cost": BudgetSpec(total=20 * n, horizon=n, max_cost=1)}  # of which a twentieth is held unheard
    spec = PolicySpec(name="p", features=1, budget=budget, explore_floor=0.5, warm_up=50, seed=2)

    async def script(engine: Engine) -> None:
        tasks = [TaskBody(task=f"t{i}", context=[1.0]) for i in range(n)]
        results = (await call(engine, DecideMany(BatchBody(tasks=tasks))))["results"]
        for route in ("model", "human"):
            weights = [1 / r["decision"]["propensity"] for r in results if r["decision"]["route"] == route]
            variance = sum(weight * (weight - 1) for weight in weights)
            assert sum(weights) == pytest.approx(n, abs=5 * math.sqrt(variance))

    play(database, script, spec=spec)
