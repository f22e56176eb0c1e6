"""The state file: whole, foreign, cut, flipped, newer."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deferkit import Deferrer, Pacing, UnreadableState
from deferkit.learn.state import MAGIC, VERSION
from tests.conftest import make, step_through


@pytest.fixture(scope="module")
def saved() -> bytes:
    learner, tasks = make("logistic")
    step_through(learner, tasks._replace(contexts=tasks.contexts[:60]))
    return learner.to_bytes()


def test_it_is_a_line_of_json_and_bytes(saved: bytes) -> None:
    magic, header, _ = saved.split(b"\n", 2)
    assert magic + b"\n" == MAGIC
    assert json.loads(header)["version"] == VERSION


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", pickle.dumps({"a": 1}), MAGIC, MAGIC + b"{}\n", MAGIC + b"[1]\n"]
)
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(UnreadableState, match="foreign"):
        Deferrer.load(tmp_path / "foreign")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableState, match="cannot be read: No such file"):
        Deferrer.load(tmp_path / "nothing")


def test_a_newer_version_is_refused(saved: bytes) -> None:
    magic, header, body = saved.split(b"\n", 2)
    newer = json.dumps({**json.loads(header), "version": VERSION + 1}).encode()
    said = f"is of version {VERSION + 1}, this deferkit reads versions up to {VERSION}"
    with pytest.raises(UnreadableState, match=said):
        Deferrer.from_bytes(b"\n".join([magic, newer, body]))


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cut_or_flipped_file_is_refused(saved: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(saved) - 1))
    with pytest.raises(UnreadableState):
        Deferrer.from_bytes(saved[:place])
    flipped = bytearray(saved)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(UnreadableState):
        Deferrer.from_bytes(bytes(flipped))


def test_saving_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    learner, tasks = make("resolve")
    path = tmp_path / "learner.state"
    learner.save(path)
    learner.decide(tasks.contexts[0])
    learner.save(path)
    assert Deferrer.load(path) == learner
    assert list(tmp_path.iterdir()) == [path]


def test_saving_where_nothing_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    learner, _ = make("resolve")
    with pytest.raises(OSError, match="nowhere"):
        learner.save(tmp_path / "nowhere" / "learner.state")


def test_learners_differ_if_anything_that_decides_does() -> None:
    learner, tasks = make("resolve")
    other, _ = make("resolve, small window")
    assert learner != other
    assert learner != "learner"
    same = Deferrer.from_bytes(learner.to_bytes())
    assert same == learner
    same.decide(tasks.contexts[0])
    assert same != learner


class Named(Deferrer):
    """A learner of a user's own class."""


@pytest.mark.parametrize("name", ["logistic", "adaptive", "trees", "neural, two networks, no skip", "short memory"])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_is_a_learner_of_its_own(name: str, duplicate: Callable[[Deferrer], Deferrer]) -> None:
    learner, tasks = make(name)
    step_through(learner, tasks._replace(contexts=tasks.contexts[:60]))
    other = duplicate(Named.from_bytes(learner.to_bytes()))
    assert type(other) is Named
    before = learner.to_bytes()
    assert other == learner
    step_through(other, tasks._replace(contexts=tasks.contexts[60:80]))
    assert learner.to_bytes() == before


@pytest.mark.parametrize("pacing", [Pacing(window=30), Pacing(kind="adaptive", step=0.1), Pacing(kind="paper")])
def test_a_pacing_can_be_copied_and_pickled(pacing: Pacing) -> None:
    assert copy.deepcopy(pacing) == pickle.loads(pickle.dumps(pacing)) == copy.copy(pacing) == pacing
