"""Where a learner cannot be saved, the error says why."""

import errno
import os
from pathlib import Path

import pytest

from deferkit import Budget, DeferkitError, Deferrer, UnwritableState
from deferkit.errors import InvalidArgument


def test_a_learner_saved_to_a_folder_says_what_is_wrong(tmp_path: Path) -> None:
    learner = Deferrer(n_features=1, budget=Budget(5, horizon=10))
    with pytest.raises(InvalidArgument, match=r"is a folder; the name of a file is needed\.$"):
        learner.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_learner_does_not_replace_what_is_no_ordinary_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidArgument, match=r"is not an ordinary file\.$"):
        Deferrer(n_features=1, budget=Budget(5, horizon=10)).save(pipe)
    assert pipe.is_fifo()


def test_a_learner_saved_to_a_full_disk_says_so_and_leaves_the_old_file(tmp_path: Path) -> None:
    learner, path = Deferrer(n_features=1, budget=Budget(5, horizon=10)), tmp_path / "a.state"
    learner.save(path)
    before = path.read_bytes()
    learner.decide([1.0])
    (tmp_path / f".a.state.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(DeferkitError) as caught:
        learner.save(path)
    assert str(caught.value) == f"{path} cannot be written: No space left on device."
    assert isinstance(caught.value, UnwritableState)
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_learner_saved_where_there_is_no_folder_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    learner = Deferrer(n_features=1, budget=Budget(5, horizon=10))
    for folder, reason in (("nowhere", "No such file or directory"), ("file", "Not a directory")):
        with pytest.raises(UnwritableState) as caught:
            learner.save(tmp_path / folder / "a.state")
        assert str(caught.value) == f"{tmp_path / folder / 'a.state'} cannot be written: {reason}."
