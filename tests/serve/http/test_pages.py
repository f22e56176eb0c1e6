"""Static pages of the console: which files there are, how they are kept, and what a browser may do with them."""

from pathlib import Path

import pytest

from deferkit.errors import InvalidArgument
from deferkit.serve.http.pages import FOLDER, TYPES, read_files
from deferkit.serve.service_settings import ServiceSettings
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import running

PAGES = ["/console", "/console/", "/console/p/claims/queue", "/console/decisions/a%2Fb", "/review", "/review/claims"]
SHELL = (FOLDER / "index.html").read_bytes()


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_the_shell(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status, answer.body) == (200, SHELL)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_a_browser_is_told_to_run_nothing_but_our_script_and_to_show_no_page_in_a_frame(client: Client) -> None:
    for path in (*PAGES, "/web/index.html"):
        headers = client.get(path).headers
        assert headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
            " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"


def test_every_file_of_the_folder_is_sent_as_what_it_is(client: Client) -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix not in (".LICENSE", ".ts")]
    assert {path.suffix for path in files} <= set(TYPES), "a file that no page could load"
    for path in files:
        answer = client.get(f"/web/{path.relative_to(FOLDER).as_posix()}")
        assert (answer.status, answer.body) == (200, path.read_bytes())
        kind, _, charset = answer.headers["content-type"].partition("; ")
        assert (kind, charset) == (TYPES[path.suffix], "charset=utf-8" if kind.startswith("text/") else "")
    assert len(read_files()) == len(files)


def test_a_copy_is_kept_and_asked_about(client: Client) -> None:
    first = client.get("/web/index.html")
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for known in (etag, f'"other", {etag}', f"W/{etag}"):
        again = client.get("/web/index.html", headers={"if-none-match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    assert client.get("/web/index.html", headers={"if-none-match": '"other"'}).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/web/",
        "/web/nope.js",
        "/web/../static_files.py",
        "/web/%2e%2e/http/access.py",
        "/web/..%2fhttp%2faccess.py",
        "/web//etc/passwd",
        "/web/%2fetc%2fpasswd",
        "/web/index.html%00.js",
        "/web/./index.html/../../__init__.py",
    ],
)
def test_nothing_but_the_files_of_the_pages_can_be_read(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status, answer.json["code"]) == (404, "unknown")


def test_a_browser_that_opens_the_address_is_sent_to_the_console(client: Client) -> None:
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    answer = client.get("/", headers={"accept": accept})
    assert (answer.status, answer.headers["location"], answer.body) == (303, "/console", b"")
    assert client.get("/", headers={"accept": "*/*"}).json["console"] == "/console"
    assert client.get("/").json["service"] == "deferkit decision service"


def test_images_of_named_hosts_may_be_shown(tmp_path: Path) -> None:
    with running(tmp_path, image_hosts="img.example, *.cdn.example:8443") as service:
        policy = service.client().get("/review/claims").headers["content-security-policy"]
    assert "; img-src 'self' data: img.example *.cdn.example:8443; " in policy


@pytest.mark.parametrize("hosts", ["a; script-src *", "https://img.example", "a b", "*", "a/b", "'self'"])
def test_image_hosts_are_hosts(hosts: str) -> None:
    with pytest.raises(InvalidArgument, match="image_hosts"):
        ServiceSettings(image_hosts=hosts)


def test_pages_need_no_key_and_tell_nothing(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        client = service.client()
        assert client.get("/console/p/claims").body == SHELL
        assert client.post("/console", {}).status == 405
        assert client.get("/v1/policies").status == 401
