"""The compiled parts of training a network, each a single pass over its numbers.

They call nothing that is compiled elsewhere, so that numba itself sees when one of them has changed.
"""

import math

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.compiled import compiled
from deferkit.learn.embed.past import Floats

Singles = NDArray[np.float32]

BETA_1, BETA_2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)  # as Kingma & Ba have them


@compiled
def bias_and_relu(units: Singles, bias: Singles) -> None:
    """Set units to max(0, units + bias)."""
    for i in range(units.shape[0]):
        for j in range(units.shape[1]):
            units[i, j] = max(np.float32(0.0), units[i, j] + bias[j])


@compiled
def beside(product: Floats, bias: Floats, x: Floats, out: Floats) -> None:
    """Write max(0, product + bias), and the context beside it, row by row."""
    units = product.shape[1]
    for i in range(product.shape[0]):
        for j in range(units):
            out[i, j] = max(0.0, product[i, j] + bias[j])
        for j in range(x.shape[1]):
            out[i, units + j] = x[i, j]


@compiled
def through_relu(slope: Singles, units: Singles, bias_slope: Singles) -> None:
    """Set the slope to 0 where a unit is off, and sum it up over the batch."""
    for j in range(units.shape[1]):
        bias_slope[j] = 0.0
    for i in range(units.shape[0]):
        for j in range(units.shape[1]):
            slope[i, j] = slope[i, j] if units[i, j] > 0.0 else np.float32(0.0)
            bias_slope[j] += slope[i, j]


@compiled
def adam(weights: Singles, slope: Singles, mean: Singles, square: Singles, rate: float, step: int) -> None:
    """Take one step of Adam."""
    factor = np.float32(rate / (1.0 - 0.9**step))
    grown = np.float32(1.0 / math.sqrt(1.0 - 0.999**step))
    one = np.float32(1.0)
    for i in range(weights.shape[0]):
        mean[i] = BETA_1 * mean[i] + (one - BETA_1) * slope[i]
        square[i] = BETA_2 * square[i] + (one - BETA_2) * slope[i] * slope[i]
        weights[i] -= factor * mean[i] / (math.sqrt(square[i]) * grown + EPSILON)
