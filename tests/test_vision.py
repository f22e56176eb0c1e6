"""Data sets of pictures that networks and people name: on small made-up files, and on the real ones where they are."""

import gzip
import os
import time
from collections.abc import Callable
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
from deferkit.worlds.answers import CLASSES
from deferkit.worlds.imagenet16h import MODEL_FILES, PEOPLE_FILES, SET, ImageNet16H, describe, read_people
from deferkit.worlds.model_vs_human import ModelVsHuman
from deferkit.worlds.running import Follower, Running
from deferkit.worlds.times import MEAN_S, MEDIAN_S, VARIATION, stand_in

REAL = os.environ.get("DEFERKIT_DATA", "")
LEVELS = (80, 95, 110, 125)


def write(path: Path, table: pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        file.write(table.write_csv().encode())


def pictures(rng: np.random.Generator, levels: tuple[int, ...] = LEVELS, n: int = 40) -> pl.DataFrame:
    """Return probabilities of two networks for n pictures at each noise level, columns as published."""
    rows = []
    for model in ("alexnet", "densenet161"):
        for level in levels:
            for picture in range(n):
                p = rng.dirichlet(np.full(16, 0.1))
                rows.append(
                    {
                        "model_name": model,
                        "noise_level": level,
                        "image_name": f"n{picture}",
                        "category": CLASSES[picture % 16],
                        "correct": int(CLASSES[p.argmax()] == CLASSES[picture % 16]),
                    }
                    | dict(zip(CLASSES, p, strict=True))
                )
    return pl.DataFrame(rows)


def people(rng: np.random.Generator, n: int = 40, *, original: bool = False) -> pl.DataFrame:
    """Return what 5 people said of every picture at every noise level; the re-shaped file is sorted by level."""
    rows = []
    for level in LEVELS:
        for person in ("7", "12", "3", "40", "5"):
            for picture in rng.permutation(n):
                truth = CLASSES[picture % 16]
                said = truth if rng.random() < 0.8 else str(rng.choice(CLASSES))
                rows.append(
                    {
                        "image_name": f"n{picture}",
                        "noise_level": level,
                        "participant_id": person,
                        "participant_classification": said,
                        "image_category": truth,
                        "correct": int(said == truth),
                    }
                )
    table = pl.DataFrame(rows)
    if original:
        times = rng.lognormal(8, 1, len(rows))
        ended = rng.permutation(len(rows)) + 1_600_000_000
        return table.with_columns(classification_time=pl.Series(times), task_end_time=pl.Series(ended))
    return table


def trials(rng: np.random.Generator) -> pl.DataFrame:
    """Return trials of three networks and 3 people in each of two experiments."""
    rows: list[dict[str, Any]] = []
    for experiment in ("sketch", "edge"):
        for person in ("subject-01", "subject-02", "subject-03"):
            for trial in range(30):
                truth = str(rng.choice(CLASSES))
                row: dict[str, Any] = {"experiment": experiment, "subj": person, "trial": trial + 1}
                row |= {"rt": None if trial == 4 else 0.5 + trial / 30, "image": f"x{trial}", "category": truth}
                for name in ("human", "clip", "resnet50", "bagnet9"):
                    said = "na" if name == "human" and trial == 4 else truth if rng.random() < 0.7 else "knife"
                    row |= {f"{name}_response": said, f"{name}_correct": int(said == truth)}
                rows.append(row)
    return pl.DataFrame(rows)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with both data sets, re-shaped."""
    rng = np.random.default_rng(0)
    write(tmp_path / "imagenet16h" / "human_trials.csv.gz", people(rng))
    write(tmp_path / "imagenet16h" / "model_preds_epoch10.csv.gz", pictures(rng))
    write(tmp_path / "imagenet16h" / "model_preds_epoch00_noise80_125.csv.gz", pictures(rng, (80, 125)))
    write(tmp_path / "model_vs_human" / "trials.csv.gz", trials(rng))
    monkeypatch.setenv("DEFERKIT_DATA", str(tmp_path))
    return tmp_path


def change(path: Path, how: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    write(path, how(pl.read_csv(path, infer_schema=False)))


@pytest.mark.parametrize(("model", "n", "levels"), [("fine-tuned", 800, ""), ("baseline", 400, "80 and 125 only")])
def test_imagenet16h_joins_people_and_network(folder: Path, model: str, n: int, levels: str) -> None:
    stream = ImageNet16H(model=model).draw(0)
    assert stream.contexts.shape == (n, 36)
    assert stream.costs.shape == (n, 1, 1)
    assert stream.costs.mean() == pytest.approx(1)
    assert stream.link == "logistic"
    assert "classification times are a stand-in" in stream.remark
    assert levels in stream.remark
    assert ("least fine-tuned" in stream.remark) == (model == "baseline")
    name = "model_preds_epoch10.csv.gz" if model == "fine-tuned" else "model_preds_epoch00_noise80_125.csv.gz"
    network = pl.read_csv(folder / "imagenet16h" / name).filter(model_name="densenet161")
    assert stream.rewards[:, 0].mean() == pytest.approx(network["correct"].mean())
    said = pl.read_csv(folder / "imagenet16h" / "human_trials.csv.gz").join(network, on=["image_name", "noise_level"])
    assert stream.rewards[:, 1].mean() == pytest.approx(said["correct"].mean())
    np.testing.assert_allclose(stream.contexts[:, 0], 1 / 6)
    assert np.linalg.norm(stream.contexts, axis=1).max() <= 1


def test_the_original_files_are_read_first_from_the_folders_they_come_in(folder: Path) -> None:
    """Costs are the recorded times, in the order in which a person's tasks ended; no remark is left."""
    rng = np.random.default_rng(1)
    table = people(rng, original=True)
    base = folder / "imagenet16h"
    write(base / "Behavioral Data" / "human_only_classification_6per_img_export.csv", table)
    write(base / "Machine Classifier Predictions" / "hai_epoch10_model_preds_max_normalized.csv", pictures(rng))
    write(base / "Machine Classifier Predictions" / "hai_baseline_model_preds_max_normalized.csv", pictures(rng))
    for model in ("fine-tuned", "baseline"):
        stream = ImageNet16H(model=model).draw(3)
        assert stream.remark == ""
        assert stream.n_tasks == 800
        assert stream.running is not None
        ordered = table.sort("task_end_time")
        recorded = [ordered.filter(participant_id=who)["classification_time"].to_numpy() for who in ("7", "12")]
        costs = stream.costs[:, 0, 0] * table["classification_time"].to_numpy().mean()
        blocks = costs.reshape(5, 160)
        for times in recorded:
            assert np.isclose(blocks, times).all(axis=1).sum() == 1


def test_a_missing_time_is_the_median_and_said_so(folder: Path) -> None:
    table = people(np.random.default_rng(1), original=True)
    times = table["classification_time"].to_list()
    known = float(np.median(times[1:]))
    path = folder / "imagenet16h" / "human_only_classification_6per_img_export.csv"
    write(path, table.with_columns(classification_time=pl.Series([None, *times[1:]])))
    stream = ImageNet16H().draw(0)
    assert stream.remark == "1 missing classification times are the median"
    assert np.isclose(stream.costs, known / np.mean([known, *times[1:]])).any()
    write(path, table.with_columns(classification_time=pl.Series([-1.0, *times[1:]])))
    with pytest.raises(InvalidArgument, match="classification_time of human_only.* must be numbers of at least 0"):
        ImageNet16H().draw(0)


@pytest.mark.parametrize("name", ["imagenet16h", "model-vs-human"])
def test_a_seed_reshuffles_people_and_keeps_their_trials_in_order(folder: Path, name: str) -> None:
    assert folder
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


def test_noise_levels_are_mixed_where_a_file_is_sorted_by_them(folder: Path) -> None:
    """A person's trials are 40 at each of 4 levels; unmixed, the stand-in's harder half would come last."""
    table = people(np.random.default_rng(1)).with_columns(classification_time=pl.col("noise_level").cast(float))
    write(folder / "imagenet16h" / "human_trials.csv.gz", table)
    costs = ImageNet16H().draw(0).costs[:, 0, 0].reshape(5, 160)
    assert (np.diff(costs, axis=1) < 0).sum(axis=1).min() > 30
    assert costs[:, :80].mean() == pytest.approx(costs[:, 80:].mean(), rel=0.1)


def test_what_is_known_of_a_person_is_observed_or_leaky(folder: Path) -> None:
    assert folder
    observed, leaked = (ImageNet16H(history=history).draw(2) for history in ("observed", "leaky"))
    assert observed.running is not None
    assert leaked.running is None
    assert (observed.contexts[:, -2:] == 0).all()
    np.testing.assert_array_equal(observed.contexts[:, :-2], leaked.contexts[:, :-2])
    follower = Follower(observed.contexts, observed.running)
    for task in range(observed.n_tasks):
        np.testing.assert_allclose(follower.context(task), leaked.contexts[task], atol=1e-12)
        follower.asked(task, observed.rewards[task, 1], observed.costs[task, 0, 0])


def test_one_very_long_task_does_not_dwarf_a_context() -> None:
    follower = Follower(np.zeros((2, 2)), Running(np.zeros(2, dtype=np.int64), 0, 1, 0.5, 5.0))
    follower.asked(0, 1.0, 300.0)
    assert follower.context(1).tolist() == [0.5, 2.5]


def test_no_context_knows_an_outcome_of_imagenet16h(folder: Path) -> None:
    before = ImageNet16H().draw(0)

    def forget(table: pl.DataFrame) -> pl.DataFrame:
        rng = np.random.default_rng(5)
        told = [name for name in table.columns if name in ("category", "image_category", "participant_classification")]
        outcomes = {name: pl.Series(rng.choice(CLASSES, len(table))) for name in told}
        return table.with_columns(correct=pl.Series(rng.integers(0, 2, len(table))), **outcomes)

    for name in ("human_trials", "model_preds_epoch10"):
        change(folder / "imagenet16h" / f"{name}.csv.gz", forget)
    after = ImageNet16H().draw(0)
    np.testing.assert_array_equal(before.contexts, after.contexts)
    assert not np.array_equal(before.rewards, after.rewards)


def test_no_context_knows_an_outcome_of_model_vs_human(folder: Path) -> None:
    before = ModelVsHuman().draw(0)

    def forget(table: pl.DataFrame) -> pl.DataFrame:
        rng = np.random.default_rng(5)
        flags = {name: pl.Series(rng.integers(0, 2, len(table))) for name in table.columns if "_correct" in name}
        told = {name: pl.Series(rng.choice(CLASSES, len(table))) for name in ("category", "human_response", "image")}
        return table.with_columns(rt=pl.Series(rng.random(len(table))), **flags, **told)

    change(folder / "model_vs_human" / "trials.csv.gz", forget)
    after = ModelVsHuman().draw(0)
    np.testing.assert_array_equal(before.contexts, after.contexts)
    assert not np.array_equal(before.rewards, after.rewards)


def test_model_vs_human_is_the_file_for_any_network(folder: Path) -> None:
    """By hand: agreement is 0, 1 or 2 of the two other networks; a missing time is the window of 1.5 s."""
    table = pl.read_csv(folder / "model_vs_human" / "trials.csv.gz")
    for model in ("clip", "resnet50", "bagnet9"):
        stream = ModelVsHuman(model=model).draw(0)
        assert stream.contexts.shape == (180, 1 + 16 + 1 + 2 + 2)
        assert stream.rewards.mean(axis=0) == pytest.approx(
            [table[f"{model}_correct"].mean(), table["human_correct"].mean()]
        )
        assert stream.remark == ""
        mean = table["rt"].fill_null(1.5).to_numpy().mean()
        assert stream.costs.max() == pytest.approx(1.5 / mean)
        agree = sum(
            (table[f"{model}_response"] == table[f"{n}_response"]).cast(int) for n in ("clip", "resnet50", "bagnet9")
        )
        assert isinstance(agree, pl.Series)
        in_context = np.unique(stream.contexts[:, 17], return_counts=True)[1]
        np.testing.assert_array_equal(in_context, np.unique(agree.to_numpy(), return_counts=True)[1])


def test_experiments_follow_each_other_or_are_shuffled(folder: Path) -> None:
    assert folder
    for seed in range(5):
        stream = ModelVsHuman().draw(seed)
        sketch = stream.contexts[:, 18]
        assert (np.diff(sketch) != 0).sum() == 1
        assert sketch[0] > 0 > sketch[-1]
    mixed = [(np.diff(ModelVsHuman(order="shuffled").draw(seed).contexts[:, 18]) != 0).sum() for seed in range(8)]
    assert max(mixed) > 1


def test_the_digest_of_the_data_is_a_parameter_and_no_path_is(folder: Path) -> None:
    for name in ("imagenet16h", "model-vs-human"):
        world = make_world(name, {})
        assert str(folder) not in str(world.parameters())
        assert make_world(name, world.parameters()) == world
    old, kept = ModelVsHuman(), ImageNet16H(model="baseline")
    change(folder / "model_vs_human" / "trials.csv.gz", lambda table: table.reverse())
    change(folder / "imagenet16h" / "model_preds_epoch10.csv.gz", lambda table: table.reverse())
    assert ModelVsHuman().data != old.data
    assert ImageNet16H(model="baseline") == kept
    with pytest.raises(InvalidArgument, match="the specification was made with"):
        ModelVsHuman(data=old.data)


def test_policies_run_on_both(folder: Path) -> None:
    assert folder
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
            "'model' of a ImageNet16H must be one of 'fine-tuned', 'baseline'. Got 'vgg'",
        ),
        ("imagenet16h", {"history": "all"}, "'history' of a ImageNet16H must be one of 'observed', 'leaky'"),
        ("model-vs-human", {"model": "gpt"}, "'model' of a ModelVsHuman must be one of 'clip', 'resnet50', 'bagnet9'"),
        ("model-vs-human", {"model": "human"}, "'model' of a ModelVsHuman must be one of"),
        ("model-vs-human", {"order": 3}, "'order' of a ModelVsHuman must be one of 'experiment', 'shuffled'"),
    ],
)
def test_bad_parameters_list_the_choices(folder: Path, name: str, given: dict[str, Any], message: str) -> None:
    assert folder
    with pytest.raises(InvalidArgument, match=message):
        make_world(name, given)
    with pytest.raises(InvalidArgument, match="'seed' of a"):
        make_world(name, {}).draw(-1)


def test_files_that_are_something_else(folder: Path) -> None:
    path = folder / "model_vs_human" / "trials.csv.gz"
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
    model = folder / "imagenet16h" / "model_preds_epoch10.csv.gz"
    change(model, lambda rows: rows.with_columns(noise_level=pl.lit("loud")))
    with pytest.raises(InvalidArgument, match="model_preds_epoch10.csv.gz cannot be read as a table"):
        ImageNet16H().draw(0)
    write(model, pictures(np.random.default_rng(0), (10,)))
    with pytest.raises(InvalidArgument, match="has no rows of densenet161 for the pictures"):
        ImageNet16H().draw(0)
    write(model, pl.concat([pictures(np.random.default_rng(0))] * 2))
    with pytest.raises(InvalidArgument, match="several rows of densenet161"):
        ImageNet16H().draw(0)


def test_the_stand_in_has_the_figures_of_the_recorded_times() -> None:
    """Mean and median within 1 %, variation within 2 %, for 145 people of 200 trials; slower where it should be."""
    rng = np.random.default_rng(3)
    person, wrong = np.arange(29_000) // 200, rng.random(29_000) < 0.2
    difficulty = rng.choice([-1.34, -0.45, 0.45, 1.34], 29_000)
    times = stand_in(person, difficulty, wrong)
    assert times.mean() == pytest.approx(MEAN_S, rel=0.01)
    assert np.median(times) == pytest.approx(MEDIAN_S, rel=0.01)
    assert times.std() / times.mean() == pytest.approx(VARIATION, rel=0.02)
    np.testing.assert_array_equal(times, stand_in(person, difficulty, wrong))
    assert np.median(times[wrong]) > 1.1 * np.median(times[~wrong])
    assert np.median(times[difficulty > 1]) > 1.2 * np.median(times[difficulty < -1])
    medians = np.median(times.reshape(145, 200), axis=1)
    assert 0.15 < medians.std() / medians.mean() < 0.4


def test_logits_are_finite_where_a_network_is_sure() -> None:
    features, answer = describe(np.array([[1.0, 0.0, 0.0], [0.2, 0.2, 0.6]]))
    assert np.isfinite(features).all()
    assert answer.tolist() == [0, 2]
    assert features[1, -1] == pytest.approx(np.log(1.5))


@pytest.mark.skipif(not Path(REAL, "imagenet16h").is_dir() or not REAL, reason="DEFERKIT_DATA has no ImageNet16H")
def test_the_published_accuracies_of_imagenet16h() -> None:
    """Densenet161 .893/.869/.831/.740 and people .900/.860/.771/.603 at noise 80/95/110/125."""
    world = ImageNet16H()
    stream = world.draw(0)
    assert stream.contexts.shape == (28_997, 36)
    assert stream.running is not None
    assert len(set(stream.running.person)) == 145
    assert stream.rewards.mean(axis=0) == pytest.approx([0.833, 0.784], abs=0.001)
    variation = stream.costs.std()
    assert variation == pytest.approx(VARIATION, rel=0.02)
    assert np.median(stream.costs) == pytest.approx(MEDIAN_S / MEAN_S, rel=0.02)
    begin = time.perf_counter()
    world.draw(1)
    assert time.perf_counter() - begin < 0.5  # 6 ms where nothing else runs
    assert ImageNet16H(model="baseline").draw(0).rewards[:, 0].mean() < 0.72
    trials, _ = read_people(SET.find(*PEOPLE_FILES))
    network = pl.read_csv(SET.find(*MODEL_FILES["fine-tuned"])).filter(model_name="densenet161")
    for level, published in zip(LEVELS, ((0.893, 0.900), (0.869, 0.860), (0.831, 0.771), (0.740, 0.603)), strict=True):
        rows = network.filter(noise_level=level)
        named = np.array(CLASSES)[describe(rows.select(CLASSES).to_numpy())[1]]
        accuracies = (named == rows["category"].to_numpy()).mean(), trials.filter(noise_level=level)["right"].mean()
        assert accuracies == pytest.approx(published, abs=0.0006)


@pytest.mark.skipif(not Path(REAL, "model_vs_human").is_dir() or not REAL, reason="DEFERKIT_DATA has no model-vs-human")
def test_the_published_accuracies_of_model_vs_human() -> None:
    """People .817, clip .607, resnet50 .313; times of 0.26 to 1.5 s."""
    for model, accuracy in (("clip", 0.607), ("resnet50", 0.313)):
        stream = ModelVsHuman(model=model).draw(0)
        assert stream.contexts.shape == (21_600, 24)
        assert stream.rewards.mean(axis=0) == pytest.approx([accuracy, 0.817], abs=0.001)
        assert stream.running is not None
        assert len(set(stream.running.person)) == 37
        assert stream.costs.max() < 1.8
    with pytest.raises(InvalidArgument) as caught:
        ModelVsHuman(model="gpt")
    assert str(caught.value).count("'") == 2 + 2 * 13 + 2
