"""The command line, as a user runs it: in a process of its own."""

import subprocess
import sys

import pytest


def deferkit(*words: str) -> subprocess.CompletedProcess[str]:
    script = "from deferkit.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=300, check=False
    )


def test_run_prints_a_table_of_the_policies() -> None:
    done = deferkit(
        "run", "synthetic", "--trials", "2", "--horizon", "3000", "--budget", "0.05T", "--feedback", "bandit"
    )
    assert done.returncode == 0, done.stderr
    for name in ("model-only", "arbitrary-human", "paper", "default", "opt"):
        assert name in done.stdout
    assert "budget 150" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "…" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "moon"], "There is no world 'moon'. There is: synthetic."),
        (["run", "synthetic", "--policy", "best"], "There is no policy 'best'. There is: model-only"),
        (["run", "synthetic", "--budget", "lots"], "Got 'lots' instead"),
        (["run", "synthetic", "--budget", "-5"], "Got '-5' instead"),
        (["run", "synthetic", "--regime", "easy"], "Got 'easy' instead"),
        (["run", "synthetic", "--horizon", "0"], "Got 0 instead"),
        (["run", "synthetic", "--horizon", "100", "--feedback", "some"], "Got 'some' instead"),
        (["gains", "--policy", "best"], "There is no learner 'best'"),
    ],
)
def test_a_mistake_gives_one_line(words: list[str], message: str) -> None:
    done = deferkit(*words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_budget_of_nothing_and_one_that_does_not_bind() -> None:
    for budget in ("0", "1000000"):
        done = deferkit("run", "synthetic", "--trials", "1", "--horizon", "2000", "--budget", budget)
        assert done.returncode == 0, done.stderr


def test_version_and_help() -> None:
    assert deferkit("--version").stdout.startswith("deferkit 0.")
    shown = deferkit("--help").stdout
    for command in ("run", "gains", "warm"):
        assert command in shown
