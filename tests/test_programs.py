"""The programs in examples/ that need no service run as they are, and say what docs/programs.md promises of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed(name: str, folder: Path) -> str:
    """Return what a program prints, in a process and a folder of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_cascade_is_right_more_often_and_keeps_its_budget(tmp_path: Path) -> None:
    shown = printed("llm_cascade.py", tmp_path)
    alone, cascade = (float(each) for each in re.findall(r"([\d.]+) % right", shown))
    assert cascade > alone + 10
    assert float(re.search(r"budget +([\d.]+) of 0.6 spent", shown)[1]) <= 0.6  # type: ignore[index]


def test_complaints_are_read_and_others_are_not(tmp_path: Path) -> None:
    shown = printed("comments.py", tmp_path)
    complaints, others = (int(each) for each in re.findall(r"(\d+)", shown.splitlines()[0]))
    assert complaints > 2 * others
    alone, ours = (int(each) for each in re.findall(r"(\d+)", shown.splitlines()[1]))
    assert ours > alone + 40


def test_a_table_is_compared_and_planned(tmp_path: Path) -> None:
    shown = printed("csv_plan.py", tmp_path)
    assert "Verdict: default gains " in shown
    assert re.search(r"With [\d.]+ minutes \(10 % of reviewing everything\)", shown)
    assert Path(shown.splitlines()[-1].removeprefix("page: ")).stat().st_size > 100_000


@pytest.mark.parametrize(
    "name", ["llm_cascade.py", "comments.py", "csv_plan.py", "sklearn_digits.py", "first_hour.ipynb"]
)
def test_the_page_of_programs_names_them(name: str) -> None:
    assert f"`examples/{name}`" in (EXAMPLES.parent / "docs" / "programs.md").read_text()
