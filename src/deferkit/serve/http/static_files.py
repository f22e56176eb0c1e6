"""The files of the console, read into memory once: what is not one of them cannot be asked for."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "web"
TYPES = {  # the framework adds that text is UTF-8
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain",
}


class StaticFile(NamedTuple):
    """A file as it is sent."""

    body: bytes
    content_type: str
    etag: str


def read_files(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Return the files of a folder that have a known type, by their path in it.

    Args:
        folder: Where they are; the console's own unless given.

    >>> read_files()["index.html"].content_type
    'text/html'
    """
    return {
        path.relative_to(folder).as_posix(): static_file(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }


def static_file(path: Path) -> StaticFile:
    """Read a file; its ETag is a hash of its content."""
    body = path.read_bytes()
    return StaticFile(body, TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
