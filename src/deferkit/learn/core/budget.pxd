"""What is left of a budget: neither spent nor reserved."""

from libc.math cimport INFINITY

from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define LEAST_BUDGET 1e-100 /* what is below is nothing: T/B would not be a number any more */
    """
    const double LEAST_BUDGET

cdef inline double left(State *s, Int resource) noexcept nogil:
    return s.arrays.total[resource] - s.arrays.spent[resource] - s.arrays.reserved[resource]

cdef inline bint bounded(State *s, Int resource) noexcept nogil:
    """Whether there is a price to find: not for a budget of nothing, nor for one without end."""
    return LEAST_BUDGET < s.arrays.total[resource] < INFINITY
