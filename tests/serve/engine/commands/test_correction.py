"""Answers that reviewers correct: rewards of the rule and costs follow, once, and everything else stands."""

from typing import Any

import msgspec
import pytest

from deferkit.serve.api.policies import EraseBody
from deferkit.serve.api.reviews import AnswerCorrectionBody
from deferkit.serve.api.tasks import CorrectionBody
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.review import ReviewDocument
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.commands.correction import Correct
from deferkit.serve.engine.commands.review import CorrectAnswer
from deferkit.serve.engine.commands.upkeep import Erase
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import (
    KEY,
    SPEC,
    account,
    call,
    claim,
    complete,
    decide,
    observe,
    play,
    problem_of,
    replayed,
)

FORM = {
    "form": [
        {"name": "label", "kind": "choice", "options": [{"value": "ham"}, {"value": "spam"}]},
        {"name": "why", "kind": "text", "required": False},
    ]
}
TABLE = {"kind": "table", "rewards": {"spam": {"ham": {"model": 0.0, "human": 0.75}}, "ham": {"ham": {"model": 1.0}}}}


def policy(rule: dict[str, Any] | None = None, **changed: Any) -> PolicySpec:
    document = msgspec.convert(FORM | {"reward_rule": rule or {"kind": "match"}}, ReviewDocument)
    return msgspec.structs.replace(SPEC, review=document, **changed)


HAM, SPAM = {"label": "ham"}, {"label": "spam"}


async def correct(engine: Engine, claimed: Any, answer: Any, request: str = "c", **given: Any) -> Any:
    lease = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
    return await call(engine, CorrectAnswer(AnswerCorrectionBody(**lease, id=request, answer=answer, **given)))


def check_whole(engine: Engine) -> None:
    assert replayed(engine.store) == engine.owned[KEY].policy
    assert replay(engine.store, *KEY).faults == []


def row(engine: Engine, task: str = "t") -> Any:
    return engine.store.decision(engine.owned[KEY].id, task)


def test_an_answer_is_replaced_with_its_rewards_and_its_cost(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", model_answer="ham")
        claimed = await claim(engine)
        assert (await problem_of(correct(engine, claimed, SPAM))).status == 409  # not completed yet
        await complete(engine, claimed, answer=HAM, cost=0.5)
        assert row(engine).rewards == {"human": 1.0, "model": 1.0}
        reply = await correct(engine, claimed, SPAM, cost=0.75)
        wanted = {"human": 1.0, "model": 0.0}
        assert reply == {
            "task": "t", "seat": 0, "finished": True, "learned": True, "rewards": wanted, "cost": 0.75,
        }  # fmt: skip
        assert (row(engine).rewards, row(engine).answer) == (wanted, '{"label":"spam"}')
        assert account(engine).posted == 750_000
        seq = engine.owned[KEY].policy.seq
        assert await correct(engine, claimed, SPAM, cost=0.75) == reply
        assert (await problem_of(correct(engine, claimed, HAM))).status == 409  # the id is taken
        assert engine.owned[KEY].policy.seq == seq
        samples = engine.owned[KEY].policy.learner.summary().samples
        assert (samples["model"], samples["human"]) == (1, 1)
        assert (await correct(engine, claimed, {"label": "ham", "why": "…"}, "d"))["cost"] == 0.75
        assert row(engine).rewards == {"human": 1.0, "model": 1.0}
        for bad in ({"label": "eggs"}, "ham", None):
            assert (await problem_of(correct(engine, claimed, bad, "e"))).status == 422
        assert (await problem_of(correct(engine, claimed | {"token": "x"}, HAM, "e"))).status == 403
        assert (await problem_of(correct(engine, claimed | {"epoch": 2}, HAM, "e"))).status == 404
        assert (await problem_of(correct(engine, claimed, HAM, "e", cost=1e9))).status == 403
        assert row(engine).rewards == {"human": 1.0, "model": 1.0}
        check_whole(engine)

    play(database, script, spec=policy())


def test_before_the_last_answer_only_the_answer_changes(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", model_answer="ham", reviewers=3)
        first, second, third = [await claim(engine, name) for name in ("ann", "bo", "cy")]
        await complete(engine, first, answer=HAM, cost=0.1)
        reply = await correct(engine, first, SPAM, cost=0.2)
        assert (reply["finished"], reply["learned"], reply["rewards"], reply["cost"]) == (False, False, {}, None)
        await complete(engine, second, answer=SPAM, cost=0.1)
        await complete(engine, third, answer=HAM, cost=0.1)
        assert row(engine).rewards == {"human": pytest.approx(2 / 3), "model": 0.0}
        assert row(engine).cost == {"cost": 400_000}
        reply = await correct(engine, second, {"label": "ham", "why": "x"}, "d", cost=0.3)
        assert reply["rewards"] == {"human": pytest.approx(2 / 3), "model": 1.0}
        assert (row(engine).cost, row(engine).answer) == ({"cost": 600_000}, '{"label":"ham","why":"x"}')
        assert account(engine).posted == 600_000
        check_whole(engine)

    play(database, script, spec=policy())


def test_what_was_reported_or_corrected_goes_before_the_rule(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", model_answer="ham")
        await observe(engine, "t", rewards={"model": 1.0})  # the same as the rule would say
        first = await claim(engine)
        await complete(engine, first, answer=HAM, rewards={"human": 0.25}, cost=0.5)
        assert (await correct(engine, first, SPAM))["rewards"] == {"model": 1.0, "human": 0.25}
        await decide(engine, "u", model_answer="ham")
        second = await claim(engine)
        await complete(engine, second, answer=HAM, cost=0.5)
        await call(engine, Correct(CorrectionBody(id="x", task="u", rewards={"model": 0.5})))
        reply = await correct(engine, second, SPAM, "d")
        assert reply["rewards"] == {"human": 1.0, "model": 0.5}
        check_whole(engine)

    play(database, script, spec=policy())


def test_a_table_may_give_more_rewards_to_the_new_answer(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", model_answer={"label": "ham", "score": 0.9})
        claimed = await claim(engine)
        await complete(engine, claimed, answer=HAM)
        assert (row(engine).rewards, row(engine).state) == ({"model": 1.0}, "open")
        reply = await correct(engine, claimed, SPAM, cost=0.5)  # the first cost that is reported
        assert (reply["rewards"], reply["cost"]) == ({"model": 0.0, "human": 0.75}, 0.5)
        assert (row(engine).state, account(engine).reserved) == ("posted", 0)
        check_whole(engine)
        await call(engine, Erase(EraseBody(task="t")))
        problem = await problem_of(correct(engine, claimed, HAM, "d"))
        assert (problem.status, "erased" in str(problem)) == (409, True)
        assert row(engine).rewards == {"model": 0.0, "human": 0.75}
        check_whole(engine)

    play(database, script, spec=policy(TABLE))


def test_a_slip_above_the_ceiling_is_corrected_by_who_made_it(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", model_answer="ham")
        claimed = await claim(engine)
        await complete(engine, claimed, answer=HAM, cost=500)
        assert engine.owned[KEY].policy.unconfirmed == {"t": {"cost": 500_000_000}}
        assert (await problem_of(correct(engine, claimed, HAM, cost=400))).status == 403
        assert (await correct(engine, claimed, SPAM, "d"))["cost"] is None  # not the cost
        reply = await correct(engine, claimed, SPAM, "e", cost=0.5)
        assert (reply["cost"], engine.owned[KEY].policy.unconfirmed) == (0.5, {})
        assert account(engine).posted == 500_000
        check_whole(engine)

    play(database, script, spec=policy())


def test_a_policy_without_a_form_takes_corrections_too(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t", reviewers=2)
        first, second = [await claim(engine, name) for name in ("ann", "bo")]
        await complete(engine, first, answer="a", rewards={"human": 1.0}, cost=0.5)
        await complete(engine, second, answer="b", cost=0.5)
        assert row(engine).answer == '"a"'
        assert (await correct(engine, first, "b"))["rewards"] == {"human": 1.0}
        assert row(engine).answer == '"b"'
        check_whole(engine)

    play(database, script)


def test_a_label_that_was_missing_comes_with_another_cost_than_the_one_that_waits(database: Database) -> None:
    document = msgspec.convert(
        {"form": [{"name": "label", "kind": "text", "required": False}], "reward_rule": {"kind": "match"}},
        ReviewDocument,
    )

    async def script(engine: Engine) -> None:
        await decide(engine, "t", model_answer="ham")
        claimed = await claim(engine)
        assert (await complete(engine, claimed, answer={}, cost=30))["unconfirmed"] == 30
        assert row(engine).rewards == {}
        before = engine.owned[KEY].policy.seq
        assert (await problem_of(correct(engine, claimed, SPAM, cost=25))).status == 403
        assert engine.owned[KEY].policy.seq == before
        reply = await correct(engine, claimed, SPAM, cost=0.5)
        assert (reply["learned"], reply["rewards"], reply["cost"]) == (True, {"human": 1.0, "model": 0.0}, 0.5)
        assert account(engine).posted == 500_000
        assert engine.owned[KEY].policy.unconfirmed == {}
        check_whole(engine)

    play(database, script, spec=msgspec.structs.replace(SPEC, review=document))
