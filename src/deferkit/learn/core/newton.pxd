"""Newton's method for the penalised likelihood of a generalised linear model: the one exact solver.

    maximise  Σ [y·η − A(η)] − ½·θᵀPθ + bᵀθ,     η = xᵀθ,

with the precision P and the moment b of the prior; P is ridge·I and b is 0 unless they are given.
"""

from libc.math cimport fabs, isnan, sqrt

from deferkit.learn.core.kernels cimport add_outer, add_scaled, copy_scaled, dot, multiply
from deferkit.learn.core.links cimport cumulant, mean, slope
from deferkit.learn.core.precision cimport copy_matrix, invert, set_diagonal
from deferkit.learn.core.state cimport Int

cdef extern from *:
    """
    #define NEWTON_STEPS 100
    #define MIN_WEIGHT 1e-6 /* keeps the information positive if a probability rounds to 0 or 1 */
    """
    const Int NEWTON_STEPS
    const double MIN_WEIGHT

cdef struct Likelihood:
    Int link
    Int n  # samples
    Int d  # features
    Int w  # features, padded to whole lanes
    Int length  # doubles from one sample to the next
    const double *samples  # each is a vector, then its response at w
    double ridge
    const double *precision  # of the prior; NULL: ridge·I
    const double *moment  # of the prior; NULL: 0

cdef struct Workspace:
    double *factor  # [w, w]
    double *step  # [w]
    double *gradient  # [w]
    double *weighted_x  # [w]

cdef inline double start_from_prior(Likelihood *l, const double *theta, double *precision,
                                    double *gradient) noexcept nogil:
    """Write precision and gradient of the log prior at θ; return its value."""
    if l.precision == NULL:
        set_diagonal(precision, l.ridge, l.d, l.w)
        copy_scaled(gradient, -l.ridge, theta, l.w)
        return -0.5 * l.ridge * dot(theta, theta, l.w)
    copy_matrix(precision, l.precision, l.w)
    multiply(precision, theta, gradient, l.w)
    copy_scaled(gradient, -1.0, gradient, l.w)
    add_scaled(gradient, 1.0, l.moment, l.w)
    return 0.5 * (dot(gradient, theta, l.w) + dot(l.moment, theta, l.w))

cdef inline double newton_system(Likelihood *l, const double *theta, double *precision, Workspace *work) noexcept nogil:
    """Write information and gradient of the penalised log-likelihood at θ; return its value."""
    cdef Int sample
    cdef const double *x = l.samples
    cdef double eta, value = start_from_prior(l, theta, precision, work.gradient)
    for sample in range(l.n):
        eta = dot(x, theta, l.w)
        value += x[l.w] * eta - cumulant(l.link, eta)
        add_scaled(work.gradient, x[l.w] - mean(l.link, eta), x, l.w)
        copy_scaled(work.weighted_x, sqrt(max(slope(l.link, eta), MIN_WEIGHT)), x, l.w)
        add_outer(precision, work.weighted_x, l.w)
        x += l.length
    return value

cdef inline void maximise(Likelihood *l, double *theta, double *precision, double *inverse, Workspace *work,
                          double tolerance) noexcept nogil:
    """Move θ to the maximum; write the information, and its inverse, at the last step but one.

    The last step is the first whose squared Newton decrement is below `tolerance` for each sample: convergence is
    quadratic, so that the next step would be negligible.
    """
    cdef Int iteration
    cdef double value, scale = 0.0, best = -l.n * cumulant(l.link, 0.0)
    for iteration in range(NEWTON_STEPS):
        value = newton_system(l, theta, precision, work)
        if isnan(value) or value < best - 1e-12 * fabs(best):
            # worse than before, or NaN: start from zero, or undo half of the last step
            scale *= 0.5
            if iteration == 0:
                copy_scaled(theta, 0.0, theta, l.w)
            else:
                add_scaled(theta, -scale, work.step, l.w)
            continue
        best = value
        invert(precision, inverse, work.factor, l.d, l.w, 0.0)
        multiply(inverse, work.gradient, work.step, l.w)
        scale = 1.0
        add_scaled(theta, scale, work.step, l.w)
        if dot(work.step, work.gradient, l.w) < tolerance * max(l.n, <Int>1):
            break
