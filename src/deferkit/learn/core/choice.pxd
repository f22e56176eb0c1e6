"""The choice of a route: scores a context and proposes who decides. Only scratch arrays change."""

from libc.math cimport INFINITY, erfc, isfinite, isnan, sqrt
from libc.string cimport memcpy

from deferkit.learn.core.arrivals cimport elapsed
from deferkit.learn.core.budget cimport bounded, can_be_stopped, left, pending_costs
from deferkit.learn.core.explore cimport boost_level, boost_of
from deferkit.learn.core.glm cimport cost_target, link_of, prepare
from deferkit.learn.core.index cimport (
    growth, is_untried, learning_share, model_bonus, noise_of, observed_experts, prior_factor, spread_of, team_factor,
    with_bonus)
from deferkit.learn.core.links cimport mean
from deferkit.learn.core.pacing cimport move_price, price_task
from deferkit.learn.core.random cimport gaussian, uniform
from deferkit.learn.core.state cimport Int, State

# The reasons of a route, in the order of `deferkit.types.REASONS`.
cdef enum:
    WARM_UP, WORTH_IT, NOT_WORTH_IT, NO_BUDGET, FORCED, EXPLORED, UNAVAILABLE, UNSETTLED

cdef extern from *:
    """
    #define FIRST_SHARE 0.01      /* of the budget: hold of one decision before any cost is known */
    #define COLD_START_SHARE 0.05 /* of the budget: holds of all decisions together until then */
    #define PATIENCE 100          /* decisions in which an untried expert waits for a task that is worth asking */
    """
    const double FIRST_SHARE
    const double COLD_START_SHARE
    const Int PATIENCE

cdef struct Proposal:
    Int route  # 0: the model
    Int reason
    double propensity

cdef inline void score(State *s) noexcept nogil:
    """Write estimates, widths and optimistic values of all rewards and costs (Definition 4.2).

    Needs `price_current_task`, for the boost.
    """
    cdef Int target, link
    cdef double eta, width, low, boost, level = boost_level(s, s.arrays.next_dual)
    cdef double prior = prior_factor(s), grown = growth(s), share = learning_share(s), bonus = model_bonus(s), team = team_factor(s)
    prepare(s, s.arrays.x)
    for target in range(s.sizes.n_targets):
        link = link_of(s, target)
        eta = s.arrays.mixed_predictor[target]
        boost = boost_of(s, level) if 0 < target <= s.sizes.n_experts else 1.0
        width = boost * s.parameters.scale * noise_of(s, target) * grown
        width += prior if target <= s.sizes.n_experts else 0.0
        width *= sqrt(spread_of(s, target))
        if s.options.one_index:
            width *= share if target <= s.sizes.n_experts else 0.0  # no optimism on costs
        width *= team if 0 < target <= s.sizes.n_experts else 1.0
        s.arrays.estimate[target] = mean(link, eta)
        s.arrays.width[target] = width
        if s.options.sampled:
            s.arrays.optimistic[target] = mean(link, eta + width * gaussian(s.options.key, s.counters.next_id, target))
        elif target <= s.sizes.n_experts:
            s.arrays.optimistic[target] = with_bonus(link, eta, width, bonus if target == 0 else 1.0)
        else:
            low = mean(link, eta - width)
            s.arrays.optimistic[target] = low if s.options.printed_costs else max(0.0, low)

cdef inline double usual_hold(State *s, Int expert, Int r) noexcept nogil:
    """The hold of a review whose cost is not known: the most that it may cost, or less where it can be stopped."""
    cdef double most = s.arrays.cap[expert * s.sizes.n_resources + r], first = FIRST_SHARE * s.arrays.total[r], hold
    cdef double mean_cost
    if can_be_stopped(s, r):
        most = INFINITY if isnan(most) else most
        if not isnan(s.arrays.limit[r]):
            most = min(most, s.arrays.limit[r])
        hold = s.arrays.hold_fixed[r]
        if not isnan(s.arrays.hold_means[r]):
            hold = first
            if s.arrays.cost_n[r] > 0.0:
                mean_cost = s.arrays.cost_sum[r] / s.arrays.cost_n[r]
                # large holds of a small budget would leave nothing to ask with while outcomes are late
                hold = max(mean_cost, min(s.arrays.hold_means[r] * mean_cost, FIRST_SHARE * left(s, r)))
        return most if isnan(hold) else min(hold, most)
    if not isnan(most):
        return most
    return s.arrays.largest_cost[r] if s.arrays.cost_n[r] > 0.0 or not isfinite(first) else first

cdef inline void size_holds(State *s) noexcept nogil:
    """Write the hold of each expert and resource."""
    cdef Int k, r, cost_index, resources = s.sizes.n_resources
    cdef double known
    for r in range(resources):
        for k in range(s.sizes.n_experts):
            cost_index = k * resources + r
            known = s.arrays.known_cost[cost_index]
            s.arrays.hold[cost_index] = usual_hold(s, k, r) if isnan(known) else known

cdef inline bint is_announced(State *s, Int route) noexcept nogil:
    """Whether the whole cost of a route is known before the decision."""
    cdef Int r
    for r in range(s.sizes.n_resources):
        if route == 0 or isnan(s.arrays.known_cost[(route - 1) * s.sizes.n_resources + r]):
            return False
    return True

cdef inline bint affordable(State *s, Int expert) noexcept nogil:
    """Whether the budget left covers the hold of an expert."""
    cdef Int r
    for r in range(s.sizes.n_resources):
        if s.arrays.hold[expert * s.sizes.n_resources + r] > left(s, r) or s.arrays.total[r] <= 0.0:
            return False
    return True

cdef inline bint exceeds_even_pace(State *s, Int expert, Int r) noexcept nogil:
    """Whether asking would use more than an even pace, before as many costs are known as there are features.

    Until then estimated costs are close to 0, so that a price holds back little where outcomes come late. Holds of
    reviews that can be stopped are small, and would not hold back either.
    """
    cdef double used = s.arrays.spent[r] - s.arrays.spent_before[r], share = elapsed(s, r)
    if s.arrays.cost_n[r] >= s.sizes.n_features:
        return False
    if s.arrays.cost_n[r] > 0.0:
        used += pending_costs(s, r) + s.arrays.cost_sum[r] / s.arrays.cost_n[r]
        share += COLD_START_SHARE
    else:  # nothing is known: half as fast
        used += s.arrays.reserved[r] + s.arrays.hold[expert * s.sizes.n_resources + r]
        share = max(COLD_START_SHARE, 0.5 * share)
    return used > share * (s.arrays.total[r] - s.arrays.spent_before[r])

cdef inline bint is_blind(State *s) noexcept nogil:
    """Whether nothing is learned yet, because the scales of named features are not frozen."""
    return s.counters.unsettled and s.sizes.n_ranked > 0

cdef inline bint exceeds_steady_pace(State *s, Int expert, Int r) noexcept nogil:
    """Whether asking would use more than the share of the budget that this part of the horizon has."""
    cdef double used = s.arrays.spent[r] - s.arrays.spent_before[r] + s.arrays.reserved[r]
    return bounded(s, r) and (used + s.arrays.hold[expert * s.sizes.n_resources + r]
                              > elapsed(s, r) * (s.arrays.total[r] - s.arrays.spent_before[r]))

cdef inline bint is_unobserved(State *s, Int expert) noexcept nogil:
    """Whether nothing is known of an expert whose reviews can be stopped: asked at an even pace until something is."""
    return s.arrays.n_observed[expert + 1] == 0 and s.arrays.cost_n[0] == 0.0 and can_be_stopped(s, 0)

cdef inline bint exceeds_cold_start_cap(State *s, Int expert) noexcept nogil:
    """Whether asking would exceed the cap on holds of a cold start, before the first cost is known.

    Without it, a stream that is faster than its first outcome would reserve the whole budget.
    """
    cdef Int r
    cdef double held
    for r in range(s.sizes.n_resources):
        held = s.arrays.reserved[r]
        if is_blind(s) and (held > 0.0 or s.arrays.cost_n[r] > 0.0) and exceeds_steady_pace(s, expert, r):
            return True
        if can_be_stopped(s, r):
            if held > 0.0 and exceeds_even_pace(s, expert, r):
                return True
        elif (s.arrays.cost_n[r] == 0.0 and held > 0.0
                and held + s.arrays.hold[expert * s.sizes.n_resources + r] > COLD_START_SHARE * s.arrays.total[r]):
            return True
    return False

cdef inline bint can_be_asked(State *s, Int available, Int expert) noexcept nogil:
    return (available >> expert) & 1 and affordable(s, expert) and not exceeds_cold_start_cap(s, expert)

cdef inline double expected_cost(State *s, Int expert, Int resource) noexcept nogil:
    """The known cost, or its estimate."""
    cdef double known = s.arrays.known_cost[expert * s.sizes.n_resources + resource]
    return max(0.0, s.arrays.estimate[cost_target(s, expert, resource)]) if isnan(known) else known

cdef inline double worth(State *s, Int decider) noexcept nogil:
    """The optimistic reward of a decider less price · optimistic cost."""
    cdef double cost, value = s.arrays.optimistic[decider]
    cdef Int r
    for r in range(s.sizes.n_resources):
        if decider > 0:
            cost = s.arrays.known_cost[(decider - 1) * s.sizes.n_resources + r]
            if isnan(cost):
                cost = s.arrays.optimistic[cost_target(s, decider - 1, r)]
            value -= s.arrays.next_dual[r] * cost
        elif s.options.printed_costs:
            # as printed: the model's cost of 0 has an optimistic estimate too
            value -= s.arrays.next_dual[r] * mean(s.options.cost_link, -s.arrays.width[0])
    return value

cdef inline double probability_best(State *s, Int best) noexcept nogil:
    """The probability that the best decider would be the best: 1 without Thompson sampling.

    Sampling is for one expert and identity links only: there the difference of the two values is normal.
    """
    cdef double ahead, variance, asked, price
    cdef Int r
    if not s.options.sampled:
        return 1.0
    ahead = s.arrays.mixed_predictor[1] - s.arrays.mixed_predictor[0]
    variance = s.arrays.width[0] * s.arrays.width[0] + s.arrays.width[1] * s.arrays.width[1]
    for r in range(s.sizes.n_resources):
        price = s.arrays.next_dual[r]
        if isnan(s.arrays.known_cost[r]):
            ahead -= price * s.arrays.mixed_predictor[2 + r]
            variance += (price * s.arrays.width[2 + r]) * (price * s.arrays.width[2 + r])
        else:
            ahead -= price * s.arrays.known_cost[r]
    if variance == 0.0:
        return 1.0
    asked = 0.5 * erfc(-ahead / sqrt(2.0 * variance))
    return asked if best > 0 else 1.0 - asked

cdef inline Int nth_choice(State *s, Int available, Int n) noexcept nogil:
    """The n-th decider that can be chosen, of the model (0) and the experts that can be asked."""
    cdef Int k
    for k in range(s.sizes.n_experts):
        if n > 0 and can_be_asked(s, available, k):
            n -= 1
            if n == 0:
                return k + 1
    return 0

cdef inline Int untried_expert(State *s, Int available) noexcept nogil:
    """The first expert that can be asked and was never observed, because the warm-up did not draw it; 0 if none.

    Optimism does not explore it: without observations the estimated noise is 0, and so is the width.
    """
    cdef Int k
    if s.counters.warm_up > 0:
        for k in range(s.sizes.n_experts):
            if (is_untried(s, k) or is_unobserved(s, k)) and can_be_asked(s, available, k):
                return k + 1
    return 0

cdef inline bint can_wait(State *s) noexcept nogil:
    """Whether untried experts wait for a task that is worth asking somebody, as long as another one was observed.

    Their first tasks would be any ones else, which costs a small budget much where there are several of them.
    """
    return s.options.joint and s.counters.next_id < PATIENCE and observed_experts(s) > 0

cdef inline Proposal choose(State *s, Int available, Int force) noexcept nogil:
    """Choose between the deciders that can be asked, by the scores in the scratch arrays."""
    cdef Int model_reason = UNAVAILABLE, choices = 1, best = 0, k, route, untried, reason
    cdef Int decision = s.counters.next_id
    cdef double value, likely, best_value, floor = s.parameters.floor
    if force >= 0:
        return Proposal(force, FORCED, 1.0)
    best_value = worth(s, 0)
    for k in range(s.sizes.n_experts):
        if (available >> k) & 1:
            if not affordable(s, k):
                model_reason = UNSETTLED if model_reason == UNSETTLED else NO_BUDGET
            elif exceeds_cold_start_cap(s, k):
                model_reason = UNSETTLED
            else:
                choices += 1
                value = worth(s, k + 1)
                if value > best_value:
                    best_value = value
                    best = k + 1
    if choices == 1:
        return Proposal(0, model_reason, 1.0)
    if decision < s.counters.warm_up:
        route = nth_choice(s, available, <Int>(uniform(s.options.key, decision, 0) * choices))
        return Proposal(route, WARM_UP, 1.0 / choices)
    reason = WORTH_IT if best > 0 else NOT_WORTH_IT
    likely = probability_best(s, best)
    untried = untried_expert(s, available)
    if untried > 0 and (best > 0 or not can_wait(s)):
        best, reason, likely = untried, WARM_UP, 1.0
    if floor > 0.0 and uniform(s.options.key, decision, 0) < floor:
        route = nth_choice(s, available, <Int>(uniform(s.options.key, decision, 1) * choices))
        likely = likely if route == best else 1.0 - likely
        return Proposal(route, EXPLORED, floor / choices + (1.0 - floor) * likely)
    return Proposal(best, reason, (1.0 - floor) * likely + floor / choices)

cdef inline void price_current_task(State *s) noexcept nogil:
    """Write the price of the current task to `next_dual`."""
    memcpy(s.arrays.next_dual, s.arrays.dual, s.sizes.n_dual * sizeof(double))
    if s.counters.price_due:
        move_price(s, s.arrays.next_dual, s.arrays.owed)
    price_task(s, s.arrays.next_dual)

cdef inline Proposal propose(State *s, Int available, Int force) noexcept nogil:
    """Propose a route for the context in `x`; its cost and hold stay in scratch arrays, for `commit`.

    Needs `price_current_task`, which is the same for all contexts.
    """
    cdef Int r
    cdef Proposal p
    score(s)
    size_holds(s)
    p = choose(s, available, force)
    for r in range(s.sizes.n_resources):
        s.arrays.proposed_cost[r] = expected_cost(s, p.route - 1, r) if p.route > 0 else 0.0
        s.arrays.proposed_hold[r] = s.arrays.hold[(p.route - 1) * s.sizes.n_resources + r] if p.route > 0 else 0.0
    return p
