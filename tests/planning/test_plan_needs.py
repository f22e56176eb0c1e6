"""Needed budgets are solved for, the answer opens with what a budget brings, and a plan says what it cannot tell."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit import Deferrer, NeuralEmbedding
from deferkit.learn.representation_text import representation_text
from deferkit.planning import plan as solve_module
from deferkit.planning.plan import (
    LEVELS,
    ROUNDS,
    SHARES,
    TIGHT,
    Curve,
    Measured,
    Need,
    Plan,
    Point,
    check_plannable,
    need,
    next_shares,
    next_trials,
    plan_of,
    plan_trials,
)
from deferkit.planning.text import describe_gain, headline, remarks
from deferkit.study.achievable import Achievable
from deferkit.study.runner import run_study
from deferkit.worlds import make_world
from tests.command_line import Runner
from tests.conftest import november_deferrer
from tests.table_files import many, written

EVERYTHING = 5_000.0


def measured(shares: list[float], bend: float, chance: float) -> Measured:
    """Return a concave curve at these shares, with noise that is the same whenever a share is measured again."""
    gained = [
        100 * (1 - math.exp(-share / bend)) + chance * float(np.random.default_rng(int(share * 1e6)).standard_normal())
        for share in shares
    ]
    budgets = [share / 100 * EVERYTHING for share in shares]
    none = [0.0] * len(shares)
    return Measured(budgets, shares, gained, none, none, none, [(budgets, gained)])


def solve(level: float, bend: float, chance: float) -> tuple[Need, int]:
    shares = [float(share) for share in SHARES]
    for turn in range(ROUNDS):
        found = need(level, measured(shares, bend, chance), 100.0, [100.0])
        more = next_shares(found, EVERYTHING, halve=turn % 2 == 1)
        if not more:
            return found, turn
        assert not set(more) & set(shares)
        shares = sorted({*shares, *more})
    return need(level, measured(shares, bend, chance), 100.0, [100.0]), ROUNDS


@given(level=st.sampled_from(LEVELS), bend=st.floats(0.5, 15.0))
def test_a_needed_budget_is_solved_for(level: float, bend: float) -> None:
    """1 − exp(−share/bend) reaches a level at −bend·log(1 − level); straight lines between the 17 budgets are off."""
    found, rounds = solve(level, bend, 0.0)
    true = -bend * math.log(1 - level / 100) / 100 * EVERYTHING
    assert found.budget == pytest.approx(true, rel=TIGHT)
    assert found.below is not None
    assert found.above is not None
    assert found.below <= true * (1 + 1e-9)
    assert found.above >= true * (1 - 1e-9)
    assert found.above - found.below <= max(TIGHT * found.above, 0.02 / 100 * EVERYTHING) + 1e-9
    assert rounds <= ROUNDS


def test_straight_lines_alone_would_be_off() -> None:
    found = need(90.0, measured([float(share) for share in SHARES], 7.0, 0.0), 100.0, [100.0])
    true = -7.0 * math.log(0.1) / 100 * EVERYTHING
    assert found.budget is not None
    assert found.budget > 1.02 * true


@given(seed=st.integers(0, 50))
def test_noise_ends_too(seed: int) -> None:
    found, rounds = solve(95.0, 5.0 + seed / 10, 1.5)
    assert rounds <= ROUNDS
    assert found.budget is None or found.budget > 0


def test_what_is_never_reached_needs_no_more_trials() -> None:
    found = need(95.0, measured([0.0, 50.0, 100.0], 1_000.0, 0.0), 100.0, [100.0])
    assert found.budget is None
    assert next_shares(found, EVERYTHING, halve=False) == []


def test_every_shown_policy_is_solved_for_and_random_is_not(tmp_path: Path) -> None:
    path = many(tmp_path, 600)
    trials = plan_trials(path, {}, policy="linear", seeds=range(2), achievable=True)
    plan = plan_of(run_study(trials), learner="linear", n_tasks=600, right=True)
    more = next_trials(plan, trials, halve=False)
    assert {spec.policy for spec, _ in more} >= {"linear", "achievable", "opt"}
    assert "random" not in {spec.policy for spec, _ in more}
    assert {seed for _, seed in more} == {0, 1}
    assert not {spec.budget for spec, _ in more} & {f"{share}%" for share in SHARES}
    again = plan_of(run_study([*trials, *more]), learner="linear", n_tasks=600, right=True)
    assert again.shares == tuple(float(share) for share in SHARES)
    assert len(again.learner.points) > len(SHARES)
    # a budget on the grid has the same price, whatever was measured beside it
    by_share = {point.share: point.price for point in again.learner.points}
    assert [by_share[point.share] for point in plan.learner.points] == [point.price for point in plan.learner.points]


def test_of_many_tasks_only_the_learner_is_solved_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = many(tmp_path, 600)
    trials = plan_trials(path, {}, policy="linear", seeds=range(2), achievable=True)
    plan = plan_of(run_study(trials), learner="linear", n_tasks=600, right=True)
    monkeypatch.setattr(solve_module, "MAX_EXTRA", 3 * 600 * 2 + 2 * 600 * 2)  # three budgets, and two without a limit
    more = next_trials(plan, trials, halve=False)
    assert [(spec.policy, seed) for spec, seed in more] == [("linear", seed) for seed in (0, 1) for _ in range(3)]
    assert next_trials(plan, [*trials, *more], halve=True) == []


def test_the_command_solves_within_two_per_cent(tmp_path: Path, said: Runner) -> None:
    path = many(tmp_path, 1_500)
    done = said(
        "plan",
        path,
        "--policy",
        "linear",
        "--out",
        str(tmp_path / "out"),
        "--trials",
        "2",
        "--json",
        "--unit",
        "minutes",
    )
    assert done.code == 0, done.error
    data = json.loads(done.out)
    curves = {curve["policy"]: curve for curve in data["curves"]}
    assert list(curves) == ["opt", "linear", "achievable", "best-reject", "random"]
    solved = [each for name in ("opt", "linear", "achievable") for each in curves[name]["needed"] if each["budget"]]
    solved += [each for each in curves["linear"]["needed_of_own"] if each["budget"]]
    assert len(solved) >= 8
    for each in solved:
        assert each["below"] <= each["budget"] <= each["above"]
        assert each["above"] - each["below"] <= max(TIGHT * each["above"], 0.0003 * data["everything"])
    stream = make_world(path, {}).draw(0)
    best = Achievable(stream).at(math.inf)
    assert data["estimated"]
    assert data["possible"] == pytest.approx((best * stream.rewards).sum() - stream.rewards[:, 0].sum())
    assert data["hindsight"] == pytest.approx((stream.rewards.max(axis=1) - stream.rewards[:, 0]).sum())
    for curve in curves.values():
        by_share = {point["share"]: point for point in curve["points"]}
        at = by_share[10.0]
        top = next(point for point in curves["achievable"]["points"] if point["share"] == 10.0)
        assert at["of_achievable"] == pytest.approx(100 * at["gained"] / top["gained"], abs=0.2)
    assert re.fullmatch(r"(linear|ranks) \d+ %, (linear|ranks) \d+ %", data["representation"])
    assert f"linear rests on: {data['representation']}." in data["remarks"]
    assert "% right, + " in data["headline"]


class Mixture(Deferrer):
    """A learner with two representations."""

    def representation_shares(self) -> dict[str, dict[str, float]]:
        return {"model": {"linear": 0.1, "trees": 0.9}, "human": {"linear": 0.28, "trees": 0.72}}


def test_what_carried_a_learner() -> None:
    assert representation_text(november_deferrer(n_features=2)) == "linear"
    assert set(representation_text(Deferrer(n_features=2)).split()) >= {"linear", "ranks"}
    assert representation_text(Deferrer(n_features=2, embedding=NeuralEmbedding(hidden=3))) == "neural"
    assert representation_text(Mixture(n_features=2)) == "trees 81 %, linear 19 %"


def plan_with(point: dict[str, float], *, right: bool = True, off: float | None = 2_300.0) -> Plan:
    """Return a plan of 5,000 tasks whose learner has one point beside that of no budget."""
    nought = Point(0.0, 0.0, 3_985.0, None, 3_985.0, 3_985.0, 0.0, 1.0, 0.0, None, 0.0, 0.0, 0.0, 0.1)
    some = nought._replace(budget=762.0, share=10.0, spent=760.0, reached=50.0, of_achievable=60.0)._replace(**point)
    needs = tuple(Need(level, off, 30.0, 700.0, 14.0, 0.01, None, None, off, off) for level in LEVELS)
    made = Plan(5_000, (0, 1), 7_620.0, 3_985.0, 260.0, 800.0, True, right, "linear", ())
    curves = [Curve(name, (nought, some), needs, needs) for name in ("opt", "default", "achievable", "random")]
    return made._replace(curves=tuple(curves))


def test_the_answer_is_what_a_manager_asks_for() -> None:
    plan = plan_with({"reward": 4_115.0, "gained": 130.0})
    assert describe_gain(plan, "minutes") == (
        "With 762 minutes (10 % of reviewing everything): 79.7 → 82.3 % right, + 130 right answers; one more right"
        " answer for every 5.9 minutes; from 2,300 minutes on hardly anything."
    )
    assert headline(plan, "minutes").startswith(describe_gain(plan, "minutes") + " To get 95 % of what is achievable")
    assert describe_gain(plan, "").startswith("With a budget of 762 (10 %")
    assert "for every 5.9 of budget; from 2,300 on hardly anything." in describe_gain(plan, "")


def test_the_answer_for_other_rewards_and_odd_gains() -> None:
    gains = {"reward": 4_115.0, "gained": 130.0}
    assert "reward 3,985 → 4,115, + 130; one more unit of reward for every 5.9 h;" in describe_gain(
        plan_with(gains, right=False), "h"
    )
    assert describe_gain(plan_with({"reward": 3_980.0, "gained": -5.0}), "h").endswith(
        "79.6 % right: nothing is gained."
    )
    early = describe_gain(plan_with(gains | {"spent": 300.0}, off=200.0), "minutes")
    assert "+ 130 right answers (300 of it spent); one more right answer for every 2.3 minutes" in early
    assert early.endswith("; more than 200 minutes bring hardly anything.")
    assert describe_gain(plan_with(gains, off=7_600.0), "minutes").endswith("for every 5.9 minutes.")


def test_what_the_data_cannot_tell() -> None:
    plan = plan_with({"reward": 3_997.0, "gained": 12.0, "gained_se": 14.0})
    said = remarks(plan, better=12)
    assert "The human is better in 12 of 5,000 tasks: too few to tell from the context where." in said
    assert "+ 12 ± 14 (standard error) at best: 5,000 tasks cannot tell whether reviewing brings anything." in said
    assert said[-1] == "default rests on: linear."
    assert said[0] == (
        "Achievable from these columns: + 260 at most; with 10 % of reviewing everything default gets 60 % of what is"
        " achievable with as much. OPT, which knows every outcome in advance: + 800."
    )
    assert not any("too few" in each for each in remarks(plan, better=500))
    unforeseen = plan._replace(estimated=False, possible=800.0)
    assert any("No rule of these columns was found that gains anything" in each for each in remarks(unforeseen))
    assert any("60 tasks show the form of a plan" in each for each in remarks(plan._replace(n_tasks=60)))


def test_too_few_rows_with_a_human_outcome(tmp_path: Path, said: Runner) -> None:
    path = many(tmp_path, 400, lost=350)
    done = said("plan", path, "--policy", "linear", "--out", str(tmp_path / "out"))
    assert (done.code, done.error.count("\n")) == (2, 1)
    assert "350 of 400 rows do not say: 50 rows with a human outcome are too few to plan on" in done.error
    with pytest.raises(ValueError, match="keep the complete rows"):
        check_plannable(make_world(many(tmp_path, 400, lost=100), {}).draw(0), "linear")


def test_a_context_that_tells_nothing(tmp_path: Path, said: Runner) -> None:
    """The human is right as often as the model, and nobody knows where: that is told, and nothing breaks."""
    rng = np.random.default_rng(0)
    rows = [f"{rng.random():.3f},{int(rng.random() < 0.9)},{int(rng.random() < 0.5)},1" for _ in range(400)]
    path = written(tmp_path, "x_a,model_reward,human_reward,cost\n" + "\n".join(rows))
    done = said("plan", path, "--policy", "linear", "--out", str(tmp_path / "out"), "--trials", "2", "--json")
    assert done.code == 0, done.error
    data = json.loads(done.out)
    assert not data["estimated"]
    assert data["possible"] == data["hindsight"]
    assert any("No rule of these columns was found" in each for each in data["remarks"])
