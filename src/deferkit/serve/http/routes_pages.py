"""Pages of the console: static files that need no key. All data comes from the routes under /v1."""

from litestar import Response, get
from litestar.params import FromPath

from deferkit.serve.domain.problems import unknown
from deferkit.serve.http.headers import header
from deferkit.serve.http.route_support import AnyRequest, about
from deferkit.serve.http.static_files import StaticFile

SHELL = "index.html"  # of every page: its script reads the path


def sent_file(request: AnyRequest, name: str) -> Response[bytes]:
    """Return a file of the console, or only that a browser's copy is the latest; raise if there is no such file."""
    found: StaticFile | None = request.app.state.files.get(name)
    if found is None:
        raise unknown("file", name)
    headers = {**request.app.state.page_headers, "etag": found.etag, "cache-control": "no-cache"}
    known = header(request.scope, b"if-none-match").decode("latin-1")
    if found.etag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(content=b"", status_code=304, headers=headers)
    return Response(content=found.body, media_type=found.content_type, headers=headers)


@get(["/console", "/console/{rest:path}", "/review", "/review/{policy:str}"], opt=about("pages"), sync_to_thread=False)
def page(request: AnyRequest) -> Response[bytes]:
    """Open the console, or the review page of a policy."""
    return sent_file(request, SHELL)


@get("/web/{file:path}", opt=about("pages"), sync_to_thread=False)
def file(request: AnyRequest, file: FromPath[str]) -> Response[bytes]:
    """Return a file of the pages: script, style or picture."""
    return sent_file(request, file.removeprefix("/"))


PAGES = [page, file]
