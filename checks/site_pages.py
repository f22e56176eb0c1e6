"""The Markdown of the site: docs/ as it is, and the pages that are made of the code. `make docs` builds it."""

import re
import shutil
import sys
from pathlib import Path

from checks.command_reference import command_page
from checks.diagrams import with_pictures
from checks.http_reference import http_page
from checks.notebook_page import notebook_page
from checks.python_reference import python_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COPIED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that are not in docs/, and their names on the site."""


def generated_pages() -> dict[str, str]:
    """Return the pages that are made of the code, by file."""
    return {
        **python_pages(),
        "command-line.md": command_page(),
        "http.md": http_page(),
        "first-hour.md": notebook_page(),
    }


def from_root(text: str) -> str:
    """Return a page of the root of the repository with links as docs/ has them.

    >>> from_root("[plan](docs/plan.md), [how](CONTRIBUTING.md#tests)")
    '[plan](plan.md), [how](contributing.md#tests)'
    """
    text = text.replace("](docs/", "](")
    for file, page in COPIED.items():
        text = text.replace(f"]({file}", f"]({page}")
    return text


def from_docs(text: str) -> str:
    """Return a page of docs/ with links to the root of the repository as the site has them.

    >>> from_docs("[how](../CONTRIBUTING.md), [how](../../CONTRIBUTING.md), [plan](../plan.md)")
    '[how](contributing.md), [how](../contributing.md), [plan](../plan.md)'
    """
    for file, page in COPIED.items():
        text = re.sub(rf"\]\(((?:\.\./)*)\.\./{re.escape(file)}", rf"](\1{page}", text)
    return text


def write_pages(folder: Path) -> None:
    """Write all pages to a folder, in place of what it holds."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    for page in folder.rglob("*.md"):
        page.write_text(with_pictures(from_docs(page.read_text())))
    for file, name in COPIED.items():
        (folder / name).write_text(from_root((ROOT / file).read_text()))
    for file, text in generated_pages().items():
        (folder / file).write_text(text)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
