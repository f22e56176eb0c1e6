"""Policies with an embedding are served like others: retrained, saved, replayed, forgotten; plug-ins too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from deferkit import Budget, Deferrer
from deferkit.errors import InvalidArgument, MissingExtra
from deferkit.learn.embed import EMBEDDING_PLUGINS, embedding_from
from deferkit.plugins import find_installed
from deferkit.serve.audit.counterfactual.estimate import DecisionLog
from deferkit.serve.audit.counterfactual.scenario import logged_budgets, scenario_of
from deferkit.serve.audit.counterfactual.what_if import what_if
from deferkit.serve.audit.replay import logged_records, replay
from deferkit.serve.domain.policy_learner import check_installed, memory_of, settings_of, with_defaults
from deferkit.serve.domain.spec import BudgetSpec
from deferkit.serve.engine.commands.relearn import forget_task
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.reports.summary import estimates_of
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import KEY, SPEC, check_booked, check_in_step, decide, observe, play, replayed

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"
ENTRY = "[deferkit.embeddings]\ngaussian-process = deferkit_shop.gaussian_process:GaussianProcess\n"
KINDS: dict[str, dict[str, Any]] = {
    "neural": {"hidden": 4, "every": 5, "memory": 20},
    "trees": {"folds": 2, "trees": 3, "least_in_leaf": 2, "first": 8, "memory": 20},
    "gradient": {"hidden": 4, "every": 5, "memory": 20},
    "gaussian-process": {"inducing": 6, "first": 5, "memory": 20},
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the Gaussian process of the example by its entry point."""
    info = tmp_path / "gp-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gp\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY)
    for path in (tmp_path, EXAMPLE):
        monkeypatch.syspath_prepend(path)
    find_installed.cache_clear()
    yield
    find_installed.cache_clear()
    EMBEDDING_PLUGINS._loaded.pop("gaussian-process", None)


def spec_with(kind: str, **given: Any) -> Any:
    embedding = {"kind": kind, **KINDS[kind], **given}
    budget = {"cost": BudgetSpec(total=100, horizon=1000, max_cost=1)}
    # with this pacing the price needs no window of tasks, so that the memory is as short as it says
    return msgspec.structs.replace(SPEC, budget=budget, embedding=embedding, pacing="adaptive")


async def work(engine: Engine, tasks: range) -> None:
    """Decide tasks, and report what came of them; the reward of the expert is not linear."""
    rng = np.random.default_rng([7, tasks.start])
    for number in tasks:
        x = rng.random(2).round(3).tolist()
        await decide(engine, f"t{number}", context=x, force="human" if number % 3 else "model")
        rewards = {"model": 0.5, "human": float(abs(x[0] - 0.5) < 0.25)}
        await observe(engine, f"t{number}", rewards=rewards, cost=None if number % 3 == 0 else 0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_an_embedding_is_served_saved_replayed_and_forgotten(sqlite: Sqlite, kind: str) -> None:
    async def first(engine: Engine) -> None:
        await work(engine, range(50))
        learner = engine.owned[KEY].policy.learner
        assert learner.settings.kind.name == kind
        assert learner._representation.version > 1  # retrained
        assert learner._representation.training_set.n <= 40  # type: ignore[attr-defined]

    async def second(engine: Engine) -> None:
        await work(engine, range(50, 70))
        await forget_task(engine, KEY, "t60")
        await decide(engine, "last", force="model")
        check_in_step(engine.owned[KEY].policy)
        check_booked(engine)
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(sqlite, first, spec=spec_with(kind), settings=EngineSettings(snapshot_every=30))
    assert replay(Store(sqlite), *KEY).faults == []

    async def third(engine: Engine) -> None:
        found = estimates_of(engine.owned[KEY], {})
        assert found.representation == kind
        assert all(each.feature.startswith(f"{kind} ") for target in found.targets for each in target.coefficients)

    play(sqlite, second, spec=None)
    play(sqlite, third, spec=None)
    assert replay(Store(sqlite), *KEY).faults == []


@pytest.mark.parametrize("kind", KINDS)
def test_another_budget_is_tried_on_the_log_of_an_embedding(sqlite: Sqlite, kind: str) -> None:
    """Targets read views of their own, which are parts of one vector."""

    async def script(engine: Engine) -> None:
        await work(engine, range(40))

    play(sqlite, script, spec=spec_with(kind))
    store, decision_log = Store(sqlite), DecisionLog()
    report = replay(store, *KEY, watch=decision_log.see)
    assert report.policy is not None
    logged = logged_budgets(report.policy.spec, report.policy.accounts)
    log = logged_records(store, report.row)
    found = what_if(log, report.policy, decision_log, [scenario_of("1x", logged), scenario_of("0.5x", logged)])
    assert found.rows[0].reward is not None
    assert found.rows[1].spent == found.rows[0].spent


def test_a_plugin_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = with_defaults(spec_with("gaussian-process"))
    check_installed(spec)
    assert memory_of(spec) > 0
    monkeypatch.setattr(EMBEDDING_PLUGINS, "_loaded", {})
    monkeypatch.setattr(EMBEDDING_PLUGINS, "group", "deferkit.nothing")
    with pytest.raises(MissingExtra, match="not installed. .*'gaussian-process'"):
        check_installed(spec)
    assert memory_of(spec) == 0  # the memory of a tenant can still be counted


def test_the_service_stores_all_settings_of_an_embedding() -> None:
    spec = with_defaults(spec_with("gaussian-process"))
    assert spec.embedding == embedding_from(spec_with("gaussian-process").embedding).to_dict()
    assert settings_of(spec).kind.name == "gaussian-process"
    with pytest.raises(InvalidArgument, match="settings of the embedding 'gaussian-process' are wrong: .*'indcing'"):
        with_defaults(spec_with("gaussian-process", indcing=5))


def test_the_linear_layer_on_its_features_is_a_gaussian_process() -> None:
    """With as many inducing points as tasks, against the posterior mean K(K + λI)⁻¹y."""
    rng = np.random.default_rng(0)
    x, n, ridge, length = rng.random((30, 2)), 30, 0.1, 0.5
    y = np.sin(6 * x[:, 0]) / 2 + 0.5
    embedding = embedding_from({"kind": "gaussian-process", "inducing": n, "length": length, "first": n})
    budget = Budget(10, horizon=1000, max_cost=1)
    learner = Deferrer(n_features=2, budget=budget, embedding=embedding, ridge=ridge, reward_range=(-1, 2))
    learner.warm_start(x, {"model": y})
    squares = ((x[:, None] - x) ** 2).sum(axis=2)
    kernel = x @ x.T + np.exp(-squares / (2 * length**2))
    expected = kernel @ np.linalg.solve(kernel + ridge * np.eye(n), y)
    np.testing.assert_allclose(learner.score(x).estimates["model"], expected, atol=1e-4)
