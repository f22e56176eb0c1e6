"""Policies on a table, in the library and on the command line."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deferkit import InvalidArgument
from deferkit.study.allowance import Allowance, asking_always, remark
from deferkit.study.baselines import BASELINES, Baseline
from deferkit.study.policy_registry import LEARNERS, POLICIES, check_hindsight, needs_hindsight, sure_cost
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from deferkit.worlds import make_world
from tests.command_line import Runner, deferkit
from tests.table_files import HEAD, many, written


def outcomes(path: str, budget: str, *policies: str, **given: Any) -> dict[str, dict[str, Any]]:
    rows = run_together([Spec.of(path, {}, policy=name, budget=budget, **given) for name in policies], 0)
    assert not [row for row in rows if "failure" in row], rows
    return dict(zip(policies, rows, strict=True))


def test_a_table_on_which_a_learner_gains(tmp_path: Path) -> None:
    """Costs are near 0.015, so that a cost that is sure to cover all of them must not be 3."""
    path = many(tmp_path, 3_000)
    rows = outcomes(path, "30%", "model-only", "arbitrary-human", "threshold", "best-reject", "default", "opt")
    assert rows["default"]["gain"] > rows["arbitrary-human"]["gain"] + 10
    assert rows["best-reject"]["gain"] > rows["arbitrary-human"]["gain"] + 10
    assert rows["opt"]["gain"] == 100
    assert all(row["spent_pct"] <= 100 + 1e-9 for row in rows.values())
    assert rows["default"]["spent_pct"] > 95


def test_where_nobody_was_asked_nothing_is_made_up(tmp_path: Path) -> None:
    path = many(tmp_path, 600, lost=150)
    stream = make_world(path, {}).draw(0)
    assert not stream.complete
    assert stream.askable.sum() == 450
    assert sure_cost(stream) == np.nanmax(stream.costs)
    assert asking_always(stream) == pytest.approx(np.nansum(stream.costs))
    working = [name for name in POLICIES if not needs_hindsight(name)]
    assert working == ["model-only", *LEARNERS]
    for name in set(POLICIES) - set(working):
        with pytest.raises(
            InvalidArgument, match=f"The policy '{name}' needs .* missing in 150 of 600 rows. .* work: m"
        ):
            check_hindsight(name, stream)
    rows = outcomes(path, "30%", "model-only", "default", "adaptive", trace="path")
    for row in rows.values():
        for name in ("reward", "spent", "spent_pct", "defer_rate", "model"):
            assert math.isfinite(row[name]), name
        for name in ("gain", "regret", "pct_opt", "opt", "opt_price", "opt_spent"):
            assert math.isnan(row[name]), name
        assert np.isfinite(row["spent_at"]).all()
    assert rows["default"]["reward"] > rows["model-only"]["reward"]
    assert 0 < rows["default"]["spent_pct"] <= 100
    (failed,) = run_together([Spec.of(path, {}, policy="opt", budget="5")], 0)
    assert "missing in 150 of 600 rows" in failed["failure"]


def test_asking_that_is_free(tmp_path: Path) -> None:
    text = HEAD + "".join(f"{i},{'ab'[i % 2]},{i % 2},{1 - i % 2},0\n" for i in range(200))
    path = written(tmp_path, text)
    stream = make_world(path, {}).draw(0)
    for budget in ("10%", "5", "0.1T", "0"):
        assert Allowance.from_text(budget).total(stream) == math.inf
    assert remark(math.inf, stream) == "Asking costs nothing here, so that no budget binds and the price is 0."
    rows = outcomes(path, "10%", "arbitrary-human", "best-reject", "default", "opt")
    assert rows["opt"]["reward"] == 200
    assert rows["default"]["gain"] > 60
    assert rows["arbitrary-human"]["defer_rate"] == 100


def test_equal_rewards_and_equal_contexts_are_remarked_on(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "3,a,1,1,2\n" * 30)
    stream = make_world(path, {}).draw(0)
    assert stream.contexts.shape[1] == 2
    assert "All contexts are equal" in stream.remark
    assert "The human earns more than the model in no task: OPT is ModelOnly" in stream.remark
    rows = outcomes(path, "50%", "model-only", "threshold", "best-reject", "default", "opt")
    assert all(math.isnan(row["gain"]) for row in rows.values())


def test_run_on_a_table(tmp_path: Path) -> None:
    path = many(tmp_path, 300)
    done = deferkit("run", path, "--trials", "2", "--plot", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "300 tasks, budget" in said
    assert "(10%)" in said
    assert "2 trials from seed 0" in said
    names = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(" ") and line.split()]
    assert [name for name in names if name in POLICIES] == [
        "model-only",
        "arbitrary-human",
        "best-reject",
        "default",
        "achievable",
        "opt",
    ]
    assert (tmp_path / "results" / "figures" / "run.png").exists()


def test_run_on_a_table_where_nobody_was_asked(tmp_path: Path) -> None:
    path = many(tmp_path, 300, lost=100)
    done = deferkit("run", path, "--trials", "2", "--json", "--plot", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["policy"] for row in rows] == ["model-only", "default"]
    assert all(row["gain"] is None and row["regret"] is None and row["pct_opt"] is None for row in rows)
    said = " ".join(done.stderr.split())
    assert "In 100 of 300 tasks the human was never asked" in said
    assert "So these are compared: model-only, default." in said
    done = deferkit("run", path, "--policy", "opt")
    assert done.returncode == 2
    assert "missing in 100 of 300 rows" in done.stderr


def test_options_of_another_world_are_refused_by_their_names(tmp_path: Path, said: Runner) -> None:
    path = many(tmp_path, 20)
    for words, message in (
        (["run", path, "--features", "3"], "has no option --features. It has: --context, --model-reward"),
        (["run", "synthetic", "--people", "a"], "has no option --people. It has: --regime, --horizon"),
        (["run", path, "--cost", "euros"], "has no column 'euros' for the cost"),
        (["run", path, "--data", "/nowhere"], "There is no directory /nowhere"),
        (["run", "tasks.csv"], "There is no file tasks.csv"),
    ):
        done = said(*words)
        assert done.code == 2
        assert message in " ".join(done.error.split())
        assert done.error.count("\n") == 1
    done = said("run", path, "--trials", "1", "--budget", "0.01")
    assert "is less than one task can cost" in " ".join(done.out.split())


def test_a_policy_that_cannot_run_does_not_lose_the_others(tmp_path: Path, said: Runner) -> None:
    """Thompson sampling has no link; opt needs outcomes that nobody knows."""
    words = ("--trials", "1", "--json", "--policy", "model-only", "--policy", "thompson", "--policy", "default")
    done = said("run", many(tmp_path, 100, lost=20), *words, "--policy", "opt")
    assert done.code == 1
    assert [row["policy"] for row in json.loads(done.out)] == ["model-only", "default"]
    errors = [line for line in done.error.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == ["thompson", "opt"]
    assert "one expert and no link" in errors[0]
    assert "missing in 20 of 100 rows" in errors[1]


def test_a_policy_that_fails_on_the_way_does_not_lose_the_others(
    tmp_path: Path, said: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: Any) -> Any:
        raise ZeroDivisionError("no luck\nat all")

    monkeypatch.setitem(BASELINES, "threshold", Baseline("bursts", burst))
    path = many(tmp_path, 100)
    words = ("run", path, "--trials", "2", "--results", str(tmp_path / "kept"), "--policy", "threshold")
    done = said(*words, "--policy", "default", "--policy", "opt")
    assert done.code == 1
    assert done.error.splitlines() == ["error: threshold: failed in 2 of 2 streams (ZeroDivisionError: no luck)"]
    assert [name for name in ("threshold", "default", "opt") if f" {name} " in done.out] == ["default", "opt"]
    done = said(*words)
    assert done.code == 2
    assert done.error.splitlines() == [
        "error: All policies failed. First: threshold: failed in 2 of 2 streams (ZeroDivisionError: no luck)"
    ]


def test_a_misspelled_policy(tmp_path: Path, said: Runner) -> None:
    for command in ("run", "plan"):
        done = said(command, many(tmp_path, 50), "--policy", "best_reject" if command == "run" else "defualt")
        assert done.code == 2
        assert done.error.endswith(f" Did you mean '{'best-reject' if command == 'run' else 'default'}'?\n")
        assert done.error.count("\n") == 1
