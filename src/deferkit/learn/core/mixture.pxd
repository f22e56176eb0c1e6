"""The mixture: each target is estimated by N members, which forget at different rates.

Before a sample y is learned, the members are reweighted by their prediction errors,

    w_k ← w_k·exp(−(y − ŷ_k)² / (2·v)),     then  w ← (1 − a)·w + a·π,     a = 1 / (n + 1),

with the mean squared error v of the mixture so far, n samples and the prior weights π (fixed share: a member that was
wrong for long regains weight within a few samples). Decisions use the average of the members' predictors. The width is
that of one member alone, which forgets nothing and reads the context or its ranks: the widths of members that forget
would never shrink, and asking would never become rarer. With one member there are no weights.
"""

from libc.math cimport exp
from libc.string cimport memset

from deferkit.learn.core.kernels cimport add_scaled, copy_scaled
from deferkit.learn.core.links cimport mean
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define DRIFT_BEGINS 0.01 /* weight of the members that forget nothing, below which a drift is reported */
    #define DRIFT_ENDS 0.5    /* … above which it is over */
    """
    const double DRIFT_BEGINS
    const double DRIFT_ENDS

cdef inline Int estimate_of(State *s, Int member, Int target) noexcept nogil:
    """The row of a member's estimate of a target, in arrays of the shape E."""
    return member * s.sizes.n_targets + target

cdef inline bint reads_ranks(State *s, Int member) noexcept nogil:
    """Whether a member reads the ranks of a context; then all of its estimates do."""
    return s.sizes.n_ranked > 0 and s.arrays.view[estimate_of(s, member, 0)] == s.sizes.n_views - 1

cdef inline double *weights_of(State *s, Int target) noexcept nogil:
    return s.arrays.member_weight + target * s.sizes.n_members

cdef inline void mix(State *s) noexcept nogil:
    """Average the predictors of the current context over the members."""
    cdef Int target, member
    cdef double predictor
    cdef const double *weight
    for target in range(s.sizes.n_targets):
        weight = weights_of(s, target)
        predictor = 0.0
        for member in range(s.sizes.n_members):
            predictor += weight[member] * s.arrays.predictor[estimate_of(s, member, target)]
        s.arrays.mixed_predictor[target] = predictor

cdef inline void mix_theta(State *s) noexcept nogil:
    """Average the coefficients over the members: one average instead of one for each of many contexts.

    Coefficients of ranks have an average of their own.
    """
    cdef Int target, member, w = s.sizes.stride
    cdef double *mixed
    for target in range(s.sizes.n_targets):
        mixed = s.arrays.mixed_theta + target * w
        if reads_ranks(s, 0):
            memset(mixed, 0, w * sizeof(double))
        else:
            copy_scaled(mixed, weights_of(s, target)[0], s.arrays.theta + target * w, w)
        if s.sizes.n_ranked > 0:
            memset(mixed + s.sizes.n_targets * w, 0, w * sizeof(double))
        for member in range(0 if reads_ranks(s, 0) else 1, s.sizes.n_members):
            add_scaled(mixed + (s.sizes.n_targets * w if reads_ranks(s, member) else 0),
                       weights_of(s, target)[member], s.arrays.theta + estimate_of(s, member, target) * w, w)

cdef inline double samples_in_use(State *s, Int target) noexcept nogil:
    """The effective number of samples of a target: fewer than observed if members forget."""
    cdef Int member
    cdef double samples = 0.0
    for member in range(s.sizes.n_members):
        samples += weights_of(s, target)[member] * s.arrays.member_samples[estimate_of(s, member, target)]
    return samples

cdef inline double forecast(State *s, Int target, Int link, double eta) noexcept nogil:
    """μ(η), clipped to the range of rewards."""
    cdef double value = mean(link, eta)
    if target <= s.sizes.n_experts:
        value = min(max(value, s.parameters.least_reward), s.parameters.largest_reward)
    return value

cdef inline void report_drift(State *s, Int target) noexcept nogil:
    """Detect the begin and the end of a drift, by the weight of the members that forget nothing."""
    cdef Int member
    cdef double lasting = 0.0
    for member in range(s.sizes.n_members):
        if s.arrays.forget_every[member] == 0:
            lasting += weights_of(s, target)[member]
    if s.arrays.drift_told[target]:
        s.arrays.drift_told[target] = lasting <= DRIFT_ENDS
    elif lasting < DRIFT_BEGINS:
        s.arrays.drift_told[target] = 1
        s.arrays.n_drifts[target] += 1
        s.arrays.drift_at[target] = s.counters.next_id
        s.arrays.drift_strength[target] = 1.0 - samples_in_use(s, target) / max(s.arrays.n_observed[target], <Int>1)

cdef inline void reweight_members(State *s, Int target, Int link, double y) noexcept nogil:
    """Reweight the members of a target by their errors on a sample that none has learned yet. Needs `mix`."""
    cdef Int member, n = s.arrays.n_observed[target] + 1
    cdef double error, variance, least, total = 0.0, share = 1.0 / (n + 1.0)
    cdef double *weight = weights_of(s, target)
    if s.sizes.n_members == 1:
        return
    error = y - forecast(s, target, link, s.arrays.mixed_predictor[target])
    s.arrays.forecast_error[target] += error * error
    variance = s.arrays.forecast_error[target] / n
    if variance <= 0.0:
        return  # no errors so far
    least = -1.0
    for member in range(s.sizes.n_members):
        error = y - forecast(s, target, link, s.arrays.predictor[estimate_of(s, member, target)])
        s.arrays.member_loss[member] = error * error
        if least < 0.0 or error * error < least:
            least = error * error
    for member in range(s.sizes.n_members):
        weight[member] *= exp((least - s.arrays.member_loss[member]) / (2.0 * variance))
        total += weight[member]
    for member in range(s.sizes.n_members):
        weight[member] = (1.0 - share) * (weight[member] / total) + share * s.arrays.member_prior[member]
    if not s.options.drift_test:
        report_drift(s, target)
