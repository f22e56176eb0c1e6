"""The pacing `adaptive`: λ ← max(0, λ + η·g/√Σg²) with g = (c − left / tasks left) / mean cost.

The dual is prices [R], then Σg² [R]; the constant is η, in units of reward for the mean cost.
"""

from libc.math cimport sqrt

from deferkit.learn.core.budget cimport bounded, left
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define MIN_MEAN_COST 1e-100 /* in units of a smaller one, Σg² would overflow */
    """
    const double MIN_MEAN_COST

cdef inline void step(State *s, double *dual, const double *cost) noexcept nogil:
    cdef Int r, done = s.counters.next_id
    cdef double *price = dual
    cdef double *squares = dual + s.sizes.n_resources
    cdef double tasks, unit, g
    if done <= s.counters.warm_up:
        return
    for r in range(s.sizes.n_resources):
        tasks = s.arrays.horizon[r] - done
        if not bounded(s, r) or tasks < 1.0 or s.arrays.cost_sum[r] <= 0.0:
            continue
        unit = s.arrays.cost_sum[r] / s.arrays.cost_n[r]
        if unit < MIN_MEAN_COST:
            continue
        g = (cost[r] - left(s, r) / tasks) / unit
        squares[r] += g * g
        if squares[r] > 0.0:
            price[r] = max(0.0, price[r] + s.arrays.pacing_constant[0] / unit * g / sqrt(squares[r]))
