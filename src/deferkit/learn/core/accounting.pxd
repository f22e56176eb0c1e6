"""Steps that change the state: a decision is committed, observed, corrected, or expires.

The one-at-a-time calls and the bulk loop consist of the same steps. A step checks no arguments: callers do that before,
so that a step cannot fail halfway.
"""

from libc.math cimport NAN, isnan, sqrt
from libc.string cimport memcpy, memset

from deferkit.learn.core.arrivals cimport count_arrival
from deferkit.learn.core.budget cimport can_be_stopped, left
from deferkit.learn.core.choice cimport FORCED, NO_BUDGET, UNAVAILABLE
from deferkit.learn.core.forget cimport forget_if_due, share_remembered
from deferkit.learn.core.glm cimport (
    cost_target, design_of, learn_with_own_design, learn_with_shared_design, link_of, moment_of, prepare,
    reset_estimate, split_cost_design, theta_of, view_of)
from deferkit.learn.core.index cimport spread_of
from deferkit.learn.core.kernels cimport add_scaled, dot
from deferkit.learn.core.links cimport IDENTITY
from deferkit.learn.core.mixture cimport estimate_of, weights_of
from deferkit.learn.core.pacing cimport RENEWING, move_price, price_task
from deferkit.learn.core.precision cimport clear_stash, initialise, product_of
from deferkit.learn.core.ranks cimport RANKED_CONTEXTS, add_to_ranks, cut_outliers
from deferkit.learn.core.refit cimport correct_sample, is_refitted, repair, store_sample
from deferkit.learn.core.state cimport Int, State

cdef extern from *:
    """
    #define ROUNDING 1e-12 /* of the total: a smaller excess is a rounding error of decimal sums, not an overrun */
    """
    const double ROUNDING

# The status of a decision.
cdef enum:
    OPEN = 1  # an expert was asked and the cost is not known: budget is held
    SETTLED  # the cost is booked, or the model decided
    EXPIRED  # the reservation was released without a cost

# The state of an automatic reward link.
cdef enum:
    LINK_BINARY = 1  # logistic, because all rewards so far are 0 or 1
    LINK_SWITCHED  # identity, since another reward came

cdef inline double *context_of(State *s, Int slot) noexcept nogil:
    return s.arrays.context + slot * s.sizes.stride * s.sizes.n_views

cdef enum:
    USUAL_DELAYS = 4  # an observation is overdue after so many times the mean delay …
    MIN_WAIT = 32  # … and so many decisions more
    FIRST_WAIT = 1000  # … or, where nothing was observed yet, after so many decisions

cdef inline Int overdue_wait(State *s) noexcept nogil:
    """Return after how many decisions an observation of the model's reward is overdue."""
    if s.counters.n_heard == 0:
        return min(FIRST_WAIT, s.sizes.memory - 1)
    return min(USUAL_DELAYS * (s.counters.delay_sum // s.counters.n_heard) + MIN_WAIT, s.sizes.memory - 1)

cdef inline void count_model_decisions_up_to(State *s, Int decision) noexcept nogil:
    """Count the tasks that the model decided, up to the latest decision that was observed or should have been.

    Without the overdue ones a learner that asks nobody any more would never learn that nothing is revealed to it.
    """
    cdef Int number = max(s.counters.heard_to, s.counters.next_id - s.sizes.memory)
    while number <= decision:
        s.counters.n_model_due += s.arrays.route[number % s.sizes.memory] == 0
        number += 1
    s.counters.heard_to = max(s.counters.heard_to, decision + 1)

cdef inline void learn_target(State *s, Int target, const double *context, double y) noexcept nogil:
    learn_with_own_design(s, target, context, y)
    if is_refitted(s, target):
        store_sample(s, target, view_of(s, target, context), y)
    forget_if_due(s, target)

cdef inline void learn_outcome(State *s, Int route, const double *context, const double *reward,
                               const double *cost) noexcept nogil:
    """Learn new rewards and costs of a task, with NaN for unknown values. Needs `prepare`."""
    cdef Int decider, r, shared = 0  # the expert whose reward and costs are learned together
    if route > 0 and not isnan(reward[route]) and not isnan(cost[0]) and s.arrays.shares_design[route - 1]:
        learn_with_shared_design(s, route - 1, context, reward[route], cost)
        forget_if_due(s, route)
        shared = route
    for decider in range(s.sizes.n_experts + 1):
        if not isnan(reward[decider]) and (decider == 0 or decider != shared):
            if decider > 0:
                split_cost_design(s, decider - 1)
            learn_target(s, decider, context, reward[decider])
    if route > 0 and route != shared and not isnan(cost[0]):
        split_cost_design(s, route - 1)
        for r in range(s.sizes.n_resources):
            learn_target(s, cost_target(s, route - 1, r), context, cost[r])

cdef inline void record_sample_numbers(State *s, Int slot, Int route) noexcept nogil:
    """Store the sample numbers of these outcomes: a correction depends on how much of them is remembered."""
    cdef Int decider, deciders = s.sizes.n_experts + 1
    cdef Int *learned_as = s.arrays.learned_as + slot * (deciders + 1)
    for decider in range(deciders):
        if not isnan(s.arrays.new_reward[decider]):
            learned_as[decider] = s.arrays.n_absorbed[decider]
    if route > 0 and not isnan(s.arrays.new_cost[0]):
        learned_as[deciders] = s.arrays.n_absorbed[design_of(s, cost_target(s, route - 1, 0))]

cdef inline void relearn(State *s) noexcept nogil:
    """Reset all estimates, and learn the outcomes of the remembered decisions again, in the order of decisions."""
    cdef Int estimate, expert, decision, slot, route, r, targets = s.sizes.n_targets, deciders = s.sizes.n_experts + 1
    for estimate in range(s.sizes.n_members * targets):
        initialise(s, estimate)
        reset_estimate(s, estimate)
        clear_stash(s, estimate)
        s.arrays.n_absorbed[estimate] = 0
        s.arrays.drifted[estimate] = 0
        s.arrays.member_samples[estimate] = 0.0
    for estimate in range(targets):
        s.arrays.forecast_error[estimate] = 0.0
        s.arrays.squared_error[estimate] = 0.0
        s.arrays.n_observed[estimate] = 0
        memcpy(weights_of(s, estimate), s.arrays.member_prior, s.sizes.n_members * sizeof(double))
    memset(s.arrays.evidence, 0, targets * sizeof(double))
    memset(s.arrays.change_score, 0, targets * sizeof(double))
    memset(s.arrays.change_sums, 0, targets * 6 * sizeof(double))
    memset(s.arrays.reward_power, 0, 2 * sizeof(double))
    for expert in range(s.sizes.n_experts):
        s.arrays.shares_design[expert] = s.options.cost_link == IDENTITY and s.options.reward_link == IDENTITY
    if s.counters.unsettled:
        return
    for decision in range(max(<Int>0, s.counters.next_id - s.sizes.memory), s.counters.next_id):
        slot = decision % s.sizes.memory
        route = s.arrays.route[slot]
        # a decision of the model has the cost 0, which is not learned
        memcpy(s.arrays.new_reward, s.arrays.reward + slot * deciders, deciders * sizeof(double))
        for r in range(s.sizes.n_resources):
            s.arrays.new_cost[r] = s.arrays.cost[slot * s.sizes.n_resources + r] if route > 0 else NAN
        prepare(s, context_of(s, slot))
        learn_outcome(s, route, context_of(s, slot), s.arrays.new_reward, s.arrays.new_cost)
        record_sample_numbers(s, slot, route)
        if s.counters.repair_due:
            repair(s)

cdef inline void cut_first_contexts(State *s) noexcept nogil:
    """Cut outliers of the first contexts once the rank tables are full, and learn their outcomes again.

    Only if the learner has learned from these decisions alone, and reads contexts as they are given. A warm start
    fills the tables earlier: its samples are not remembered, and would be lost.
    """
    cdef Int slot
    if s.counters.next_id == RANKED_CONTEXTS <= s.sizes.memory and s.sizes.n_views == 2:
        for slot in range(RANKED_CONTEXTS):
            cut_outliers(s, context_of(s, slot), NULL)
        relearn(s)

cdef inline void commit(State *s, Int route, Int reason, bint announced) noexcept nogil:
    """Commit the decision on the context in `x`: reserve `proposed_hold`, move the price for `proposed_cost`.

    Needs `prepare`, for the widths that the price is solved with.
    """
    cdef Int r, decider, resources = s.sizes.n_resources, deciders = s.sizes.n_experts + 1, slot = s.counters.slot
    cdef const double *x
    cdef bint fills_tables = s.sizes.n_ranked > 0 and s.counters.n_in_ranks < RANKED_CONTEXTS
    if s.counters.price_due:
        move_price(s, s.arrays.dual, s.arrays.owed)
        s.counters.price_due = 0
    if s.options.pacing == RENEWING:
        price_task(s, s.arrays.dual)
        count_arrival(s, slot)
    s.counters.slot = slot + 1 if slot + 1 < s.sizes.memory else 0
    s.counters.next_id += 1
    s.arrays.n_routed[route] += 1
    if s.sizes.n_members > 1:
        count_model_decisions_up_to(s, s.counters.next_id - 1 - overdue_wait(s))
    s.counters.n_forced += reason == FORCED
    s.counters.n_no_budget += reason == NO_BUDGET
    s.counters.n_unavailable += reason == UNAVAILABLE
    memcpy(context_of(s, slot), s.arrays.x, s.sizes.stride * s.sizes.n_views * sizeof(double))
    if s.options.one_index:
        x = view_of(s, estimate_of(s, s.options.width_member, 0), s.arrays.x)
        s.arrays.context_power[0] += dot(x, x, s.sizes.stride)
        s.arrays.context_power[1] += 1.0
    if fills_tables:
        add_to_ranks(s, s.arrays.raw)
    s.arrays.route[slot] = route
    s.arrays.status[slot] = OPEN if route > 0 else SETTLED
    s.arrays.announced[slot] = announced
    s.counters.n_open += route > 0
    for decider in range(deciders):
        s.arrays.reward[slot * deciders + decider] = NAN
        s.arrays.past_width[slot * deciders + decider] = sqrt(
            spread_of(s, decider) * (s.arrays.n_observed[decider] + s.parameters.dimension)
        ) if s.options.one_index else 0.0
    for decider in range(deciders + 1):
        s.arrays.learned_as[slot * (deciders + 1) + decider] = 0
    for r in range(resources):
        s.arrays.cost[slot * resources + r] = NAN if route > 0 else 0.0
        s.arrays.held[slot * resources + r] = s.arrays.proposed_hold[r]
        s.arrays.reserved[r] += s.arrays.proposed_hold[r]
        s.arrays.expected[slot * resources + r] = s.arrays.proposed_cost[r]
        s.arrays.pending_cost[r] += s.arrays.proposed_cost[r]
        s.arrays.owed[r] = s.arrays.proposed_cost[r]
    if fills_tables and s.counters.n_in_ranks == RANKED_CONTEXTS:
        cut_first_contexts(s)
    if route > 0:
        s.counters.price_due = 1
    else:
        move_price(s, s.arrays.dual, s.arrays.owed)

cdef inline void release(State *s, Int slot) noexcept nogil:
    """Release the hold of a decision, if it has one."""
    cdef Int r
    s.counters.n_open -= s.arrays.status[slot] == OPEN
    cdef double *held = s.arrays.held + slot * s.sizes.n_resources
    cdef double *expected = s.arrays.expected + slot * s.sizes.n_resources
    for r in range(s.sizes.n_resources):
        s.arrays.reserved[r] = max(0.0, s.arrays.reserved[r] - held[r])
        s.arrays.pending_cost[r] = max(0.0, s.arrays.pending_cost[r] - expected[r])
        held[r] = 0.0
        expected[r] = 0.0

cdef inline void cover(State *s) noexcept nogil:
    """Pay overruns by costs above max_cost with free budget, so that nobody is asked before they are covered."""
    cdef Int r
    cdef double paid
    for r in range(s.sizes.n_resources):
        paid = min(s.arrays.uncovered[r], left(s, r))
        if paid > 0.0:
            s.arrays.spent[r] += paid
            s.arrays.uncovered[r] -= paid
            s.arrays.overrun[r] = max(0.0, s.arrays.overrun[r] - paid)

cdef inline void expire(State *s, Int slot) noexcept nogil:
    """Release the hold of a decision whose cost will not be reported."""
    release(s, slot)
    cover(s)
    s.arrays.status[slot] = EXPIRED
    s.counters.n_expired += 1

cdef inline void book(State *s, Int slot, const double *cost) noexcept nogil:
    """Release the hold of a decision and book its cost; what exceeds the budget left is an overrun."""
    cdef double c, room
    cdef Int r, expert = s.arrays.route[slot] - 1
    release(s, slot)
    for r in range(s.sizes.n_resources):
        c = cost[r]
        room = left(s, r)
        if c <= room:
            s.arrays.spent[r] += c
        else:
            s.arrays.spent[r] += max(room, 0.0)
            if c - max(room, 0.0) > ROUNDING * s.arrays.total[r]:
                s.arrays.overrun[r] += c - max(room, 0.0)
                if c > s.arrays.cap[expert * s.sizes.n_resources + r]:
                    s.arrays.uncovered[r] += c - max(room, 0.0)
        s.arrays.cost[slot * s.sizes.n_resources + r] = c
        s.arrays.largest_cost[r] = max(s.arrays.largest_cost[r], c)
        s.arrays.cost_sum[r] += c
        s.arrays.cost_n[r] += 1.0
    s.arrays.status[slot] = SETTLED
    cover(s)

cdef inline double share_reviewed(State *s, Int slot, const double *cost) noexcept nogil:
    """Return the share of a review that is done until it is stopped; 1 if it need not be."""
    cdef double share = 1.0, most
    cdef Int r
    for r in range(s.sizes.n_resources):
        if can_be_stopped(s, r):
            most = s.arrays.held[slot * s.sizes.n_resources + r] + max(left(s, r), 0.0)
            if not isnan(s.arrays.limit[r]):
                most = min(most, s.arrays.limit[r])
            if cost[r] > most:
                share = min(share, most / cost[r])
    return share

cdef inline void use_identity_link(State *s) noexcept nogil:
    """Switch the rewards from the logistic to the identity link, with its ridge, scale and prior."""
    s.counters.link_state = LINK_SWITCHED
    s.options.reward_link = IDENTITY
    s.parameters.ridge = s.parameters.identity_ridge
    s.parameters.scale = s.parameters.identity_scale
    s.parameters.noise_variance = s.parameters.identity_variance
    memcpy(s.arrays.prior_theta, s.arrays.identity_prior,
           s.sizes.n_members * s.sizes.n_targets * s.sizes.stride * sizeof(double))

cdef inline bint needs_identity_link(State *s, double reward) noexcept nogil:
    """Whether a reward is neither 0 nor 1 and the link was logistic so far because all were."""
    return s.counters.link_state == LINK_BINARY and not (isnan(reward) or reward == 0.0 or reward == 1.0)

cdef inline void observe(State *s, Int decision, Int slot) noexcept nogil:
    """Book and learn `new_reward` and `new_cost` of a decision. Needs `prepare`.

    The first reward that is neither 0 nor 1 switches an automatic link, and all outcomes are learned again.
    """
    cdef Int decider, new = 0, deciders = s.sizes.n_experts + 1, route = s.arrays.route[slot]
    cdef bint switched = False, paid = route > 0 and not isnan(s.arrays.new_cost[0])
    for decider in range(deciders):
        if not isnan(s.arrays.new_reward[decider]):
            s.arrays.reward[slot * deciders + decider] = s.arrays.new_reward[decider]
            new = 1
            switched = switched or needs_identity_link(s, s.arrays.new_reward[decider])
            if s.options.one_index and route == 0 and decider == 0:
                s.counters.n_model_seen += 1
    if s.sizes.n_members > 1 and (new or not isnan(s.arrays.new_cost[0])):
        s.counters.n_heard += 1
        s.counters.delay_sum += s.counters.next_id - decision
        count_model_decisions_up_to(s, decision)
    if switched:
        use_identity_link(s)
    elif not s.counters.unsettled:
        learn_outcome(s, route, context_of(s, slot), s.arrays.new_reward, s.arrays.new_cost)
        record_sample_numbers(s, slot, route)
    if paid:
        book(s, slot, s.arrays.new_cost)
        new = 1
    if switched:
        relearn(s)
        memcpy(s.arrays.new_cost, s.arrays.cost + slot * s.sizes.n_resources, s.sizes.n_resources * sizeof(double))
    if paid and s.counters.price_due and decision == s.counters.next_id - 1:
        move_price(s, s.arrays.dual, s.arrays.new_cost)
        s.counters.price_due = 0
    s.counters.n_seen += new
    if s.counters.repair_due:
        repair(s)

cdef inline double correct_member(State *s, Int member, Int target, const double *context, double old, double new,
                                  double kept) noexcept nogil:
    """Correct a sample in a member, by the share that it still remembers; return the change of Σ error²."""
    cdef Int w = s.sizes.stride, estimate = estimate_of(s, member, target)
    cdef double *theta = theta_of(s, estimate)
    cdef double *moment = moment_of(s, estimate)
    cdef double before = dot(moment, theta, w)
    add_scaled(theta, kept * (new - old), product_of(s, estimate_of(s, member, design_of(s, target))), w)
    add_scaled(moment, kept * (new - old), view_of(s, estimate, context), w)
    # the penalised sum of squares is Σy² − θᵀΣxy
    return kept * (new * new - old * old) - (dot(moment, theta, w) - before)

cdef inline void correct(State *s, Int slot, Int target, double old, double new) noexcept nogil:
    """Learn that a sample was not `old` but `new`: exact for the identity link, one Newton step for another."""
    cdef Int member, column = min(target, s.sizes.n_experts + 1)
    cdef const double *context = context_of(s, slot)
    cdef double change = 0.0
    if target <= s.sizes.n_experts:
        s.arrays.reward_power[0] = max(0.0, s.arrays.reward_power[0] + (new * new - old * old))
    if s.options.frozen:
        return
    prepare(s, context)
    for member in range(s.sizes.n_members):
        change += weights_of(s, target)[member] * correct_member(
            s, member, target, context, old, new,
            share_remembered(s, member, design_of(s, target),
                             s.arrays.learned_as[slot * (s.sizes.n_experts + 2) + column]))
    if link_of(s, target) == IDENTITY:
        s.arrays.squared_error[target] = max(0.0, s.arrays.squared_error[target] + change)
    else:
        correct_sample(s, target, view_of(s, target, context), old, new)
