"""The rank view of a context: each feature as its midrank among the first contexts, less one half.

    view = [1, midrank − ½] / √(1 + d),     with d features: a category is one, and indicators do not count

The tables hold the values of the first 100 contexts, sorted, and are frozen then: a rank keeps its meaning. Before
that a context is ranked among those so far and itself. The view is invariant to monotone transformations of a feature,
and bounded, so that outliers cannot ruin an estimate. A missing value has the rank 0 and is in no table. The tables also
tell what an outlier is: in the other views it is cut.
"""

from libc.math cimport NAN, fabs, isnan
from libc.string cimport memmove

from deferkit.learn.core.state cimport Int, State

cdef enum:
    RANKED_CONTEXTS = 100  # layout.py has the same number
    MIN_FOR_CUTS = 10  # values of a feature

cdef extern from *:
    """
    #define CUT 1.0       /* distances of the first and the last decile, beyond these deciles */
    #define ABSURD 1000.0 /* times the larger decile: a broken sensor, a code for "missing", an attack */
    #define UNIT 1.0      /* up to this size a value of a narrow feature is no outlier: a chance, an indicator */
    #define NARROW 0.25   /* distance of the deciles of a narrow feature */
    """
    const double CUT
    const double ABSURD
    const double UNIT
    const double NARROW

cdef inline double *rank_view(State *s, double *context) noexcept nogil:
    """The rank view of a context: the last view."""
    return context + (s.sizes.n_views - 1) * s.sizes.stride

cdef inline Int first_not_below(const double *table, Int n, double value) noexcept nogil:
    """The number of values in a sorted table that are below a value."""
    cdef Int low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if table[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low

cdef inline Int first_above(const double *table, Int first, Int n, double value) noexcept nogil:
    """The number of values in a sorted table that are not above a value; those before `first` are below it."""
    cdef Int high = n, low = first, middle
    if low < n and table[low] > value:  # most values are in the table at most once
        return low
    while low < high:
        middle = (low + high) // 2
        if table[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low

cdef inline bint is_missing(State *s, const double *x, Int feature) noexcept nogil:
    return isnan(x[feature]) or (s.arrays.indicator[feature] >= 0 and x[s.arrays.indicator[feature]] != 0.0)

cdef inline void cut_outliers(State *s, double *x, double *raw) noexcept nogil:
    """Cut values that are farther from the deciles of the first contexts than these from each other.

    A value that is absurdly far is no value: it becomes the median, and missing (NaN) in `raw`, unless that is NULL.
    Values up to 1 in size stay if the deciles are near each other: the chances of rare classes are near 0 at both, and
    a large one says most. So do indicators: where the deciles are equal, nothing says how far other values may be.
    """
    cdef Int j, n
    cdef double low, high
    cdef const double *table
    for j in range(s.sizes.n_ranked):
        n = s.arrays.rank_count[j]
        if n < MIN_FOR_CUTS:
            continue
        table = s.arrays.rank_table + j * RANKED_CONTEXTS
        low, high = table[n // 10], table[n - 1 - n // 10]
        if (low == 0.0 and high == 0.0) or (high - low < NARROW and fabs(x[j]) <= UNIT):
            continue
        # not by the distance: all but a few confidences of a naive Bayes classifier are 1 to nine digits
        if fabs(x[j]) > ABSURD * max(fabs(low), fabs(high)):
            x[j] = table[n // 2]
            if raw != NULL:
                raw[j] = NAN
        elif high > low:
            x[j] = min(max(x[j], low - CUT * (high - low)), high + CUT * (high - low))

cdef inline void write_ranks(State *s, double *context) noexcept nogil:
    """Write the rank view of a context, from its raw features."""
    cdef double *ranks = rank_view(s, context)
    cdef Int j, n, below, upto, ranked = s.sizes.n_ranked
    cdef bint frozen = s.counters.n_in_ranks >= RANKED_CONTEXTS
    cdef double length = s.parameters.rank_length, rank
    cdef const double *table
    ranks[0] = length
    for j in range(ranked):
        rank = 0.0
        n = s.arrays.rank_count[j]
        if not is_missing(s, s.arrays.raw, j) and (n > 0 or not frozen):
            table = s.arrays.rank_table + j * RANKED_CONTEXTS
            below = first_not_below(table, n, s.arrays.raw[j])
            upto = first_above(table, below, n, s.arrays.raw[j])
            if frozen:
                rank = 0.5 * (below + upto) / n - 0.5
            else:  # among those so far and itself
                rank = 0.5 * (below + upto + 1) / (n + 1) - 0.5
        ranks[1 + j] = rank * length

cdef inline void add_to_ranks(State *s, const double *x) noexcept nogil:
    """Add a context to the tables, unless they are frozen."""
    cdef Int j, n, below
    cdef double *table
    if s.counters.n_in_ranks >= RANKED_CONTEXTS:
        return
    for j in range(s.sizes.n_ranked):
        if not is_missing(s, x, j):
            n = s.arrays.rank_count[j]
            table = s.arrays.rank_table + j * RANKED_CONTEXTS
            below = first_not_below(table, n, x[j])
            memmove(table + below + 1, table + below, (n - below) * sizeof(double))
            table[below] = x[j]
            s.arrays.rank_count[j] = n + 1
    s.counters.n_in_ranks += 1
