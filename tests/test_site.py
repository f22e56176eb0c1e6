"""The documentation site is built without warnings, its links lead somewhere, and its reference is that of the code."""

import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from playwright.sync_api import Browser
from typer.testing import CliRunner

import deferkit
from checks.paper_page import experiments_of_paper
from checks.site_links import problems
from checks.site_pages import COPIED, DOCS, ROOT, generated_pages, write_pages
from deferkit.cli.app import add_commands
from deferkit.serve.http.application import ROUTES
from deferkit.serve.http.openapi import document
from tests.browsing import opened

app = add_commands()

CONFIGURATION = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages that are made of the code."""
    return generated_pages()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    write_pages(folder / CONFIGURATION["docs_dir"])
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / str(CONFIGURATION["site_dir"])


def listed(navigation: Any) -> Iterator[str]:
    """Yield the pages of the navigation."""
    for entry in navigation:
        for below in entry.values():
            if isinstance(below, str):
                yield below
            else:
                yield from listed(below)


def test_the_navigation_has_every_page_once(pages: dict[str, str]) -> None:
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | set(COPIED.values()) | set(pages)
    assert sorted(listed(CONFIGURATION["nav"])) == sorted(there)


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 30
    assert problems(site) == []


@pytest.mark.browser
@pytest.mark.parametrize("page", ["index.html", "tutorial.html", "architecture.html", "paper.html", "http.html"])
def test_a_page_asks_nobody_for_anything(site: Path, browser: Browser, page: str) -> None:
    _, troubles = opened(browser, site / page)
    assert troubles == []


def test_what_is_wrong_with_a_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="//cdn.example/x.css"><style>@import url("https://fonts.example/f");</style>'
        '<script src="gone.js"></script><img src="https://example.org/a.png">'
        '<h1 id="here"></h1><a href="#here">.</a><a href="#away">.</a><a href="b.html">.</a><a href="https://x.org">.</a>'
    )
    (tmp_path / "a.css").write_text("body { background: url(https://example.org/b.png) }")
    assert problems(tmp_path) == [
        "a.css loads https://example.org/b.png.",
        "a.html loads //cdn.example/x.css.",
        "a.html loads https://fonts.example/f.",
        "a.html loads gone.js, which is not there.",
        "a.html loads https://example.org/a.png.",
        "a.html links to #away, which has no such anchor.",
        "a.html links to b.html, which is not there.",
    ]


CLASSES = [name for name in (*deferkit.__all__, *deferkit._STUDY_NAMES) if inspect.isclass(getattr(deferkit, name))]


@pytest.mark.parametrize("name", CLASSES)
def test_the_reference_has_every_public_class_with_its_parameters(pages: dict[str, str], name: str) -> None:
    [text] = [page for page in pages.values() if re.search(rf"^## {name}$", page, flags=re.MULTILINE)]
    part = re.split(r"^## ", text[text.index(f"\n## {name}\n") + 4 :], flags=re.MULTILINE)[0]
    kind = getattr(deferkit, name)
    assert inspect.getdoc(kind).partition("\n")[0].split("`")[0][:40] in part.replace("\\", "")  # type: ignore[union-attr]
    is_plain = issubclass(kind, Exception) and "__init__" not in vars(kind)  # the message alone
    for parameter in [] if is_plain else inspect.signature(kind).parameters.values():
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            assert re.search(rf"\b{parameter.name}\b", part), parameter.name
    methods = [method for method in vars(kind) if not method.startswith("_") and inspect.isfunction(vars(kind)[method])]
    assert [
        method for method in methods if inspect.getdoc(getattr(kind, method)) and f"{name}.{method}" not in part
    ] == []


def test_the_reference_has_the_parts_of_a_client_and_the_connectors(pages: dict[str, str]) -> None:
    for name in ("Reviews", "Keys", "Webhooks", "PolicySummary", "verify_webhook"):
        assert f"\n## {name}\n" in pages["api-client.md"]
    for name in ("DeferringClassifier", "DeferringRouter", "TaskDeferrer", "defer"):
        assert f"\n## {name}\n" in pages["api-connectors.md"]


def commands_of(group: typer.Typer, words: str = "") -> Iterator[str]:
    """Yield the commands of an application by the words that call them."""
    for each in group.registered_commands:
        yield words + (each.name or each.callback.__name__)  # type: ignore[union-attr]
    for below in group.registered_groups:
        if below.typer_instance is not None:
            yield from commands_of(below.typer_instance, f"{words}{below.name} ")


COMMANDS = list(commands_of(app))


def test_there_are_commands_of_groups_too() -> None:
    assert {"run", "serve", "keys create"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_has_every_option_that_a_command_prints(pages: dict[str, str], command: str) -> None:
    printed = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "400", "TERM": "dumb"}).stdout
    options = set(re.findall(r"^[│ ]+(--[a-z-]+)", printed, flags=re.MULTILINE)) - {"--help"}
    assert printed
    text = pages["command-line.md"]
    part = re.split(r"^## ", text[text.index(f"\n## deferkit {command}\n") + 4 :], flags=re.MULTILINE)[0]
    assert [option for option in options if f"`{option}" not in part] == []


def test_the_reference_has_every_route_and_every_field(pages: dict[str, str]) -> None:
    described, text = document(ROUTES), pages["http.md"]
    routes = [f"\n\n`{method.upper()} {path}`\n\n" for path, all_ in described["paths"].items() for method in all_]
    assert [route for route in routes if route not in text] == []
    for name, schema in described["components"]["schemas"].items():
        part = re.split(r"^### ", text[text.index(f"\n### Schema: {name}\n") + 5 :], flags=re.MULTILINE)[0]
        assert [field for field in schema.get("properties", {}) if f"| `{field}` |" not in part] == []


def test_the_page_of_the_paper_has_every_claim_of_it() -> None:
    text = (DOCS / "paper.md").read_text().replace("\\", "")
    claims = [claim.text for each in experiments_of_paper() for claim in each.claims if claim.source == "paper"]
    assert len(claims) >= 15
    assert [claim for claim in claims if claim.removesuffix(".") not in text] == []
