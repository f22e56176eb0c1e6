"""Checks a built site: links and anchors lead somewhere, and no page loads anything from another host.

python -m checks.site_links site
"""

import re
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
NOT_FOUND = "404.html"  # is shown at any address, so that its links begin at the root of a server
IN_CSS = re.compile(r"""(?:@import\s+(?:url\()?|url\()\s*["']?([^"')\s;]+)""")


class PageReader(HTMLParser):
    """Collects what a page defines, links to and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        self._in_style = tag == "style"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in LOADED and LOADED[tag] in given:
            self.loaded.append(given[LOADED[tag]])
        elif tag == "link" and LOADED_LINKS & set(given.get("rel", "").split()):
            self.loaded.append(given["href"])

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loaded += IN_CSS.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = self._in_style and tag != "style"


def is_external(address: str) -> bool:
    """Whether an address is on another host.

    >>> [is_external(each) for each in ("https://example.org", "//example.org/a", "a.html#b", "data:,x", "mailto:x")]
    [True, True, False, False, False]
    """
    return address.startswith(("http:", "https:", "//"))


def problems(site: Path) -> list[str]:
    """Return what is wrong with a site, in a sentence each."""
    pages = {path.resolve(): read(path) for path in site.rglob("*.html")}
    found = defaultdict(list)
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for address in page.loaded:
            if is_external(address):
                found[name].append(f"loads {address}")
            elif path.name != NOT_FOUND and not address.startswith("data:") and target(path, address) is None:
                found[name].append(f"loads {address}, which is not there")
        if path.name == NOT_FOUND:
            continue
        for address in page.links:
            if urlsplit(address).scheme or is_external(address):
                continue
            there = target(path, address)
            anchor = unquote(urlsplit(address).fragment)
            if there is None:
                found[name].append(f"links to {address}, which is not there")
            elif anchor and there in pages and anchor not in pages[there].ids:
                found[name].append(f"links to {address}, which has no such anchor")
    for sheet in site.rglob("*.css"):
        found[sheet.relative_to(site)] += [
            f"loads {each}" for each in IN_CSS.findall(sheet.read_text()) if is_external(each)
        ]
    return [f"{name} {what}." for name, several in sorted(found.items()) for what in several]


def read(path: Path) -> PageReader:
    reader = PageReader()
    reader.feed(path.read_text())
    return reader


def target(page: Path, address: str) -> Path | None:
    """Return the file that an address leads to; None if there is none."""
    path = unquote(urlsplit(address).path)
    there = (page.parent / path).resolve() if path else page
    there = there / "index.html" if there.is_dir() else there
    return there if there.is_file() else None


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print(*wrong or ["All links lead somewhere, and nothing is loaded from another host."], sep="\n")
    sys.exit(bool(wrong))
