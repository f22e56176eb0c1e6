"""The pacings `gradient` and `paper`: the exponentiated gradient on the simplex with a dummy coordinate.

    α_j ← α_j·(1 + ε)^g or α_j·(1 − ε)^−g,     λ_j = (T/B_j)·α_j / (1 + Σα)

`gradient` has the gradient of Agrawal & Devanur, g = c − B/T; `paper` has g = γ·(c − B/T) as Algorithm 1 prints it.
α itself underflows over a long run, so that log α is kept. The dual is prices [R], then log α [R]; the constants are
log(1 + ε) [R], then log(1 − ε) [R].
"""

from libc.math cimport exp

from deferkit.learn.core cimport logistic
from deferkit.learn.core.budget cimport bounded
from deferkit.learn.core.state cimport Int, State

cdef inline void step(State *s, double *dual, const double *cost, bint printed) noexcept nogil:
    cdef Int r, resources = s.sizes.n_resources
    cdef const double *log_up = s.arrays.pacing_constant
    cdef const double *log_down = s.arrays.pacing_constant + resources
    cdef double *price = dual
    cdef double *log_weight = dual + resources
    cdef double g, rate, below, unit = s.arrays.total[0] / s.arrays.horizon[0], top = 0.0
    if s.counters.next_id <= s.counters.warm_up:
        return
    for r in range(resources):
        if bounded(s, r):
            rate = s.arrays.total[r] / s.arrays.horizon[r]
            g = cost[r] - rate
            if r > 0 and bounded(s, 0):
                g *= unit / rate  # in the unit of the first resource, so that the weights are comparable
            if printed:
                g *= price[r] * rate
            log_weight[r] += g * log_up[r] if g >= 0.0 else -g * log_down[r]
            top = max(top, log_weight[r])
    if resources == 1:
        if bounded(s, 0):
            price[0] = logistic.mean(log_weight[0]) / unit
        return
    below = exp(-top)
    for r in range(resources):
        if bounded(s, r):
            below += exp(log_weight[r] - top)
    for r in range(resources):
        if bounded(s, r):
            price[r] = exp(log_weight[r] - top) / below * (s.arrays.horizon[r] / s.arrays.total[r])
