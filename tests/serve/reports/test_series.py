"""The plan on the picture of spending, for budgets that renew or have an end: against the rows of the log."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from deferkit.serve.api.policies import BudgetBody
from deferkit.serve.api.reports import SeriesReply
from deferkit.serve.domain import records
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.commands.policy import ChangeBudget
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.reports.budgets import tasks_left
from deferkit.serve.reports.history import LogFold
from deferkit.serve.reports.series import series_reply
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import HOUR, KEY, by_hand, call, dated, decide, observe, play, renewing

QUIET = EngineSettings(tick_s=1e9)
UNTIL = 2.0e9


class Played(NamedTuple):
    reply: SeriesReply
    rows: list[dict[str, Any]]  # bodies of the log, with `at` in seconds
    left: float  # tasks that the learner expects until the end of the period


async def told(engine: Engine) -> Played:
    owned = engine.owned[KEY]
    lines, fold = list(engine.store.log(owned.id)), LogFold(lambda *_: [])
    for line in lines:
        fold.apply(line.at, records.decode(line.body))
    left = tasks_left(owned, owned.policy.periods)
    reply = series_reply(fold, 2000, len(lines), left)
    assert series_reply(fold, 2000, len(lines)).plan["cost"] != reply.plan["cost"] or not left["cost"]
    return Played(reply, [json.loads(line.body) | {"at": line.at / 1e6} for line in lines], left["cost"] or 0.0)


def planned(rows: Sequence[dict[str, Any]], at: float, left: float) -> float:
    """Return what even spending over the tasks of the period that a time lies in would have spent, row by row."""
    posted = total = begun = 0.0
    tasks: list[int] = []  # of each period
    seen = 0
    for row in rows:
        before = row["at"] < at
        if row["kind"] == "renewed":
            tasks.append(0)
            if before:
                period, begun, seen = len(tasks) - 1, posted, 0
                total += (row["granted"] - row["lapsed"]) / 1e6
        elif row["kind"] == "decided":
            tasks[-1] += 1
            seen += before
        elif row["kind"] == "observed" and before:
            posted += row["cost"]["cost"] / 1e6
        elif row["kind"] == "budget" and before:
            total = row["totals"]["cost"] / 1e6
        elif row["kind"] == "created" and "until" in row["spec"]["budget"]["cost"]:
            total = row["spec"]["budget"]["cost"]["total"]
    expected = tasks[period] + (left if period == len(tasks) - 1 else 0)
    return begun + (total - begun) * seen / expected


@pytest.mark.parametrize(
    "spec", [renewing(), renewing(carry=1.0), renewing(carry=None), dated(UNTIL)], ids=["lapses", "1", "all", "until"]
)
def test_the_plan_of_a_period_is_even_over_its_tasks(database: Database, spec: PolicySpec) -> None:
    async def script(engine: Engine) -> Played:
        clock = by_hand(engine)
        clock.at = int((UNTIL - 4 * HOUR) * 1e6)
        for number in range(24):
            await decide(engine, f"t{number}", force="model" if number % 4 else "human")
            if number % 4 == 0:
                await observe(engine, f"t{number}", cost=0.25 + number / 128)
            if number == 10:
                await call(engine, ChangeBudget(BudgetBody(id="more", add=2)))
            clock.advance(HOUR * (0.02 if number % 3 else 0.35))  # two and a half periods; most tasks come in bursts
        return await told(engine)

    reply, rows, left = play(database, script, spec=spec, settings=QUIET)
    assert left > 1
    plan = reply.plan["cost"]
    assert plan is not None
    ends = [start + reply.width_s for start in reply.start]
    assert plan == pytest.approx([planned(rows, at, left) for at in ends])


def test_the_current_period_has_no_plan_until_the_log_is_read(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "t")
        fold = LogFold(lambda *_: [])
        lines = list(engine.store.log(engine.owned[KEY].id))
        for line in lines:
            fold.apply(line.at, records.decode(line.body))
        assert series_reply(fold, 9, len(lines), {"cost": 9.0}).plan["cost"] == pytest.approx([0.3])
        assert series_reply(fold, 9, len(lines) + 1, {"cost": 9.0}).plan["cost"] == [None]  # it is not known whose 9

    play(database, script, spec=renewing(), settings=QUIET)
