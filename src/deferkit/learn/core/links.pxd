"""The compiled registry of link functions μ of the generalised linear model E[y | x] = μ(η) with η = xᵀθ.

Another link is a file like `logistic.pxd`, a code here with its three branches, and its record in `learn/links.py`.
"""

from deferkit.learn.core cimport identity, logistic
from deferkit.learn.core.state cimport Int

cdef enum:
    IDENTITY, LOGISTIC

cdef inline tuple link_names():
    return ("identity", "logistic")

cdef inline double mean(Int link, double eta) noexcept nogil:
    """μ(η)"""
    return logistic.mean(eta) if link == LOGISTIC else identity.mean(eta)

cdef inline double slope(Int link, double eta) noexcept nogil:
    """μ'(η), which is also the Fisher weight of a sample, since the links are canonical"""
    return logistic.slope(eta) if link == LOGISTIC else identity.slope(eta)

cdef inline double cumulant(Int link, double eta) noexcept nogil:
    """A with A' = μ: the log-likelihood of a sample is y·η − A(η), up to a constant"""
    return logistic.cumulant(eta) if link == LOGISTIC else identity.cumulant(eta)
