"""ImageNet16H, on small made-up files."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from deferkit import InvalidArgument
from deferkit.worlds.imagenet16h import ImageNet16H, describe
from deferkit.worlds.people import CLASSES, MEAN_S, MEDIAN_S, VARIATION, stand_in
from tests.picture_files import change, people, pictures, write


@pytest.mark.parametrize(("model", "n", "levels"), [("fine-tuned", 800, ""), ("baseline", 400, "80 and 125 only")])
def test_imagenet16h_joins_people_and_network(picture_data: Path, model: str, n: int, levels: str) -> None:
    stream = ImageNet16H(model=model).draw(0)
    assert stream.contexts.shape == (n, 36)
    assert stream.costs.shape == (n, 1, 1)
    assert stream.costs.mean() == pytest.approx(1)
    assert stream.link == "logistic"
    assert "classification times are a stand-in" in stream.remark
    assert levels in stream.remark
    assert ("least fine-tuned" in stream.remark) == (model == "baseline")
    name = "model_preds_epoch10.csv.gz" if model == "fine-tuned" else "model_preds_epoch00_noise80_125.csv.gz"
    network = pl.read_csv(picture_data / "imagenet16h" / name).filter(model_name="densenet161")
    assert stream.rewards[:, 0].mean() == pytest.approx(network["correct"].mean())
    said = pl.read_csv(picture_data / "imagenet16h" / "human_trials.csv.gz").join(
        network, on=["image_name", "noise_level"]
    )
    assert stream.rewards[:, 1].mean() == pytest.approx(said["correct"].mean())
    np.testing.assert_allclose(stream.contexts[:, 0], 1 / 6)
    assert np.linalg.norm(stream.contexts, axis=1).max() <= 1


def test_the_original_files_are_read_first_from_the_folders_they_come_in(picture_data: Path) -> None:
    """Costs are the recorded times, in the order in which a person's tasks ended; no remark is left."""
    rng = np.random.default_rng(1)
    table = people(rng, original=True)
    base = picture_data / "imagenet16h"
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


def test_a_missing_time_is_the_median_and_said_so(picture_data: Path) -> None:
    table = people(np.random.default_rng(1), original=True)
    times = table["classification_time"].to_list()
    known = float(np.median(times[1:]))
    path = picture_data / "imagenet16h" / "human_only_classification_6per_img_export.csv"
    write(path, table.with_columns(classification_time=pl.Series([None, *times[1:]])))
    stream = ImageNet16H().draw(0)
    assert stream.remark == "1 missing classification times are the median"
    assert np.isclose(stream.costs, known / np.mean([known, *times[1:]])).any()
    write(path, table.with_columns(classification_time=pl.Series([-1.0, *times[1:]])))
    with pytest.raises(InvalidArgument, match="classification_time of human_only.* must be numbers of at least 0"):
        ImageNet16H().draw(0)


def test_noise_levels_are_mixed_where_a_file_is_sorted_by_them(picture_data: Path) -> None:
    """A person's trials are 40 at each of 4 levels; unmixed, the stand-in's harder half would come last."""
    table = people(np.random.default_rng(1)).with_columns(classification_time=pl.col("noise_level").cast(float))
    write(picture_data / "imagenet16h" / "human_trials.csv.gz", table)
    costs = ImageNet16H().draw(0).costs[:, 0, 0].reshape(5, 160)
    assert (np.diff(costs, axis=1) < 0).sum(axis=1).min() > 30
    assert costs[:, :80].mean() == pytest.approx(costs[:, 80:].mean(), rel=0.1)


def test_no_context_knows_an_outcome_of_imagenet16h(picture_data: Path) -> None:
    before = ImageNet16H().draw(0)

    def forget(table: pl.DataFrame) -> pl.DataFrame:
        rng = np.random.default_rng(5)
        told = [name for name in table.columns if name in ("category", "image_category", "participant_classification")]
        outcomes = {name: pl.Series(rng.choice(CLASSES, len(table))) for name in told}
        return table.with_columns(correct=pl.Series(rng.integers(0, 2, len(table))), **outcomes)

    for name in ("human_trials", "model_preds_epoch10"):
        change(picture_data / "imagenet16h" / f"{name}.csv.gz", forget)
    after = ImageNet16H().draw(0)
    np.testing.assert_array_equal(before.contexts, after.contexts)
    assert not np.array_equal(before.rewards, after.rewards)


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
