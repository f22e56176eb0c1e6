"""model-vs-human, on small made-up files."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from deferkit.worlds.model_vs_human import ModelVsHuman
from deferkit.worlds.people import CLASSES
from tests.picture_files import change


def test_no_context_knows_an_outcome_of_model_vs_human(picture_data: Path) -> None:
    before = ModelVsHuman().draw(0)

    def forget(table: pl.DataFrame) -> pl.DataFrame:
        rng = np.random.default_rng(5)
        flags = {name: pl.Series(rng.integers(0, 2, len(table))) for name in table.columns if "_correct" in name}
        told = {name: pl.Series(rng.choice(CLASSES, len(table))) for name in ("category", "human_response", "image")}
        return table.with_columns(rt=pl.Series(rng.random(len(table))), **flags, **told)

    change(picture_data / "model_vs_human" / "trials.csv.gz", forget)
    after = ModelVsHuman().draw(0)
    np.testing.assert_array_equal(before.contexts, after.contexts)
    assert not np.array_equal(before.rewards, after.rewards)


def test_model_vs_human_is_the_file_for_any_network(picture_data: Path) -> None:
    """By hand: agreement is 0, 1 or 2 of the two other networks; a missing time is the window of 1.5 s."""
    table = pl.read_csv(picture_data / "model_vs_human" / "trials.csv.gz")
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


def test_experiments_follow_each_other_or_are_shuffled(picture_data: Path) -> None:
    assert picture_data
    for seed in range(5):
        stream = ModelVsHuman().draw(seed)
        sketch = stream.contexts[:, 18]
        assert (np.diff(sketch) != 0).sum() == 1
        assert sketch[0] > 0 > sketch[-1]
    mixed = [(np.diff(ModelVsHuman(order="shuffled").draw(seed).contexts[:, 18]) != 0).sum() for seed in range(8)]
    assert max(mixed) > 1
