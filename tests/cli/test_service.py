"""`deferkit serve` and `deferkit keys` on the command line: what is wrong is said in one line."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from deferkit.cli.service import FIRST
from deferkit.serve.domain.api_keys import parts_of
from deferkit.serve.http import server
from deferkit.serve.service_settings import ServiceSettings
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.command_line import Runner
from tests.serve.harness.clients import Client, until
from tests.serve.harness.in_process import POLICY, running
from tests.serve.harness.service_process import ServiceProcess, command


@pytest.fixture
def said(said: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    """Runs commands in this process, on a store of their own."""
    monkeypatch.setenv("DEFERKIT_STORE", str(tmp_path / "deferkit.db"))
    monkeypatch.setattr(server, "log_to_stderr", lambda _: None)  # the log of this process stays as it is
    return said


def store_of(path: Path) -> Store:
    return Store(Sqlite(str(path / "deferkit.db")))


def test_a_key_is_made_listed_and_revoked(said: Runner, tmp_path: Path) -> None:
    made = said("keys", "create", "--tenant", "[/acme]", "--scopes", "decide, admin", "--name", "a [bold] one")
    key = made.out.removesuffix("\n")
    number, secret = parts_of(key) or ("", "")
    told = f"Key {number} of tenant [/acme], for decide admin. It is not shown again.\n"
    assert made == (0, f"{key}\n", f"{told}{FIRST}\n")
    assert "first" not in said("keys", "create").error
    listed = said("keys", "list").out
    for text in (number, "[/acme]", "decide admin", "a [bold] one"):
        assert text in listed
    assert secret not in listed
    with running(tmp_path) as service:
        client = service.client(key=key)
        assert client.post("/v1/policies", POLICY).status == 201
        assert client.post("/v1/policies/p/outcomes", {"task": "t"}).status == 403
        assert said("keys", "revoke", number).out == f"Key {number} is revoked.\n"
        until(lambda: client.get("/v1/policies").status == 401, seconds=10)
    assert said("keys", "revoke", number).code == 2


WRONG = {
    "an unknown scope": (
        ["create", "--scopes", "decide,fly"],
        "Scopes are decide, observe, review, read, admin, operator. Got fly.",
    ),
    "no scope": (["create", "--scopes", " , "], "Scopes are decide, observe, review, read, admin, operator. Got none."),
    "no tenant": (["create", "--tenant", ""], "The tenant is a name of 1 to 64 characters. Got ''."),
    "a tenant with a newline": (["create", "--tenant", "a\nb"], "The tenant is a name of 1 to 64 characters."),
    "a name with a bell": (["create", "--name", "\a"], "The name of a key has at most 64 characters."),
    "an unknown key": (["revoke", "nope"], "There is no key 'nope' to revoke; `deferkit keys list` shows"),
    "a key itself": (["revoke", "dk_1_2"], "There is no key 'dk_1_2' to revoke"),
}


@pytest.mark.parametrize(("arguments", "sentence"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_key_is_said_in_one_line(
    said: Runner, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    Sqlite(str(tmp_path / "deferkit.db")).prepare()
    code, out, error = said("keys", *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"error: {sentence}")
    assert error.count("\n") == 1
    assert store_of(tmp_path).keys() == []


@pytest.mark.parametrize(
    "arguments", [("list",), ("revoke", "1"), ("create", "--scopes", "fly"), ("create", "--tenant", "")]
)
def test_a_mistake_makes_no_file(said: Runner, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert said("keys", *arguments).code == 2
    assert list(tmp_path.iterdir()) == []


def old_file(path: Path) -> Sqlite:
    """Return a store as an older deferkit has left it."""
    database = Sqlite(str(path / "deferkit.db"))
    database.prepare()
    with closing(database.writer()) as writer:
        writer.execute("PRAGMA user_version = 1")
    return database


@pytest.mark.parametrize("arguments", [("list",), ("revoke", "1"), ("create",)])
def test_no_file_is_brought_up_to_date_under_a_process_that_serves(
    said: Runner, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    database = old_file(tmp_path)
    database.occupy()
    assert said("keys", *arguments).code == 2
    with closing(database.writer()) as writer:
        assert writer.execute("PRAGMA user_version") == [(1,)]
    database.close()


def test_a_key_may_be_made_before_and_while_a_service_runs(said: Runner, tmp_path: Path) -> None:
    assert said("keys", "create").code == 0
    database = Sqlite(str(tmp_path / "deferkit.db"))
    database.occupy()
    assert said("keys", "create").code == 0
    assert said("keys", "list").out.count("default") == 2
    database.close()


REFUSED = {
    "0.0.0.0 without keys": (
        ["--host", "0.0.0.0", "--port", "0"],
        "0.0.0.0 can be reached from elsewhere, and there are no keys.",
    ),
    ":: without keys": (["--host", "::", "--port", "0"], ":: can be reached from elsewhere, and there are no keys."),
    "a port too high": (["--port", "70000"], "The setting 'port' must be from 0 to 65,535. Got 70000 instead."),
    "a loud log": (["--log-level", "loud"], "The setting 'log_level' must be debug, info, warning or error."),
    "a folder that is not there": (
        ["--port", "0", "--store", "/nowhere/at/all.db"],
        "There is no folder /nowhere/at to put",
    ),
    "a folder in the place of a file": (["--port", "0", "--store", "/tmp"], "/tmp cannot be opened"),
    "a host that is nowhere": (["--host", "nohost.invalid"], "There is no address 'nohost.invalid' to listen on."),
    "another database": (
        ["--store", "mysql://a:b@x"],
        "A store is a file or a postgresql:// URL. Got mysql:// instead.",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_with_a_service_is_said_in_one_line(said: Runner, arguments: list[str], sentence: str) -> None:
    code, out, error = said("serve", *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"error: {sentence}")
    assert error.count("\n") == 1


def test_a_service_that_others_can_reach_does_not_start_when_all_keys_are_revoked(said: Runner) -> None:
    key = said("keys", "create").out.strip()
    assert said("keys", "revoke", (parts_of(key) or ("", ""))[0]).code == 0
    code, _, error = said("serve", "--host", "0.0.0.0", "--port", "0")
    assert code == 2
    assert "there are no keys" in error


def test_a_service_whose_keys_are_all_revoked_is_not_open(said: Runner, tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.database.prepare()
    assert server.check_access(ServiceSettings(), store) is True
    number, _ = parts_of(said("keys", "create").out.strip()) or ("", "")
    assert server.check_access(ServiceSettings(), store) is False
    assert server.check_access(ServiceSettings(host="0.0.0.0"), store) is False
    store.revoke_key(number, 1)
    assert server.check_access(ServiceSettings(), store) is False
    store.close()


def test_a_password_in_a_url_is_not_printed(said: Runner) -> None:
    url = "postgresql://ann:s3cret@127.0.0.1:1/none?connect_timeout=1"
    code, out, error = said("serve", "--port", "0", "--store", url)
    assert code == 2
    assert error.startswith("error: ")
    assert "s3cret" not in out + error


def test_a_port_that_is_taken_is_said_and_nothing_is_left_owned(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command("serve", "--port", str(port), "--store", str(tmp_path / "deferkit.db"))
    assert done.returncode == 2
    way_out = "Another port, or any that is free: --port 0."
    assert done.stderr == f"error: 127.0.0.1:{port} cannot be listened on: Address already in use. {way_out}\n"
    assert list(tmp_path.iterdir()) == []
    with running(tmp_path) as service:
        assert service.client().post("/v1/policies", POLICY).status == 201


def test_a_service_on_a_file_that_is_served_says_so(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as served:
        client = Client(served.url)
        client.post("/v1/policies", POLICY)
        done = command("serve", "--port", "0", "--store", str(tmp_path / "deferkit.db"))
        assert done.returncode == 2
        assert "by another process" in done.stderr.splitlines()[-1]
        assert client.decide("t").status == 201
        client.connection.close()
        assert served.stop() == 0


@pytest.mark.parametrize(("address", "warnings"), [("", 1), ("http://here:1", 0)])
def test_a_shared_database_wants_an_address(
    address: str, warnings: int, said: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr("deferkit.serve.http.server.logger.warning", warned.append)
    monkeypatch.setattr(Sqlite, "shared", True)
    monkeypatch.setattr(server.Server, "run", lambda _: None)
    assert said("serve", "--port", "0", "--address", address).code == 0
    assert len(warned) == warnings
