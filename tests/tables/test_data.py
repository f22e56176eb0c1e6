"""What the data sets of pictures share: where they lie, people, orders, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deferkit import InvalidArgument
from deferkit.errors import MissingData
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from deferkit.worlds import make_world
from deferkit.worlds.base import Follower, Running
from deferkit.worlds.imagenet16h import ImageNet16H
from deferkit.worlds.model_vs_human import ModelVsHuman
from tests.picture_files import change, people, pictures, trials, write


@pytest.mark.parametrize("name", ["imagenet16h", "model-vs-human"])
def test_a_seed_reshuffles_people_and_keeps_their_trials_in_order(picture_data: Path, name: str) -> None:
    assert picture_data
    world = make_world(name, {"order": "shuffled"} if name == "model-vs-human" else {})
    one, again, other = world.draw(0), world.draw(0), world.draw(1)
    np.testing.assert_array_equal(one.contexts, again.contexts)
    orders = []
    for stream in (one, other):
        assert stream.running is not None
        person = stream.running.person
        orders.append(person[np.sort(np.unique(person, return_index=True)[1])].tolist())
        assert np.count_nonzero(np.diff(person)) == len(set(person)) - 1
    assert orders[0] != orders[1]
    for who in orders[0]:
        rows = [np.flatnonzero(stream.running.person == who) for stream in (one, other) if stream.running]
        np.testing.assert_array_equal(one.contexts[rows[0]], other.contexts[rows[1]])
        np.testing.assert_array_equal(one.costs[rows[0]], other.costs[rows[1]])


def test_what_is_known_of_a_person_is_observed_or_leaky(picture_data: Path) -> None:
    assert picture_data
    observed, leaked = (ImageNet16H(history=history).draw(2) for history in ("observed", "leaky"))
    assert observed.running is not None
    assert leaked.running is None
    assert (observed.contexts[:, -2:] == 0).all()
    np.testing.assert_array_equal(observed.contexts[:, :-2], leaked.contexts[:, :-2])
    follower = Follower(observed.contexts, observed.running)
    for task in range(observed.n_tasks):
        np.testing.assert_allclose(follower.context(task), leaked.contexts[task], atol=1e-12)
        follower.record_answer(task, observed.rewards[task, 1], observed.costs[task, 0, 0])


def test_one_very_long_task_does_not_dwarf_a_context() -> None:
    follower = Follower(np.zeros((2, 2)), Running(np.zeros(2, dtype=np.int64), 0, 1, 0.5, 5.0))
    follower.record_answer(0, 1.0, 300.0)
    assert follower.context(1).tolist() == [0.5, 2.5]


def test_the_digest_of_the_data_is_a_parameter_and_no_path_is(picture_data: Path) -> None:
    for name in ("imagenet16h", "model-vs-human"):
        world = make_world(name, {})
        assert str(picture_data) not in str(world.parameters())
        assert make_world(name, world.parameters()) == world
    old, kept = ModelVsHuman(), ImageNet16H(model="baseline")
    change(picture_data / "model_vs_human" / "trials.csv.gz", lambda table: table.reverse())
    change(picture_data / "imagenet16h" / "model_preds_epoch10.csv.gz", lambda table: table.reverse())
    assert ModelVsHuman().data != old.data
    assert ImageNet16H(model="baseline") == kept
    with pytest.raises(InvalidArgument, match="the specification was made with"):
        ModelVsHuman(data=old.data)


def test_policies_run_on_both(picture_data: Path) -> None:
    assert picture_data
    for name in ("imagenet16h", "model-vs-human"):
        for history in ("observed", "leaky"):
            specs = [
                Spec.of(name, {"history": history}, policy=policy, budget="0.25T")
                for policy in ("model-only", "default", "opt")
            ]
            rows = run_together(specs, seed=0)
            assert not [row for row in rows if "failure" in row], rows
            assert rows[1]["spent"] <= rows[1]["budget"]
            assert rows[2]["gain"] == pytest.approx(100)


def test_missing_data_says_what_to_get_and_where_to_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEFERKIT_DATA", raising=False)
    with pytest.raises(MissingData) as caught:
        ImageNet16H()
    for words in (
        "ImageNet16H",
        "https://osf.io/2ntrf/",
        "human_only_classification_6per_img_export.csv",
        "DEFERKIT_DATA is not set",
        "a folder named imagenet16h",
    ):
        assert words in str(caught.value)
    monkeypatch.setenv("DEFERKIT_DATA", str(tmp_path))
    with pytest.raises(MissingData, match="https://github.com/bethgelab/model-vs-human.*model_vs_human") as caught:
        Spec.of("model-vs-human", {}, policy="default", budget="0.25T")
    assert "trials.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
    write(tmp_path / "imagenet16h" / "human_trials.csv", people(np.random.default_rng(0)))
    with pytest.raises(MissingData, match="hai_baseline_model_preds_max_normalized.csv"):
        ImageNet16H(model="baseline")


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (
            "imagenet16h",
            {"model": "vgg"},
            "'model' of an ImageNet16H must be one of 'fine-tuned', 'baseline'. Got 'vgg'",
        ),
        ("imagenet16h", {"history": "all"}, "'history' of an ImageNet16H must be one of 'observed', 'leaky'"),
        ("model-vs-human", {"model": "gpt"}, "'model' of a ModelVsHuman must be one of 'clip', 'resnet50', 'bagnet9'"),
        ("model-vs-human", {"model": "human"}, "'model' of a ModelVsHuman must be one of"),
        ("model-vs-human", {"order": 3}, "'order' of a ModelVsHuman must be one of 'experiment', 'shuffled'"),
    ],
)
def test_bad_parameters_list_the_choices(picture_data: Path, name: str, given: dict[str, Any], message: str) -> None:
    assert picture_data
    with pytest.raises(InvalidArgument, match=message):
        make_world(name, given)
    with pytest.raises(InvalidArgument, match="'seed' of a"):
        make_world(name, {}).draw(-1)


def test_files_that_are_something_else(picture_data: Path) -> None:
    path = picture_data / "model_vs_human" / "trials.csv.gz"
    table = trials(np.random.default_rng(0))
    write(path, table.drop("rt"))
    with pytest.raises(InvalidArgument, match="trials.csv.gz has no column rt. It has: experiment, subj"):
        ModelVsHuman()
    write(path, table.with_columns(clip_response=pl.lit("spoon")))
    with pytest.raises(InvalidArgument, match="clip_response of trials.csv.gz has answers that are not categories"):
        ModelVsHuman().draw(0)
    path.write_bytes(b"nothing that gzip knows\n")
    with pytest.raises(InvalidArgument, match="trials.csv.gz (has no column|cannot be read)"):
        ModelVsHuman()
    model = picture_data / "imagenet16h" / "model_preds_epoch10.csv.gz"
    change(model, lambda rows: rows.with_columns(noise_level=pl.lit("loud")))
    with pytest.raises(InvalidArgument, match="model_preds_epoch10.csv.gz cannot be read as a table"):
        ImageNet16H().draw(0)
    write(model, pictures(np.random.default_rng(0), (10,)))
    with pytest.raises(InvalidArgument, match="has no rows of densenet161 for the pictures"):
        ImageNet16H().draw(0)
    write(model, pl.concat([pictures(np.random.default_rng(0))] * 2))
    with pytest.raises(InvalidArgument, match="several rows of densenet161"):
        ImageNet16H().draw(0)
