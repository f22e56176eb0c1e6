"""The file of a store: one process serves from it, whatever it is called, and only its owner reads it."""

import stat
from pathlib import Path

import pytest

from deferkit.errors import DeferkitError
from deferkit.serve.storage.sqlite import Sqlite


def test_a_file_has_one_lock_whatever_it_is_called(tmp_path: Path) -> None:
    file, link, folder = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "folder"
    link.symlink_to(file)
    folder.symlink_to(tmp_path)
    first = Sqlite(str(file))
    first.occupy()
    for other in (link, folder / "a.db", tmp_path / "." / "a.db"):
        with pytest.raises(DeferkitError, match="served by another process"):
            Sqlite(str(other)).occupy()
    first.close()
    second = Sqlite(str(link))
    second.occupy()
    with pytest.raises(DeferkitError, match="served by another process"):
        first.occupy()
    second.close()


@pytest.mark.parametrize("name", ["a.db", "link.db"])
def test_only_its_owner_reads_what_is_in_a_store(tmp_path: Path, name: str) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    database = Sqlite(str(tmp_path / name))
    database.occupy()
    database.prepare()
    writer = database.writer()
    writer.begin()
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert {"a.db", "a.db-wal", "a.db-shm", "a.db-served"} <= set(found)
    assert set(found.values()) == {0o600}
    writer.rollback()
    writer.close()
    database.close()


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.touch(0o640)
    file.chmod(0o640)
    Sqlite(str(file)).prepare()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
