"""The budget left: neither spent nor reserved."""

from libc.math cimport INFINITY, isnan

from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define MIN_BUDGET 1e-100 /* a smaller total counts as 0: T/B would overflow */
    """
    const double MIN_BUDGET

cdef inline double left(State *s, Int resource) noexcept nogil:
    return s.arrays.total[resource] - s.arrays.spent[resource] - s.arrays.reserved[resource]

cdef inline bint can_be_stopped(State *s, Int resource) noexcept nogil:
    """Whether a review is stopped when its hold is used up and cannot be extended."""
    return not (isnan(s.arrays.hold_fixed[resource]) and isnan(s.arrays.hold_means[resource])
                and isnan(s.arrays.limit[resource]))

cdef inline double pending_costs(State *s, Int resource) noexcept nogil:
    """What open decisions are expected to cost: their estimates, or the mean cost if that is more.

    Estimates that were made before much was known of costs are close to 0.
    """
    cdef double seen = s.arrays.cost_n[resource]
    cdef double mean = s.arrays.cost_sum[resource] / seen if seen > 0.0 else 0.0
    return max(s.arrays.pending_cost[resource], s.counters.n_open * mean)

cdef inline double plannable(State *s, Int resource) noexcept nogil:
    """What the price is solved for: what is left; where reviews can be stopped, what pending ones are expected to leave.

    Holds of such reviews are no forecast of their costs, and are extended as needed.
    """
    if can_be_stopped(s, resource):
        return s.arrays.total[resource] - s.arrays.spent[resource] - pending_costs(s, resource)
    return left(s, resource)

cdef inline bint bounded(State *s, Int resource) noexcept nogil:
    """Whether a resource has a price: not if its budget is 0 or infinite."""
    return MIN_BUDGET < s.arrays.total[resource] < INFINITY
