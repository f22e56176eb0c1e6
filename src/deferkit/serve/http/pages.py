"""Routes of the pages and their static files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from litestar import Response, get
from litestar.params import FromPath

from deferkit.serve.domain.problems import unknown
from deferkit.serve.http.forwarding import header
from deferkit.serve.http.route_support import AnyRequest, route_options

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
        folder: Folder of the files. That of the console by default.

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


SHELL = "index.html"  # of every page: its script reads the path


def sent_file(request: AnyRequest, name: str) -> Response[bytes]:
    """Return a file of the console, or 304 if the browser has the latest version; raise if it does not exist."""
    found: StaticFile | None = request.app.state.files.get(name)
    if found is None:
        raise unknown("file", name)
    headers = {**request.app.state.page_headers, "etag": found.etag, "cache-control": "no-cache"}
    known = header(request.scope, b"if-none-match").decode("latin-1")
    if found.etag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(content=b"", status_code=304, headers=headers)
    return Response(content=found.body, media_type=found.content_type, headers=headers)


@get(
    ["/console", "/console/{rest:path}", "/review", "/review/{policy:str}"],
    opt=route_options("pages"),
    sync_to_thread=False,
)
def page(request: AnyRequest) -> Response[bytes]:
    """Open the console, or the review page of a policy."""
    return sent_file(request, SHELL)


@get("/web/{file:path}", opt=route_options("pages"), sync_to_thread=False)
def file(request: AnyRequest, file: FromPath[str]) -> Response[bytes]:
    """Return a file of the pages: script, style or picture."""
    return sent_file(request, file.removeprefix("/"))


PAGES = [page, file]
