"""What was published of the data sets, on the files themselves: `make real` runs this where they are."""

import time

import numpy as np
import polars as pl
import pytest

from deferkit import InvalidArgument
from deferkit.worlds.imagenet16h import MODEL_FILES, PEOPLE_FILES, SET, ImageNet16H, describe, read_people
from deferkit.worlds.model_vs_human import ModelVsHuman
from deferkit.worlds.people import CLASSES, MEAN_S, MEDIAN_S, VARIATION
from tests.picture_files import LEVELS


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
