"""What a new user tries first, and what deferkit says to it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deferkit import Budget, Deferrer, UnaffordableReviewWarning, __version__
from deferkit.study.policy_registry import make_learner
from deferkit.worlds.synthetic import Synthetic
from tests.cli.test_cli_failures import INTERRUPTED_AT
from tests.command_line import Runner, said

__all__ = ["said"]

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
