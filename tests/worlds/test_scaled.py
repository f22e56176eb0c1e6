"""Numbers of a data set, scaled into the unit ball."""

import numpy as np
import pytest

from deferkit import InvalidArgument
from deferkit.learn.encode import Encoder
from deferkit.worlds.base import unit_ball


def test_it_is_what_an_encoder_gives_that_has_seen_everything() -> None:
    """The encoder's columns for missing values are 0 here and left out; both divide by √(1 + 4)."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_t(2, (200, 4)) * [1, 100, 1e-3, 1] + [0, 5, 1, 1e4]
    encoder = Encoder(numbers=["a", "b", "c", "d"])
    rows = [dict(zip("abcd", map(float, row), strict=True)) for row in matrix]
    for row in rows:
        encoder.see(row)
    known = [i for i, name in enumerate(encoder.names) if not name.endswith("missing")]
    expected = np.array([encoder.encode(row)[known] for row in rows])
    np.testing.assert_allclose(unit_ball(matrix), expected, atol=1e-12)
    assert np.linalg.norm(unit_ball(matrix), axis=1).max() <= 1 + 1e-12


def test_a_column_that_does_not_vary_is_0() -> None:
    """The mean of three times 0.1 is not 0.1."""
    scaled = unit_ball(np.full((3, 1), 0.1))
    np.testing.assert_array_equal(scaled[:, 1], 0.0)
    np.testing.assert_allclose(scaled[:, 0], np.sqrt(0.5))


@pytest.mark.parametrize("matrix", [np.zeros(3), np.zeros((0, 2)), np.array([[np.nan]]), np.array([[np.inf]])])
def test_what_cannot_be_scaled(matrix: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    with pytest.raises(InvalidArgument, match="'matrix' of a unit ball must be finite numbers with rows and columns"):
        unit_ball(matrix)
