"""Designs: a precision matrix P = ridge·I + Σ wᵢ·xᵢxᵢᵀ and its inverse, initialised and updated together.

The inverse is updated by every sample, with a rank-one update in O(d²). The precision is only needed to recompute the
inverse, so samples are stashed and added sixteen at a time, which touches the matrix once instead of sixteen times.
Rank-one updates lose precision; every 1,024 samples the inverse is checked on a context, and recomputed from the
precision if its error is too large. No other file knows the memory layout of a matrix.
"""

from libc.math cimport fabs, isfinite, sqrt
from libc.string cimport memcpy, memset

from deferkit.learn.core.kernels cimport STASHED, add_outer, add_stash, copy_scaled, dot, multiply, subtract_outer
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define LARGEST_INVERSE_ERROR 1e-10 /* of P·P⁻¹x from x, relative to the largest element of x */
    #define MIN_PIVOT 1e-15   /* of the diagonal element */
    #define SURE_SPREAD 1e8     /* of w·xᵀP⁻¹x: a rank-one update loses log₁₀ of it in digits */
    #define CHECK_EVERY 64      /* stashes, that is 1,024 samples */
    """
    const double LARGEST_INVERSE_ERROR
    const double MIN_PIVOT
    const double SURE_SPREAD
    const Int CHECK_EVERY

cdef inline Int matrix_size(State *s) noexcept nogil:
    return s.sizes.stride * s.sizes.stride

cdef inline double *inverse_of(State *s, Int design) noexcept nogil:
    return s.arrays.inverse + design * matrix_size(s)

cdef inline double *precision_of(State *s, Int design) noexcept nogil:
    return s.arrays.precision + design * matrix_size(s)

cdef inline double *rounding_of(State *s, Int design) noexcept nogil:
    return s.arrays.rounding + design * matrix_size(s)

cdef inline double *stash_of(State *s, Int design) noexcept nogil:
    return s.arrays.stash + design * STASHED * s.sizes.stride

cdef inline double *product_of(State *s, Int design) noexcept nogil:
    """P⁻¹x of the context that `project` was called with"""
    return s.arrays.product + design * s.sizes.stride

cdef inline void set_diagonal(double *m, double value, Int d, Int w) noexcept nogil:
    cdef Int i
    memset(m, 0, w * w * sizeof(double))
    for i in range(d):
        m[i * w + i] = value

cdef inline void copy_matrix(double *m, const double *source, Int w) noexcept nogil:
    memcpy(m, source, w * w * sizeof(double))

cdef inline void initialise(State *s, Int design) noexcept nogil:
    """Set P to ridge·I and its inverse to I/ridge."""
    set_diagonal(precision_of(s, design), s.parameters.ridge, s.sizes.n_features, s.sizes.stride)
    set_diagonal(inverse_of(s, design), 1.0 / s.parameters.ridge, s.sizes.n_features, s.sizes.stride)

cdef inline void project(State *s, Int design, const double *x) noexcept nogil:
    """Write P⁻¹x and xᵀP⁻¹x, which scoring and learning a context both need."""
    cdef double *product = product_of(s, design)
    multiply(inverse_of(s, design), x, product, s.sizes.stride)
    s.arrays.spread[design] = max(0.0, dot(x, product, s.sizes.stride))

cdef inline void solve(State *s, Int design, const double *right, double *out) noexcept nogil:
    """Write P⁻¹ · right."""
    multiply(inverse_of(s, design), right, out, s.sizes.stride)

cdef inline void mirror(double *m, Int d, Int w) noexcept nogil:
    """Copy the lower half of a matrix to its upper half."""
    cdef Int i, j
    for i in range(d):
        for j in range(i):
            m[j * w + i] = m[i * w + j]

cdef inline double inverse_error(State *s, Int design, const double *x) noexcept nogil:
    """Return the largest error of P·P⁻¹x, relative to the largest element of x."""
    cdef Int i, w = s.sizes.stride
    cdef double *back = s.arrays.work + w
    cdef double worst = 0.0, largest = 0.0
    multiply(inverse_of(s, design), x, s.arrays.work, w)
    multiply(precision_of(s, design), s.arrays.work, back, w)
    for i in range(w):
        worst = max(worst, fabs(back[i] - x[i]))
        largest = max(largest, fabs(x[i]))
    return worst / largest if largest > 0.0 else 0.0

cdef inline void flush_stash(State *s, Int design) noexcept nogil:
    """Add the stashed contexts to the precision."""
    cdef double *stash = stash_of(s, design)
    cdef Int used = s.arrays.n_stashed[design] * s.sizes.stride, room = STASHED * s.sizes.stride
    memset(stash + used, 0, (room - used) * sizeof(double))
    add_stash(precision_of(s, design), rounding_of(s, design), stash, s.arrays.work, s.sizes.stride)
    s.arrays.n_stashed[design] = 0

cdef inline void request_refactor(State *s, Int design) noexcept nogil:
    s.arrays.drifted[design] = 1
    s.counters.repair_due = 1

cdef inline void update(State *s, Int design, const double *x, double weight) noexcept nogil:
    """Add weight·xxᵀ to P, after `project`: by Sherman and Morrison's formula to the inverse, via the stash to P."""
    cdef Int w = s.sizes.stride, stashed = s.arrays.n_stashed[design] + 1
    cdef double spread = s.arrays.spread[design]
    copy_scaled(s.arrays.work, sqrt(weight / (1.0 + weight * spread)), product_of(s, design), w)
    subtract_outer(inverse_of(s, design), s.arrays.work, w)
    copy_scaled(stash_of(s, design) + (stashed - 1) * w, sqrt(weight), x, w)
    s.arrays.n_absorbed[design] += 1
    s.arrays.n_stashed[design] = stashed
    if stashed == STASHED:
        flush_stash(s, design)
        if s.arrays.n_absorbed[design] // STASHED % CHECK_EVERY == 0:
            mirror(precision_of(s, design), s.sizes.n_features, w)
            if inverse_error(s, design, x) > LARGEST_INVERSE_ERROR:
                request_refactor(s, design)
    if weight * spread > SURE_SPREAD:  # beside so large a context, a rank-one update has no digits left
        flush_stash(s, design)
        mirror(precision_of(s, design), s.sizes.n_features, w)
        request_refactor(s, design)

cdef inline double partial_dot(const double *x, const double *y, Int n) noexcept nogil:
    cdef double result = 0.0
    cdef Int i
    for i in range(n):
        result += x[i] * y[i]
    return result

cdef inline void invert(const double *m, double *inverse, double *factor, Int d, Int w, double lift) noexcept nogil:
    """Compute the inverse of a positive definite matrix, its diagonal times 1 + lift, by a Cholesky factorisation."""
    cdef Int i, j
    cdef double rest
    cdef double *row
    # factor ← L with L·Lᵀ = m
    for i in range(d):
        for j in range(i + 1):
            if i == j:
                rest = m[i * w + i] * (1.0 + lift) - partial_dot(factor + i * w, factor + i * w, i)
                # beside a context of 1e10 the ridge is below rounding, so that the pivot may even be negative
                factor[i * w + i] = sqrt(max(rest, MIN_PIVOT * m[i * w + i]))
            else:
                rest = m[i * w + j] - partial_dot(factor + i * w, factor + j * w, j)
                factor[i * w + j] = rest / factor[j * w + j]
    # row j of inverse ← column j of L⁻¹, so that all that follows runs along rows
    for j in range(d):
        row = inverse + j * w
        row[j] = 1.0 / factor[j * w + j]
        for i in range(j + 1, d):
            row[i] = -partial_dot(factor + i * w + j, row + j, i - j) / factor[i * w + i]
    # element (i, j) of L⁻ᵀ·L⁻¹ is the product of those two rows
    for i in range(d):
        for j in range(i, d):
            factor[i * w + j] = partial_dot(inverse + i * w + j, inverse + j * w + j, d - j)
    for i in range(d):
        for j in range(i, d):
            inverse[i * w + j] = inverse[j * w + i] = factor[i * w + j]

cdef inline bint is_finite_diagonal(const double *m, Int d, Int w) noexcept nogil:
    cdef Int i
    for i in range(d):
        if not isfinite(m[i * w + i]):
            return False
    return True

cdef inline void refactor(State *s, Int design) noexcept nogil:
    """Recompute the inverse from the precision.

    Contexts so large that the ridge is below rounding can make a factorisation overflow: it is then repeated with a
    larger diagonal, until it does not.
    """
    cdef Int d = s.sizes.n_features, w = s.sizes.stride
    cdef double lift = 0.0
    invert(precision_of(s, design), inverse_of(s, design), s.arrays.factor, d, w, lift)
    while lift < 1.0 and not is_finite_diagonal(inverse_of(s, design), d, w):
        lift = max(MIN_PIVOT, 10.0 * lift)
        invert(precision_of(s, design), inverse_of(s, design), s.arrays.factor, d, w, lift)

cdef inline void add_to_precision(State *s, Int design, const double *x) noexcept nogil:
    """Add xxᵀ to P alone; call `refactor` after the last one."""
    add_outer(precision_of(s, design), x, s.sizes.stride)

cdef inline void clear_rounding(State *s, Int design) noexcept nogil:
    memset(rounding_of(s, design), 0, matrix_size(s) * sizeof(double))

cdef inline void clear_stash(State *s, Int design) noexcept nogil:
    """Drop the stash and the rounding of a precision that was computed from all samples."""
    s.arrays.n_stashed[design] = 0
    clear_rounding(s, design)

cdef inline void discount(State *s, Int design, double keep) noexcept nogil:
    """Multiply P by `keep`, except for the ridge, and recompute the inverse."""
    cdef Int i, w = s.sizes.stride
    cdef double *m = precision_of(s, design)
    flush_stash(s, design)
    copy_scaled(m, keep, m, matrix_size(s))
    for i in range(s.sizes.n_features):
        m[i * w + i] += (1.0 - keep) * s.parameters.ridge
    clear_rounding(s, design)
    mirror(m, s.sizes.n_features, w)
    refactor(s, design)

cdef inline void copy_design(State *s, Int source, Int target) noexcept nogil:
    """Copy a design, with its results of `project`."""
    cdef Int matrix = matrix_size(s) * sizeof(double), vector = s.sizes.stride * sizeof(double)
    memcpy(inverse_of(s, target), inverse_of(s, source), matrix)
    memcpy(precision_of(s, target), precision_of(s, source), matrix)
    memcpy(rounding_of(s, target), rounding_of(s, source), matrix)
    memcpy(stash_of(s, target), stash_of(s, source), STASHED * vector)
    memcpy(product_of(s, target), product_of(s, source), vector)
    s.arrays.spread[target] = s.arrays.spread[source]
    s.arrays.n_stashed[target] = s.arrays.n_stashed[source]
    s.arrays.n_absorbed[target] = s.arrays.n_absorbed[source]
