"""The compiled registry of pacings, by which the price λ of each resource moves once for each decision.

Another pacing is a file like `adaptive.pxd`, a code here with its branch, and its strategy in `learn/pacing/`.
"""

from deferkit.learn.core cimport adaptive, exponentiated, python_step, renewing, resolve
from deferkit.learn.core.arrears cimport count_arrears
from deferkit.learn.core.state cimport Int, State

cdef enum:
    PAPER, GRADIENT, RESOLVE, ADAPTIVE, RENEWING, PYTHON

cdef inline tuple pacing_names():
    return ("paper", "gradient", "resolve", "adaptive", "renewing", "python")

cdef inline void move_price(State *s, double *dual, const double *cost) noexcept nogil:
    """Move the price for the latest decision, which cost (or is expected to cost) this much.

    `dual` is that of the state, or a copy of it for a proposal, which changes nothing.
    """
    if s.options.pacing == RESOLVE:
        resolve.step(s, dual, cost)
    elif s.options.pacing == ADAPTIVE:
        adaptive.step(s, dual, cost)
    elif s.options.pacing == PYTHON:
        python_step.step(s, dual, cost)
    elif s.options.pacing == RENEWING:
        if s.options.catches_up:
            count_arrears(s, dual, cost)
    else:
        exponentiated.step(s, dual, cost, s.options.pacing == PAPER)

cdef inline void price_task(State *s, double *dual) noexcept nogil:
    """Move the price for the current task, before it is decided: where the price depends on the time."""
    if s.options.pacing == RENEWING:
        renewing.step(s, dual)
