"""A test for drift whose false-alarm rate is bounded over the whole stream.

Two forecasts of each sample are compared: p0 by the members that forget nothing, p1 by those that forget. With y, p0
and p1 scaled to [0, 1],

    e = (p1 / p0)^y · ((1 − p1) / (1 − p0))^(1 − y),     E ← (E + w_n)·e,     w_n ∝ 1 / ((n + 1)·log²(n + 1)).

If p0 is the mean of y, e is at most 1 on average; the weights w_n, one for a change at each sample, add up to 1. So E
exceeds 1/α with a probability of at most α, ever (Ville), whenever the change comes. A drift is reported at 1/α. Then
p0 is what has to be learned anew: the test rests for 1,500 samples, and goes on with the slowest members that forget
beside those that do not. For 3,000 samples more those in the middle belong to p0 too: the slowest still remember what
came before the change, and would report it again. The most likely change point is where the sum of log e since then is
largest (CUSUM).
"""

from libc.math cimport exp, isfinite, isnan, log
from libc.string cimport memcpy, memset

from deferkit.learn.core.mixture cimport estimate_of, forecast, samples_in_use, weights_of
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define ALARM 1000.0            /* 1/α, α = 0.001: p0 is learned, and not exactly the mean of y */
    #define WEIGHT 0.47             /* 1 / Σ of 1 / ((n + 1)·log²(n + 1)), which is 2.11 */
    #define SAMPLES_A_FEATURE 5     /* for each feature, before the test begins */
    #define MIN_PROBABILITY 0.01  /* forecasts are kept so far from 0 and 1 */
    #define SUMS 6
    #define CREEP 0.01              /* taken from log e for the change point, which would wander before a change */
    #define REST 1500               /* samples; the window of the slowest members that forget, see members.py */
    #define CAUTION 3000            /* samples after the rest, until the slowest have forgotten 95 % of the past */
    #define SLOW 128                /* their samples between two discounts */
    #define MIDDLE 64               /* those of the members with a window of 300 */
    """
    const double ALARM
    const double WEIGHT
    const Int SAMPLES_A_FEATURE
    const double MIN_PROBABILITY
    const Int SUMS
    const double CREEP
    const Int REST
    const Int CAUTION
    const Int SLOW
    const Int MIDDLE

cdef inline double response_range(State *s, Int target, double *low) noexcept nogil:
    """The range of a target's responses, with its lower end; 0 if it is unknown."""
    cdef Int resource
    low[0] = 0.0
    if target <= s.sizes.n_experts:
        low[0] = s.parameters.least_reward
        return s.parameters.largest_reward - low[0]
    resource = (target - s.sizes.n_experts - 1) % s.sizes.n_resources
    if isnan(s.arrays.max_cost[resource]):
        return 2.0 * s.arrays.largest_cost[resource]
    return s.arrays.max_cost[resource]

cdef inline double scaled(double value, double low, double size) noexcept nogil:
    return min(max((value - low) / size, MIN_PROBABILITY), 1.0 - MIN_PROBABILITY)

cdef inline void count_response(State *s, Int target, double y) noexcept nogil:
    cdef double *sums = s.arrays.change_sums + target * SUMS + 3
    sums[0] += 1.0
    sums[1] += y
    sums[2] += y * y

cdef inline void move_change_point(State *s, Int target) noexcept nogil:
    """The most likely change point is now: what came since the last one is from before it."""
    cdef double *sums = s.arrays.change_sums + target * SUMS
    cdef Int i
    for i in range(3):
        sums[i] += sums[i + 3]
        sums[i + 3] = 0.0
    s.arrays.change_score[target] = 0.0
    s.arrays.change_at[target] = s.counters.next_id

cdef inline void report_tested_drift(State *s, Int target) noexcept nogil:
    cdef Int size = SUMS * sizeof(double)
    cdef double *sums = s.arrays.change_sums + target * SUMS
    s.arrays.n_drifts[target] += 1
    s.arrays.drift_at[target] = s.counters.next_id
    s.arrays.drift_since[target] = s.arrays.change_at[target]
    s.arrays.drift_strength[target] = 1.0 - samples_in_use(s, target) / max(s.arrays.n_observed[target], <Int>1)
    memcpy(s.arrays.drift_sums + target * SUMS, sums, size)
    memcpy(sums, sums + 3, 3 * sizeof(double))  # what came since is from before the next change
    memset(sums + 3, 0, 3 * sizeof(double))
    s.arrays.change_score[target] = 0.0
    s.arrays.change_at[target] = s.counters.next_id
    s.arrays.evidence[target] = 0.0
    s.arrays.drift_resumes[target] = s.arrays.n_observed[target] + REST

cdef inline bint is_reference(State *s, Int target, Int member) noexcept nogil:
    """Whether a member forecasts p0: it forgets nothing, or after a drift little."""
    cdef Int every = s.arrays.forget_every[member]
    if every == 0 or s.arrays.n_drifts[target] == 0:
        return every == 0
    return every == SLOW or (
        every == MIDDLE and s.arrays.n_observed[target] < s.arrays.drift_resumes[target] + CAUTION)

cdef inline void test_drift(State *s, Int target, Int link, double y) noexcept nogil:
    """Update the test by a sample that no member has learned yet. Needs `prepare`."""
    cdef Int member, n = s.arrays.n_observed[target] + 1 - <Int>(SAMPLES_A_FEATURE * s.parameters.dimension)
    cdef double lasting = 0.0, forgetting = 0.0, lasting_weight = 0.0, forgetting_weight = 0.0, weight, eta, late
    cdef double low, size = response_range(s, target, &low), p0, p1, response, ratio
    count_response(s, target, y)
    if n < 1 or s.arrays.n_observed[target] < s.arrays.drift_resumes[target] or not (isfinite(size) and size > 0.0):
        move_change_point(s, target)
        return
    for member in range(s.sizes.n_members):
        weight = weights_of(s, target)[member]
        eta = s.arrays.predictor[estimate_of(s, member, target)]
        if is_reference(s, target, member):
            lasting += weight * eta
            lasting_weight += weight
        else:
            forgetting += weight * eta
            forgetting_weight += weight
    if lasting_weight <= 0.0 or forgetting_weight <= 0.0:
        return
    p0 = scaled(forecast(s, target, link, lasting / lasting_weight), low, size)
    p1 = scaled(forecast(s, target, link, forgetting / forgetting_weight), low, size)
    response = min(max((y - low) / size, 0.0), 1.0)
    ratio = response * log(p1 / p0) + (1.0 - response) * log((1.0 - p1) / (1.0 - p0))
    late = log(n + 1.0)
    s.arrays.evidence[target] = (s.arrays.evidence[target] + WEIGHT / ((n + 1.0) * late * late)) * exp(ratio)
    if s.arrays.change_score[target] + ratio <= CREEP:
        move_change_point(s, target)
    else:
        s.arrays.change_score[target] += ratio - CREEP
    if s.arrays.evidence[target] >= ALARM:
        report_tested_drift(s, target)
