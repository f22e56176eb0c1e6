"""The command line, as a user runs it: in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deferkit.cli.app import COMMANDS, PANELS
from deferkit.study.trial import FIGURES
from tests.command_line import SCRIPT, Runner, deferkit

SMALL = ("run", "synthetic", "--trials", "2", "--horizon", "3000")


def test_run_prints_a_table_of_the_policies() -> None:
    done = deferkit(*SMALL, "--budget", "0.05T", "--feedback", "bandit")
    assert done.returncode == 0, done.stderr
    for name in ("model-only", "arbitrary-human", "best-reject", "paper", "default", "opt"):
        assert name in done.stdout
    assert "budget 150" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "…" not in done.stdout


def test_run_as_json() -> None:
    policies = ["default", "human-only", "opt", "thompson"]
    done = deferkit(*SMALL, "--budget", "10%", "--json", *(w for p in policies for w in ("--policy", p)))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["policy"] for row in rows] == policies
    for row in rows:
        shown = (*FIGURES, "deferral_rate", "of_achievable")
        assert set(row) == {"policy", "representation", *shown, *(f"{name}_sd" for name in shown)}
    default, human, opt, _ = rows
    assert opt["gain"] == opt["pct_opt"] == 100
    assert opt["us_per_step"] is None
    assert default["us_per_step"] > 0
    assert human["spent_pct"] == pytest.approx(1000, rel=0.05)
    assert 90 < default["spent_pct"] <= 100


def test_other_worlds_by_option(said: Runner) -> None:
    words = ("--regime", "dominant", "--experts", "2", "--resources", "2", "--features", "30", "--scaled", "--json")
    done = said(*SMALL, "--budget", "0.05T", *words)
    assert done.code == 0, done.error
    rows = {row["policy"]: row for row in json.loads(done.out)}
    assert rows["default"]["gain"] > rows["arbitrary-human"]["gain"]
    done = said(*SMALL, "--budget", "0.05T", "--link", "logistic", "--policy", "default", "--json")
    assert json.loads(done.out)[0]["gain"] > 50


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "moon"], "There is no world 'moon'. There is: synthetic, knapsack"),
        (["run", "synthetic", "--policy", "best"], "There is no policy 'best'. There is: model-only, human-only"),
        (["run", "synthetic", "--budget", "lots"], "Got 'lots' instead"),
        (["run", "synthetic", "--budget=-5"], "Got '-5' instead"),
        (["run", "synthetic", "--regime", "easy"], "Got 'easy' instead"),
        (["run", "synthetic", "--horizon", "0"], "Got 0 instead"),
        (["run", "synthetic", "--horizon", "100", "--feedback", "some"], "Got 'some' instead"),
        (["run", "synthetic", "--engine", "cloud"], "There is no engine 'cloud'. There is: local, ray."),
        (["run", "[/red]"], "There is no world '[/red]'"),
        (["run", "synthetic", "--results", "/proc/here"], "Results cannot be kept in /proc/here"),
        (["reproduce", "noise", "--quick", "--out", "/proc/here"], "Results cannot be kept in /proc/here"),
        (["run", "synthetic", "--address", "a:1"], "An address is for the engine 'ray'"),
        (
            ["run", "synthetic", "--horizon", "500", "--link", "logistic", "--policy", "thompson"],
            "one expert and no link",
        ),
        (["run", "synthetic", "--policy", "vw"], "'vw' learns from bandit feedback only"),
        (["reproduce", "mvh", "--quick", "--data", "/nowhere"], "DEFERKIT_DATA is '/nowhere'). Download it from"),
        (["reproduce", "exp3"], "There is no experiment 'exp3'. There is: exp1, exp2, horizon, small-budget"),
    ],
)
def test_a_mistake_gives_one_line(words: list[str], message: str, said: Runner) -> None:
    done = said(*words)
    assert done.code == 2
    assert message in " ".join(done.error.split())
    assert done.error.count("\n") == 1


def test_a_mistake_in_a_process_of_its_own() -> None:
    done = deferkit("run", "moon")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: There is no world 'moon'. There is: synthetic, knapsack")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("budget", "remark"),
    [("0", "asks nobody"), ("1000000", "does not bind"), ("inf", "has no end"), ("120%", "not bind")],
)
def test_an_odd_budget_is_remarked_on(budget: str, remark: str, said: Runner) -> None:
    done = said("run", "synthetic", "--trials", "1", "--horizon", "2000", "--budget", budget, "--json")
    assert done.code == 0, done.error
    assert remark in " ".join(done.error.split())
    rows = {row["policy"]: row for row in json.loads(done.out)}
    assert rows["default"]["gain"] is None if budget == "0" else rows["default"]["gain"] > 90


def test_run_says_why_the_default_asked_less_than_planned_and_which_rule_does_as_well(
    tmp_path: Path, said: Runner
) -> None:
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.9
    rows = [f"{score:.3f},{int(ok)},0,1" for score, ok in zip(rng.random(400), right, strict=True)]
    path = tmp_path / "worse.csv"
    path.write_text("\n".join(["x_score,model_reward,human_reward,cost", *rows]))
    compared = ("--policy", "model-only", "--policy", "default")
    shown = " ".join(said("run", str(path), "--budget", "30%", "--trials", "2", *compared).out.split())
    assert "default in the stream of seed 0 asked " in shown
    assert "is below the model's" in shown
    assert "model-only does as well here (asking brings nothing)." in shown


def test_plot_draws_a_figure(tmp_path: Path) -> None:
    assert deferkit(*SMALL, "--plot", "--policy", "opt", cwd=tmp_path).returncode == 0
    done = deferkit(*SMALL, "--plot", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "results/figures/run.png" in done.stdout
    assert {p.suffix for p in (tmp_path / "results" / "figures").iterdir()} == {".png", ".svg", ".html"}


def test_an_interrupt_leaves_what_was_done(tmp_path: Path) -> None:
    """Ctrl-C in the middle: the finished trials are on disk, and the table is of them."""
    words = ["run", "synthetic", "--trials", "60", "--horizon", "4000", "--results", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(tmp_path.glob("trials/*.parquet"))) < 2:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    stopped = re.search(r"Stopped: (\d+) of 60 streams were done", err)
    assert stopped, err
    assert 2 <= int(stopped[1]) < 60
    assert "default" in out
    assert len(list(tmp_path.glob("trials/*.parquet"))) == int(stopped[1])


def test_a_terminal_without_plus_minus_and_one_with_colours(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, "run", "synthetic", "--horizon", "500", "--trials", "2", "--budget", "20"]
    for more, extra in (([], {"PYTHONIOENCODING": "ascii"}), (["--json"], {"FORCE_COLOR": "1"})):
        done = subprocess.run(
            [*words, *more],
            capture_output=True,
            text=True,
            env=os.environ | extra,
            cwd=tmp_path,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        if more:
            assert json.loads(done.stdout)


@pytest.mark.parametrize("words", [["serve", "--help"], ["keys", "list", "--help"]])
def test_a_command_of_the_service_loads_no_library_of_studies(words: list[str]) -> None:
    script = f"import atexit, sys; atexit.register(lambda: print({{'polars', 'scipy'}} & set(sys.modules))); {SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"


def test_version_and_help() -> None:
    assert deferkit("--version").stdout.startswith("deferkit 0.")
    shown = deferkit("--help").stdout
    for command in ("run", "reproduce"):
        assert command in shown
    assert shown.index("Try it on a table") < shown.index("Serve decisions") < shown.index(" backup ")
    for command in ("run", "plan"):
        of_table, of_world = (deferkit(command, *world, "--help").stdout for world in ([], ["synthetic"]))
        assert "TABLE" in of_table
        assert "--model-reward" in of_table
        assert "Options of the world" not in of_table
        assert "--regime" in of_world


def test_every_command_is_in_one_panel_of_the_help() -> None:
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COMMANDS)
