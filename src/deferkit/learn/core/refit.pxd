"""Exact estimates for links other than the identity, from stored samples.

Each time the number of samples has doubled (or after every sample, for research) the maximum of

    Σ log-likelihood − ridge/2·‖θ‖²

is computed from all stored samples, starting from the running estimate. `repair` also recomputes inverses that have
lost precision. Both are rare: a step only requests them.
"""

from libc.string cimport memcpy

from deferkit.learn.core.glm cimport design_of, link_of, moment_of, prior_theta_of, theta_of
from deferkit.learn.core.kernels cimport LANES, copy_scaled
from deferkit.learn.core.links cimport IDENTITY
from deferkit.learn.core.mixture cimport estimate_of
from deferkit.learn.core.newton cimport Likelihood, Workspace, maximise
from deferkit.learn.core.precision cimport (
    add_to_precision, clear_stash, initialise, inverse_of, precision_of, refactor, solve)
from deferkit.learn.core.state cimport Int, State

cdef enum:
    REFIT_NEVER, REFIT_DOUBLING, REFIT_ALWAYS

cdef extern from *:
    """
    #define REFIT_TOLERANCE 1e-20 /* of the squared Newton decrement, for each sample */
    #define NO_REFIT ((int64_t)1 << 62)
    """
    const double REFIT_TOLERANCE
    const Int NO_REFIT

cdef inline tuple refit_names():
    return ("never", "doubling", "always")

cdef inline bint is_refitted(State *s, Int target) noexcept nogil:
    return s.options.refit != REFIT_NEVER and link_of(s, target) != IDENTITY

cdef inline double *sample_of(State *s, Int target, Int sample) noexcept nogil:
    """A stored sample: its vector, then its response. Only refitted targets have stored samples."""
    cdef Int row = target if s.options.reward_link != IDENTITY else target - s.sizes.n_experts - 1
    return s.samples + (row * s.counters.capacity + sample) * (s.sizes.stride + LANES)

cdef inline void store_sample(State *s, Int target, const double *x, double y) noexcept nogil:
    """Store the latest sample of a target for later refits, if there are any."""
    cdef Int sample = s.arrays.n_observed[target] - 1
    cdef double *stored
    if sample < s.options.refit_limit:
        stored = sample_of(s, target, sample)
        memcpy(stored, x, s.sizes.stride * sizeof(double))
        stored[s.sizes.stride] = y
    if s.arrays.n_observed[target] >= s.arrays.next_refit[target]:
        s.counters.repair_due = 1

cdef inline void correct_sample(State *s, Int target, const double *x, double old, double new) noexcept nogil:
    """Correct the latest stored sample with this context and response, if there is one."""
    cdef Int i, sample, w = s.sizes.stride
    cdef double *stored
    cdef bint same
    for sample in range(min(s.arrays.n_observed[target], s.counters.capacity) - 1, -1, -1):
        stored = sample_of(s, target, sample)
        same = stored[w] == old
        for i in range(w):
            same = same and stored[i] == x[i]
        if same:
            stored[w] = new
            return

cdef inline void refit(State *s, Int target) noexcept nogil:
    """Maximise the penalised likelihood of the stored samples, and compute the design at the maximum."""
    cdef Int sample, w = s.sizes.stride, n = s.arrays.n_observed[target]
    cdef Workspace work
    cdef Likelihood likelihood
    likelihood.link, likelihood.n, likelihood.d, likelihood.w = link_of(s, target), n, s.sizes.n_features, w
    likelihood.samples, likelihood.length = sample_of(s, target, 0), w + LANES
    likelihood.ridge, likelihood.precision, likelihood.moment = s.parameters.ridge, NULL, NULL
    if s.options.has_prior:
        copy_scaled(moment_of(s, target), s.parameters.ridge, prior_theta_of(s, target), w)
        likelihood.moment = moment_of(s, target)
    work.factor, work.weighted_x = s.arrays.factor, s.arrays.weighted_x
    work.step, work.gradient = s.arrays.work, s.arrays.work + w
    maximise(&likelihood, theta_of(s, target), precision_of(s, target), inverse_of(s, target), &work, REFIT_TOLERANCE)
    if not s.options.fisher:  # the paper's M is not weighted
        initialise(s, target)
        for sample in range(n):
            add_to_precision(s, target, sample_of(s, target, sample))
        refactor(s, target)
    clear_stash(s, target)
    if s.options.refit == REFIT_ALWAYS:
        s.arrays.next_refit[target] = n + 1
    else:
        s.arrays.next_refit[target] = 2 * n if 2 * n <= s.options.refit_limit else NO_REFIT

cdef inline void repair(State *s) noexcept nogil:
    """Recompute inverses that have lost precision, and refit targets that are due."""
    cdef Int member, design, target, estimate, estimates = s.sizes.n_members * s.sizes.n_targets
    s.counters.repair_due = 0
    for estimate in range(estimates):
        if s.arrays.drifted[estimate]:
            refactor(s, estimate)
    for target in range(s.sizes.n_targets):
        if is_refitted(s, target) and s.arrays.n_observed[target] >= s.arrays.next_refit[target]:
            refit(s, target)
        for member in range(s.sizes.n_members):
            design, estimate = estimate_of(s, member, design_of(s, target)), estimate_of(s, member, target)
            if link_of(s, target) == IDENTITY and s.arrays.drifted[design]:
                solve(s, design, moment_of(s, estimate), theta_of(s, estimate))
    for estimate in range(estimates):
        s.arrays.drifted[estimate] = 0
