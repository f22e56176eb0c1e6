"""Metadata of the package: one version, a dated changelog, and what pip, citations and containers read."""

import re
import subprocess
import tomllib
from importlib.metadata import metadata
from pathlib import Path

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

import deferkit
from checks.container import check_rules

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_in_one_place() -> None:
    """Beside the changelog, whose headings are history."""
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", deferkit.__version__)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    there = [name for name in tracked if Path(name).suffix in {".py", ".toml", ".cff", ".md", ".json", ""} and name]
    pattern = re.compile(rf"(?<![\d.=~<>]){re.escape(deferkit.__version__)}(?![\d.])")
    found = {name for name in there if pattern.search((ROOT / name).read_text(errors="ignore"))}
    ours = {name for name in found if not name.startswith(("checks/web/", "tests/", "docs/"))}
    assert ours == {"src/deferkit/version.py", "CHANGELOG.md"}


def test_the_changelog_has_this_version_with_its_day_below_what_is_not_released() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(deferkit.__version__)}\] - \d{{4}}-\d\d-\d\d", headings[1])


def test_the_metadata_say_what_it_is_and_for_whom() -> None:
    assert PROJECT["authors"]
    assert PROJECT["keywords"]
    assert all(url.startswith("https://") for url in PROJECT["urls"].values())
    assert (
        f"Programming Language :: Python :: {PROJECT['requires-python'].removeprefix('>=')}" in PROJECT["classifiers"]
    )
    assert metadata("deferkit")["License-Expression"] == "Apache-2.0"


def test_the_citation_names_title_authors_licence_and_the_paper() -> None:
    """`make dist` validates it against the schema of the format; the version is not in it, so that it cannot be old."""
    text = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^(\S+): ", text, flags=re.MULTILINE)[0] == "cff-version"
    assert f"\nlicense: {PROJECT['license']}\n" in text
    assert re.findall(r"^  - name: (.*)$", text, flags=re.MULTILINE) == [each["name"] for each in PROJECT["authors"]]
    assert f"    url: {PROJECT['urls']['Paper']}\n" in text
    assert "\nversion" not in text


def test_the_dockerfile_keeps_the_rules_of_such_files() -> None:
    """`make test-container` builds and runs it."""
    check_rules()


def test_the_image_copies_all_that_the_build_reads() -> None:
    copied = set(
        re.findall(r"[\w./-]+", " ".join(re.findall(r"^COPY (?!--)(.*)$", (ROOT / "Dockerfile").read_text(), re.M)))
    )
    assert {"pyproject.toml", "setup.py", "MANIFEST.in", "constraints.txt", "src", PROJECT["readme"]} <= copied
    assert set(PROJECT["license-files"]) <= copied
    shown = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert shown == copied - {"./"}


def test_libraries_whose_details_we_use_have_upper_bounds() -> None:
    wanted = PROJECT["optional-dependencies"]["serve"]
    for name in ("litestar", "msgspec", "uvicorn", "httptools"):
        (requirement,) = (each for each in wanted if each.startswith(name))
        assert ",<" in requirement


def test_the_details_of_uvicorn_that_connections_use_are_there() -> None:
    public = {"data_received", "connection_made", "connection_lost", "on_headers_complete", "on_message_complete"}
    assert public <= set(dir(HttpToolsProtocol))
    assert {"send", "receive", "run_asgi"} <= set(dir(RequestResponseCycle))
    assert HEADER_RE.search(b"a b")
    assert HEADER_VALUE_RE.search(b"a\nb")
