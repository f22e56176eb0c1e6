"""The worlds that drift: exactly the streams that goals were measured on, and what is known of them."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deferkit import InvalidArgument
from deferkit.worlds import make_world
from deferkit.worlds.drift import KINDS, Drift, phases, spread_out

DIGESTS = {
    ("lin", "none"): "ad0067249fb6a7dd",
    ("lin", "abrupt"): "6b0bd53027026fcf",
    ("lin", "gradual"): "598ec4907ee20ee6",
    ("lin", "seasonal"): "fc563e4145827a2b",
    ("lin", "recurring"): "60fdda23a3b4503c",
    ("cat", "none"): "ff6d21858818ba8a",
    ("cat", "abrupt"): "4dfa7950678e868a",
    ("cat", "gradual"): "d874facb967644f3",
    ("cat", "seasonal"): "b75be27267b92beb",
    ("cat", "recurring"): "e0e315327a46989e",
}
"""Of contexts, rewards (model, human), costs, and their expectations in the same order; seed 7, T = 801.

The independent program that the goals were measured with gave the same arrays, bit for bit (and those of T = 20,000).
Rounded, as sines and matrix products may differ in the last bit on another processor.
"""


def digest(family: str, kind: str) -> str:
    stream = Drift(family=family, kind=kind, horizon=801).draw(7)
    assert stream.truth is not None
    arrays = [stream.contexts, *stream.rewards.T, stream.costs, *stream.truth.rewards.T, stream.truth.costs]
    together = np.concatenate([array.ravel() for array in arrays])
    return hashlib.sha256((np.round(together, 9) + 0.0).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(("family", "kind"), DIGESTS)
def test_the_streams_are_those_that_goals_were_measured_on(family: str, kind: str) -> None:
    assert digest(family, kind) == DIGESTS[family, kind]


def test_size_dimension_and_noise_of_a_linear_stream() -> None:
    """Values of the same independent program, T = 500, d = 6, σ = 0.7, seed 2, seasonal."""
    stream = Drift(kind="seasonal", horizon=500, n_features=6, noise=0.7).draw(2)
    np.testing.assert_allclose(stream.rewards[[0, 123, 499], 0], [1.5272441, 0.35632885, 0.66456801], atol=1e-8)
    np.testing.assert_allclose(stream.costs[[0, 123, 499], 0, 0], [1.27495592, 0.91667662, 1.12356453], atol=1e-8)
    assert stream.contexts.shape == (500, 6)
    assert stream.noise == 0.7
    assert stream.truth is not None
    assert stream.truth.rewards[:, 0].sum() == pytest.approx(261.1150402589017, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_phases_by_hand(kind: str) -> None:
    by_hand: dict[str, list[float]] = {
        "none": [0] * 16,
        "abrupt": [0] * 8 + [math.pi / 2] * 8,
        "gradual": [math.pi * t / 16 for t in range(16)],
        "seasonal": [math.pi * t / 2 for t in range(16)],
        "recurring": ([0] * 2 + [math.pi / 2] * 2) * 4,
    }
    np.testing.assert_allclose(phases(kind, 16), by_hand[kind], atol=1e-12)
    assert phases(kind, 3).shape == (3,)


@pytest.mark.parametrize("family", ["lin", "cat"])
def test_outcomes_have_the_expectations_of_the_truth(family: str) -> None:
    stream = Drift(family=family, kind="gradual", horizon=40_000).draw(5)
    assert stream.truth is not None
    for quarter in range(4):
        part = slice(10_000 * quarter, 10_000 * (quarter + 1))
        off = (stream.rewards - stream.truth.rewards)[part].mean(axis=0)
        np.testing.assert_allclose(off, 0, atol=5 * 0.5 / 100)
    off = float((stream.costs - stream.truth.costs).mean())
    assert abs(off) < 5 * 0.4 / 200
    if family == "cat":
        assert set(np.unique(stream.rewards)) == {0.0, 1.0}


@pytest.mark.parametrize("family", ["lin", "cat"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_average_over_time_is_that_over_the_phases_of_other_streams(family: str, kind: str) -> None:
    """A task's context at every phase of the stream, worked out task by task from its own world."""
    n = 120
    stream = Drift(family=family, kind=kind, horizon=n).draw(1)
    assert stream.truth is not None
    assert stream.truth.averaged is not None
    rng = np.random.default_rng([1, 1 if family == "lin" else 2])
    angles = phases(kind, n)
    if family == "lin":
        u = rng.uniform(-1, 1, (n, 19))
        sides = [rng.standard_normal((2, 19)) * 0.5 * 1.732 / math.sqrt(19) for _ in range(2)]

        def model(task: int, angle: float) -> float:
            return float(0.5 + u[task] @ (math.cos(angle) * sides[0][0] + math.sin(angle) * sides[1][0]))
    else:
        category, severity, sure = rng.integers(0, 8, n), rng.random(n), rng.random(n)
        rng.random((n, 4))
        tables: list[NDArray[np.float64]] = [rng.standard_normal((4, 8)) for _ in range(2)]

        def model(task: int, angle: float) -> float:
            of = math.cos(angle) * tables[0][:, category[task]] + math.sin(angle) * tables[1][:, category[task]]
            odds = 0.8 + of[0] + 3 * of[1] * (severity[task] - 0.5) + 2 * (sure[task] - 0.5)
            return float(1 / (1 + math.exp(-odds)))

    for task in (0, 50, n - 1):
        assert stream.truth.rewards[task, 0] == pytest.approx(model(task, angles[task]))
        mean = np.mean([model(task, angle) for angle in angles])
        assert stream.truth.averaged[task, 0] == pytest.approx(mean, abs=1e-12)
    if kind == "none":
        np.testing.assert_allclose(stream.truth.averaged, stream.truth.rewards)


def test_many_phases_are_spread_evenly() -> None:
    angles = phases("gradual", 20_000)
    few = spread_out(angles)
    assert len(few) == 200
    assert sum(share for _, share in few) == pytest.approx(1)
    assert sum(share * math.sin(angle) for angle, share in few) == pytest.approx(np.sin(angles).mean(), abs=1e-4)


def test_kinds_share_all_but_the_phase() -> None:
    one, other = (Drift(kind=kind, horizon=300).draw(4) for kind in ("none", "abrupt"))
    np.testing.assert_array_equal(one.contexts, other.contexts)
    np.testing.assert_array_equal(one.costs, other.costs)
    np.testing.assert_array_equal(one.rewards[:150], other.rewards[:150])
    assert abs(one.rewards[150:] - other.rewards[150:]).max() > 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"family": "tree"}, "'family' of a Drift must be one of 'lin', 'cat'. Got 'tree'"),
        ({"kind": "slow"}, "'kind' of a Drift must be one of 'none', 'abrupt', 'gradual', 'seasonal', 'recurring'"),
        ({"horizon": 0}, "'horizon' of a Drift must be a whole number of at least 1. Got 0"),
        ({"n_features": 1}, "'n_features' of a Drift must be a whole number of at least 2"),
        ({"noise": -1}, "'noise' of a Drift must be a number from 0"),
        ({"n_categories": 9}, "'n_categories' of a Drift must be left out in the family 'lin'. Got 9"),
        ({"family": "cat", "noise": 0.1}, "'noise' of a Drift must be left out in the family 'cat'. Got 0.1"),
    ],
)
def test_bad_parameters_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        make_world("drift", given)
    with pytest.raises(InvalidArgument, match="'seed' of a Drift"):
        Drift().draw(-1)
