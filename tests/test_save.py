"""Where a learner cannot be saved, the error says why."""

import os
from pathlib import Path

import pytest

from deferkit import Budget, Deferrer
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
