"""The identity link: μ(η) = η, ridge regression."""

cdef inline double mean(double eta) noexcept nogil:
    return eta

cdef inline double slope(double eta) noexcept nogil:
    return 1.0

cdef inline double cumulant(double eta) noexcept nogil:
    return 0.5 * eta * eta
