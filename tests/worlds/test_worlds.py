"""The synthetic world."""

import math
from typing import Any

import numpy as np
import pytest

from deferkit import InvalidArgument
from deferkit.study.allowance import Allowance, asking_always, remark
from deferkit.study.optimum import Benchmark
from deferkit.worlds import make_world, synthetic
from deferkit.worlds.synthetic import Synthetic, sample, support


def test_the_support_is_the_papers() -> None:
    """Σ C(20, k) for k = 1 … 8 is 263,949; p ∝ 0.3^k for each vector."""
    contexts, p = support(20, 8, 0.3)
    assert contexts.shape == (263_949, 20)
    np.testing.assert_allclose(np.linalg.norm(contexts, axis=1), 1)
    assert p.sum() == pytest.approx(1)
    ones = (contexts > 0).sum(axis=1)
    assert p[ones == 2][0] / p[ones == 1][0] == pytest.approx(0.3)


def test_sampled_contexts_have_the_listed_distribution() -> None:
    """200,000 of each of the 41 contexts' probabilities, within 5 standard errors."""
    contexts, p = support(6, 3, 0.4)
    drawn = sample(200_000, 6, 3, 0.4, np.random.default_rng(0))
    codes = {tuple(row > 0): i for i, row in enumerate(contexts)}
    counts = np.bincount([codes[tuple(row > 0)] for row in drawn], minlength=len(p))
    assert (np.abs(counts - 200_000 * p) < 5 * np.sqrt(200_000 * p * (1 - p))).all()
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1)


@pytest.mark.parametrize("regime", synthetic.REGIMES)
@pytest.mark.parametrize("link", synthetic.LINKS)
@pytest.mark.parametrize("scaled", [False, True])
def test_a_stream_is_what_its_truth_says(regime: str, link: str, scaled: bool) -> None:
    """Means by hand from the coefficients; outcomes around them with the noise that was asked for."""
    world = Synthetic(regime=regime, horizon=40_000, n_features=8, most_ones=3, link=link, scaled=scaled)
    stream = world.draw(3)
    truth = stream.truth
    assert truth is not None
    means = np.array([[theta @ x for theta in truth.thetas] for x in stream.contexts[:50]])
    if link == "logistic":
        means = 1 / (1 + np.exp(-means))
    np.testing.assert_allclose(truth.rewards[:50], means)
    linear = stream.contexts @ truth.weights[0, 0]
    drawn = np.maximum(linear[:20] + 0.1 * np.random.default_rng(0).standard_normal((200_000, 1)), 0).mean(axis=0)
    np.testing.assert_allclose(truth.costs[:20, 0, 0], drawn, atol=5 * 0.1 / math.sqrt(200_000))
    assert truth.kind is not None
    np.testing.assert_array_equal(truth.population.rewards[truth.kind], truth.rewards)
    error = stream.rewards - truth.rewards
    spread = 0.5 if link == "logistic" else 0.1
    np.testing.assert_allclose(error.mean(axis=0), 0, atol=5 * spread / 200)
    if link == "identity":
        np.testing.assert_allclose(error.std(axis=0), 0.1, rtol=0.03)
    else:
        assert set(np.unique(stream.rewards)) == {0.0, 1.0}
    if scaled and link == "identity":
        assert truth.rewards.max() <= 1 + 1e-12
        assert (truth.weights.sum(axis=-1) / math.sqrt(8)).max() <= 1 + 1e-12
        assert truth.population.costs.max() <= 1.05
    assert (stream.costs >= 0).all()


def test_numbers_of_numpy_are_numbers() -> None:
    given = {"horizon": np.int64(50), "noise": np.float32(0.5), "n_features": 9.0}
    world = Synthetic(**given)  # type: ignore[arg-type]
    assert world == Synthetic(horizon=50, noise=0.5, n_features=9)
    assert type(world.parameters()["n_features"]) is int
    with pytest.raises(InvalidArgument, match="'seed' of a Synthetic"):
        world.draw(-1)
    assert not Synthetic(n_features=30, most_ones=10**12).listed


def test_a_seed_gives_one_stream_and_another_seed_another() -> None:
    world = Synthetic(horizon=500)
    one, again, other = world.draw(3), world.draw(3), world.draw(4)
    np.testing.assert_array_equal(one.rewards, again.rewards)
    assert not np.array_equal(one.contexts, other.contexts)


@pytest.mark.parametrize(
    ("regime", "model", "human"), [("complementary", 0.5, 0.5), ("dominant", 0.25, 0.5), ("random", 0.5, 0.5)]
)
def test_regimes_have_the_coefficients_that_they_are_named_for(regime: str, model: float, human: float) -> None:
    thetas = []
    for seed in range(60):
        truth = Synthetic(regime=regime, horizon=1).draw(seed).truth
        assert truth is not None
        thetas.append(truth.thetas)
        if regime == "complementary":
            np.testing.assert_array_equal(truth.thetas.sum(axis=0), 1)
            assert truth.thetas[1].sum() == 10
    assert np.mean(thetas, axis=(0, 2)) == pytest.approx([model, human], abs=0.04)


def test_many_features_are_sampled_and_opt_is_nearly_that_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of OPT on the same coefficients, listed and sampled: within 1 % at 40,000 tasks."""
    given = {"regime": "dominant", "horizon": 40_000, "n_features": 12, "most_ones": 4}
    listed = Synthetic(**given).draw(0)  # type: ignore[arg-type]
    monkeypatch.setattr(synthetic, "MAX_LISTED", 10)
    drawn = Synthetic(**given).draw(0)  # type: ignore[arg-type]
    assert drawn.truth is not None
    assert drawn.truth.kind is None
    values, prices = [], []
    for stream in (listed, drawn):
        choice, price = Benchmark(stream).at([4_000.0])
        values.append((choice * stream.known()[0]).sum())
        prices.append(price[0])
    assert values[0] == pytest.approx(values[1], rel=0.01)
    assert prices[0] == pytest.approx(prices[1], rel=0.03)
    assert Synthetic(n_features=200, horizon=50).draw(0).contexts.shape == (50, 200)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"regime": "easy"},
            "'regime' of a Synthetic must be one of 'complementary', 'dominant', 'random'. Got 'easy'",
        ),
        ({"link": "probit"}, "'link' of a Synthetic must be one of 'identity', 'logistic'"),
        ({"horizon": 0}, "'horizon' of a Synthetic"),
        ({"noise": -0.1}, "'noise' of a Synthetic must be a number from 0 to 1e.09"),
        ({"decay": math.nan}, "'decay' of a Synthetic"),
        ({"scaled": "no"}, "'scaled' of a Synthetic must be True or False"),
        ({"n_experts": 2}, "1 in the complementary regime"),
    ],
)
def test_bad_worlds(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Synthetic(**given)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="There is no world 'moon'. There is: synthetic, knapsack."):
        make_world("moon", {})
    with pytest.raises(InvalidArgument, match="'synthetic' has no parameter 'colour'. It has: regime, horizon"):
        make_world("synthetic", {"colour": "red"})


@pytest.mark.parametrize("regime", ["complementary", "dominant"])
def test_opt_keeps_the_budget_on_average_though_costs_are_cut_at_0(regime: str) -> None:
    """Realised spending of OPT at σ = 0.5 over 20 streams of 20,000 tasks: within 1 % of a small budget."""
    shares = []
    for seed in range(20):
        stream = Synthetic(regime=regime, horizon=20_000, noise=0.5).draw(seed)
        choice, _ = Benchmark(stream).at([200.0])
        shares.append((choice[:, 1] * stream.costs[:, 0, 0]).sum() / 200)
    assert np.mean(shares) == pytest.approx(1, abs=max(0.01, 3 * np.std(shares) / math.sqrt(20)))


def test_budgets_as_people_write_them() -> None:
    stream = Synthetic(horizon=2_000).draw(0)
    always = asking_always(stream)
    assert stream.truth is not None
    assert always == pytest.approx(stream.truth.costs.sum())
    for text, total in (("2000", 2_000), ("2,000", 2_000), ("0.1T", 200), ("10%", always / 10), ("inf", math.inf)):
        assert Allowance.from_text(text).total(stream) == pytest.approx(total)
    wrong: list[Any] = [
        "",
        "lots",
        "-1",
        "nan",
        "T",
        "%",
        "1e",
        "-inf",
        "10%T",
        "0,1T",
        "2,5",
        "1_0",
        "infT",
        "1e400",
        5,
    ]
    for text in wrong:
        with pytest.raises(InvalidArgument, match="A budget must be a number of at least 0"):
            Allowance.from_text(text)
    assert remark(100, stream) is None
    for odd, words in ((0.0, "asks nobody"), (math.inf, "no end"), (always * 1.01, "does not bind")):
        assert words in (remark(odd, stream) or "")
