"""The index of a decider: its expected reward, and a bonus for the information that asking it brings.

    width = e·(scale·σ̂ + prior·√ridge·rms)·√(xᵀH⁻¹x),     e = min(1, asks left / (5·d))

The bonus fades when few asks are left that could use the information (e). An expert's bonus is the upper half of its
interval. The model's is b times a half-width: choosing the model reveals its reward (b = 1), unless rewards are only
revealed if an expert is asked; then the sign is reversed, because asking is the only way to learn either (b → −1). The
price is solved with the same index, or it would be wrong as long as bonuses matter.

Several experts are explored jointly (rule of December 2026). With the identity link their width is K^¼ times as large
once K of them were observed: who is best of several is decided by smaller differences than whether to ask, and whoever
had bad luck at first would never be asked again. Experts without observations do not count, so that one who is never
available changes nothing.
"""

from libc.math cimport isnan, log, sqrt

from deferkit.learn.core.budget cimport bounded, plannable
from deferkit.learn.core.links cimport IDENTITY, mean
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define ASKS_A_FEATURE 5.0 /* asks left for each feature at which the bonus begins to fade */
    #define PERIODS_THAT_PAY 3.0 /* allowances to come that count as left, where a budget renews */
    """
    const double ASKS_A_FEATURE
    const double PERIODS_THAT_PAY

cdef inline double spread_of(State *s, Int target) noexcept nogil:
    """xᵀH⁻¹x of the member that widths are taken from."""
    return s.arrays.spread[s.options.width_member * s.sizes.n_targets + target]

cdef inline bint is_untried(State *s, Int expert) noexcept nogil:
    """Whether an expert was never asked and never observed."""
    return s.arrays.n_routed[expert + 1] == 0 and s.arrays.n_observed[expert + 1] == 0

cdef inline Int observed_experts(State *s) noexcept nogil:
    cdef Int k, n = 0
    for k in range(s.sizes.n_experts):
        n += s.arrays.n_observed[k + 1] > 0
    return n

cdef inline double team_factor(State *s) noexcept nogil:
    """The factor of the experts' widths: the fourth root of the number of them that were observed."""
    cdef Int n = observed_experts(s)
    if not s.options.joint or s.options.reward_link != IDENTITY or n < 2:
        return 1.0
    return sqrt(sqrt(<double>n))

cdef inline double noise_of(State *s, Int target) noexcept nogil:
    """The noise of a target: given, or estimated from its prediction errors."""
    cdef double prior = s.parameters.noise_samples, variance
    if not isnan(s.parameters.noise):
        return s.parameters.noise
    if prior > 0.0 and target <= s.sizes.n_experts:  # a few lucky residuals must not make the width 0
        variance = ((s.arrays.squared_error[target] + prior * s.parameters.noise_variance)
                    / (s.arrays.n_observed[target] + prior))
        # a surprise at a chance of 0.001 counts a thousandfold; 0/1 rewards vary no more than their chance says
        return 1.0 if s.options.reward_link != IDENTITY and variance > 1.0 else sqrt(variance)
    return sqrt(s.arrays.squared_error[target] / max(s.arrays.n_observed[target], <Int>1))

cdef inline double prior_factor(State *s) noexcept nogil:
    """The prior term of the width of rewards: without observations the ridge makes the estimate 0.

    The width is then this factor times ‖x‖/√ridge. For short contexts it is raised so that the width is as large as a
    reward: else an expert with few observations would never be worth as much as a well-known model.
    """
    cdef double size, factor
    if s.parameters.prior <= 0.0 or s.options.reward_link != IDENTITY:
        return 0.0
    factor = s.parameters.prior * sqrt(
        s.parameters.ridge * s.arrays.reward_power[0] / max(s.arrays.reward_power[1], 1.0))
    size = s.arrays.context_power[0] / max(s.arrays.context_power[1], 1.0)
    return factor / sqrt(size) if s.options.one_index and 0.0 < size < 1.0 else factor

cdef inline double growth(State *s) noexcept nogil:
    """The factor of the printed β(t) beside the noise; 1 for a width that does not grow."""
    cdef Int d = s.sizes.n_features, t = s.counters.next_id + 1
    if isnan(s.parameters.delta):
        return 1.0
    return sqrt(2.0 * d * log((1.0 + 2.0 * t * d) / s.parameters.delta)) / s.parameters.kappa

cdef inline double learning_share(State *s) noexcept nogil:
    """e: the share of the bonus, which fades when few asks are left that could use the information."""
    cdef double share = 1.0, free
    cdef Int r
    if s.options.one_index:
        for r in range(s.sizes.n_resources):
            if bounded(s, r) and s.arrays.cost_sum[r] > 0.0:
                # what is learned pays in the next periods too
                free = max(plannable(s, r), 0.0) + PERIODS_THAT_PAY * s.arrays.allowance[r]
                share = min(share, free / (s.arrays.cost_sum[r] / s.arrays.cost_n[r])
                            / (ASKS_A_FEATURE * s.parameters.dimension))
    return share

cdef inline double model_bonus(State *s) noexcept nogil:
    """b: 1, or the share of a rule, if the model's reward is revealed when the model decides, −1 if it is not.

    Tasks after the latest one with an observation do not count before it is overdue. Learners with one member
    count them, as all did before there were mixtures: a replay of their logs must give the same prices.
    """
    cdef Int decided = s.counters.n_model_due if s.sizes.n_members > 1 else s.arrays.n_routed[0]
    cdef double bonus
    if not s.options.one_index:
        return 1.0
    bonus = min(1.0, 2.0 * (s.counters.n_model_seen + 1) / (decided + 1) - 1.0)
    return s.parameters.model_share * bonus if bonus > 0.0 and s.counters.n_model_seen > 0 else bonus

cdef inline double with_bonus(Int link, double eta, double width, double bonus) noexcept nogil:
    """μ(η) plus `bonus` times its upper half-width, or its lower one if `bonus` is negative."""
    cdef double middle
    if bonus == 1.0:
        return mean(link, eta + width)
    middle = mean(link, eta)
    if bonus >= 0.0:
        return middle + bonus * (mean(link, eta + width) - middle)
    return middle + bonus * (middle - mean(link, eta - width))
