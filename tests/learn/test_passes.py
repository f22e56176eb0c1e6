"""The compiled loops of embeddings and knapsacks, each against its formula in numpy."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deferkit.learn.embed import _passes
from deferkit.learn.embed.dense import Dense
from deferkit.learn.embed.training_set import Floats, Singles
from deferkit.worlds import _knapsacks
from deferkit.worlds.knapsack_instances import Instances

ROWS = pytest.mark.parametrize("rows", [0, 1, 6])
UNITS = pytest.mark.parametrize("units", [1, 5])


def normal(*shape: int) -> Floats:
    """Random numbers, some of them 0, that nobody may write to."""
    numbers = np.random.default_rng(shape).standard_normal(shape)
    numbers[numbers > 1.5] = 0.0
    numbers.flags.writeable = False
    return numbers


def singles(*shape: int) -> Singles:
    """The same in single precision."""
    numbers = normal(*shape).astype(np.float32)
    numbers.flags.writeable = False
    return numbers


@ROWS
@UNITS
@pytest.mark.parametrize("skip", [False, True])
def test_hidden_rows(rows: int, units: int, skip: bool) -> None:
    x, weights, biases = normal(rows, 4), normal(3, 4, units), normal(3, units)
    out = np.full((rows, 3 * (units + 4 * skip)), np.nan)
    _passes.hidden_rows(x, weights, biases, skip, out)
    layers = [np.maximum(0.0, x @ weights[g] + biases[g]) for g in range(3)]
    expected = np.hstack([part for layer in layers for part in ([layer, x] if skip else [layer])])
    np.testing.assert_allclose(out, expected, atol=1e-14)


@ROWS
@UNITS
def test_gradient_rows(rows: int, units: int) -> None:
    """The gradient of f = head·max(0, xᵀW + b) + offset, along all of its parameters, one after the other."""
    x, weights, biases, heads, offsets = (
        normal(rows, 4),
        normal(2, 4, units),
        normal(2, units),
        normal(2, units),
        normal(2),
    )
    first, bias, head, offset = (1.0 + normal(*s) ** 2 for s in ((2, 4, units), (2, units), (2, units), (2,)))
    squashed = np.array([0, 1])
    out = np.full((rows, 4), np.nan)
    z = first, bias, head, offset
    _passes.gradient_rows(x, weights, biases, heads, offsets, squashed, *z, np.empty(units), out)
    for row in range(rows):
        for g in range(2):
            layer = np.maximum(0.0, x[row] @ weights[g] + biases[g])
            value = heads[g] @ layer + offsets[g]
            along_bias = heads[g] * (layer > 0)
            parts = [np.outer(x[row], along_bias), along_bias, layer, np.ones(())]
            square = sum(float((part**2 / each[g]).sum()) for part, each in zip(parts, z, strict=True))
            slope = 1.0
            if squashed[g]:
                value = 1.0 / (1.0 + math.exp(-value))
                slope = value * (1.0 - value)
            np.testing.assert_allclose(out[row, 2 * g : 2 * g + 2], [value, slope * math.sqrt(square)], rtol=1e-12)


@ROWS
def test_tree_rows(rows: int) -> None:
    """Two trees: x₀ ≤ 0.5 ? 1 : (x₁ ≤ 0 ? 2 : 4), and a lone leaf 8; what is there already is added to."""
    feature, threshold = np.array([0, -1, 1, -1, -1, -1]), np.array([0.5, 0, 0, 0, 0, 0])
    left, right = np.array([1, 0, 3, 0, 0, 0]), np.array([2, 0, 4, 0, 0, 0])
    value = np.array([0.0, 1, 0, 2, 4, 8])
    x = np.array([[0.5, 9], [0.6, 0], [0.6, 0.1], [np.nan, 0], [0.6, np.nan], [-np.inf, 0]])[:rows]
    out = np.full((rows, 3), 100.0)
    for array in (feature, threshold, left, right, value, x):
        array.flags.writeable = False
    _passes.tree_rows(x, feature, threshold, left, right, value, np.array([0, 5]), np.array([2, 1]), out)
    expected = np.array([[100, 108, 100 + leaf] for leaf in (1, 2, 4, 2, 4, 1)])
    np.testing.assert_array_equal(out, expected[:rows])


@ROWS
@UNITS
def test_bias_and_relu(rows: int, units: int) -> None:
    given, bias = singles(rows, units), singles(units)
    out = given.copy()
    _passes.bias_and_relu(out, bias)
    np.testing.assert_array_equal(out, np.maximum(np.float32(0), given + bias))


@ROWS
@UNITS
def test_relu_beside_the_context(rows: int, units: int) -> None:
    product, bias, x = normal(rows, units), normal(units), normal(rows, 3)
    out = np.full((rows, units + 3), np.nan)
    _passes.relu_and_concat(product, bias, x, out)
    np.testing.assert_array_equal(out, np.hstack([np.maximum(0.0, product + bias), x]))


@ROWS
@UNITS
def test_through_relu(rows: int, units: int) -> None:
    """Where a unit is exactly 0 it is off; the sum runs over the batch in its order."""
    given, layer = singles(rows, units), np.maximum(np.float32(0), singles(rows, units))[::-1].copy()
    slope, bias_slope = given.copy(), np.full(units, np.nan, dtype=np.float32)
    _passes.relu_gradient(slope, layer, bias_slope)
    expected = np.where(layer > 0, given, np.float32(0))
    np.testing.assert_array_equal(slope, expected)
    summed = np.zeros(units, dtype=np.float32)
    for row in expected:
        summed += row
    np.testing.assert_array_equal(bias_slope, summed)


def test_what_is_not_a_number_turns_a_unit_off() -> None:
    """And a negative zero becomes a positive one, as with max(0, unit)."""
    given = np.array([[np.nan, -0.0, -np.inf, np.inf]], dtype=np.float32)
    units, out, hidden = given.copy(), np.empty((1, 5)), np.empty((1, 4))
    _passes.bias_and_relu(units, np.full(4, -0.0, dtype=np.float32))
    wide, negative_zeros = given.astype(np.float64), np.full(4, -0.0)
    _passes.relu_and_concat(wide, negative_zeros, np.ones((1, 1)), out)
    _passes.hidden_rows(np.zeros((1, 1)), np.ones((1, 1, 4)), wide, False, hidden)
    for found in (units, out[:, :4], hidden):
        np.testing.assert_array_equal(found, [[0, 0, 0, np.inf]])
        assert not np.signbit(found).any()


@pytest.mark.parametrize("n", [0, 1, 9])
@pytest.mark.parametrize("rate", [5e-4, 0.1])
def test_adam_in_single_precision(n: int, rate: float) -> None:
    """Every operation is one of single precision, in this order; the two factors of a step are rounded once."""
    weights, mean, square = singles(n).copy(), np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
    want, want_mean, want_square = weights.copy(), mean.copy(), square.copy()
    one, beta_1, beta_2, epsilon = (np.float32(value) for value in (1.0, 0.9, 0.999, 1e-8))
    for step in range(1, 40):
        slope = singles(n, step)[:, step - 1].copy()
        slope.flags.writeable = False
        _passes.adam(weights, slope, mean, square, rate, step)
        want_mean = beta_1 * want_mean + (one - beta_1) * slope
        want_square = beta_2 * want_square + (one - beta_2) * slope * slope
        factor = np.float32(rate / (1.0 - by_squaring(0.9, step)))
        grown = np.float32(1.0 / math.sqrt(1.0 - by_squaring(0.999, step)))
        want = want - factor * want_mean / (np.sqrt(want_square) * grown + epsilon)
        np.testing.assert_array_equal(mean, want_mean)
        np.testing.assert_array_equal(square, want_square)
        np.testing.assert_array_equal(weights, want)


def by_squaring(base: float, exponent: int) -> float:
    """From the lowest bit of the exponent on: the order decides the last bit of the result."""
    result = 1.0
    for bit in reversed(f"{exponent:b}"):
        result = result * base if bit == "1" else result
        base *= base
    return result


def test_adam_after_many_steps() -> None:
    """Powers of β become 0, and the factors 1: no step is too late."""
    weights, mean, square = (np.ones(1, dtype=np.float32) for _ in range(3))
    _passes.adam(weights, np.ones(1, dtype=np.float32), mean, square, 0.5, 10**12)
    np.testing.assert_allclose(weights, 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    "wrong", [np.ones((2, 6))[:, ::2], np.ones((3, 2)).T, np.ones((2, 3), dtype=np.float32), np.ones(3)]
)
def test_other_layouts_are_refused(wrong: NDArray[Any]) -> None:
    """Rather than read as what they are not."""
    with pytest.raises(ValueError, match="ndarray is not|Buffer dtype mismatch|Buffer has wrong number"):
        _passes.relu_and_concat(np.ones((2, 1)), np.ones(1), wrong, np.ones((2, 4)))


def test_layers_take_contexts_of_any_layout() -> None:
    dense = Dense(4, 3, 2, np.random.default_rng(0))
    x = normal(5, 4)
    for given in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        out = np.empty((5, 14))
        dense.rows(given, True, out)
        for view in range(2):
            np.testing.assert_allclose(dense.view(given, view, True), out[:, 7 * view : 7 * view + 7], atol=1e-14)


def test_knapsacks_without_rows_and_read_only() -> None:
    none = Instances(np.zeros((0, 3), dtype=np.int64), np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64))
    assert none.optimum().shape == none.ratio_max().shape == (0,)
    order, tries = np.zeros((0, 3), dtype=np.int64), np.zeros((0, 2, 2), dtype=np.int64)
    assert _knapsacks.pack(*none, order, tries, none.capacities).shape == (0,)

    some = Instances(np.array([[5, 4, 3], [5, 4, 3]]), np.array([[50, 39, 30], [50, 39, 30]]), np.array([7, 8]))
    for array in some:
        array.flags.writeable = False
    np.testing.assert_array_equal(some.optimum(), [69, 80])
    np.testing.assert_array_equal(some.ratio_max(), [50, 80])


def test_knapsacks_of_any_layout() -> None:
    """Columns of another order, and smaller whole numbers."""
    weights, values = np.array([[5, 4, 3]] * 2), np.array([[50, 39, 30]] * 2)
    others: tuple[Any, ...] = (np.asfortranarray(weights), values.astype(np.int32), np.array([7, 7, 8, 8])[::2])
    np.testing.assert_array_equal(Instances(*others).optimum(), [69, 80])
    np.testing.assert_array_equal(Instances(*others).ratio_max(), [50, 80])


def test_a_knapsack_without_room_holds_nothing() -> None:
    empty = Instances(np.ones((3, 2), dtype=np.int64), np.ones((3, 2), dtype=np.int64), np.array([0, -1, -5]))
    assert not empty.optimum().any()
    assert not empty.ratio_max().any()
