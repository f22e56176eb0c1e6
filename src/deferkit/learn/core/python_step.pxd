"""The pacing `python`: the step of a pacing from outside the package, which is a function in Python.

It takes the interpreter's lock for each step. What it raises is kept by the function (`PythonStep`), and raised by
`Core` when the compiled call is over: no step in between can be interrupted.
"""

from deferkit.learn.core.state cimport State

cdef inline void step(State *s, double *dual, const double *cost) noexcept nogil:
    if s.python_step == NULL:
        return
    with gil:
        if not (<object>s.python_step)(dual == s.arrays.next_dual, cost == s.arrays.new_cost):
            s.python_step_failed = True
