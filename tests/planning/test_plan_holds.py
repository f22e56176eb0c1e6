"""What pending reviews keep back of a planned budget."""

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from deferkit import Budget, Deferrer
from deferkit.cli.app import add_commands
from deferkit.planning.text import hold_text
from deferkit.worlds import WORLDS
from deferkit.worlds.base import TaskStream
from tests.command_line import Runner

app = add_commands()


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
    assert "the most expensive here, 91 minutes (48 times the mean)" in said
    assert f"which is {100 * 91 / budget:.0f} % of {budget:.0f} minutes" in said
    assert f"so that {int(budget // 91)} can be pending at most" in said
    assert said in html.unescape((tmp_path / "plan.html").read_text()).replace("\u00a0", " ")
    [proposal] = [each for each in data["remarks"] if "times the mean. If reviews" in each]
    assert proposal.endswith(f"deferkit run tail --budget {budget:.6g} --hold auto")


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


def heavy_table(folder: Path, n: int = 400) -> str:
    """Write a table whose largest cost is 50 times the mean."""
    rng = np.random.default_rng(0)
    cost = rng.lognormal(0, 0.5, n)
    cost[7] = 0.0
    cost *= (n - 50) / cost.sum()
    cost[7] = 50.0
    score = rng.random(n)
    right, human = rng.random(n) < 0.4 + 0.5 * score, rng.random(n) < 0.95
    lines = [f"{s:.3f},{r:d},{h:d},{c:.4f}" for s, r, h, c in zip(score, right, human, cost, strict=True)]
    path = folder / "tail.csv"
    path.write_text("x_score,model_reward,human_reward,minutes\n" + "\n".join(lines) + "\n")
    return str(path)


def test_run_proposes_a_hold_with_the_command_to_type(tmp_path: Path, said: Runner) -> None:
    path = heavy_table(tmp_path)
    asked = ("run", path, "--cost", "minutes", "--trials", "1", "--policy", "linear")
    done = said(*asked)
    assert done.code == 0, done.error
    text = " ".join(done.out.split())
    assert "The largest cost is 50 times the mean. If reviews can be stopped, less need be kept back:" in text
    command = f"deferkit run {path} --cost minutes --budget 10% --hold auto"
    assert command.replace(" ", "") in text.replace(" ", "")
    typed = said(*command.split()[1:], "--trials", "1", "--policy", "linear", "--json")
    assert typed.code == 0, typed.error
    assert "times the mean. If reviews" not in typed.error
    [row] = json.loads(typed.out)
    assert row["spent_pct"] > 90
    [before] = json.loads(said(*asked, "--json").out)
    assert before["spent_pct"] < 50
    enough = said(*asked, "--budget", "200%")  # nothing is kept back that would be missed
    assert "times the mean. If reviews" not in enough.out


def test_heavy_costs_are_spent_where_reviews_can_be_stopped() -> None:
    """The largest cost is 50 times the mean, the budget 10 %: in 20 streams of 1,500 tasks 69 % and 99 % are spent."""
    spent: dict[str | None, list[float]] = {None: [], "auto": []}
    gained: dict[str | None, list[float]] = {None: [], "auto": []}
    n = 1_500
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sure = rng.beta(4, 1.5, n)
        right, human = (rng.random(n) < 0.35 + 0.6 * sure).astype(float), (rng.random(n) < 0.95).astype(float)
        costs = rng.lognormal(0, 0.5, n) * np.where(rng.random(n) < 0.01, 15, 1)
        costs = np.minimum(costs / costs.mean(), 50.0)
        costs[rng.integers(n)] = 50.0
        contexts = np.column_stack([np.ones(n), sure])
        for hold, shares in spent.items():
            budget = Budget(0.1 * costs.sum(), horizon=n, max_cost=50.0, hold=hold)
            learner = Deferrer(n_features=2, budget=budget, seed=seed, defaults="2026.12")
            run = learner.run(contexts, {"model": right, "human": human}, costs)
            done = (run.routes > 0) & (run.costs[:, 0] >= costs)
            assert run.costs.sum() <= budget.total + 1e-9
            shares.append(run.costs.sum() / budget.total)
            gained[hold].append((human - right)[done].sum())
    assert np.mean(spent["auto"]) > 0.95
    assert min(spent["auto"]) > 0.9
    assert np.mean(spent[None]) < 0.8
    assert np.mean(gained["auto"]) > 1.2 * np.mean(gained[None])
