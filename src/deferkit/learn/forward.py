"""Learned representations of contexts, row by row: what a row comes to does not depend on the rows beside it.

A library's matrix product sums in another order for one row than for a thousand, so that a decision in the bulk loop
would differ in the last bit from the same decision alone. These loops do not.
"""

import math

from deferkit.learn.arrays import Floats, Ints
from deferkit.learn.compiled import compiled, inlined


@inlined
def hidden_layer(x: Floats, row: int, weights: Floats, biases: Floats, out: Floats, first: int, view: int) -> None:
    """Write max(0, xᵀW + b) of one view's hidden units; weights are [view, features, units]."""
    units = weights.shape[2]
    for j in range(units):
        out[row, first + j] = biases[view, j]
    for i in range(weights.shape[1]):
        value = x[row, i]
        if value != 0.0:
            for j in range(units):
                out[row, first + j] += value * weights[view, i, j]
    for j in range(units):
        out[row, first + j] = max(0.0, out[row, first + j])


@compiled
def hidden_rows(x: Floats, weights: Floats, biases: Floats, skip: int, out: Floats) -> None:
    """Write, for each row and view, the hidden layer and, if it is not skipped over, the context itself."""
    views, features, units = weights.shape
    width = units + features * skip
    for row in range(x.shape[0]):
        for view in range(views):
            first = view * width
            hidden_layer(x, row, weights, biases, out, first, view)
            if skip == 1:
                for i in range(features):
                    out[row, first + units + i] = x[row, i]


@compiled
def gradient_rows(
    x: Floats,
    weights: Floats,
    biases: Floats,
    heads: Floats,
    offsets: Floats,
    squashed: Ints,
    first_curvature: Floats,
    bias_curvature: Floats,
    head_curvature: Floats,
    offset_curvature: Floats,
    hidden: Floats,
    out: Floats,
) -> None:
    """Write, for each row and network, what it predicts, and √(gᵀZ⁻¹g) for its gradient g and a diagonal Z."""
    networks, features, units = weights.shape
    for row in range(x.shape[0]):
        for g in range(networks):
            hidden_layer(x, row, weights, biases, hidden, 0, g)
            value = offsets[g]
            spread = 1.0 / offset_curvature[g]
            for j in range(units):
                h = hidden[row, j]
                if h > 0.0:
                    value += heads[g, j] * h
                    inner = 1.0 / bias_curvature[g, j]
                    for i in range(features):
                        inner += x[row, i] * x[row, i] / first_curvature[g, i, j]
                    spread += heads[g, j] * heads[g, j] * inner + h * h / head_curvature[g, j]
            slope = 1.0
            if squashed[g] == 1:
                value = 1.0 / (1.0 + math.exp(-value))
                slope = value * (1.0 - value)
            out[row, 2 * g] = value
            out[row, 2 * g + 1] = slope * math.sqrt(spread)


@compiled
def tree_rows(
    x: Floats,
    feature: Ints,
    threshold: Floats,
    left: Ints,
    right: Ints,
    value: Floats,
    root: Ints,
    column: Ints,
    out: Floats,
) -> None:
    """Add to each row's columns what the trees say; a leaf has no feature (−1)."""
    for row in range(x.shape[0]):
        for tree in range(root.shape[0]):
            node = root[tree]
            while feature[node] >= 0:
                node = left[node] if x[row, feature[node]] <= threshold[node] else right[node]
            out[row, column[tree]] += value[node]
