"""What a new user tries first, and what deferkit says to it."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deferkit import Budget, DeferkitError, Deferrer, Encoder, UnaffordableReviewWarning, __version__
from deferkit.study.policy_registry import make_learner
from deferkit.worlds.synthetic import Synthetic
from tests.cli.test_cli_failures import INTERRUPTED_AT
from tests.command_line import Runner, said

__all__ = ["said"]

ENCODER = Encoder(numbers=["amount"], categories={"country": 2})
ROWS = {"amount": [1.0, 2.0], "country": ["de", "fr"], "model_reward": [1, 0]}
HUNDRED: Any = 100
UNAFFORDABLE = "Nobody can be asked: each deferral reserves the max_cost of 100"


def test_a_budget_below_max_cost_says_that_nobody_can_be_asked() -> None:
    with pytest.warns(UnaffordableReviewWarning, match=UNAFFORDABLE) as told:
        deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=100))
    assert told[0].filename == __file__
    assert {deferrer.decide([1.0]).reason for _ in range(20)} == {"budget"}
    with pytest.warns(UnaffordableReviewWarning, match="the total of euros is 5"):
        Deferrer(
            n_features=1,
            budget={"minutes": Budget(100, horizon=100, max_cost=1), "euros": Budget(5, horizon=100, max_cost=100)},
        )
    with pytest.warns(UnaffordableReviewWarning, match=UNAFFORDABLE) as told:
        Deferrer.paper(n_features=1, budget=Budget(99, horizon=100, max_cost=100))
    assert told[0].filename == __file__


@pytest.mark.parametrize("total", [0, 100, 101, float("inf")])
def test_a_budget_that_affords_a_review_or_is_zero_gives_no_warning(total: float) -> None:
    Deferrer(n_features=1, budget=Budget(total, horizon=100, max_cost=100))  # a warning would be an error


def test_a_loaded_learner_and_a_study_give_no_warning() -> None:
    with pytest.warns(UnaffordableReviewWarning):
        deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=100))
    assert Deferrer.from_bytes(deferrer.to_bytes()) == deferrer
    stream = Synthetic(horizon=100).draw(0)
    assert make_learner("default", stream, [0.5], seed=0).summary().total == 0.5
    assert make_learner("paper", stream, [0.5], seed=0).summary().total == 0.5


def test_run_json_has_the_deferral_rate_as_a_fraction(said: Runner) -> None:
    """`defer_rate` is in per cent, as trials have it; the library, the service and the client have fractions."""
    policies = [word for name in ("human-only", "default") for word in ("--policy", name)]
    done = said("run", "synthetic", "--horizon", "500", "--trials", "2", "--budget", "10%", "--json", *policies)
    everything, default = json.loads(done.out)
    assert (everything["defer_rate"], everything["deferral_rate"], everything["deferral_rate_sd"]) == (100, 1, 0)
    assert 0 < default["deferral_rate"] < 0.2
    assert default["deferral_rate"] == pytest.approx(default["defer_rate"] / 100)
    assert default["deferral_rate_sd"] == pytest.approx(default["defer_rate_sd"] / 100)


@pytest.mark.parametrize("name", ["deferkit", "deferkit.types", "deferkit.version", "deferkit.cli", "deferkit.extras"])
def test_an_interrupt_while_the_package_itself_is_imported_leaves_no_traceback(name: str) -> None:
    """As an installer writes the script of the command: it imports a function, and calls it."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["deferkit"].partition(":")
    script = f"from {module} import {function}\nsys.exit({function}())"
    words = [sys.executable, "-c", INTERRUPTED_AT.format(name=name) + script, "--version"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_the_entry_point_runs_the_command_line() -> None:
    words = [sys.executable, "-c", "from deferkit_command import main; main()", "--version"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, f"deferkit {__version__}", "")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Deferrer(n_features=3, encoder=ENCODER), "must be left out where an encoder is given"),
        (
            lambda: Deferrer(n_features=3, budget=HUNDRED),
            r"such as Budget\(100, horizon=1_000\), or one by resource. Got 100",
        ),
        (
            lambda: learner().observe(cast("Any", learner().decide([1.0])), {"model": 1.0}),
            "pass decision.id, which is 1",
        ),
        (lambda: learner().decide(["1"]), r"must be 1 numbers. Got \['1'\]"),
        (lambda: learner().decide(np.array(["1"], dtype=object)), "must be 1 numbers"),
        (lambda: Encoder(numbers="a"), "of an Encoder must be"),
        (lambda: learner().observe(0, {"small": 1.0}), "There are 'model', 'human'"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(call: Callable[[], object], message: str) -> None:
    with pytest.raises(DeferkitError, match=message):
        call()


def learner() -> Deferrer:
    deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1))
    deferrer.decide([1.0])
    return deferrer


def test_frames_with_more_columns_and_lazy_ones_are_decided_as_their_rows() -> None:
    frame, wide = pl.DataFrame({name: ROWS[name] for name in ENCODER.features}), pl.DataFrame(ROWS)
    pandas = pd.DataFrame(ROWS)
    learners = [Deferrer(encoder=ENCODER, budget=Budget(5, horizon=100, max_cost=1)) for _ in range(5)]
    decided = [
        learners[0].decide_many(frame),
        learners[1].decide_many(wide),
        learners[2].decide_many(wide.lazy()),
        learners[3].decide_many(pandas),
        [learners[4].decide(pandas.iloc[row]) for row in range(2)],
    ]
    assert all(each == decided[0] for each in decided)
    assert len({each.to_bytes() for each in learners}) == 1
    with pytest.raises(DeferkitError, match="feature 'model_reward' that the encoder does not know"):
        learners[0].decide_many(wide.drop("amount"))  # a column is missing: another one is no surplus
    with pytest.raises(DeferkitError, match="feature 'amont' that the encoder does not know"):
        learners[0].decide({"amont": 1.0, "country": "de", "amount": 2.0})
    plain = Deferrer(n_features=2).decide_many(pl.LazyFrame({"a": [1.0], "b": [2.0]}))
    assert len(plain) == 1


def test_the_package_is_a_command_too() -> None:
    words = [sys.executable, "-m", "deferkit", "--version"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, f"deferkit {__version__}")


def test_a_file_where_a_folder_of_results_is_asked_for_is_refused(said: Runner, tmp_path: Path) -> None:
    done = said("run", "synthetic", "--horizon", "50", "--trials", "1", "--results", str(tmp_path / "out.xlsx"))
    assert done.code == 2
    assert "out.xlsx is the name of a file" in done.error
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store_is_named(said: Runner, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no store, but a text that is long enough to have a header" * 10)
    done = said("serve", "--store", str(tmp_path / "notes.db"), "--port", "0")
    assert done.code == 2
    assert "notes.db is no store: file is not a database" in done.error
