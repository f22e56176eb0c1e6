"""The files of the console: vendored libraries are what they claim to be, modules find each other, all stay small."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

import deferkit.serve

WEB = Path(deferkit.serve.__file__).parent / "web"
OURS = sorted(path for path in WEB.rglob("*.js") if path.parent.name != "vendor")
LARGEST_GZIP = 120_000  # bytes of JavaScript
STATIC_IMPORT = re.compile(r'(?:from|import) "(\.[^"]+)"')
DYNAMIC_IMPORT = re.compile(r'[^.]import\("(\.[^"]+)"\)')


def test_vendored_files_have_the_hashes_of_the_list() -> None:
    listed = {"VENDORED.json", "htm-preact-standalone.d.ts", "preact.LICENSE"}
    for library in json.loads((WEB / "vendor" / "VENDORED.json").read_text()):
        assert re.fullmatch(r"\d+\.\d+\.\d+", library["version"])
        assert library["licence"] in {"MIT", "Apache-2.0"}
        assert (WEB / "vendor" / library["licence_file"]).read_text().strip()
        listed.add(library["licence_file"])
        for name, file in library["files"].items():
            assert hashlib.sha256((WEB / "vendor" / name).read_bytes()).hexdigest() == file["sha256"], name
            listed.add(name)
    assert {path.name for path in (WEB / "vendor").iterdir()} == listed


def test_all_javascript_is_small() -> None:
    sizes = {str(path.relative_to(WEB)): len(gzip.compress(path.read_bytes())) for path in WEB.rglob("*.js")}
    assert sum(sizes.values()) < LARGEST_GZIP, sizes


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(WEB)))
def test_a_module_imports_what_is_there_and_writes_no_markup(path: Path) -> None:
    text = path.read_text()
    for imported in STATIC_IMPORT.findall(text):
        assert (path.parent / imported).resolve().is_file(), imported
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML", "document.write", "eval("):
        assert word not in text
    assert not re.search(r"https?://(?!www\.w3\.org)", re.sub(r"//.*|/\*.*?\*/", "", text)), "another host"


def test_the_page_refers_to_files_that_are_there() -> None:
    page = (WEB / "index.html").read_text()
    for reference in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert reference.startswith("/web/")
        assert (WEB / reference.removeprefix("/web/")).is_file(), reference
    assert "<style" not in page
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"\son\w+=|\sstyle=", page)
