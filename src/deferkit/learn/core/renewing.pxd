"""The pacing of budgets with an end or a period: the price is solved again every few tasks, or as time passes.

With N tasks left in this period, N_period in a whole one, the allowance A and what is left,

    need    the sample uses left / N each
    excess  the sample uses max(left − carry·A, 0) / N each: what could not be carried over
    long    the latest contexts use (left + 3A) / (N + 3·N_period) each
    price = need without carry-over, else min(max(long, need), excess).

The sample is the tasks of the last two periods that came later in them than it is in this one: what comes on a Friday
differs from what comes on a Monday. It is topped up with the latest contexts, which are all there is in a first period.

The dual is prices [R], the number of the decision at which they are solved next, the time at which they were solved
last. The constants are the most decisions between two solutions and the number of latest contexts.
"""

from libc.math cimport INFINITY, isnan

from deferkit.learn.core.arrears cimport lower_prices, restore_prices
from deferkit.learn.core.arrivals cimport (
    HORIZON, RENEWS, Outlook, current_time, elapsed_share, outlook, start_of)
from deferkit.learn.core.budget cimport bounded, plannable
from deferkit.learn.core.index cimport model_bonus
from deferkit.learn.core.resolve cimport (
    SWEEPS, begin_sample, fill_context, is_free, pad_sample, raise_boost, solve_for_goals, solve_price)
from deferkit.learn.core.state cimport Int, State

cdef enum:
    MIN_SAMPLE = 200
    MAX_WINDOWS = 2  # the largest sample, in windows of latest contexts
    SOLUTIONS_A_PERIOD = 100  # at least, however few tasks come

cdef extern from *:
    """
    #define PERIODS_AHEAD 3.0 /* that the long price looks over, beside this one */
    """
    const double PERIODS_AHEAD

cdef inline Int remembered(State *s) noexcept nogil:
    """How many of the latest contexts may be in a sample."""
    return min(s.counters.next_id, min(s.sizes.window, s.sizes.memory))

cdef inline Int latest_before(State *s, double at) noexcept nogil:
    """The number of the first remembered decision that was not before this time. Times never decrease."""
    cdef Int low = s.counters.next_id - remembered(s), high = s.counters.next_id, middle
    while low < high:
        middle = (low + high) // 2
        if s.arrays.at[middle % s.sizes.memory] < at:
            low = middle + 1
        else:
            high = middle
    return low

cdef inline Int add_latest(State *s, Int n, Int size) noexcept nogil:
    """Add the latest contexts to a sample of n until it has this size; return its size."""
    cdef Int decision = s.counters.next_id - 1, first = s.counters.next_id - remembered(s)
    while n < size and decision >= first:
        s.arrays.sample[n] = decision % s.sizes.memory
        n += 1
        decision -= 1
    return n

cdef inline Int sample_latest(State *s) noexcept nogil:
    return add_latest(s, 0, min(<Int>s.arrays.pacing_constant[1], remembered(s)))

cdef inline Int sample_rest(State *s, Int resource, double at) noexcept nogil:
    """Sample what came later in the last two periods than it is in this one; return the size of the sample."""
    cdef Int first[2]
    cdef Int end[2]
    cdef Int k, decision, n = 0, found = 0, step
    cdef double share = elapsed_share(s, resource, at), start, following
    for k in range(2):
        start, following = start_of(s, resource, k + 1), start_of(s, resource, k)
        first[k] = end[k] = 0
        if not isnan(start):
            first[k], end[k] = latest_before(s, start + share * (following - start)), latest_before(s, following)
        found += end[k] - first[k]
    if found == 0:
        return sample_latest(s)
    step = 1 + (found - 1) // (MAX_WINDOWS * <Int>s.arrays.pacing_constant[1])
    for k in range(2):
        decision = first[k]
        while decision < end[k]:
            s.arrays.sample[n] = decision % s.sizes.memory
            n += 1
            decision += step
    return add_latest(s, n, min(<Int>MIN_SAMPLE, s.sizes.window))

cdef inline void fill(State *s, Int n) noexcept nogil:
    cdef double bonus = model_bonus(s)
    cdef Int i
    begin_sample(s)
    for i in range(n):
        fill_context(s, s.arrays.sample[i], i, bonus)
    pad_sample(s, n)

cdef inline double price_for(State *s, double *price, Int resource, double each, Int n) noexcept nogil:
    """Return the price at which the sample uses this much each; `price` is where the search begins, and stays."""
    cdef double start = price[resource], found
    solve_price(s, price, resource, each * n, n)
    found = price[resource]
    price[resource] = start
    return found

cdef inline double renewing_price(State *s, double *price, Int r, double at) noexcept nogil:
    cdef Outlook ahead = outlook(s, r, at)
    cdef double free = max(plannable(s, r), 0.0), allowance = s.arrays.allowance[r], need, longer, excess = INFINITY
    cdef double carried = s.arrays.carry[r] * allowance if s.arrays.carry[r] > 0.0 else 0.0
    cdef bint renews = s.arrays.timing[r] == RENEWS
    cdef Int n = sample_rest(s, r, at) if renews and s.arrays.past_periods[r] > 0.0 else sample_latest(s)
    fill(s, n)
    need = price_for(s, price, r, free / ahead.tasks, n)
    if not renews or carried == 0.0:
        return need
    if free > carried:
        excess = price_for(s, price, r, (free - carried) / ahead.tasks, n)
    n = sample_latest(s)
    fill(s, n)
    longer = price_for(s, price, r, (free + PERIODS_AHEAD * allowance) / (ahead.tasks + PERIODS_AHEAD * ahead.period), n)
    return min(max(longer, need), excess)

cdef inline void explore_free(State *s, double *dual, double at) noexcept nogil:
    """Raise the experts' boost for what would lapse, with the latest contexts as the sample.

    What can be carried over has another use, so that it is kept.
    """
    cdef Int r, n = sample_latest(s)
    cdef Outlook ahead
    cdef double free
    cdef double *goal = s.arrays.window_goal
    for r in range(s.sizes.n_resources):
        goal[r] = INFINITY
        if is_paced(s, r, at):
            ahead = outlook(s, r, at)
            free = max(plannable(s, r), 0.0)
            if s.arrays.timing[r] == RENEWS and s.arrays.carry[r] > 0.0:
                free -= s.arrays.carry[r] * s.arrays.allowance[r]
            if free <= 0.0:
                return
            goal[r] = free / ahead.tasks * n
    fill(s, n)
    if raise_boost(s, dual, goal, n):
        solve_for_goals(s, dual, goal, n)

cdef inline bint is_paced(State *s, Int r, double at) noexcept nogil:
    """Whether the price of a resource is solved: after its end it stays as it is."""
    if not bounded(s, r):
        return False
    if s.arrays.timing[r] == HORIZON:
        return s.arrays.horizon[r] - s.counters.next_id >= 1.0
    return not isnan(start_of(s, r, 0)) and at < s.arrays.period_end[r]

cdef inline double longest_wait(State *s) noexcept nogil:
    cdef double wait = INFINITY
    cdef Int r
    for r in range(s.sizes.n_resources):
        if s.arrays.timing[r] != HORIZON and not isnan(start_of(s, r, 0)):
            wait = min(wait, (s.arrays.period_end[r] - start_of(s, r, 0)) / SOLUTIONS_A_PERIOD)
    return wait

cdef inline bint is_due(State *s, const double *dual, double at) noexcept nogil:
    """Whether prices are to be solved: some tasks after the last solution, or after a while."""
    cdef Int done = s.counters.next_id
    return done >= s.counters.warm_up and (
        done >= dual[s.sizes.n_resources] or at - dual[s.sizes.n_resources + 1] > longest_wait(s))

cdef inline void solve(State *s, double *dual, double at) noexcept nogil:
    cdef Int done = s.counters.next_id, resources = s.sizes.n_resources, r, sweep
    cdef Int longest = <Int>s.arrays.pacing_constant[0]
    dual[resources] = done + min(max(done // 50, <Int>1), longest)
    dual[resources + 1] = at
    if done == 0:
        return
    if s.options.free_exploration:
        dual[s.sizes.n_dual - 1] = 1.0
    for sweep in range(1 if resources == 1 else SWEEPS):
        for r in range(resources):
            if is_paced(s, r, at):
                dual[r] = renewing_price(s, dual, r, at)
    if s.options.free_exploration and is_free(s, dual):
        explore_free(s, dual, at)

cdef inline void step(State *s, double *dual) noexcept nogil:
    """Solve the prices for the current task if that is due; nothing but `dual` and scratch changes."""
    cdef double at = current_time(s)
    if s.options.catches_up:
        restore_prices(s, dual)
    if is_due(s, dual, at):
        solve(s, dual, at)
    if s.options.catches_up:
        lower_prices(s, dual)
