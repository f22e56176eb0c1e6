"""The budget left: neither spent nor reserved."""

from libc.math cimport INFINITY

from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define LEAST_BUDGET 1e-100 /* a smaller total counts as 0: T/B would overflow */
    """
    const double LEAST_BUDGET

cdef inline double left(State *s, Int resource) noexcept nogil:
    return s.arrays.total[resource] - s.arrays.spent[resource] - s.arrays.reserved[resource]

cdef inline bint bounded(State *s, Int resource) noexcept nogil:
    """Whether a resource has a price: not if its budget is 0 or infinite."""
    return LEAST_BUDGET < s.arrays.total[resource] < INFINITY
