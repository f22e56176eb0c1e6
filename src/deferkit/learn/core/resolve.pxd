"""The pacing `resolve`: periodically, the least price at which the latest contexts would use the budget left.

With the current estimates, the contexts in the window use (budget left) / (tasks left) each at this price, which is
found by bisection; several resources are solved in turn. The dual is prices [R], then the number of the decision at
which the price is solved next; the constant is the most decisions between two solutions.
"""

from libc.math cimport INFINITY, sqrt

from deferkit.learn.core.arrears cimport count_arrears, lower_prices, restore_prices
from deferkit.learn.core.budget cimport bounded, plannable
from deferkit.learn.core.explore cimport BOOST_STEP, MAX_BOOST, boost_of
from deferkit.learn.core.glm cimport predict_mixed
from deferkit.learn.core.index cimport is_untried, learning_share, model_bonus, noise_of, prior_factor, team_factor, with_bonus
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

cdef inline double past_factor(State *s, Int decider, double prior, double share, double level) noexcept nogil:
    """The factor from the width of a context when it was decided to its width now.

    A spread shrinks about as 1 / (samples + d). Recomputing the widths of 1,000 contexts would make the solution take
    eight times as long, for the same gains.
    """
    cdef double seen = s.arrays.n_observed[decider] + s.parameters.dimension
    cdef double boost = boost_of(s, level) if decider > 0 else 1.0
    if not s.options.one_index:
        return 0.0
    return share * (boost * s.parameters.scale * noise_of(s, decider) + prior) / sqrt(seen)

cdef inline void size_widths(State *s, double level) noexcept nogil:
    """Write the factors of past widths, with this level of the experts' boost."""
    cdef Int k
    cdef double prior = prior_factor(s), share = learning_share(s), team = team_factor(s)
    for k in range(s.sizes.n_experts + 1):
        s.arrays.window_factor[k] = past_factor(s, k, prior, share, level) * (team if k > 0 else 1.0)

cdef inline void begin_sample(State *s) noexcept nogil:
    """Prepare for `fill_context` with the current estimates."""
    size_widths(s, 1.0)
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
    if s.options.free_exploration:  # for `boost_window`
        s.arrays.window_model[i] = model
    for k in range(experts):
        gain[k * window + i] = mean(reward_link, eta[1 + k] + factor[1 + k] * past_width[1 + k]) - model
        if s.options.one_index and is_untried(s, k):
            gain[k * window + i] = 0.0  # asked once in any case; one who is never available must not move the price
        if s.options.free_exploration:
            s.arrays.window_expert[k * window + i] = eta[1 + k]
            s.arrays.window_width[k * window + i] = past_width[1 + k]
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

cdef inline void solve_for_goals(State *s, double *dual, const double *goal, Int n) noexcept nogil:
    """Solve the prices of all resources that have a goal; several are solved in turn."""
    cdef Int r, sweep
    for sweep in range(1 if s.sizes.n_resources == 1 else SWEEPS):
        for r in range(s.sizes.n_resources):
            if goal[r] < INFINITY:
                solve_price(s, dual, r, goal[r], n)

cdef inline void boost_window(State *s, double level, Int n) noexcept nogil:
    """Write the gains of the contexts in the window anew, with this level of the experts' boost."""
    cdef Int window = s.sizes.window, k, i
    size_widths(s, level)
    for k in range(s.sizes.n_experts):
        if not is_untried(s, k):
            for i in range(n):
                s.arrays.window_gain[k * window + i] = mean(
                    s.options.reward_link, s.arrays.window_expert[k * window + i]
                    + s.arrays.window_factor[1 + k] * s.arrays.window_width[k * window + i]) - s.arrays.window_model[i]

cdef inline bint is_free(State *s, const double *dual) noexcept nogil:
    """Whether budget is left over at today's widths: a resource is bounded, and all prices are 0."""
    cdef Int r, n = 0
    for r in range(s.sizes.n_resources):
        if bounded(s, r):
            n += 1
            if dual[r] > 0.0:
                return False
    return n > 0

cdef inline bint uses_up(State *s, const double *dual, const double *goal, Int n) noexcept nogil:
    """Whether the window uses more than the goal of a resource at the current prices."""
    cdef Int r
    for r in range(s.sizes.n_resources):
        if bounded(s, r) and demand(s, dual, r, n) > goal[r]:
            return True
    return False

cdef inline bint asks_always(State *s, Int n) noexcept nogil:
    """Whether some expert is worth more than the model on every context in the window."""
    cdef Int i, k
    cdef bint asked
    for i in range(n):
        asked = False
        for k in range(s.sizes.n_experts):
            asked = asked or s.arrays.window_gain[k * s.sizes.window + i] > 0.0
        if not asked:
            return False
    return True

cdef inline bint raise_boost(State *s, double *dual, const double *goal, Int n) noexcept nogil:
    """Raise the experts' boost until the window would use the budget; return whether it would.

    Needs a window that was filled without boost, and prices that are all 0. Where every task is asked already, a boost
    would only move asks from the best expert to others.
    """
    cdef double level = 1.0
    if asks_always(s, n):
        return False
    while level < MAX_BOOST:
        level = min(level * BOOST_STEP, MAX_BOOST)
        boost_window(s, level, n)
        dual[s.sizes.n_dual - 1] = level
        if uses_up(s, dual, goal, n):
            return True
    return False

cdef inline void solve_prices(State *s, double *dual) noexcept nogil:
    cdef Int n, r, resources = s.sizes.n_resources, done = s.counters.next_id
    cdef double tasks
    cdef Int longest = <Int>s.arrays.pacing_constant[0]
    dual[resources] = done + min(max(done // (50 if s.options.one_index else 10), <Int>1), longest)
    cdef double *goal = s.arrays.window_goal
    n = fill_window(s)
    for r in range(resources):
        tasks = s.arrays.horizon[r] - done
        # after an overrun the budget left may be negative by rounding, which no price would reach
        goal[r] = max(0.0, plannable(s, r)) / tasks * n if bounded(s, r) and tasks >= 1.0 else INFINITY
    if s.options.free_exploration:
        dual[s.sizes.n_dual - 1] = 1.0
    solve_for_goals(s, dual, goal, n)
    if s.options.free_exploration and is_free(s, dual) and raise_boost(s, dual, goal, n):
        solve_for_goals(s, dual, goal, n)

cdef inline void step(State *s, double *dual, const double *cost) noexcept nogil:
    if s.options.catches_up:
        count_arrears(s, dual, cost)
        restore_prices(s, dual)
    if s.counters.next_id >= dual[s.sizes.n_resources]:
        solve_prices(s, dual)
    if s.options.catches_up:
        lower_prices(s, dual)
