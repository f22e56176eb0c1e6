"""Online estimates of a generalised linear model, one sample at a time.

For a sample (x, y) with weight w = μ'(xᵀθ) and the inverse information H⁻¹ before it,

    θ ← θ + H⁻¹x·(y − μ(xᵀθ)) / (1 + w·xᵀH⁻¹x),     H ← H + w·xxᵀ.

With the identity link this is exact ridge regression. With another link it is one online Newton step on the running
Fisher information; `refit.pxd` has the exact maximum.

A *target* is what is estimated: the rewards of the deciders, then the costs by expert and resource. The reward and the
costs of an expert share one design as long as they are observed together.
"""

from deferkit.learn.core.kernels cimport add_scaled, dot, dot_three
from deferkit.learn.core.links cimport IDENTITY, mean, slope
from deferkit.learn.core.newton cimport LEAST_WEIGHT
from deferkit.learn.core.precision cimport copy_design, product_of, project, update
from deferkit.learn.core.state cimport Int, State

cdef inline Int link_of(State *s, Int target) noexcept nogil:
    return s.options.reward_link if target <= s.sizes.n_experts else s.options.cost_link

cdef inline Int cost_target(State *s, Int expert, Int resource) noexcept nogil:
    """The target of an expert's cost; experts count from 0 here."""
    return 1 + s.sizes.n_experts + expert * s.sizes.n_resources + resource

cdef inline Int design_of(State *s, Int target) noexcept nogil:
    """The design of a target: its own, or that of the reward that it is observed with."""
    cdef Int expert
    if target <= s.sizes.n_experts:
        return target
    expert = (target - s.sizes.n_experts - 1) // s.sizes.n_resources
    return expert + 1 if s.at.shares_design[expert] else target

cdef inline double *theta_of(State *s, Int target) noexcept nogil:
    return s.at.theta + target * s.sizes.stride

cdef inline const double *view_of(State *s, Int target, const double *context) noexcept nogil:
    """The vector of a context that a target looks at."""
    return context + s.at.view[target] * s.sizes.stride

cdef inline double weight_of(State *s, Int link, double eta) noexcept nogil:
    """The weight of a sample in its design."""
    if link == IDENTITY or not s.options.fisher:
        return 1.0
    return max(slope(link, eta), LEAST_WEIGHT)

cdef inline void predict(State *s, const double *context, double *out) noexcept nogil:
    """Write xᵀθ of every target."""
    cdef Int target, n = s.sizes.n_targets, w = s.sizes.stride
    cdef Int triples = n - n % 3 if s.sizes.n_views == 1 else 0
    for target in range(0, triples, 3):
        dot_three(context, theta_of(s, target), out + target, w)
    for target in range(triples, n):
        out[target] = dot(view_of(s, target, context), theta_of(s, target), w)

cdef inline void prepare(State *s, const double *context) noexcept nogil:
    """Write what scoring and learning a context both need: predictors, products and spreads."""
    cdef Int target, expert, resource
    predict(s, context, s.at.predictor)
    for target in range(1 + s.sizes.n_experts):
        project(s, target, view_of(s, target, context))
    for expert in range(s.sizes.n_experts):
        for resource in range(s.sizes.n_resources):
            target = cost_target(s, expert, resource)
            if s.at.shares_design[expert]:
                s.at.spread[target] = s.at.spread[expert + 1]
            else:
                project(s, target, view_of(s, target, context))

cdef inline double learn(State *s, Int target, Int design, const double *x, double y) noexcept nogil:
    """Move an estimate for a sample, before x enters the design; return the sample's weight."""
    cdef Int link = link_of(s, target)
    cdef double eta = s.at.predictor[target]
    cdef double weight = weight_of(s, link, eta)
    cdef double residual = y - mean(link, eta)
    cdef double step = residual / (1.0 + weight * s.at.spread[design])
    if not s.options.frozen:
        add_scaled(theta_of(s, target), step, product_of(s, design), s.sizes.stride)
        add_scaled(s.at.moment + target * s.sizes.stride, y, x, s.sizes.stride)
    # squared errors, each over its own variance, add up to the penalised sum of squares
    s.at.squared_error[target] += residual * step / weight
    s.at.n_observed[target] += 1
    if target <= s.sizes.n_experts:
        s.at.reward_power[0] += y * y
        s.at.reward_power[1] += 1.0
    return weight

cdef inline void learn_alone(State *s, Int target, const double *context, double y) noexcept nogil:
    """Learn a sample of a target that has a design of its own."""
    cdef const double *x = view_of(s, target, context)
    cdef double weight = learn(s, target, target, x, y)
    if not s.options.frozen:
        update(s, target, x, weight)

cdef inline void learn_expert(State *s, Int expert, const double *context, double reward,
                              const double *cost) noexcept nogil:
    """Learn the reward and the costs of an expert that share one design (identity links) and one view."""
    cdef Int resource, design = expert + 1
    cdef const double *x = view_of(s, design, context)
    learn(s, design, design, x, reward)
    for resource in range(s.sizes.n_resources):
        learn(s, cost_target(s, expert, resource), design, x, cost[resource])
    update(s, design, x, 1.0)

cdef inline void split_cost_design(State *s, Int expert) noexcept nogil:
    """Give the costs of an expert designs of their own from now on: copies of the one they shared."""
    cdef Int resource
    if s.at.shares_design[expert]:
        s.at.shares_design[expert] = 0
        for resource in range(s.sizes.n_resources):
            copy_design(s, expert + 1, cost_target(s, expert, resource))
