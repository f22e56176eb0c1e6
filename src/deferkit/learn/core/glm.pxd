"""Online estimates of a generalised linear model, one sample at a time.

For a sample (x, y) with weight w = μ'(xᵀθ) and the inverse information H⁻¹ before it,

    θ ← θ + H⁻¹x·(y − μ(xᵀθ)) / (1 + w·xᵀH⁻¹x),     H ← H + w·xxᵀ.

With the identity link this is exact ridge regression. With another link it is one online Newton step on the running
Fisher information; `refit.pxd` has the exact maximum.

A *target* is what is estimated: the rewards of the deciders, then the costs by expert and resource. Each member of the
mixture (mixture.pxd) has an *estimate* of every target. The reward and the costs of an expert share one design as long
as they are observed together.
"""

from libc.string cimport memcpy

from deferkit.learn.core.drift cimport test_drift
from deferkit.learn.core.kernels cimport add_scaled, copy_scaled, dot, dot_three
from deferkit.learn.core.links cimport IDENTITY, mean, slope
from deferkit.learn.core.mixture cimport estimate_of, mix, reads_ranks, reweight_members, weights_of
from deferkit.learn.core.newton cimport MIN_WEIGHT
from deferkit.learn.core.precision cimport copy_design, product_of, project, update
from deferkit.learn.core.state cimport Int, State

cdef inline Int link_of(State *s, Int target) noexcept nogil:
    return s.options.reward_link if target <= s.sizes.n_experts else s.options.cost_link

cdef inline Int cost_target(State *s, Int expert, Int resource) noexcept nogil:
    """The target of an expert's cost; experts count from 0 here."""
    return 1 + s.sizes.n_experts + expert * s.sizes.n_resources + resource

cdef inline Int design_of(State *s, Int target) noexcept nogil:
    """The design of a target: its own, or that of the reward that it shares it with."""
    cdef Int expert
    if target <= s.sizes.n_experts:
        return target
    expert = (target - s.sizes.n_experts - 1) // s.sizes.n_resources
    return expert + 1 if s.arrays.shares_design[expert] else target

cdef inline double *theta_of(State *s, Int estimate) noexcept nogil:
    return s.arrays.theta + estimate * s.sizes.stride

cdef inline double *moment_of(State *s, Int estimate) noexcept nogil:
    return s.arrays.moment + estimate * s.sizes.stride

cdef inline double *prior_theta_of(State *s, Int estimate) noexcept nogil:
    """The coefficients that the ridge pulls to."""
    return s.arrays.prior_theta + estimate * s.sizes.stride

cdef inline void reset_estimate(State *s, Int estimate) noexcept nogil:
    """Set an estimate to its prior."""
    cdef Int w = s.sizes.stride
    memcpy(theta_of(s, estimate), prior_theta_of(s, estimate), w * sizeof(double))
    copy_scaled(moment_of(s, estimate), s.parameters.ridge, prior_theta_of(s, estimate), w)

cdef inline const double *view_of(State *s, Int estimate, const double *context) noexcept nogil:
    """The view of a context that an estimate reads."""
    return context + s.arrays.view[estimate] * s.sizes.stride

cdef inline double weight_of(State *s, Int link, double eta) noexcept nogil:
    """The weight of a sample in its design."""
    if link == IDENTITY or not s.options.fisher:
        return 1.0
    return max(slope(link, eta), MIN_WEIGHT)

cdef inline void dots(State *s, const double *context, const double *theta, Int first, Int n,
                      double *out) noexcept nogil:
    """Write xᵀθ for n vectors θ, in the views of the estimates from `first` on."""
    cdef Int i, w = s.sizes.stride
    cdef Int triples = n - n % 3 if s.sizes.n_views == 1 else 0
    for i in range(0, triples, 3):
        dot_three(context, theta + i * w, out + i, w)
    for i in range(triples, n):
        out[i] = dot(view_of(s, first + i, context), theta + i * w, w)

cdef inline void predict_mixed(State *s, const double *context, double *out) noexcept nogil:
    """Write xᵀθ of every target, after `mix_theta`.

    The view of the last member that does not read ranks holds those of all others but the ranks.
    """
    cdef Int target, w = s.sizes.stride, last = s.sizes.n_members - 1
    cdef const double *ranks = context + (s.sizes.n_views - 1) * w
    while last > 0 and reads_ranks(s, last):
        last -= 1
    dots(s, context, s.arrays.mixed_theta, estimate_of(s, last, 0), s.sizes.n_targets, out)
    if s.sizes.n_ranked > 0:
        for target in range(s.sizes.n_targets):
            out[target] += dot(ranks, s.arrays.mixed_theta + (s.sizes.n_targets + target) * w, w)

cdef inline void prepare(State *s, const double *context) noexcept nogil:
    """Write predictors, products and spreads of a context, which scoring and learning both need."""
    cdef Int member, first, estimate, target, expert, resource
    dots(s, context, s.arrays.theta, 0, s.sizes.n_members * s.sizes.n_targets, s.arrays.predictor)
    for member in range(s.sizes.n_members):
        first = estimate_of(s, member, 0)
        for target in range(1 + s.sizes.n_experts):
            project(s, first + target, view_of(s, first + target, context))
        for expert in range(s.sizes.n_experts):
            for resource in range(s.sizes.n_resources):
                estimate = first + cost_target(s, expert, resource)
                if s.arrays.shares_design[expert]:
                    s.arrays.spread[estimate] = s.arrays.spread[first + expert + 1]
                else:
                    project(s, estimate, view_of(s, estimate, context))
    mix(s)

cdef inline double learn(State *s, Int member, Int target, Int design, const double *x, double y) noexcept nogil:
    """Update an estimate by a sample, before x is added to the design; return the weight of the sample."""
    cdef Int link = link_of(s, target), estimate = estimate_of(s, member, target)
    cdef Int of_design = estimate_of(s, member, design)
    cdef double eta = s.arrays.predictor[estimate]
    cdef double weight = weight_of(s, link, eta)
    cdef double residual = y - mean(link, eta)
    cdef double step = residual / (1.0 + weight * s.arrays.spread[of_design])
    if not s.options.frozen:
        add_scaled(theta_of(s, estimate), step, product_of(s, of_design), s.sizes.stride)
        add_scaled(moment_of(s, estimate), y, x, s.sizes.stride)
    # squared errors, each over its own variance, add up to the penalised sum of squares
    s.arrays.squared_error[target] += weights_of(s, target)[member] * (residual * step / weight)
    s.arrays.member_samples[estimate] += 1.0
    return weight

cdef inline void count_sample(State *s, Int target, double y) noexcept nogil:
    """Count a sample, after all members have learned it."""
    s.arrays.n_observed[target] += 1
    if target <= s.sizes.n_experts:
        s.arrays.reward_power[0] += y * y
        s.arrays.reward_power[1] += 1.0

cdef inline void weigh_sample(State *s, Int target, double y) noexcept nogil:
    """Test for drift and reweight the members by a sample, before any member learns it."""
    if s.options.drift_test and s.sizes.n_members > s.sizes.n_lasting:
        test_drift(s, target, link_of(s, target), y)
    reweight_members(s, target, link_of(s, target), y)

cdef inline void learn_with_own_design(State *s, Int target, const double *context, double y) noexcept nogil:
    """Learn a sample of a target that has a design of its own."""
    cdef Int member, estimate
    cdef const double *x
    cdef double weight
    weigh_sample(s, target, y)
    for member in range(s.sizes.n_members):
        estimate = estimate_of(s, member, target)
        x = view_of(s, estimate, context)
        weight = learn(s, member, target, target, x, y)
        if not s.options.frozen:
            update(s, estimate, x, weight)
    count_sample(s, target, y)

cdef inline void learn_with_shared_design(State *s, Int expert, const double *context, double reward,
                              const double *cost) noexcept nogil:
    """Learn the reward and the costs of an expert that share one design (identity links) and one view."""
    cdef Int member, resource, target, design = expert + 1
    cdef const double *x
    weigh_sample(s, design, reward)
    for resource in range(s.sizes.n_resources):
        weigh_sample(s, cost_target(s, expert, resource), cost[resource])
    for member in range(s.sizes.n_members):
        x = view_of(s, estimate_of(s, member, design), context)
        learn(s, member, design, design, x, reward)
        for resource in range(s.sizes.n_resources):
            learn(s, member, cost_target(s, expert, resource), design, x, cost[resource])
        update(s, estimate_of(s, member, design), x, 1.0)
    count_sample(s, design, reward)
    for resource in range(s.sizes.n_resources):
        count_sample(s, cost_target(s, expert, resource), cost[resource])

cdef inline void split_cost_design(State *s, Int expert) noexcept nogil:
    """Split the design that the costs of an expert share with its reward: the costs get copies."""
    cdef Int member, resource
    if s.arrays.shares_design[expert]:
        s.arrays.shares_design[expert] = 0
        for member in range(s.sizes.n_members):
            for resource in range(s.sizes.n_resources):
                copy_design(s, estimate_of(s, member, expert + 1),
                            estimate_of(s, member, cost_target(s, expert, resource)))
