"""An upgrade gives a policy another default rule: compared before, in the log, replayed bit for bit, and undone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import msgspec
import numpy as np
import pytest

from deferkit import Budget, Client
from deferkit.errors import InvalidArgument
from deferkit.serve.api.policies import ResetBody, UpgradeBody
from deferkit.serve.api.tasks import CorrectionBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import upgraded_spec
from deferkit.serve.domain.problems import Problem
from deferkit.serve.domain.records import decode
from deferkit.serve.domain.spec import BudgetSpec, FeatureSpec, PolicyChange, PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.policy import ChangePolicy
from deferkit.serve.engine.commands.relearn import ResetLearner, forget_task, upgrade_policy
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.cli.test_replay import Run, run
from tests.serve.harness.in_process import (
    KEY,
    POLICY,
    SPEC,
    call,
    check_booked,
    decide,
    observe,
    play,
    replayed,
    running,
)
from tests.serve.harness.service_process import ServiceProcess

__all__ = ["run"]

BUDGET = {"cost": BudgetSpec(total=40, horizon=400, max_cost=1)}
OLD = msgspec.structs.replace(SPEC, budget=BUDGET, defaults="2026.11", representation="linear", warm_up=5)
NEW = msgspec.structs.replace(SPEC, budget=BUDGET, representation="linear", warm_up=5)
UPGRADE, UNDO = UpgradeBody(), UpgradeBody(defaults="2026.11")


async def live(engine: Engine, first: int, last: int) -> list[Any]:
    """Decide tasks as the policy does, and observe 0/1 rewards; return the decisions."""
    made = []
    for i in range(first, last):
        rng = np.random.default_rng([3, i])
        context = rng.random(2).round(6).tolist()
        made.append(await decide(engine, f"t{i}", context=context, force=None))
        known: dict[str, Any] = {"rewards": {"model": float(rng.random() < context[0]), "human": 1.0}}
        if made[-1]["route"] == "human":
            known["cost"] = round(float(rng.random()), 6)
        await observe(engine, f"t{i}", **known)
    return made


def check_replay(engine: Engine) -> Policy:
    policy = engine.owned[KEY].policy
    assert replayed(engine.store) == policy == Policy.from_bytes(policy.to_bytes())
    assert replay(engine.store, *KEY).faults == []
    check_booked(engine)
    return policy


def test_an_upgraded_policy_is_the_one_that_had_the_rule_from_its_start(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 120)
        before, accounts = engine.owned[KEY].policy.learner.to_bytes(), engine.owned[KEY].policy.accounts
        reply = await upgrade_policy(engine, KEY, UPGRADE)
        made = msgspec.json.decode(reply.body, type=PolicySpec)
        assert (made.defaults, made.link, made.ranks) == ("2026.12", "auto", True)
        policy = check_replay(engine)
        assert policy.spec == made
        assert policy.accounts == accounts
        assert policy.learner.settings.defaults == "2026.12"
        assert policy.learner.summary().decisions == 120
        records = policy.seq
        assert msgspec.json.decode((await upgrade_policy(engine, KEY, UPGRADE)).body, type=PolicySpec) == made
        assert engine.owned[KEY].policy.seq == records  # the same again changes nothing
        # what was learned is what the same records give to a policy that was made with the new rule
        rebuilt = Policy(made)
        for line in engine.store.log(engine.owned[KEY].id):
            rebuilt.take(decode(bytes(line.body)), line.at, bytes(line.body))
        assert rebuilt.to_bytes() == policy.to_bytes()
        await upgrade_policy(engine, KEY, UNDO)
        assert check_replay(engine).learner.to_bytes() == before  # bit for bit
        assert (await engine.create("default", OLD)).status == 201  # no conflict, before and after
        await live(engine, 120, 140)
        check_replay(engine)

    play(database, script, spec=OLD)


def test_decisions_after_an_upgrade_are_replayed_after_a_restart(tmp_path: Path) -> None:
    """The log gives the same policy, whichever snapshots there are."""
    path = str(tmp_path / "a.db")

    async def first(engine: Engine) -> bytes:
        await live(engine, 0, 60)
        await upgrade_policy(engine, KEY, UPGRADE)
        await live(engine, 60, 110)  # the rank tables are completed
        await call(engine, Correct(CorrectionBody(id="c", task="t7", rewards={"human": 0.5})))  # another link
        await live(engine, 110, 120)
        return check_replay(engine).to_bytes()

    async def second(engine: Engine) -> bytes:
        return check_replay(engine).to_bytes()

    before = play(Sqlite(path), first, spec=OLD)
    assert play(Sqlite(path), second, spec=None) == before
    apsw.Connection(path).execute("DELETE FROM snapshots")
    assert play(Sqlite(path), second, spec=None) == before


def test_upgrades_beside_changes_resets_and_forgotten_tasks(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 20)
        await call(engine, ChangePolicy(PolicyChange(lease_s=60)))
        await forget_task(engine, KEY, "t3")
        await upgrade_policy(engine, KEY, UPGRADE)
        assert check_replay(engine).spec.lease_s == 60
        await live(engine, 20, 30)
        await call(engine, ChangePolicy(PolicyChange(lease_s=90)))
        await forget_task(engine, KEY, "t5")
        policy = check_replay(engine)
        assert (policy.spec.lease_s, policy.spec.defaults, policy.relearned.forgotten) == (90, "2026.12", [3, 5])
        await call(engine, ResetLearner(ResetBody(id="r")))
        assert engine.owned[KEY].policy.learner.settings.defaults == "2026.12"
        await live(engine, 30, 40)
        await upgrade_policy(engine, KEY, UNDO)
        policy = check_replay(engine)
        assert (policy.spec.defaults, policy.spec.lease_s) == ("2026.11", 90)
        await live(engine, 40, 45)
        await upgrade_policy(engine, KEY, UPGRADE)
        check_replay(engine)

    play(database, script, spec=OLD)


def test_decisions_go_on_while_a_policy_is_upgraded(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await live(engine, 0, 30)
        await asyncio.gather(upgrade_policy(engine, KEY, UPGRADE), live(engine, 30, 90))
        assert check_replay(engine).spec.defaults == "2026.12"
        assert engine.owned[KEY].tail is None

    play(database, script, spec=OLD)


def test_an_upgrade_that_needs_too_much_memory_is_refused(sqlite: Sqlite) -> None:
    spec = msgspec.structs.replace(OLD, features=50, memory=1000)

    async def script(engine: Engine) -> None:
        engine.policy_creation.most_memory = engine.store.memory_taken("default") + 1
        with pytest.raises(Problem) as caught:
            await upgrade_policy(engine, KEY, UPGRADE)
        assert caught.value.status == 409
        assert engine.owned[KEY].tail is None
        engine.policy_creation.most_memory = None
        before = engine.store.memory_taken("default")
        await upgrade_policy(engine, KEY, UPGRADE)
        assert engine.store.memory_taken("default") > before

    play(sqlite, script, spec=spec, settings=EngineSettings(tick_s=1e9))


NAMED = FeatureSpec(numbers=["sure"], categories={"kind": ["a", "b"]})


@pytest.mark.parametrize(
    ("given", "body", "gets"),
    [
        ({}, {}, {"defaults": "2026.12", "link": "auto", "rule": "index", "forget": "auto", "ranks": True}),
        ({"link": "logistic"}, {}, {"link": "logistic"}),
        ({"forget": "never", "rule": "index"}, {}, {"forget": "never"}),
        ({"reward_range": (0.0, 5.0)}, {}, {"link": "identity"}),
        ({"features": NAMED}, {"confidence": "sure"}, {"confidence": "sure"}),
        ({"confidence": 1}, {"confidence": 1}, {"confidence": 1}),
        ({"defaults": "2026.12", "link": "auto", "confidence": 1, "ranks": True, "rule": "index"},
         {"defaults": "2026.11"},
         {"defaults": "2026.11", "link": "identity", "confidence": msgspec.UNSET, "ranks": msgspec.UNSET}),
    ],
)  # fmt: skip
def test_what_an_upgrade_changes(given: dict[str, Any], body: dict[str, Any], gets: dict[str, Any]) -> None:
    spec = msgspec.structs.replace(SPEC, **{"link": "identity"} | given)
    asked = msgspec.convert(body, UpgradeBody)
    made = upgraded_spec(spec, spec, asked.defaults, asked.confidence)
    assert {name: getattr(made, name) for name in gets} == gets
    assert (made.outliers, made.budget, made.retention_s) == (spec.outliers, spec.budget, spec.retention_s)
    assert upgraded_spec(spec, made, spec.defaults_used, spec.confidence) == spec  # undone


def test_a_policy_with_intervals_has_no_other_rule() -> None:
    spec = msgspec.structs.replace(SPEC, rule="interval", defaults="2026.11")
    with pytest.raises(InvalidArgument, match="no defaults other than 2026.11"):
        upgraded_spec(spec, spec, "2026.12", msgspec.UNSET)


def test_over_http(tmp_path: Path) -> None:
    with running(tmp_path) as service, Client(service.url, policy="p") as client:
        owner = service.client()
        assert owner.post("/v1/policies", POLICY | {"defaults": "2026.11"}).status == 201
        client.observe(client.decide([1.0, 0.5], task="a", force="human"), {"human": 1.0}, cost=0.5)
        assert client.upgrade(confidence=1)["confidence"] == 1
        assert client.settings()["defaults"] == "2026.12"
        assert client.upgrade("2026.11")["defaults"] == "2026.11"
        kinds = [row["kind"] for row in owner.get("/v1/policies/p/log").json["rows"]]
        assert kinds == ["created", "decided", "observed", "upgraded", "upgraded"]
        wrong = [{"defaults": "2025.01"}, {"defaults": None}, {"confidence": "a"}, {"confidence": 7}, {"apply": True}]
        for body in wrong:
            answer = owner.post("/v1/policies/p/upgrade", body)
            assert (answer.status, answer.json["code"]) == (422, "invalid"), body
        assert owner.post("/v1/policies/nobody/upgrade", {}).status == 404


def test_the_command_compares_then_applies_then_undoes(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "deferkit.db")

    async def script(engine: Engine) -> None:
        await live(engine, 0, 150)

    play(Sqlite(path), script, spec=OLD)
    before = Path(path).read_bytes()
    code, out, err = run("upgrade", "p", "--store", path, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["before"], found["after"], found["applied"]) == ("2026.11", "2026.12", False)
    assert [row["budget"] for row in found["rows"]] == ["as it was", "rule 2026.11", "rule 2026.12"]
    assert found["rows"][1]["spent"] == found["rows"][0]["spent"]  # the rule of the log takes the same decisions
    assert found["rows"][1]["difference"] == 0.0
    assert 0.0 < found["equal_routes"] <= 1.0
    assert found["rows"][2]["spent"]["cost"] > 0
    assert Path(path).read_bytes() == before
    code, out, err = run("upgrade", "p", "--store", path, "--apply")
    assert (code, err) == (0, "")
    assert "defaults: 2026.11 → 2026.12" in out
    assert "to the same decider" in out
    assert "The policy has the rule 2026.12 from now on." in out
    assert run("replay", "p", "--store", path)[0] == 0
    assert "has this rule already" in run("upgrade", "p", "--store", path, "--apply")[1]
    code, out, _ = run("upgrade", "p", "--store", path, "--defaults", "2026.11", "--apply", "--json")
    assert (code, json.loads(out)["applied"]) == (0, True)
    report = replay(Store(Sqlite(path)), *KEY)
    assert report.policy is not None
    assert (report.faults, report.policy.spec.defaults) == ([], "2026.11")
    for wrong in (["--defaults", "1.0"], ["--confidence", "7"]):
        assert run("upgrade", "p", "--store", path, *wrong)[0] == 2


def test_the_command_upgrades_a_running_service(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "served.db"
    with ServiceProcess(tmp_path, store=store) as service, service.client("p") as client:
        client.create(features=2, budget=Budget(10, horizon=100, max_cost=1), defaults="2026.11")
        client.decide([1.0, 0.5])
        code, _, err = run("upgrade", "p", "--store", str(store), "--apply")
        assert code == 2
        assert "name it with --service" in err
        assert client.settings()["defaults"] == "2026.11"
        code, _, err = run("upgrade", "p", "--store", str(store), "--apply", "--service", service.url)
        assert (code, err) == (0, "")
        assert client.settings()["defaults"] == "2026.12"
