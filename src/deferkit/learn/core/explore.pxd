"""Free exploration: while the price is 0, unspent budget has no other use than to learn about the experts.

The bonus of the experts is multiplied by a boost, the least of 1, 1.5, 1.5², … with which the window would use the
budget. The boost of an expert is at most 20/3·min(1, (5·d / n)^¾) after n observations, so that an expert who is known to
be worse is not asked for ever. It lies behind the dual, so that a proposal does not change it.
"""

from libc.math cimport sqrt

from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define MAX_BOOST (20.0 / 3.0)
    #define BOOST_STEP 1.5
    #define SAMPLES_AT_MAX_BOOST 5.0 /* for each feature */
    """
    const double MAX_BOOST
    const double BOOST_STEP
    const double SAMPLES_AT_MAX_BOOST

cdef inline double boost_of(State *s, double level, Int expert) noexcept nogil:
    """The factor of an expert's bonus; experts count from 0."""
    cdef double seen = max(s.arrays.n_observed[expert + 1], <Int>1)
    cdef double known = min(1.0, SAMPLES_AT_MAX_BOOST * s.parameters.dimension / seen)
    if level <= 1.0:
        return 1.0
    return max(1.0, min(level, MAX_BOOST * known / sqrt(sqrt(known))))

cdef inline double boost_level(State *s, const double *dual) noexcept nogil:
    return dual[s.sizes.n_dual - 1] if s.options.free_exploration else 1.0
