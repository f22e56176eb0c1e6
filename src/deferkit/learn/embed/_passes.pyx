"""Compiled loops of the learned representations, each a single pass that numpy has no function for.

The result of a row does not depend on the other rows. A matrix product of a library sums in another order for one row
than for a thousand, so that a decision in the bulk loop would differ in the last bit from the same decision alone.
All sums here run in the order of the indices.

Arrays are C-contiguous and have the dtypes of `_passes.pyi`; anything else raises ValueError. Shapes are not checked.
"""

from libc.math cimport exp, log, sqrt, sqrtf
from libc.stdint cimport int64_t


cdef inline void hidden_layer(
    const double *x, const double *weights, const double *biases, Py_ssize_t features, Py_ssize_t units, double *out
) noexcept nogil:
    """Write max(0, xᵀW + b) of one row and one network; W is [features, units]. NaN becomes 0."""
    cdef Py_ssize_t i, j
    for j in range(units):
        out[j] = biases[j]
    for i in range(features):
        if x[i] != 0.0:
            for j in range(units):
                out[j] += x[i] * weights[i * units + j]
    for j in range(units):
        out[j] = out[j] if out[j] > 0.0 else 0.0


def hidden_rows(
    const double[:, ::1] x,
    const double[:, :, ::1] weights,
    const double[:, ::1] biases,
    bint skip,
    double[:, ::1] out,
):
    """Write, for each row and network, the hidden layer max(0, xᵀW + b), followed by the context itself if `skip`.

    `weights` are [networks, features, units], `biases` [networks, units].
    """
    cdef Py_ssize_t networks = weights.shape[0], features = weights.shape[1], units = weights.shape[2]
    cdef Py_ssize_t width = units + features if skip else units
    cdef Py_ssize_t row, network, i, first
    with nogil:
        for row in range(x.shape[0]):
            for network in range(networks):
                first = network * width
                hidden_layer(
                    &x[row, 0], &weights[network, 0, 0], &biases[network, 0], features, units, &out[row, first]
                )
                if skip:
                    for i in range(features):
                        out[row, first + units + i] = x[row, i]


def gradient_rows(
    const double[:, ::1] x,
    const double[:, :, ::1] weights,
    const double[:, ::1] biases,
    const double[:, ::1] heads,
    const double[::1] offsets,
    const int64_t[::1] squashed,
    const double[:, :, ::1] first_curvature,
    const double[:, ::1] bias_curvature,
    const double[:, ::1] head_curvature,
    const double[::1] offset_curvature,
    double[::1] hidden,
    double[:, ::1] out,
):
    """Write, for each row and network, its prediction f and the width √(gᵀZ⁻¹g), with g the gradient of f.

    f is the head on the hidden layer, behind a sigmoid where `squashed` is 1. Z is diagonal: one curvature for each
    weight and bias of the hidden layer, each weight of the head, and the head's offset. A unit that is off has no
    gradient. `hidden` is scratch for the units of one row.
    """
    cdef Py_ssize_t networks = weights.shape[0], features = weights.shape[1], units = weights.shape[2]
    cdef Py_ssize_t row, network, i, j
    cdef double value, spread, unit, inner, slope
    with nogil:
        for row in range(x.shape[0]):
            for network in range(networks):
                hidden_layer(&x[row, 0], &weights[network, 0, 0], &biases[network, 0], features, units, &hidden[0])
                value = offsets[network]
                spread = 1.0 / offset_curvature[network]
                for j in range(units):
                    unit = hidden[j]
                    if unit > 0.0:
                        value += heads[network, j] * unit
                        inner = 1.0 / bias_curvature[network, j]
                        for i in range(features):
                            inner += x[row, i] * x[row, i] / first_curvature[network, i, j]
                        spread += (heads[network, j] * heads[network, j] * inner
                                   + unit * unit / head_curvature[network, j])
                slope = 1.0
                if squashed[network] == 1:
                    value = 1.0 / (1.0 + exp(-value))
                    slope = value * (1.0 - value)
                out[row, 2 * network] = value
                out[row, 2 * network + 1] = slope * sqrt(spread)


def tree_rows(
    const double[:, ::1] x,
    const int64_t[::1] feature,
    const double[::1] threshold,
    const int64_t[::1] left,
    const int64_t[::1] right,
    const double[::1] value,
    const int64_t[::1] root,
    const int64_t[::1] column,
    double[:, ::1] out,
):
    """Add the leaf value of every tree to its column of each row.

    Nodes are numbered over all trees; a leaf has a negative feature. A value up to the threshold goes left, anything
    else, including NaN, right.
    """
    cdef Py_ssize_t row, tree
    cdef int64_t node
    with nogil:
        for row in range(x.shape[0]):
            for tree in range(root.shape[0]):
                node = root[tree]
                while feature[node] >= 0:
                    node = left[node] if x[row, feature[node]] <= threshold[node] else right[node]
                out[row, column[tree]] += value[node]


def hat_rows(
    const double[:, ::1] x,
    const double[:, ::1] knots,
    const int64_t[::1] n_knots,
    const double[:, :, ::1] heights,
    const double[:, ::1] levels,
    double[:, ::1] out,
    Py_ssize_t first,
):
    """Write, for each row and target, the sum of a constant and a piecewise linear function of each feature.

    A function has its `heights` at the knots and is constant outside. `levels` are, for each target, the constant and
    the bounds that the sum is clipped to. Columns are those from `first` on.
    """
    cdef Py_ssize_t targets = levels.shape[0], row, target, j, k, last
    cdef double value, share
    with nogil:
        for row in range(x.shape[0]):
            for target in range(targets):
                out[row, first + target] = levels[target, 0]
            for j in range(x.shape[1]):
                last = n_knots[j] - 1
                if last < 1:
                    continue
                value = min(max(x[row, j], knots[j, 0]), knots[j, last])
                k = 0
                while k < last - 1 and value >= knots[j, k + 1]:
                    k += 1
                share = (value - knots[j, k]) / (knots[j, k + 1] - knots[j, k])
                for target in range(targets):
                    out[row, first + target] += (1.0 - share) * heights[target, j, k] + share * heights[target, j, k + 1]
            for target in range(targets):
                out[row, first + target] = min(max(out[row, first + target], levels[target, 1]), levels[target, 2])


def stack_rows(
    double[:, ::1] out,
    const int64_t[::1] columns,
    int64_t[::1] has_trees,
    Py_ssize_t features,
    Py_ssize_t targets,
    Py_ssize_t probabilities,
    double log_odds_unit,
    double unit,
):
    """Complete the three views of each row, whose last one has the predictions of trees and of additive models.

    A column without trees (`columns` are those of the trees) gets the prediction of the additive model of its target.
    Predictions of the first targets, which are `probabilities`, become log-odds in their unit; others are multiplied
    by `unit`. The second view gets the columns alone. `has_trees` is scratch, 0 at first.
    """
    cdef Py_ssize_t width = out.shape[1] // 3, n = width - features, row, c, tree
    cdef double *last
    cdef double *middle
    cdef double p
    with nogil:
        for tree in range(columns.shape[0]):
            has_trees[columns[tree]] = 1
        for row in range(out.shape[0]):
            middle, last = &out[row, width], &out[row, 2 * width + features]
            for c in range(features):
                middle[c] = 0.0
            for c in range(n):
                p = last[c] if has_trees[c] else last[n - targets + c % targets]
                if c % targets < probabilities:
                    p = min(max(p, 0.02), 0.98)
                    middle[features + c] = log_odds_unit * log(p / (1.0 - p))
                else:
                    middle[features + c] = unit * p
            for c in range(n):
                last[c] = middle[features + c]


def log_odds_rows(double[:, ::1] out, const int64_t[::1] columns, double unit):
    """Turn the probabilities in these columns into log-odds, in place.

    Probabilities are clipped to [0.02, 0.98].
    """
    cdef Py_ssize_t row, j
    cdef double p
    with nogil:
        for row in range(out.shape[0]):
            for j in range(columns.shape[0]):
                p = min(max(out[row, columns[j]], 0.02), 0.98)
                out[row, columns[j]] = unit * log(p / (1.0 - p))


def bias_and_relu(float[:, ::1] units, const float[::1] bias):
    """Set units to max(0, units + bias), in place. NaN becomes 0."""
    cdef Py_ssize_t i, j
    cdef float unit
    with nogil:
        for i in range(units.shape[0]):
            for j in range(units.shape[1]):
                unit = units[i, j] + bias[j]
                units[i, j] = unit if unit > 0 else 0


def relu_and_concat(const double[:, ::1] product, const double[::1] bias, const double[:, ::1] x, double[:, ::1] out):
    """Write max(0, product + bias) of each row, followed by its context x. NaN becomes 0."""
    cdef Py_ssize_t units = product.shape[1]
    cdef Py_ssize_t i, j
    cdef double unit
    with nogil:
        for i in range(product.shape[0]):
            for j in range(units):
                unit = product[i, j] + bias[j]
                out[i, j] = unit if unit > 0.0 else 0.0
            for j in range(x.shape[1]):
                out[i, units + j] = x[i, j]


def relu_gradient(float[:, ::1] gradient, const float[:, ::1] units, float[::1] bias_gradient):
    """Set the gradient to 0, in place, where a unit is off; write its sum over the batch to `bias_gradient`."""
    cdef Py_ssize_t i, j
    with nogil:
        for j in range(units.shape[1]):
            bias_gradient[j] = 0
        for i in range(units.shape[0]):
            for j in range(units.shape[1]):
                gradient[i, j] = gradient[i, j] if units[i, j] > 0 else 0
                bias_gradient[j] += gradient[i, j]


cdef double power(double base, int64_t exponent) noexcept nogil:
    """Return base^exponent by repeated squaring: unlike `pow` it has the same bits with every C library."""
    cdef double result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def adam(float[::1] weights, const float[::1] gradient, float[::1] mean, float[::1] square, double rate, int64_t step):
    """Take one step of Adam (Kingma & Ba 2015, Algorithm 1), in place.

    mean ← β₁·mean + (1−β₁)·gradient,  square ← β₂·square + (1−β₂)·gradient²,
    weights ← weights − rate/(1−β₁ᵗ) · mean / (√square/√(1−β₂ᵗ) + ε),  with t the `step`, from 1 on.
    """
    # All of this is single precision, except for the two factors of the step.
    cdef float keep_mean = 0.9, keep_square = 0.999, epsilon = 1e-8
    cdef float add_mean = 1 - keep_mean, add_square = 1 - keep_square
    cdef float factor = rate / (1.0 - power(0.9, step))
    cdef float grown = 1.0 / sqrt(1.0 - power(0.999, step))
    cdef Py_ssize_t i
    with nogil:
        for i in range(weights.shape[0]):
            mean[i] = keep_mean * mean[i] + add_mean * gradient[i]
            square[i] = keep_square * square[i] + add_square * gradient[i] * gradient[i]
            weights[i] -= factor * mean[i] / (sqrtf(square[i]) * grown + epsilon)
