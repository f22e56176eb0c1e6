"""What pending reviews keep back of a planned budget."""

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from deferkit.cli.commands import app
from deferkit.study.plan_holds import hold_text
from deferkit.worlds import WORLDS
from deferkit.worlds.task_stream import TaskStream


class HeavyTail:
    """400 tasks: the human gains 1 on every second one, and costs 1, but 91 on one in a hundred: 1.9 on average."""

    def __init__(self, **_: Any) -> None:
        pass

    def parameters(self) -> dict[str, Any]:
        return {}

    def draw(self, seed: int) -> TaskStream:
        kind = np.random.default_rng(seed).permutation(400)
        costs = np.where(kind % 100 == 1, 91.0, 1.0)
        rewards = np.column_stack([kind % 2, np.ones(400)])
        return TaskStream(np.eye(2)[kind % 2], rewards, costs[:, None, None])


def test_the_plan_of_a_heavy_tail_says_what_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORLDS, "tail", HeavyTail)
    given = [
        "plan",
        "tail",
        "--policy",
        "linear",
        "--trials",
        "1",
        "--out",
        str(tmp_path),
        "--unit",
        "minutes",
        "--json",
    ]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    [said] = [each for each in data["remarks"] if "pending review" in each]
    learner = data["curves"][1]
    known = [*learner["needed"], *learner["needed_of_own"]]
    budget = next(each["budget"] for each in known if each["level"] == 95 and each["budget"] is not None)
    assert "as the dearest here, 91 minutes (48 times the mean)" in said
    assert f"which is {100 * 91 / budget:.0f} % of {budget:.0f} minutes" in said
    assert f"so that {int(budget // 91)} can be pending at most" in said
    assert said in html.unescape((tmp_path / "plan.html").read_text()).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("dearest", "budget", "said"),
    [
        (91.0, 10_000.0, "which is 0.9 % of 10,000: 10 of them hold 9.1 %. Where"),
        (91.0, 900.0, "which is 10 % of 900, so that 9 can be pending at most. Where"),
        (91.0, 50.0, "which is 182 % of 50, so that nobody could be asked. Where"),
        (91.0, 10_000.0, "the hold 'auto' is about 5.7: 10 of them hold 0.6 %."),  # three times the mean
        (91.0, 300.0, "the hold 'auto' is about 3: 10 of them hold 10 %."),  # a hundredth of the budget
        (91.0, 100.0, "the hold 'auto' is about 1.9: 10 of them hold 19 %."),  # the mean
    ],
)
def test_holds_by_hand(dearest: float, budget: float, said: str) -> None:
    [text] = hold_text(np.array([1.0] * 99 + [dearest]), budget)
    assert said in text


def test_nothing_is_said_where_a_review_holds_about_what_it_costs() -> None:
    assert hold_text(np.array([1.0, 2.0, 3.0]), 100.0) == []
    assert hold_text(np.array([1.0] * 99 + [91.0]), None) == []
    assert hold_text(np.zeros(5), 0.0) == []
