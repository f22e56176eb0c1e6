"""Additive models, and the stack that has them beside trees."""

from typing import Any

import numpy as np
import pytest

from deferkit import Budget, Deferrer
from deferkit.learn.embed import hats
from deferkit.learn.embed.boosting import join, no_trees
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.hats import average_ridge, bases_of, design_of, fit_hats, place_knots, write_hats
from deferkit.learn.embed.tree_columns import TreeColumns
from deferkit.learn.embed.tree_views import COLUMN_UNIT, LOG_ODDS_STEP, PRIOR_WEIGHTS, TreeViews, fit_trees
from tests.conftest import Floats, make, rewards_of, step_through
from tests.training_sets import crossed

D = 4


def features(n: int, seed: int = 0) -> Floats:
    """Return contexts with a constant, a number, an indicator and a number with few values."""
    rng = np.random.default_rng(seed)
    return np.column_stack([np.full(n, 0.5), rng.standard_normal(n), rng.integers(0, 2, n), rng.integers(0, 4, n)])


def test_knots_are_quantiles_and_a_constant_has_none() -> None:
    x = features(200)
    found = place_knots(x)
    assert found["n_knots"].tolist() == [0, hats.MAX_KNOTS, 2, 4]
    np.testing.assert_array_equal(found["knots"][3, :4], [0, 1, 2, 3])
    ordered = np.sort(x[:, 1])
    assert found["knots"][1, 0] == ordered[0]
    assert found["knots"][1, -1] == ordered[-1]
    np.testing.assert_allclose(found["knots"][1], np.quantile(x[:, 1], np.linspace(0, 1, 6)), atol=0.05)
    assert place_knots(np.ones((5, 3)))["n_knots"].tolist() == [0, 0, 0]


def test_many_features_have_fewer_knots_and_too_many_none() -> None:
    rng = np.random.default_rng(1)
    assert set(place_knots(rng.random((50, 120)))["n_knots"].tolist()) == {4}
    assert set(place_knots(rng.random((50, 300)))["n_knots"].tolist()) == {0}


@pytest.mark.parametrize("n", [12, 60])  # fewer tasks than columns, and more
def test_leave_one_out_predictions_are_those_of_fits_without_the_task(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hats, "PENALTIES", np.array([2.0]))
    rng = np.random.default_rng(n)
    z, y = rng.random((n, 20)), rng.random(n)
    [coefficients], level, without = average_ridge([z], y)
    for i in range(n):
        others = np.arange(n) != i
        center = z.mean(axis=0)  # exact errors are those of a fit with the same center
        design = np.column_stack([np.ones(n - 1), z[others] - center])
        penalty = np.diag([0.0] + [2.0] * 20)
        theta = np.linalg.solve(design.T @ design + penalty, design.T @ y[others])
        assert without[i] == pytest.approx(theta[0] + (z[i] - center) @ theta[1:], rel=1e-6)
    design = z - z.mean(axis=0)
    theta = np.linalg.solve(design.T @ design + 2.0 * np.eye(20), design.T @ (y - y.mean()))
    np.testing.assert_allclose(coefficients, theta, rtol=1e-6)
    assert level == pytest.approx(y.mean() - z.mean(axis=0) @ theta)


def test_penalties_that_foresee_better_weigh_more() -> None:
    """A response without noise wants the least penalty, noise alone the largest."""
    z = np.random.default_rng(2).standard_normal((150, 5))
    theta = np.array([1.0, -2.0, 0.5, 0.0, 1.0])
    [coefficients], _, without = average_ridge([z], z @ theta)
    np.testing.assert_allclose(coefficients, theta, atol=0.01)
    assert np.abs(without - z @ theta).max() < 0.05
    noise = np.random.default_rng(3).standard_normal(150)
    [coefficients], _, without = average_ridge([z], noise)
    assert np.abs(coefficients).max() < 0.1
    assert np.mean((noise - without) ** 2) < 1.05 * noise.var()


def test_a_bend_is_found_and_what_was_seen_is_predicted_without_itself() -> None:
    rng = np.random.default_rng(4)
    x = np.column_stack([np.ones(600), rng.uniform(-1, 1, 600), rng.random(600) < 0.3])
    mean = np.abs(x[:, 1]) + 0.5 * x[:, 2]
    y = mean + 0.1 * rng.standard_normal(600)
    rows = np.arange(0, 600, 2)
    found, predicted = fit_hats(x, [(rows, y[rows]), (rows[:0], y[:0]), (rows[:3], y[:3])], 2)
    assert np.corrcoef(predicted[:, 0], mean)[0, 1] > 0.98
    knots = zip(x.T, found["knots"], found["n_knots"], found["heights"][0], strict=True)
    parts = [np.interp(values, at[:n], height[:n]) for values, at, n, height in knots if n]
    expected = found["levels"][0, 0] + np.sum(parts, axis=0)
    out = np.zeros((600, 5))
    write_hats(found, x, out, 1)
    np.testing.assert_allclose(out[:, 1], np.clip(expected, *found["levels"][0, 1:]), rtol=1e-12)
    others = np.setdiff1d(np.arange(600), rows)
    np.testing.assert_array_equal(predicted[others, 0], out[others, 1])
    assert (predicted[rows, 0] != out[rows, 1]).all()
    # without samples a reward is guessed to be the mean of all rewards; three costs have their mean
    np.testing.assert_allclose(out[:, 2], y[rows].mean())
    np.testing.assert_allclose(out[:, 3], y[:3].mean())
    for t in (0, 599):  # one row at a time is the same
        alone = np.zeros((1, 5))
        write_hats(found, x[t : t + 1], alone, 1)
        np.testing.assert_array_equal(alone[0], out[t])


def test_hats_and_lines_have_one_additive_model() -> None:
    """Features with two values have an indicator in both bases; the rest hats that add up to 1, and a line."""
    x = features(200)
    found = place_knots(x)
    (of_hats, _), (of_lines, _) = bases = bases_of(found, x)
    assert of_hats.tolist() == [1] * 6 + [2] + [3] * 4
    assert of_lines.tolist() == [1, 2, 3]
    in_hats, in_lines = (design_of(found, x, basis) for basis in bases)
    np.testing.assert_allclose(in_hats[:, :6].sum(axis=1), 1.0)
    np.testing.assert_array_equal(in_hats[:, 6], x[:, 2])
    np.testing.assert_array_equal(in_lines[:, 1], x[:, 2])
    np.testing.assert_allclose(in_lines[:, 0].std(), 1.0)
    assert np.corrcoef(in_lines[:, 0], x[:, 1])[0, 1] == pytest.approx(1.0)


def test_more_features_than_samples_do_not_ruin_a_prediction() -> None:
    """Hats of 40 features fit 60 samples exactly; leave-one-out errors say how little that is worth."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((1_000, 40))
    y = (rng.random(1_000) < 1 / (1 + np.exp(-1 - x[:, 0]))).astype(float)
    found, _ = fit_hats(x, [(np.arange(60), y[:60])], 1)
    out = np.zeros((1_000, 1))
    write_hats(found, x, out, 0)
    assert np.mean((out[60:, 0] - y[60:]) ** 2) < 1.1 * np.mean((y[:60].mean() - y[60:]) ** 2)


def test_large_samples_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hats, "MAX_SAMPLES", 100)
    rng = np.random.default_rng(5)
    x = rng.random((1_050, 1))
    found, predicted = fit_hats(x, [(np.arange(1_050), x[:, 0])], 1)
    out = np.zeros((1_050, 1))
    write_hats(found, x, out, 0)
    changed = np.flatnonzero(predicted != out)
    assert len(changed) <= 100
    assert (changed % 11 == 0).all()
    assert np.abs(predicted[:, 0] - x[:, 0]).max() < 0.05


@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_the_prior_of_a_stack_is_the_mean_of_its_columns(link: str) -> None:
    """Also where a target has no trees: its columns are those of the additive model."""
    shape = Shape(D, 1, 1, link, (0.0, 1.0), 0, stacked=True)
    views, rng = TreeViews(shape), np.random.default_rng(6)
    x = rng.uniform(-1, 1, (200, D))
    y = (x[:, 0] * x[:, 1] > 0).astype(float)
    unit = np.array([1.0, 1.0, 30.0])
    labels = [(np.arange(200), y), (np.arange(10), 1 - y[:10]), (np.arange(10), 1 + x[:10, 2])]
    models, _ = fit_hats(x, labels, 2)
    trees = join((column, 0, each) for column, each in fit_trees(x, labels, 0))
    assert sorted(set(trees["column"].tolist())) == [0, 3]  # of the model's reward alone
    out = views.of(trees, x, models).reshape(200, 3, views.width)
    columns = out[:, 2, D:].reshape(200, 3, 3)
    np.testing.assert_array_equal(out[:, 0], np.column_stack([x, np.zeros((200, 9))]))
    np.testing.assert_array_equal(out[:, 1], np.column_stack([np.zeros((200, D)), out[:, 2, D:]]))
    np.testing.assert_array_equal(out[:, 2, :D], x)
    for target in (1, 2):
        np.testing.assert_array_equal(columns[:, 0, target], columns[:, 2, target])
    predicted = out[:, 1] @ views.prior(unit).T
    size = np.array([LOG_ODDS_STEP] * 2 + [COLUMN_UNIT]) if link == "logistic" else COLUMN_UNIT
    mean = np.einsum("nct,c->nt", columns, PRIOR_WEIGHTS)
    np.testing.assert_allclose(predicted, mean / size * unit, rtol=1e-12)
    raw = np.zeros((200, 3))
    write_hats(models, x, raw, 0)
    likely = np.log(np.clip(raw, 0.02, 0.98) / (1 - np.clip(raw, 0.02, 0.98))) if link == "logistic" else raw
    likely[:, 2] = raw[:, 2]
    np.testing.assert_allclose(columns[:, 2] / size, likely, rtol=1e-9)


def test_all_views_are_the_context_before_the_first_fit() -> None:
    views = TreeViews(Shape(D, 1, 1, "logistic", (0.0, 1.0), 0, stacked=True))
    x = np.random.default_rng(7).random((3, D))
    out = views.of(no_trees(), x).reshape(3, 3, -1)
    for view in range(3):
        np.testing.assert_array_equal(out[:, view], np.column_stack([x, np.zeros((3, 9))]))


def stacked(**given: Any) -> Deferrer:
    return Deferrer(
        n_features=D, budget=Budget(100, horizon=1_000, max_cost=1), representation="auto", defaults="2026.12", **given
    )


def test_a_fit_begins_after_16_observations_and_takes_effect_8_later() -> None:
    tasks, deferrer = crossed(60, D), stacked(link="identity")
    trees = deferrer._representation
    assert isinstance(trees, TreeColumns)
    effects = []
    for t, x in enumerate(tasks.contexts):
        before = trees.version
        decision = deferrer.decide(x)
        asked = decision.route == "human"
        deferrer.observe(decision.id, {decision.route: float(tasks.rewards[t, int(asked)])}, 0.5 if asked else None)
        assert (trees._fit is not None) == (t + 1 >= 16 and t + 1 not in (40, 41, 50, 51, 52, 53, 54, 55))
        assert (trees.hats is not None) == (t + 1 >= 24)
        effects += [t + 1] * (trees.version > before)
    assert effects == [24, 32, 40, 50]


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
@pytest.mark.parametrize("moment", [15, 16, 17, 23, 24, 25, 33])
@pytest.mark.parametrize("name", ["ranks, auto", "ranks, auto, link switches late"])
def test_saved_around_a_fit_goes_on_bit_for_bit(moment: int, name: str) -> None:
    learner, tasks = make(name, horizon=80)
    step_through(learner, tasks._replace(contexts=tasks.contexts[:moment]))
    restored = Deferrer.from_bytes(learner.to_bytes())
    for each in (learner, restored):
        step_through(each, tasks, start=moment)
    assert restored == learner


def test_shares_of_all_views_add_up_and_crossed_features_are_left_to_columns() -> None:
    tasks, deferrer = crossed(1_200, D), stacked(link="identity")
    deferrer.run(
        tasks.contexts[:1000], {n: y[:1000] for n, y in rewards_of(deferrer, tasks).items()}, tasks.costs[:1000]
    )
    for shares in deferrer.representation_shares().values():
        assert list(shares) == ["linear", "stack", "trees", "ranks"]
        assert sum(shares.values()) == pytest.approx(1)
    shares = deferrer.representation_shares()["model"]
    assert shares["stack"] + shares["trees"] > 0.9


def test_the_estimate_of_costs_starts_near_their_mean_whatever_the_unit() -> None:
    """The prior is in the unit of costs, which is known at the first fit."""
    for size in (1e-3, 1.0, 1e6):
        deferrer = Deferrer(
            n_features=D,
            budget=Budget(100 * size, horizon=1_000, max_cost=2 * size),
            representation="auto",
            defaults="2026.12",
        )
        x = np.random.default_rng(8).uniform(-1, 1, (40, D))
        y = (x[:, 0] > 0).astype(float)
        deferrer.warm_start(x, {"model": y, "human": 1 - y}, cost=size * (1 + 0.1 * y))
        expected = deferrer.score(x).costs["human"] / size
        assert np.abs(expected - 1.05).max() < 0.3
