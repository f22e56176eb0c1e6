"""deferkit run and plan with a period, an end or a hold."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from deferkit.planning.text import arrivals_by_hour, arrivals_text
from tests.command_line import Runner


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of three weeks with office hours."""
    rng = np.random.default_rng(0)
    lines = ["when,x_a,x_b,model_reward,human_reward,cost"]
    start = datetime(2026, 1, 5)
    for day in range(21):
        for hour in np.sort(rng.uniform(8, 18, 20 if day % 7 < 5 else 4)):
            a, b = rng.random(2)
            when = (start + timedelta(days=day, hours=float(hour))).strftime("%Y-%m-%d %H:%M:%S")
            lines.append(f"{when},{a:.3f},{b:.3f},{0.5 - 0.3 * a:.3f},{0.5 + 0.4 * a:.3f},{0.5 + b:.3f}")
    path = tmp_path / "tasks.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_run_with_an_allowance_for_each_week(table: Path, said: Runner) -> None:
    words = ["run", str(table), "--time", "when", "--budget", "12", "--every", "week", "--trials", "1", "--json"]
    done = said(*words)
    assert done.code == 0, done.error
    by_policy = {row["policy"]: row for row in json.loads(done.out)}
    assert list(by_policy) == ["model-only", "arbitrary-human", "default", "opt"]
    assert by_policy["opt"]["gain"] == pytest.approx(100)
    assert by_policy["default"]["spent_pct"] <= 100
    assert by_policy["default"]["spent"] <= 36
    carried = said(*words, "--carry", "1", "--policy", "linear", "--hold", "auto")
    assert carried.code == 0, carried.error


def test_run_until_the_last_task_with_a_figure(table: Path, said: Runner, tmp_path: Path) -> None:
    words = ["--time", "when", "--budget", "30", "--until-end", "--policy", "linear", "--trials", "1", "--plot"]
    done = said("run", str(table), *words, "--results", str(tmp_path / "results"))
    assert done.code == 0, done.error
    assert "30 until end" in done.out
    assert (tmp_path / "results" / "figures" / "run.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--every", "week"], "give it with --budget"),
        (["--budget", "9", "--every", "week", "--until-end"], "--every and --until-end are two budgets"),
        (["--budget", "9", "--carry", "1"], "--carry is what is carried over"),
        (["--budget", "9", "--every", "week"], "needs the time of each task; of a table: --time"),
        (["--budget", "9", "--time", "when", "--every", "sometimes"], "a length such as '7d'"),
        (["--budget", "9", "--hold", "some"], "A budget must be"),
    ],
)
def test_a_mistake_gives_one_line(words: list[str], message: str, table: Path, said: Runner) -> None:
    done = said("run", str(table), *words)
    assert done.code == 2
    assert message in done.error
    assert "Traceback" not in done.error


def test_late_outcomes_say_what_is_held(said: Runner) -> None:
    words = ["--horizon", "200", "--policy", "default", "--trials", "1", "--budget", "10%"]
    assert "A pending review holds" in said("run", "late", *words).out
    assert "A pending review holds" not in said("run", "late", *words, "--hold", "auto").out


def test_plan_says_how_much_a_week_and_draws_arrivals(table: Path, said: Runner, tmp_path: Path) -> None:
    words = [
        "--time",
        "when",
        "--every",
        "week",
        "--policy",
        "linear",
        "--trials",
        "1",
        "--out",
        str(tmp_path / "plan"),
    ]
    done = said("plan", str(table), *words, "--unit", "minutes")
    assert done.code == 0, done.error
    assert "minutes a week: there are 3 periods" in done.out
    assert "Tasks by hour of the week" in done.out
    assert (tmp_path / "plan" / "figures" / "arrivals.svg").exists()
    again = json.loads(said("plan", str(table), *words, "--json").out)
    assert again["periods"]["tasks"] == [108, 108, 108]
    assert again["periods"]["needed"] > 0
    untimed = said("plan", str(table), "--every", "week", "--policy", "linear", "--trials", "1", "--out", str(tmp_path))
    assert untimed.code == 2
    assert "--time COLUMN" in untimed.error


def test_arrivals_are_counted_by_the_hour_of_the_week() -> None:
    monday = datetime(2026, 1, 5).toordinal() - datetime(1970, 1, 1).toordinal()
    times = np.array([monday * 86_400.0 + 9 * 3_600, monday * 86_400.0 + 9.5 * 3_600, (monday + 6) * 86_400.0])
    counts = arrivals_by_hour(times)
    assert counts[0, 9] == 2
    assert counts[6, 0] == 1
    assert counts.sum() == 3
    assert arrivals_text(times)[2].startswith("Mon           █")
