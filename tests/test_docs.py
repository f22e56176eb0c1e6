"""Every public name has a docstring with an example; the code in README.md and docs/ runs as it is written."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import deferkit
from deferkit.cli.app import add_commands
from deferkit.client import Keys, Reviews, Webhooks
from deferkit.serve.api.reports import Alarm

app = add_commands()

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC = [name for name in (*deferkit.__all__, *deferkit._STUDY_NAMES) if inspect.isclass(getattr(deferkit, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_class_has_an_example(name: str) -> None:
    assert ">>>" in (getattr(deferkit, name).__doc__ or "")


METHODS = [name for name, _ in inspect.getmembers(deferkit.Deferrer, callable) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_learner_is_documented(name: str) -> None:
    doc = inspect.getdoc(getattr(deferkit.Deferrer, name)) or ""
    assert ">>>" in doc, name


DOCUMENTED = [
    *(name for name in PUBLIC if name != "Client"),
    *(f"Deferrer.{name}" for name in METHODS),
    *(f"Encoder.{name}" for name in ("check", "see", "encode", "see_columns", "encode_columns")),
    *("Exploration.printed", "Exploration.thompson"),
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_docstring_names_every_parameter(name: str) -> None:
    owner, _, method = name.partition(".")
    called = getattr(deferkit, owner)
    called = getattr(called, method) if method else called
    if inspect.isclass(called) and issubclass(called, Exception) and "__init__" not in vars(called):
        return  # the message alone
    doc = f"{inspect.getdoc(called)}\n"
    sections = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n|\n)+)", doc, flags=re.MULTILINE)
    described = {part for text in sections for part in re.findall(r"^    (\w+): ", text, flags=re.MULTILINE)}
    assert set(inspect.signature(called).parameters) - {"self"} <= described


PARTS_OF_CLIENT: dict[type, str] = {deferkit.Client: "", Keys: "keys.", Reviews: "reviews.", Webhooks: "webhooks."}
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
    # tests/serve/test_documentation.py and tests/serve/http/test_webhooks_guide.py run the others
    blocks = [block for block in blocks if "Client(" not in block and "serve_forever(" not in block]
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


def glossary() -> list[tuple[str, str]]:
    """Return each term of the glossary with its location."""
    rows = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ") and not row.startswith("| Term")]
    return [(term, where.strip("`")) for term, _, where in cells]


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = [term.lower() for term, _ in glossary()]
    assert terms == sorted(set(terms))
    assert len(terms) > 80


@pytest.mark.parametrize(("term", "where"), glossary())
def test_a_glossary_term_points_at_something_that_exists(term: str, where: str) -> None:
    path, _, name = where.partition(":")
    found = ROOT / "src" / "deferkit" / path
    assert found.exists(), term
    files = [found] if found.is_file() else [file for end in ("py", "pyx", "pxd") for file in found.rglob(f"*.{end}")]
    defined = rf"^\s*(?:(?:class|(?:async )?def|cdef) .*\b{name}\b|{name}\b *(?:[:=#]|$))"
    assert not name or any(re.search(defined, file.read_text(), flags=re.MULTILINE) for file in files), where


def test_the_page_of_commands_names_every_make_target() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[0].split()
    text = (ROOT / "docs" / "commands.md").read_text()
    assert [target for target in targets if target != "clean" and f"make {target}" not in text] == []


def test_the_page_of_commands_names_every_command() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    commands = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert [command for command in commands if f"deferkit {command}" not in text] == []
    assert len(commands) >= 3


def links_of(page: Path) -> list[str]:
    """Return the files that a page links to."""
    found = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    return [link for link in found if "://" not in link]


def test_every_page_is_linked_from_the_front_page() -> None:
    docs = ROOT / "docs"
    linked = {(docs / link).resolve() for link in [*links_of(docs / "index.md"), "index.md"]}
    folders = [page for page in linked if page.name == "README.md"]
    linked |= {(page.parent / link).resolve() for page in folders for link in links_of(page)}
    assert [page.name for page in sorted(docs.rglob("*.md")) if page.resolve() not in linked] == []
    assert {"docs/index.md", "docs/tutorial.md", "docs/installation.md"} <= set(links_of(ROOT / "README.md"))


LINKING = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert [link for link in links_of(page) if not (page.parent / link).exists()] == []


def test_the_readme_fits_a_screen() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    assert len(re.findall(r"!\[", text)) == 1
    assert "make run" in text
    assert "make test" in text


def test_the_page_on_operations_names_every_alarm() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    kinds = get_args(Alarm.__annotations__["kind"])
    assert len(kinds) >= 10
    assert [kind for kind in kinds if f"`{kind}`" not in text] == []
