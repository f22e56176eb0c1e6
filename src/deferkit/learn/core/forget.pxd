"""Forgetting: every `forget_every` samples of a design, a member discounts its sums.

    S ← keep·S,   b ← keep·b,   θ = (S + ridge·I)⁻¹·b,     S = Σ w·xxᵀ,   b = Σ y·x

The ridge is never discounted, so that an estimate that is forgotten goes back to its prior, 0 by default. With a link other than the identity
b stands for S·θ, so that θ ← θ − ridge·(S + ridge·I)⁻¹·θ.
"""

from deferkit.learn.core.glm cimport design_of, link_of, moment_of, prior_theta_of, theta_of
from deferkit.learn.core.kernels cimport add_scaled, copy_scaled
from deferkit.learn.core.links cimport IDENTITY
from deferkit.learn.core.mixture cimport estimate_of
from deferkit.learn.core.precision cimport discount, solve
from deferkit.learn.core.state cimport Int, State

cdef inline bint forgets_now(State *s, Int member, Int estimate) noexcept nogil:
    cdef Int every = s.arrays.forget_every[member]
    return every > 0 and s.arrays.n_absorbed[estimate] % every == 0

cdef inline void forget_target(State *s, Int member, Int target, Int design) noexcept nogil:
    """Discount a member's estimate of a target, after its design was discounted."""
    cdef Int estimate = estimate_of(s, member, target), w = s.sizes.stride
    cdef double *theta = theta_of(s, estimate)
    s.arrays.member_samples[estimate] *= s.arrays.keep[member]
    if link_of(s, target) == IDENTITY:
        copy_scaled(moment_of(s, estimate), s.arrays.keep[member], moment_of(s, estimate), w)
        if s.options.has_prior:
            add_scaled(moment_of(s, estimate), (1.0 - s.arrays.keep[member]) * s.parameters.ridge,
                       prior_theta_of(s, estimate), w)
        solve(s, estimate_of(s, member, design), moment_of(s, estimate), theta)
    else:
        solve(s, estimate_of(s, member, design), theta, s.arrays.work)
        add_scaled(theta, -s.parameters.ridge, s.arrays.work, w)
        if s.options.has_prior:
            solve(s, estimate_of(s, member, design), prior_theta_of(s, estimate), s.arrays.work)
            add_scaled(theta, s.parameters.ridge, s.arrays.work, w)

cdef inline void forget(State *s, Int member, Int design) noexcept nogil:
    """Discount a design and all targets that use it."""
    cdef Int target
    discount(s, estimate_of(s, member, design), s.arrays.keep[member])
    for target in range(s.sizes.n_targets):
        if design_of(s, target) == design:
            forget_target(s, member, target, design)

cdef inline double share_remembered(State *s, Int member, Int design, Int sample) noexcept nogil:
    """The share of a sample, given by its number in a design, that a member still remembers; 1 without a number.

    Numbers are those of the first member. A member that was refitted may have started with a later sample, so that the
    number of samples since is what counts.
    """
    cdef Int every = s.arrays.forget_every[member], absorbed = s.arrays.n_absorbed[estimate_of(s, member, design)]
    cdef Int since = max(<Int>0, s.arrays.n_absorbed[estimate_of(s, 0, design)] - sample)
    cdef Int own_number = absorbed - since
    if sample == 0:
        return 1.0
    if own_number < 1:
        return 0.0
    # the sample that triggers a discount is discounted itself
    return s.arrays.keep[member] ** (absorbed // every - (own_number - 1) // every) if every > 0 else 1.0

cdef inline void forget_if_due(State *s, Int design) noexcept nogil:
    """Discount a design in every member for which that is due, after a sample was added."""
    cdef Int member
    for member in range(1, s.sizes.n_members):
        if forgets_now(s, member, estimate_of(s, member, design)):
            forget(s, member, design)
