"""The pacing `resolve`: periodically, the least price at which the latest contexts would use the budget left.

With the current estimates, the contexts in the window use (budget left) / (tasks left) each at this price, which is
found by bisection; several resources are solved in turn. The dual is prices [R], then the number of the decision at
which the price is solved next; the constant is the most decisions between two solutions.
"""

from libc.math cimport sqrt

from deferkit.learn.core.budget cimport bounded, plannable
from deferkit.learn.core.glm cimport predict_mixed
from deferkit.learn.core.index cimport is_untried, learning_share, model_bonus, noise_of, prior_factor, with_bonus
from deferkit.learn.core.kernels cimport LANES, window_demand
from deferkit.learn.core.links cimport mean
from deferkit.learn.core.mixture cimport mix_theta
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define SWEEPS 4             /* over the resources, where there are several */
    #define PRICE_TOLERANCE 1e-3 /* relative */
    """
    const Int SWEEPS
    const double PRICE_TOLERANCE

cdef inline double past_factor(State *s, Int decider, double prior, double share) noexcept nogil:
    """The factor from the width of a context when it was decided to its width now.

    A spread shrinks about as 1 / (samples + d). Recomputing the widths of 1,000 contexts would make the solution take
    eight times as long, for the same gains.
    """
    cdef double seen = s.arrays.n_observed[decider] + s.sizes.n_features
    return share * (s.parameters.scale * noise_of(s, decider) + prior) / sqrt(seen) if s.options.one_index else 0.0

cdef inline void begin_sample(State *s) noexcept nogil:
    """Prepare for `fill_context` with the current estimates."""
    cdef Int k
    cdef double prior = prior_factor(s), share = learning_share(s)
    for k in range(s.sizes.n_experts + 1):
        s.arrays.window_factor[k] = past_factor(s, k, prior, share)
    mix_theta(s)

cdef inline void fill_context(State *s, Int slot, Int i, double bonus) noexcept nogil:
    """Write the gain and cost of each expert on a remembered context, as the i-th of the sample."""
    cdef Int window = s.sizes.window, experts = s.sizes.n_experts, reward_link = s.options.reward_link, k
    cdef const double *past_width = s.arrays.past_width + slot * (experts + 1)
    cdef double *eta = s.arrays.window_predictor
    cdef double *factor = s.arrays.window_factor
    cdef double *gain = s.arrays.window_gain
    cdef double model
    predict_mixed(s, s.arrays.context + slot * s.sizes.stride * s.sizes.n_views, eta)
    model = with_bonus(reward_link, eta[0], factor[0] * past_width[0], bonus)
    for k in range(experts):
        gain[k * window + i] = mean(reward_link, eta[1 + k] + factor[1 + k] * past_width[1 + k]) - model
        if s.options.one_index and is_untried(s, k):
            gain[k * window + i] = 0.0  # asked once in any case; one who is never available must not move the price
    for k in range(experts * s.sizes.n_resources):
        s.arrays.window_cost[k * window + i] = max(0.0, mean(s.options.cost_link, eta[1 + experts + k]))

cdef inline void pad_sample(State *s, Int n) noexcept nogil:
    """Pad the last lanes with contexts without gain."""
    cdef Int i, k
    for k in range(s.sizes.n_experts):
        for i in range(n, min(n + LANES - 1, s.sizes.window)):
            s.arrays.window_gain[k * s.sizes.window + i] = 0.0

cdef inline Int fill_window(State *s) noexcept nogil:
    """Write the gain and cost of each expert on the contexts in the window; return the number of contexts."""
    cdef Int done = s.counters.next_id, memory = s.sizes.memory
    cdef Int n = min(done, min(s.sizes.window, memory)), slot = (done - n) % memory, i
    cdef double bonus = model_bonus(s)
    begin_sample(s)
    for i in range(n):
        fill_context(s, slot, i, bonus)
        slot = slot + 1 if slot + 1 < memory else 0
    pad_sample(s, n)
    return n

cdef inline double demand(State *s, const double *price, Int resource, Int n) noexcept nogil:
    return window_demand(s.arrays.window_gain, s.arrays.window_cost, price, s.sizes.n_experts, s.sizes.n_resources,
                         resource, s.sizes.window, n)

cdef inline void solve_price(State *s, double *price, Int r, double goal, Int n) noexcept nogil:
    """Set the least price of one resource, with the others fixed, at which no more than the goal is used."""
    cdef double start = price[r], low = 0.0, high, middle
    price[r] = 0.0
    if demand(s, price, r, n) <= goal:
        return
    high = 1.05 * start if start > 0.0 else 1.0
    price[r] = high
    while high < 1e12 and demand(s, price, r, n) > goal:
        low = high
        high *= 2.0
        price[r] = high
    if low == 0.0 and start > 0.0:
        low = start * 0.95  # most of the time the price hardly moves
        price[r] = low
        if demand(s, price, r, n) <= goal:
            high = low
            low = 0.0
    while high - low > PRICE_TOLERANCE * high and high > 1e-12:
        middle = 0.5 * (low + high)
        price[r] = middle
        if demand(s, price, r, n) > goal:
            low = middle
        else:
            high = middle
    price[r] = high

cdef inline void solve_prices(State *s, double *dual) noexcept nogil:
    cdef Int n, r, sweep, resources = s.sizes.n_resources, done = s.counters.next_id
    cdef double tasks
    cdef Int longest = <Int>s.arrays.pacing_constant[0]
    dual[resources] = done + min(max(done // (50 if s.options.one_index else 10), <Int>1), longest)
    n = fill_window(s)
    for sweep in range(1 if resources == 1 else SWEEPS):
        for r in range(resources):
            tasks = s.arrays.horizon[r] - done
            if bounded(s, r) and tasks >= 1.0:
                # after an overrun the budget left may be negative by rounding, which no price would reach
                solve_price(s, dual, r, max(0.0, plannable(s, r)) / tasks * n, n)

cdef inline void step(State *s, double *dual) noexcept nogil:
    if s.counters.next_id >= dual[s.sizes.n_resources]:
        solve_prices(s, dual)
