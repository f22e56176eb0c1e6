"""The logistic link: μ(η) = 1 / (1 + e^−η), written so that no exponential overflows."""

from libc.math cimport exp, fabs, log1p

cdef inline double mean(double eta) noexcept nogil:
    cdef double tail
    if eta >= 0.0:
        return 1.0 / (1.0 + exp(-eta))
    tail = exp(eta)
    return tail / (1.0 + tail)

cdef inline double slope(double eta) noexcept nogil:
    cdef double tail = exp(-fabs(eta))
    return tail / ((1.0 + tail) * (1.0 + tail))

cdef inline double cumulant(double eta) noexcept nogil:
    return max(eta, 0.0) + log1p(exp(-fabs(eta)))
