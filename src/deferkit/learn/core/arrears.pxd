"""Arrears: how far spending is behind an even pace, and a price that falls until it catches up.

A solved price can leave the budget unspent for ever. If many contexts are alike (a decision tree has few confidences),
all of them are worth the same: above that price nobody is asked, below it everybody. Widths of past contexts are
approximations, too. So each decision adds to the arrears what an even pace would spend, and takes off what it costs:

    a ← max(0, a + left / tasks left − cost),     λ = solved price / (1 + ¼·max(0, a/mean cost − 2·√(n + 1)))

with the mean of the n costs so far. The root is the deviation of a count by chance, which moves no price. Behind the
memory of the pacing, the dual holds solved prices [R], then arrears [R].
"""

from libc.math cimport isnan, sqrt

from deferkit.learn.core.arrivals cimport HORIZON, RENEWS, Outlook, outlook, start_of
from deferkit.learn.core.budget cimport bounded, plannable
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define TOLERATED_ARREARS 2.0 /* mean costs, times the root of the number of costs */
    #define CATCH_UP 0.25         /* for each mean cost beyond */
    """
    const double TOLERATED_ARREARS
    const double CATCH_UP

cdef inline double *solved_prices(State *s, double *dual) noexcept nogil:
    return dual + s.sizes.n_dual - s.options.free_exploration - 2 * s.sizes.n_resources

cdef inline double even_pace(State *s, Int r) noexcept nogil:
    """What a task may use of a resource; of a budget that renews, of what would lapse."""
    cdef double free = max(plannable(s, r), 0.0), at = s.arrays.clock[0]
    if not bounded(s, r):
        return 0.0
    if s.arrays.timing[r] == HORIZON:
        return free / (s.arrays.horizon[r] - s.counters.next_id) if s.arrays.horizon[r] > s.counters.next_id else 0.0
    if isnan(start_of(s, r, 0)) or at >= s.arrays.period_end[r]:
        return 0.0
    if s.arrays.timing[r] == RENEWS and s.arrays.carry[r] > 0.0:
        free -= s.arrays.carry[r] * s.arrays.allowance[r]
    return max(free, 0.0) / outlook(s, r, at).tasks

cdef inline void count_arrears(State *s, double *dual, const double *cost) noexcept nogil:
    """Count the latest decision, which cost (or is expected to cost) this much."""
    cdef double *arrears = solved_prices(s, dual) + s.sizes.n_resources
    cdef Int r
    for r in range(s.sizes.n_resources):
        arrears[r] = max(0.0, arrears[r] + even_pace(s, r) - cost[r])

cdef inline void restore_prices(State *s, double *dual) noexcept nogil:
    """Set the prices to the solved ones."""
    cdef Int r
    for r in range(s.sizes.n_resources):
        dual[r] = solved_prices(s, dual)[r]

cdef inline void lower_prices(State *s, double *dual) noexcept nogil:
    """Keep the solved prices, and lower those in effect while spending is far behind."""
    cdef double *solved = solved_prices(s, dual)
    cdef double *arrears = solved + s.sizes.n_resources
    cdef double behind
    cdef Int r
    for r in range(s.sizes.n_resources):
        solved[r] = dual[r]
        if bounded(s, r) and s.arrays.cost_sum[r] > 0.0:
            behind = arrears[r] / (s.arrays.cost_sum[r] / s.arrays.cost_n[r])
            behind -= TOLERATED_ARREARS * sqrt(s.arrays.cost_n[r] + 1.0)
            dual[r] /= 1.0 + CATCH_UP * max(behind, 0.0)
