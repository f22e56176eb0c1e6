"""Precision matrices and their inverses, born together and updated together.

A *design* is P = ridge·I + Σ wᵢ·xᵢxᵢᵀ with its inverse. The inverse takes every sample at once, by a rank-one
step in O(d²); the precision itself is only needed to refactor, so samples wait in a stash and are added
sixteen at a time, which touches the matrix once instead of sixteen times. A rank-one step loses a few bits;
every so often the inverse is tried on a context, and refactored from the precision if it is off.

Matrices and vectors are offsets into the float buffer `f`; `w` is their stride, which is d filled up with zeros
to whole lanes, so that no loop has a rest.
"""

import math

from deferkit.learn.arrays import MEND, N_FEATURES, STASH, STRIDE, Floats, Ints, places
from deferkit.learn.compiled import compiled, inlined
from deferkit.learn.lanes import N_LANES, add, load, multiply_add, spread_out, store, subtract, total

DRIFT_ALLOWED = 1e-10
LEAST_PIVOT = 1e-15  # of the diagonal element
SURE_SPREAD = 1e8  # of xᵀP⁻¹x; a rank-one step loses as many digits as this has
CHECK_EVERY = 64  # stashes, that is 1,024 samples


@inlined
def birth(f: Floats, precision: int, inverse: int, ridge: float, d: int, w: int) -> None:
    """Make a precision and its inverse: ridge·I and I/ridge."""
    for i in range(d * w):
        f[precision + i] = 0.0
        f[inverse + i] = 0.0
    for i in range(d):
        f[precision + i * w + i] = ridge
        f[inverse + i * w + i] = 1.0 / ridge


@inlined
def multiply(f: Floats, symmetric: int, x: int, product: int, w: int) -> None:
    """Write the product of a symmetric matrix and x, four rows at a time."""
    for i in range(0, w, 4):
        row = symmetric + i * w
        x0, x1 = spread_out(f[x + i]), spread_out(f[x + i + 1])
        x2, x3 = spread_out(f[x + i + 2]), spread_out(f[x + i + 3])
        for j in range(0, w, N_LANES):
            before = load(f, product + j) if i > 0 else spread_out(0.0)
            s = multiply_add(load(f, row + j), x0, before)
            s = multiply_add(load(f, row + w + j), x1, s)
            s = multiply_add(load(f, row + 2 * w + j), x2, s)
            s = multiply_add(load(f, row + 3 * w + j), x3, s)
            store(f, product + j, s)


@inlined
def dot(f: Floats, x: int, y: int, w: int) -> float:
    """Return xᵀy."""
    s = spread_out(0.0)
    for i in range(0, w, N_LANES):
        s = multiply_add(load(f, x + i), load(f, y + i), s)
    return total(s)


@inlined
def dot_three(f: Floats, x: int, y: int, out: int, w: int) -> None:
    """Write the products of x with three vectors that lie one behind the other: their sums need not wait in turn."""
    s0 = s1 = s2 = spread_out(0.0)
    for i in range(0, w, N_LANES):
        v = load(f, x + i)
        s0 = multiply_add(v, load(f, y + i), s0)
        s1 = multiply_add(v, load(f, y + w + i), s1)
        s2 = multiply_add(v, load(f, y + 2 * w + i), s2)
    f[out] = total(s0)
    f[out + 1] = total(s1)
    f[out + 2] = total(s2)


@inlined
def add_scaled(f: Floats, out: int, scale: float, x: int, w: int) -> None:
    """Add scale · x to a vector."""
    factor = spread_out(scale)
    for i in range(0, w, N_LANES):
        store(f, out + i, multiply_add(factor, load(f, x + i), load(f, out + i)))


@inlined
def copy_scaled(f: Floats, out: int, scale: float, x: int, w: int) -> None:
    """Write scale · x to a vector."""
    factor, zero = spread_out(scale), spread_out(0.0)
    for i in range(0, w, N_LANES):
        store(f, out + i, multiply_add(factor, load(f, x + i), zero))


@inlined
def add_outer(f: Floats, symmetric: int, sign: float, x: int, w: int) -> None:
    """Add sign · xxᵀ to a symmetric matrix; elements (i, j) and (j, i) stay equal to the last bit."""
    for i in range(w):
        add_scaled(f, symmetric + i * w, sign * f[x + i], x, w)


@inlined
def copy_vector(f: Floats, source: int, out: int, w: int) -> None:
    """Copy whole lanes."""
    for i in range(0, w, N_LANES):
        store(f, out + i, load(f, source + i))


@inlined
def copy(f: Floats, source: int, out: int, n: int) -> None:
    """Copy n numbers."""
    for i in range(n):
        f[out + i] = f[source + i]


@inlined
def shrink(f: Floats, inverse: int, product: int, spread: float, weight: float, work: int, w: int) -> None:
    """Give the inverse of P + weight·xxᵀ (Sherman–Morrison), with product = P⁻¹x and spread = xᵀP⁻¹x."""
    copy_scaled(f, work, math.sqrt(weight / (1.0 + weight * spread)), product, w)
    add_outer(f, inverse, -1.0, work, w)


@compiled
def unstash(f: Floats, precision: int, rounding: int, stash: int, work: int, w: int) -> None:
    """Add the stashed contexts, each already scaled by the root of its weight, to the lower half of a precision.

    What a sum loses to rounding is kept and added with the next stash (Kahan): after a million times the same
    context, the directions that it does not touch would otherwise be off in the fifth digit.
    """
    for i in range(w):
        end = i - i % N_LANES + N_LANES
        for half in range(0, STASH, 8):
            s = stash + half * w
            x0, x1, x2, x3 = (
                spread_out(f[s + i]),
                spread_out(f[s + w + i]),
                spread_out(f[s + 2 * w + i]),
                spread_out(f[s + 3 * w + i]),
            )
            x4, x5, x6, x7 = (
                spread_out(f[s + 4 * w + i]),
                spread_out(f[s + 5 * w + i]),
                spread_out(f[s + 6 * w + i]),
                spread_out(f[s + 7 * w + i]),
            )
            for j in range(0, end, N_LANES):
                more = load(f, work + j) if half > 0 else spread_out(0.0)
                more = multiply_add(x0, load(f, s + j), more)
                more = multiply_add(x1, load(f, s + w + j), more)
                more = multiply_add(x2, load(f, s + 2 * w + j), more)
                more = multiply_add(x3, load(f, s + 3 * w + j), more)
                more = multiply_add(x4, load(f, s + 4 * w + j), more)
                more = multiply_add(x5, load(f, s + 5 * w + j), more)
                more = multiply_add(x6, load(f, s + 6 * w + j), more)
                more = multiply_add(x7, load(f, s + 7 * w + j), more)
                store(f, work + j, more)
        row = i * w
        for j in range(0, end, N_LANES):
            before = load(f, precision + row + j)
            more = subtract(load(f, work + j), load(f, rounding + row + j))
            after = add(before, more)
            store(f, rounding + row + j, subtract(subtract(after, before), more))
            store(f, precision + row + j, after)


@inlined
def mirror(f: Floats, precision: int, d: int, w: int) -> None:
    """Copy the lower half of a precision to its upper half."""
    for i in range(d):
        for j in range(i):
            f[precision + j * w + i] = f[precision + i * w + j]


@inlined
def partial_dot(f: Floats, x: int, y: int, n: int) -> float:
    """Return the product of two vectors of any length that need not be filled up."""
    result = 0.0
    for i in range(n):
        result += f[x + i] * f[y + i]
    return result


@compiled
def refactor(f: Floats, precision: int, inverse: int, factor: int, d: int, w: int) -> None:
    """Compute the inverse afresh from the precision, by a Cholesky factorisation."""
    # factor ← L with L·Lᵀ = precision
    for i in range(d):
        for j in range(i + 1):
            rest = f[precision + i * w + j] - partial_dot(f, factor + i * w, factor + j * w, j)
            if i == j:
                # next to a context of 1e10 the ridge is below rounding, and what is left may even be negative
                f[factor + i * w + i] = math.sqrt(max(rest, LEAST_PIVOT * f[precision + i * w + i]))
            else:
                f[factor + i * w + j] = rest / f[factor + j * w + j]
    # row j of inverse ← column j of L⁻¹, so that all that follows runs along rows
    for j in range(d):
        row = inverse + j * w
        f[row + j] = 1.0 / f[factor + j * w + j]
        for i in range(j + 1, d):
            rest = -partial_dot(f, factor + i * w + j, row + j, i - j)
            f[row + i] = rest / f[factor + i * w + i]
    # element (i, j) of L⁻ᵀ·L⁻¹ is the product of those two rows
    for i in range(d):
        for j in range(i, d):
            f[factor + i * w + j] = partial_dot(f, inverse + i * w + j, inverse + j * w + j, d - j)
    for i in range(d):
        for j in range(i, d):
            f[inverse + i * w + j] = f[factor + i * w + j]
            f[inverse + j * w + i] = f[factor + i * w + j]


@compiled
def drift(f: Floats, precision: int, inverse: int, x: int, work: int, w: int) -> float:
    """Return how far precision · inverse · x is from x, relative to the largest element of x."""
    multiply(f, inverse, x, work, w)
    multiply(f, precision, work, work + w, w)
    worst = 0.0
    largest = 0.0
    for i in range(w):
        worst = max(worst, abs(f[work + w + i] - f[x + i]))
        largest = max(largest, abs(f[x + i]))
    return worst / largest if largest > 0.0 else 0.0


@inlined
def enter(f: Floats, z: Ints, design: int, x: int, weight: float) -> None:
    """Add weight·xxᵀ to a design whose product and spread are prepared."""
    at = places(z)
    w = z[STRIDE]
    inverse = at.inverse + design * w * w
    shrink(f, inverse, at.product + design * w, f[at.spread + design], weight, at.work, w)
    place = z[at.n_stashed + design]
    stash = at.stash + design * STASH * w
    copy_scaled(f, stash + place * w, math.sqrt(weight), x, w)
    z[at.n_absorbed + design] += 1
    z[at.n_stashed + design] = place + 1
    if place + 1 == STASH:
        unstash_and_check(f, z, design, x)
    if weight * f[at.spread + design] > SURE_SPREAD:
        unstash_and_refactor(f, z, design)


@compiled
def unstash_and_refactor(f: Floats, z: Ints, design: int) -> None:
    """Have the inverse computed afresh: a context that dwarfs the ones before leaves no digits of a rank-one step."""
    at = places(z)
    w = z[STRIDE]
    stash = at.stash + design * STASH * w
    for i in range(z[at.n_stashed + design] * w, STASH * w):
        f[stash + i] = 0.0
    unstash(f, at.precision + design * w * w, at.rounding + design * w * w, stash, at.work, w)
    mirror(f, at.precision + design * w * w, z[N_FEATURES], w)
    z[at.n_stashed + design] = 0
    z[at.drifted + design] = 1
    z[MEND] = 1


@compiled
def unstash_and_check(f: Floats, z: Ints, design: int, x: int) -> None:
    """Empty a full stash, and now and then see whether the inverse still is one."""
    at = places(z)
    w = z[STRIDE]
    inverse, precision = at.inverse + design * w * w, at.precision + design * w * w
    unstash(f, precision, at.rounding + design * w * w, at.stash + design * STASH * w, at.work, w)
    z[at.n_stashed + design] = 0
    if z[at.n_absorbed + design] // STASH % CHECK_EVERY == 0:
        mirror(f, precision, z[N_FEATURES], w)
        if drift(f, precision, inverse, x, at.work, w) > DRIFT_ALLOWED:
            z[at.drifted + design] = 1
            z[MEND] = 1
