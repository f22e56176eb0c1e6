"""Free exploration: while the price is 0, unspent budget has no other use than to learn about the experts.

The bonus of the experts is multiplied by a boost, the least of 1, 1.5, 1.5², … with which the window would use the
budget. The boost is at most 20/3·min(1, (5·d / n)^¾) after n observations of all experts, so that an expert who is known
to be worse is not asked for ever. The experts share it, or several of them would be explored several times as long. It
lies behind the dual, so that a proposal does not change it.
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

cdef inline double boost_of(State *s, double level) noexcept nogil:
    """The factor of the experts' bonus."""
    cdef Int k, seen = 0
    cdef double known
    if level <= 1.0:
        return 1.0
    for k in range(s.sizes.n_experts):
        seen += s.arrays.n_observed[k + 1]
    known = min(1.0, SAMPLES_AT_MAX_BOOST * s.parameters.dimension / max(seen, <Int>1))
    return max(1.0, min(level, MAX_BOOST * known / sqrt(sqrt(known))))

cdef inline double boost_level(State *s, const double *dual) noexcept nogil:
    return dual[s.sizes.n_dual - 1] if s.options.free_exploration else 1.0
