"""Boosted trees in front of the linear layer: walked as LightGBM walks them, and shown out of fold."""

import lightgbm
import numpy as np

from deferkit import (
    TreeEmbedding,
)
from deferkit.learn.embed.boosting import from_text
from deferkit.learn.embed.forest import Forest
from tests.training_sets import SHAPE, past_of


def test_trees_as_arrays_say_what_lightgbm_says() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((500, 4)), rng.random(500)
    booster = lightgbm.train({"verbosity": -1, "num_leaves": 7}, lightgbm.Dataset(x, y), 20)
    trees = from_text(booster.model_to_string())
    assert len(trees["root"]) == 20
    forest = Forest(TreeEmbedding(), SHAPE)
    forest.arrays = trees | {"column": np.zeros(20, dtype=np.int64), "fold": np.zeros(20, dtype=np.int64)}
    out = np.zeros((500, 7))
    forest.transform(x, out)
    np.testing.assert_allclose(out[:, 4], booster.predict(x), rtol=1e-12)


def test_the_past_is_predicted_by_trees_that_have_not_seen_it() -> None:
    """Rewards are pure noise: in-sample predictions would correlate with them, out-of-fold ones do not."""
    correlations, overfit = [], []
    for seed in range(10):
        shape = SHAPE._replace(seed=seed)
        past = past_of(shape, 600, seed)
        forest = Forest(TreeEmbedding(least_in_leaf=5), shape)
        forest.retrain(past, 1)
        rows, y = past.select_labelled(0)
        correlations.append(np.corrcoef(forest.embed(past, rows, 0)[:, 4], y)[0, 1])
        seen = np.zeros((600, 7))
        forest.transform(past.x, seen)
        overfit.append(np.corrcoef(seen[rows, 4], y)[0, 1])
    assert abs(np.mean(correlations)) < 0.05
    assert np.mean(overfit) > 0.5


def test_a_constant_or_rare_outcome_has_no_trees_yet() -> None:
    past = past_of(SHAPE, 90)
    past.label(0, np.full((90, 2), 0.5), np.full((90, 1), 1.0), np.ones(90, dtype=np.int64))
    forest = Forest(TreeEmbedding(), SHAPE)
    forest.retrain(past, 1)
    assert len(forest.arrays["root"]) == 0
    assert not forest.embed(past, np.arange(90), 0)[:, 4:].any()
