"""docs/faults.md and the tests agree: every test that it names exists, and no test of a fault is missing in it."""

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "faults.md"
ROWS = [
    line.strip("| ").split(" | ")
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| Fault")
]


def named_in(path: Path) -> set[str]:
    """Return the tests of a file as the table names them."""
    names = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {f"{path.relative_to(FOLDER)}::{name}" for name in names if name.startswith("test_")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_fault_has_tests_that_exist(row: list[str]) -> None:
    _, _, tests = row
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    assert ", ".join(f"`{name}`" for name in named) == tests.strip()  # nothing else stands there
    for name in named:
        path = FOLDER / name.partition("::")[0]
        assert path.exists(), name
        assert name in named_in(path), name


def test_every_test_of_a_fault_is_in_the_table() -> None:
    files = list((FOLDER / "faults").rglob("test_*.py"))
    assert len(files) >= 14
    tests = set().union(*map(named_in, files))
    assert len(tests) > 80
    assert sorted(tests - set(re.findall(r"`([\w/.]+::\w+)`", PAGE.read_text()))) == []


def test_no_test_has_a_number_for_a_name() -> None:
    paths = FOLDER.rglob("test_*.py")
    assert [name for path in paths for name in named_in(path) if re.search(r"::test_case_\d", name)] == []
