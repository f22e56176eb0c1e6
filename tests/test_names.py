"""A module or a class can be found by its name: no name stands for two things."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "deferkit"


def found_twice(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in names.items() if len(places) > 1}


def test_no_module_has_the_name_of_another() -> None:
    names: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        if path.name != "__init__.py":
            names[path.stem].append(str(path.relative_to(SOURCE)))
    assert len(names) > 200
    assert found_twice(names) == {}


def test_no_class_has_the_name_of_another() -> None:
    names: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names[node.name].append(str(path.relative_to(SOURCE)))
    assert len(names) > 200
    assert found_twice(names) == {}
