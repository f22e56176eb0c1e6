"""Every public name has a docstring with an example; the code in README.md and docs/ runs as it is written."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deferkit
from deferkit.cli.commands import app
from deferkit.client import Keys, Reviews

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC = [name for name in deferkit.__all__ if inspect.isclass(getattr(deferkit, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_class_has_an_example(name: str) -> None:
    assert ">>>" in (getattr(deferkit, name).__doc__ or "")


METHODS = [name for name, _ in inspect.getmembers(deferkit.Deferrer, callable) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_learner_is_documented(name: str) -> None:
    doc = inspect.getdoc(getattr(deferkit.Deferrer, name)) or ""
    assert doc
    if name not in ("load", "to_bytes", "from_bytes"):  # shown in the examples of save
        assert ">>>" in doc, name


PARTS_OF_CLIENT: dict[type, str] = {deferkit.Client: "", Keys: "keys.", Reviews: "reviews."}
CALLS = [
    (kind, name)
    for kind in PARTS_OF_CLIENT
    for name, _ in inspect.getmembers(kind, callable)
    if not name.startswith("_")
]


@pytest.mark.parametrize(("kind", "name"), CALLS, ids=lambda part: getattr(part, "__name__", part))
def test_every_call_of_a_client_is_documented(kind: type, name: str) -> None:
    assert f"client.{PARTS_OF_CLIENT[kind]}{name}(" in (inspect.getdoc(getattr(kind, name)) or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    blocks = [block for block in blocks if "Client(" not in block]  # tests/serve/test_readme.py runs those
    if blocks:
        script = "\n".join(blocks)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_readme_names_every_make_target() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[0].split()
    text = (ROOT / "README.md").read_text()
    assert [target for target in targets if target != "clean" and f"make {target}" not in text] == []


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    commands = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert [command for command in commands if f"deferkit {command}" not in text] == []
    assert len(commands) >= 3
