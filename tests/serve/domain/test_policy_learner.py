"""How a policy learns: what it gets unless it says so, what older ones keep, and what is said of a drift."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deferkit import extras
from deferkit.errors import InvalidArgument, MissingExtra
from deferkit.learn.embed import representation
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain import policy_learner as learners
from deferkit.serve.domain.policy_learner import learner_of, with_defaults
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicySpec
from deferkit.serve.engine import policy_creation as engines
from deferkit.serve.engine.engine import Engine
from deferkit.serve.http.metrics import metrics_of
from deferkit.serve.http.middleware import Traffic
from deferkit.serve.reports.history import LogFigures
from deferkit.serve.reports.standing import drift_alarms
from deferkit.serve.reports.summary import summary_of
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.in_process import KEY, POLICY, SPEC, decide, observe, play, replayed, running

LONG = msgspec.structs.replace(SPEC, budget={"cost": BudgetSpec(total=500, horizon=2000, max_cost=1)})
Spoil = Callable[[], None]


@pytest.fixture
def without_trees(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """Take LightGBM away."""
    find_missing = extras.find_missing

    def spoil() -> None:
        for module in (extras, representation):
            monkeypatch.setattr(
                module, "find_missing", lambda part: ["lightgbm"] if part == "trees" else find_missing(part)
            )

    return spoil


def how(spec: PolicySpec) -> tuple[Any, ...]:
    return spec.rule, spec.forget, spec.representation


@pytest.mark.parametrize(
    ("given", "gets"),
    [
        ({}, ("index", "auto", "auto")),
        ({"representation": "linear"}, ("index", "auto", "linear")),
        ({"forget": "never"}, ("index", "never", "auto")),
        ({"cost_link": "logistic"}, ("index", "auto", "linear")),
        ({"rule": "interval"}, ("interval", "never", "linear")),
        ({"features": 500}, ("index", "auto", "linear")),  # the past that trees need would not fit
        ({"features": 2000}, ("index", "never", "linear")),  # nor would several members
        ({"features": 2000, "forget": "auto"}, ("index", "auto", "linear")),  # refused when it is made
    ],
)
def test_a_policy_gets_the_first_choice_that_can_be_had(given: dict[str, Any], gets: tuple[str, ...]) -> None:
    assert how(with_defaults(msgspec.structs.replace(SPEC, **given))) == gets


def rule_of(spec: PolicySpec) -> tuple[Any, ...]:
    return spec.defaults, spec.link, spec.ranks


@pytest.mark.parametrize(
    ("given", "gets"),
    [
        ({}, ("2026.12", "auto", True)),
        ({"link": "identity"}, ("2026.12", "identity", True)),
        ({"link": "logistic"}, ("2026.12", "logistic", True)),
        ({"cost_link": "logistic"}, ("2026.12", "identity", True)),
        ({"reward_range": (0.0, 10.0)}, ("2026.12", "identity", True)),
        ({"rule": "interval"}, ("2026.11", "identity", msgspec.UNSET)),
        ({"defaults": "2026.11"}, ("2026.11", "identity", msgspec.UNSET)),
        ({"features": 190}, ("2026.12", "auto", True)),
        ({"features": 200}, ("2026.12", "auto", False)),  # trees stay
        ({"features": 500}, ("2026.12", "auto", True)),
        ({"features": 2000}, ("2026.12", "auto", False)),
        ({"features": 500, "ranks": False}, ("2026.12", "auto", False)),
    ],
)
def test_a_policy_gets_the_latest_rule_where_that_is_possible(given: dict[str, Any], gets: tuple[Any, ...]) -> None:
    made = with_defaults(msgspec.structs.replace(SPEC, **given))
    assert rule_of(made) == gets
    assert with_defaults(made) == made
    settings = learners.settings_of(made)
    assert (settings.defaults, settings.link, settings.has_ranks) == (gets[0], gets[1], gets[2] is True)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"representation": "linear"},
        {"forget": "never"},
        {"ranks": False},
        {"features": 3, "experts": ["ann", "bo"], "confidence": 1},
        {"features": FeatureSpec(numbers=["a", "b"], categories={"c": ["x", "y"]}), "confidence": "b"},
    ],
    ids=["auto", "linear", "never", "without ranks", "experts", "named"],
)
def test_the_size_is_that_of_the_arrays(given: dict[str, Any]) -> None:
    made = with_defaults(msgspec.structs.replace(SPEC, **given))
    learner = learner_of(made)
    arrays = learner._ledger.arrays
    sizes = learner._ledger.sizes()
    narrow = {"inverse": 2, "precision": 2, "context": 1, "rank_table": 0}  # axes that are padded to whole lanes
    unpadded = {
        name: arrays[name].size * sizes["n_features"] ** axes // sizes["stride"] ** axes
        for name, axes in narrow.items()
    }
    assert learners.matrix_numbers(learner.settings) == unpadded["inverse"] + unpadded["precision"]
    trees = 200_000 * learner.settings.n_features if made.representation == "auto" else 0
    assert learners.numbers_of(made) == sum(unpadded.values()) + trees


def test_policies_of_before_have_the_size_they_had() -> None:
    old = msgspec.structs.replace(SPEC, rule="index", forget="auto", representation="auto", memory=5000, features=10)
    width, targets = 10 + 2 * 3, 3
    assert learners.numbers_of(old) == 2 * width**2 * targets * 8 + 2 * width * 5000 + 200_000 * 10
    linear = msgspec.structs.replace(old, representation="linear")
    assert learners.numbers_of(linear) == 2 * 10**2 * targets * 4 + 10 * 5000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"confidence": 2}, "confidence"),
        ({"confidence": "a"}, "confidence"),
        ({"confidence": 0, "defaults": "2026.11"}, "confidence"),
        ({"features": FeatureSpec(numbers=["a"], categories={"c": ["x"]}), "confidence": "c"}, "confidence"),
        ({"features": FeatureSpec(numbers=["a"]), "confidence": 0}, "confidence"),
    ],
)
def test_a_confidence_that_is_no_number_feature_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        with_defaults(msgspec.structs.replace(SPEC, **given))


def test_a_confidence_is_the_prior_of_the_model(sqlite: Sqlite) -> None:
    sure = msgspec.structs.replace(LONG, confidence=1, representation="linear")

    async def script(engine: Engine) -> None:
        made = await engine.create("default", sure)
        assert json.loads(made.body)["confidence"] == 1
        assert (await engine.create("default", sure)).status == 201
        with pytest.raises(Problem, match="made with other settings: confidence"):
            await engine.create("default", LONG)
        for i in range(20):
            await decide(engine, f"t{i}", context=[1.0, i / 20], force="model")
        low, high = [(await decide(engine, f"c{c}", context=[1.0, c], force="model"))["estimates"] for c in (0.1, 0.9)]
        assert low["human"] == high["human"] == pytest.approx(0.9, abs=0.02)
        assert high["model"] - low["model"] > 0.1
        assert replayed(engine.store) == engine.owned[KEY].policy

    play(sqlite, script, spec=None)


@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_a_body_of_before_is_no_conflict_with_a_stored_policy(link: str) -> None:
    body = json.loads(msgspec.json.encode(SPEC))
    assert not {"link", "defaults", "ranks", "confidence"} & set(body)
    stored = msgspec.convert(body | {"link": link, "rule": "index", "forget": "auto"}, PolicySpec)
    assert (stored.defaults_used, stored.link_used, learners.settings_of(stored).defaults) == (
        "2026.11",
        link,
        "2026.11",
    )
    assert (SPEC.with_defaults_of(stored) == stored) == (link == "identity")  # as it always was
    assert msgspec.structs.replace(SPEC, link=link).with_defaults_of(stored) == stored
    assert msgspec.structs.replace(SPEC, link="auto").with_defaults_of(stored) != stored


def test_what_is_too_large_is_refused_with_a_way_out() -> None:
    for given in ({"features": 2000, "forget": "auto"}, {"features": 500, "representation": "auto"}):
        with pytest.raises(InvalidArgument, match="representation 'linear' or forget 'never'"):
            learner_of(with_defaults(msgspec.structs.replace(SPEC, **given)))
    learner_of(msgspec.structs.replace(SPEC, features=2000))  # one from before is not


def test_without_lightgbm_estimates_are_linear_and_that_is_said_once(
    sqlite: Sqlite, without_trees: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    without_trees()

    async def script(engine: Engine) -> None:
        made = await engine.create("default", SPEC)
        assert how(msgspec.json.decode(made.body, type=PolicySpec)) == ("index", "auto", "linear")
        await engine.create("default", SPEC)
        with pytest.raises(Problem, match="needs lightgbm") as caught:
            await engine.create("default", msgspec.structs.replace(SPEC, name="q", representation="auto"))
        assert caught.value.status == 422

    with caplog.at_level(logging.WARNING):
        play(sqlite, script, spec=None)
    remarks = [record.message for record in caplog.records if "linear" in record.message]
    assert remarks == ["estimates are linear, because lightgbm is missing: pip install 'deferkit[trees]'"]


def test_a_policy_with_trees_is_never_served_nor_replayed_without_them(
    sqlite: Sqlite, without_trees: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    async def first(engine: Engine) -> None:
        await engine.create("default", msgspec.structs.replace(SPEC, name="q", representation="linear"))

    async def second(engine: Engine) -> None:
        assert set(engine.owned) == {("default", "q")}
        with pytest.raises(Problem, match="cannot be served here: .* needs lightgbm"):
            await decide(engine, "a")

    play(sqlite, first)
    without_trees()
    with caplog.at_level(logging.ERROR):
        play(sqlite, second, spec=None)
    assert "cannot be served here" in str(caplog.records[0].__dict__["error"])
    with pytest.raises(MissingExtra, match="needs lightgbm"):
        replay(Store(sqlite), *KEY)


def test_the_same_call_again_is_no_conflict_wherever_it_is_made(sqlite: Sqlite, without_trees: Spoil) -> None:
    async def script(engine: Engine) -> None:
        first = await engine.create("default", SPEC)
        without_trees()
        assert json.loads((await engine.create("default", SPEC)).body) == json.loads(first.body)
        assert how(msgspec.json.decode(first.body, type=PolicySpec)) == ("index", "auto", "auto")
        for other in ({"representation": "linear"}, {"forget": "never"}, {"rule": "interval"}):
            with pytest.raises(Problem, match=f"made with other settings: {next(iter(other))}"):
                await engine.create("default", msgspec.structs.replace(SPEC, **other))

    play(sqlite, script, spec=None)


@pytest.mark.parametrize("rule", [msgspec.UNSET, "index"], ids=["without a rule", "with one"])
def test_a_policy_from_before_stays_as_it_was(sqlite: Sqlite, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = msgspec.structs.replace(LONG, link="logistic")

    async def before(engine: Engine) -> None:
        made = await engine.create("default", old)
        assert not {"forget", "representation"} & set(json.loads(made.body))
        await live(engine, range(70))

    async def after(engine: Engine) -> None:
        policy = engine.owned[KEY].policy
        settings = policy.learner.settings
        assert (settings.forget_used, settings.representation, settings.refit_used) == ("never", "linear", "doubling")
        assert settings.exploration.rule == ("interval" if rule is msgspec.UNSET else "index")
        assert settings.defaults == "2026.11"
        for given in ({}, {"forget": "never"}, {"representation": "linear"}, {"defaults": "2026.11"}):
            assert (await engine.create("default", msgspec.structs.replace(old, **given))).status == 201
        others: list[dict[str, Any]] = [{"forget": "auto"}, {"representation": "auto"}, {"confidence": 0}]
        for other in [*others, {"defaults": "2026.12"}]:
            with pytest.raises(Problem, match="made with other settings"):
                await engine.create("default", msgspec.structs.replace(old, **other))
        await live(engine, range(70, 140))
        assert replayed(engine.store) == policy

    with monkeypatch.context() as patched:
        patched.setattr(engines, "with_defaults", lambda spec: msgspec.structs.replace(spec, rule=rule))
        play(sqlite, before, spec=None)
    play(sqlite, after, spec=None)
    assert replay(Store(sqlite), *KEY).faults == []


async def live(engine: Engine, tasks: range, *, right: float = 1.0) -> None:
    """Decide tasks and say what came of them; the model is `right` or not."""
    for number in tasks:
        await decide(engine, f"t{number}", context=[1.0, number % 7 / 7], force="human" if number % 4 == 0 else "model")
        cost = 0.25 if number % 4 == 0 else None
        await observe(engine, f"t{number}", rewards={"model": right, "human": float(number % 3 > 0)}, cost=cost)


@pytest.mark.parametrize("defaults", ["2026.11", "2026.12"])
def test_a_drift_is_logged_once_and_counted(sqlite: Sqlite, caplog: pytest.LogCaptureFixture, defaults: str) -> None:
    def told() -> list[dict[str, Any]]:
        return [record.__dict__ for record in caplog.records if record.message == "drifted"]

    async def before(engine: Engine) -> None:
        await live(engine, range(400))
        assert told() == []
        await live(engine, range(400, 600), right=0.0)
        drifts = engine.owned[KEY].policy.learner.drifts()
        assert [drift.target for drift in drifts] == ["model"]
        assert [(d["policy"], d["target"], d["times"]) for d in told()] == [
            (engine.owned[KEY].id, "model", times + 1) for times in range(drifts[0].times)
        ]
        assert (told()[-1]["decision"], told()[-1]["strength"]) == drifts[0][1:3]
        owned = engine.owned[KEY]
        summary = summary_of(owned, engine.store.queue(owned.id), 0)
        assert summary.drifts == drifts[0].times
        assert [msgspec.structs.astuple(each) for each in summary.drifted] == [tuple(drift) for drift in drifts]
        drift = drifts[0]
        if defaults == "2026.11":
            assert drift[4:] == (None, None, None, None)
            [alarm] = drift_alarms(owned, None)
            assert alarm.text == f"The reward of model has changed, about at task {drift.decision:,}."
        else:
            assert drift.since is not None
            assert abs(drift.since - 400) < 20
            assert (told()[-1]["since"], told()[-1]["after"]) == (drift.since, drift.after)
            past = LogFigures(None, None, ((drift.since - 5, 1_777_000_000.0), (600, 1_777_800_000.0)))  # type: ignore[arg-type]
            [alarm] = drift_alarms(owned, past)
            assert alarm.text.startswith("The model is right in 0% since about 3 May 2026, before in 100% (standard")
            assert f"since about task {drift.since:,}, before" in drift_alarms(owned, None)[0].text
        assert summary.samples_in_use["model"] < summary.samples["model"] == 600

    async def after(engine: Engine) -> None:
        await live(engine, range(600, 605), right=0.0)

    sqlite.synchronous = "OFF"
    with caplog.at_level(logging.WARNING):
        play(sqlite, before, spec=msgspec.structs.replace(LONG, representation="linear", defaults=defaults))
        n = len(told())
        play(sqlite, after, spec=None)
        assert len(told()) == n  # what was told is not told again


def test_over_http_settings_are_strict_and_drifts_are_a_metric(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        for wrong in ({"forget": "sometimes"}, {"representation": "trees"}, {"forget": None}, {"representation": 1}):
            answer = client.post("/v1/policies", POLICY | wrong)
            assert (answer.status, answer.json["code"]) == (422, "invalid")
            assert next(iter(wrong)) in answer.json["detail"]
        refused = client.post("/v1/policies", POLICY | {"representation": "auto", "cost_link": "logistic"})
        assert refused.status == 422
        assert "representation" in refused.json["detail"]
        made = client.post("/v1/policies", POLICY | {"representation": "linear"}).json
        assert (made["forget"], made["representation"]) == ("auto", "linear")
        assert client.get("/v1/policies/p").json["representation"] == "linear"
        summary = client.get("/v1/policies/p/summary").json
        assert (summary["drifts"], summary["drifted"]) == (0, [])
        assert set(summary["samples_in_use"]) == {"model", "human", "cost of human"}
        lines = client.get("/metrics").body.decode().splitlines()
        assert 'deferkit_drifts_total{policy="p",target="cost of human"} 0.0' in lines


def test_what_has_drifted_is_counted_by_target(sqlite: Sqlite) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, range(300))
        await live(engine, range(300, 450), right=0.0)
        times = engine.owned[KEY].policy.learner.drifts()[0].times
        lines = await asyncio.to_thread(lambda: metrics_of(engine, Traffic(), "default").splitlines())
        assert f'deferkit_drifts_total{{policy="p",target="model"}} {float(times)}' in lines
        assert 'deferkit_drifts_total{policy="p",target="human"} 0.0' in lines

    sqlite.synchronous = "OFF"
    play(sqlite, script, spec=msgspec.structs.replace(LONG, representation="linear"))
