"""Precision matrices and their inverses, born together and updated together.

A *design* is P = ridge·I + Σ wᵢ·xᵢxᵢᵀ with its inverse. The inverse takes every sample at once, by a rank-one
step in O(d²); the precision itself is only needed to refactor, so samples wait in a stash and are added
sixteen at a time, which touches the matrix four times instead of sixteen. A rank-one step loses a few bits;
every so often the inverse is tried on a context, and refactored from the precision if it is off.

Matrices and vectors are offsets into the float buffer `f`.
"""

import math

from deferkit.learn.arrays import N_FEATURES, STASH, Floats, Ints, places
from deferkit.learn.compiled import compiled, inlined, matrix, vector

DRIFT_ALLOWED = 1e-10
CHECK_EVERY = 64  # stashes, that is 1,024 samples


@inlined
def birth(f: Floats, precision: int, inverse: int, ridge: float, d: int) -> None:
    """Make a precision and its inverse: ridge·I and I/ridge."""
    for i in range(d * d):
        f[precision + i] = 0.0
        f[inverse + i] = 0.0
    for i in range(d):
        f[precision + i * d + i] = ridge
        f[inverse + i * d + i] = 1.0 / ridge


@inlined
def multiply(f: Floats, symmetric: int, x: int, product: int, d: int) -> None:
    """Write the product of a symmetric matrix and x.

    Four rows at a time: the sum for each element has a fixed order, whatever the compiler does with the
    loop over columns.
    """
    m, v, out = matrix(f, symmetric, d, d), vector(f, x, d), vector(f, product, d)
    for j in range(d):
        out[j] = 0.0
    quads = d - d % 4
    for i in range(0, quads, 4):
        x0, x1, x2, x3 = v[i], v[i + 1], v[i + 2], v[i + 3]
        for j in range(d):
            out[j] += (m[i, j] * x0 + m[i + 1, j] * x1) + (m[i + 2, j] * x2 + m[i + 3, j] * x3)
    for i in range(quads, d):
        x0 = v[i]
        for j in range(d):
            out[j] += m[i, j] * x0


@inlined
def dot(f: Floats, x: int, y: int, d: int) -> float:
    """Return xᵀy, summed in four lanes so that the additions need not wait for each other."""
    u, v = vector(f, x, d), vector(f, y, d)
    quads = d - d % 4
    s0 = s1 = s2 = s3 = 0.0
    for i in range(0, quads, 4):
        s0 += u[i] * v[i]
        s1 += u[i + 1] * v[i + 1]
        s2 += u[i + 2] * v[i + 2]
        s3 += u[i + 3] * v[i + 3]
    for i in range(quads, d):
        s0 += u[i] * v[i]
    return (s0 + s1) + (s2 + s3)


@inlined
def add_scaled(f: Floats, out: int, scale: float, x: int, d: int) -> None:
    """Add scale · x to a vector."""
    u, v = vector(f, out, d), vector(f, x, d)
    for i in range(d):
        u[i] += scale * v[i]


@inlined
def copy(f: Floats, source: int, out: int, n: int) -> None:
    """Copy n numbers."""
    u, v = vector(f, out, n), vector(f, source, n)
    for i in range(n):
        u[i] = v[i]


@inlined
def shrink(f: Floats, inverse: int, product: int, spread: float, weight: float, work: int, d: int) -> None:
    """Give the inverse of P + weight·xxᵀ (Sherman–Morrison), with product = P⁻¹x and spread = xᵀP⁻¹x."""
    m, u, v = matrix(f, inverse, d, d), vector(f, product, d), vector(f, work, d)
    # The root goes to both sides, so that element (i, j) and element (j, i) stay equal to the last bit.
    root = math.sqrt(weight / (1.0 + weight * spread))
    for i in range(d):
        v[i] = root * u[i]
    for i in range(d):
        each = v[i]
        for j in range(d):
            m[i, j] -= each * v[j]


@compiled
def unstash(f: Floats, precision: int, stash: int, n: int, d: int) -> None:
    """Add n stashed contexts, each already scaled by the root of its weight, to a precision."""
    m, s = matrix(f, precision, d, d), matrix(f, stash, n, d)
    quads = n - n % 4
    for q in range(0, quads, 4):
        for i in range(d):
            x0, x1, x2, x3 = s[q, i], s[q + 1, i], s[q + 2, i], s[q + 3, i]
            for j in range(d):
                m[i, j] += (x0 * s[q, j] + x1 * s[q + 1, j]) + (x2 * s[q + 2, j] + x3 * s[q + 3, j])
    for q in range(quads, n):
        for i in range(d):
            x0 = s[q, i]
            for j in range(d):
                m[i, j] += x0 * s[q, j]


@compiled
def refactor(f: Floats, precision: int, inverse: int, factor: int, d: int) -> None:
    """Compute the inverse afresh from the precision, by a Cholesky factorisation."""
    # factor ← L with L·Lᵀ = precision
    for i in range(d):
        for j in range(i + 1):
            total = f[precision + i * d + j] - dot(f, factor + i * d, factor + j * d, j)
            if i == j:
                f[factor + i * d + i] = math.sqrt(total)
            else:
                f[factor + i * d + j] = total / f[factor + j * d + j]
    # row j of inverse ← column j of L⁻¹, so that all that follows runs along rows
    for j in range(d):
        row = inverse + j * d
        for i in range(j):
            f[row + i] = 0.0
        f[row + j] = 1.0 / f[factor + j * d + j]
        for i in range(j + 1, d):
            total = -dot(f, factor + i * d + j, row + j, i - j)
            f[row + i] = total / f[factor + i * d + i]
    # element (i, j) of L⁻ᵀ·L⁻¹ is the product of those two rows
    for i in range(d):
        for j in range(i, d):
            f[factor + i * d + j] = dot(f, inverse + i * d + j, inverse + j * d + j, d - j)
    for i in range(d):
        for j in range(i, d):
            f[inverse + i * d + j] = f[factor + i * d + j]
            f[inverse + j * d + i] = f[factor + i * d + j]


@compiled
def drift(f: Floats, precision: int, inverse: int, x: int, work: int, d: int) -> float:
    """Return how far precision · inverse · x is from x, relative to the largest element of x."""
    multiply(f, inverse, x, work, d)
    multiply(f, precision, work, work + d, d)
    worst = 0.0
    largest = 0.0
    for i in range(d):
        worst = max(worst, abs(f[work + d + i] - f[x + i]))
        largest = max(largest, abs(f[x + i]))
    return worst / largest if largest > 0.0 else 0.0


@inlined
def enter(f: Floats, z: Ints, design: int, x: int, weight: float) -> bool:
    """Add weight·xxᵀ to a design whose product and spread are prepared; True if it was refactored."""
    at = places(z)
    d = z[N_FEATURES]
    inverse = at.inverse + design * d * d
    precision = at.precision + design * d * d
    shrink(f, inverse, at.product + design * d, f[at.spread + design], weight, at.work, d)
    place = z[at.n_stashed + design]
    stash = at.stash + design * STASH * d
    root = math.sqrt(weight)
    for i in range(d):
        f[stash + place * d + i] = root * f[x + i]
    z[at.n_absorbed + design] += 1
    z[at.n_stashed + design] = place + 1
    if place + 1 < STASH:
        return False
    unstash(f, precision, stash, STASH, d)
    z[at.n_stashed + design] = 0
    due = z[at.n_absorbed + design] // STASH % CHECK_EVERY == 0
    if due and drift(f, precision, inverse, x, at.work, d) > DRIFT_ALLOWED:
        refactor(f, precision, inverse, at.factor, d)
        return True
    return False
