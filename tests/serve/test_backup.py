"""`deferkit backup` and `restore`: while a service runs, private, verified by replay, and never over a file."""

import lzma
import stat
import threading
from functools import partial
from pathlib import Path

import apsw
import pytest

from deferkit.serve.audit.replay import replay
from deferkit.serve.storage.open_store import store_to_read
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.command_line import Runner, deferkit
from tests.serve.harness.clients import Client
from tests.serve.harness.fault_injection import Disk
from tests.serve.harness.in_process import POLICY
from tests.serve.harness.service_process import ServiceProcess, command

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of this version, with two policies."""
    path = tmp_path / "deferkit.db"
    path.write_bytes(lzma.decompress((GOLDEN / "store-with-trees.db.xz").read_bytes()))
    Sqlite(str(path)).prepare()
    return path


def rows(path: Path) -> list[tuple[str, int, bytes]]:
    kept = store_to_read(str(path))
    found = [(row.name, row.seq, row.head) for row in kept.policies()]
    kept.close()
    return found


def test_a_backup_of_a_running_service_is_private_whole_and_can_be_served_at_once(tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    with ServiceProcess(tmp_path) as served:
        client = Client(served.url)
        assert client.post("/v1/policies", POLICY | {"budget": {"cost": {"max_cost": 1}}}).status == 201
        over = threading.Event()
        answered = 0

        def decide() -> None:
            nonlocal answered
            mine = Client(served.url)
            while not over.is_set():
                assert mine.decide(f"t{answered}").status == 201
                answered += 1
            mine.connection.close()

        thread = threading.Thread(target=decide)
        thread.start()
        before = answered
        ended = command("backup", str(tmp_path / "deferkit.db"), str(copy))
        over.set()
        thread.join()
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == f"{copy}: 1 policy copied and checked.\n"
        client.connection.close()
        assert served.wait(0) is None
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert [each.name for each in copy.parent.iterdir()] == ["copy.db"]
        [(_, n_rows, _)] = rows(copy)
        assert before < n_rows <= answered + 1
    (copy.parent / "deferkit.db").hardlink_to(copy)
    with ServiceProcess(copy.parent) as served:
        client = Client(served.ready().url)
        assert client.get("/v1/policies/p/summary").json["decisions"] == n_rows - 1
        assert client.decide("new").status == 201
        client.connection.close()
        assert served.stop() == 0


def test_a_backup_is_restored(store: Path, tmp_path: Path, said: Runner) -> None:
    copy, again = tmp_path / "copy.db", tmp_path / "again.db"
    assert said("backup", str(store), str(copy)).code == 0
    ended = said("restore", str(copy), str(again))
    assert (ended.code, ended.out) == (0, f"{again}: 2 policies restored and checked.\n")
    assert rows(again) == rows(copy) == rows(store)
    assert stat.S_IMODE(again.stat().st_mode) == 0o600
    kept = Store(Sqlite(str(again)))
    assert [replay(kept, row.tenant, row.name).faults for row in kept.policies()] == [[], []]
    kept.close()


def test_nothing_is_replaced_without_force(store: Path, tmp_path: Path, said: Runner) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("mine")
    for words in (("backup", str(store), str(copy)), ("restore", str(store), str(copy))):
        ended = said(*words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.error == f"error: There is a file {copy} already; --force replaces it.\n"
    assert copy.read_text() == "mine"
    assert said("backup", str(store), str(copy), "--force").code == 0
    assert rows(copy) == rows(store)


def test_a_store_that_is_served_is_not_replaced(store: Path, tmp_path: Path, said: Runner) -> None:
    copy = tmp_path / "copy.db"
    assert said("backup", str(store), str(copy)).code == 0
    served = Sqlite(str(store))
    served.occupy()
    ended = command("restore", str(copy), str(store), "--force")  # another process: the lock is of this one
    served.close()
    assert ended.returncode == 2
    assert "is served by another process" in ended.stderr
    assert said("restore", str(copy), str(store), "--force").code == 0
    assert rows(store) == rows(copy)


def test_what_is_damaged_is_not_called_a_backup(store: Path, tmp_path: Path, said: Runner) -> None:
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE log SET at = at + 1 WHERE policy = 1 AND seq = 5")
    connection.close()
    ended = said("backup", str(store), str(tmp_path / "copy.db"))
    assert (ended.code, ended.out) == (2, "")
    assert "Row 5 of the log of policy" in ended.error
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize("words", [("backup",), ("restore",), ("restore", "--force")])
def test_a_full_disk_gets_one_line_with_the_reason(
    words: tuple[str, ...], store: Path, tmp_path: Path, said: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    disk.full = ("",)  # every file of it
    monkeypatch.setattr(
        apsw, "Connection", partial(apsw.Connection, vfs=disk.name)
    )  # a store that is read says its own
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    ended = said(*words, str(store), str(copy))
    disk.unregister()
    assert (ended.code, ended.out) == (2, "")
    assert ended.error == f"error: {copy} cannot be written: No space left on device.\n"
    assert not list(copy.parent.glob("copy.db*"))


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_file_that_may_not_grow_gets_one_line_with_the_reason(command: str, store: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    copy = tmp_path / "copy.db"
    ended = deferkit(command, str(store), str(copy), setup=limit)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: {copy} cannot be written: File too large.\n"
    assert not list(tmp_path.glob("copy.db*"))


def test_an_older_store_is_copied_as_it_is(tmp_path: Path, said: Runner) -> None:
    old, copy = tmp_path / "old.db", tmp_path / "copy.db"
    old.write_bytes(lzma.decompress((GOLDEN / "store.db.xz").read_bytes()))
    before = old.read_bytes()
    assert said("backup", str(old), str(copy)).code == 0
    assert old.read_bytes() == before
    version = "PRAGMA user_version"
    assert Sqlite(str(copy)).reader().execute(version) == Sqlite(str(old)).reader().execute(version) == [(4,)]


def test_mistakes_get_one_clear_line(store: Path, tmp_path: Path, said: Runner) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database " * 100)
    for words, expected in {
        (str(tmp_path / "none.db"), str(tmp_path / "copy.db")): "There is no file",
        (str(text), str(tmp_path / "copy.db")): "is no store of deferkit, or cannot be read",
        (str(store), str(store)): "is the store itself",
        (str(store), str(tmp_path)): "is a folder; the name of a file is needed",
        (str(store), str(tmp_path / "nowhere" / "copy.db")): "There is no folder",
        ("postgresql://ann:secret@host/db", str(tmp_path / "copy.db")): "use pg_dump and pg_restore",
    }.items():
        ended = said("backup", *words)
        assert (ended.code, ended.out) == (2, ""), words
        assert expected in ended.error
        assert ended.error.count("\n") == 1
        assert "secret" not in ended.error
