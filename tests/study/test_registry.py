"""Experiments are listed once, in the registry: the command line, the report and the docs follow it."""

import ast
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deferkit.cli.app import add_commands
from deferkit.study import experiments
from deferkit.study.experiments import DEFAULT, ON_REQUEST, REGISTRY, load, module_of
from deferkit.study.spec import PACKAGE

app = add_commands()

STUDIES = Path(__file__).parents[2] / "docs" / "studies.md"
UNMISTAKABLE = {name for name in REGISTRY if name not in {"imagenet16h"} and ("-" in name or not name.isalpha())}
"""Names that mean nothing but an experiment; the others are words, or names of worlds as well."""


def constants(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_no_module_but_the_registry_names_an_experiment() -> None:
    assert len(UNMISTAKABLE) >= 7
    registry = Path(experiments.__file__)
    assert constants(registry) >= UNMISTAKABLE
    named = {path.name: constants(path) & UNMISTAKABLE for path in PACKAGE.rglob("*.py") if path != registry}
    assert {name: found for name, found in named.items() if found} == {}


def test_every_module_of_an_experiment_is_registered() -> None:
    folder = Path(experiments.__file__).parent
    declaring = {path.stem for path in folder.glob("*.py") if "\nEXPERIMENT = " in path.read_text(encoding="utf-8")}
    assert declaring == set(map(module_of, REGISTRY))
    assert set(DEFAULT) | set(ON_REQUEST) == set(REGISTRY)


def test_help_and_docs_name_every_experiment() -> None:
    shown = " ".join(CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "400"}).stdout.split())
    assert f"{', '.join(DEFAULT)} and, only by name, " in shown
    text = STUDIES.read_text(encoding="utf-8")
    for name in REGISTRY:
        assert name in shown
        assert f"\n| `{name}` |" in text


@pytest.mark.parametrize("name", REGISTRY)
def test_a_declaration_is_complete(name: str) -> None:
    experiment = load(name)
    assert experiment.name == name
    assert experiment.title
    assert experiment.description.endswith(".")
    assert experiment.grids
    assert experiment.figure.panels
    assert experiment.claims
    assert experiment.tables
    assert {claim.source for claim in experiment.claims} <= {"paper", "deferkit"}
