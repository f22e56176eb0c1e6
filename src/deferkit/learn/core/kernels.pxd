from deferkit.learn.core.state cimport Int

cdef extern from "kernels.h" nogil:
    Int LANES
    Int STASHED
    double dot(const double *x, const double *y, Int w)
    void dot_three(const double *x, const double *y, double *out, Int w)
    void add_scaled(double *out, double scale, const double *x, Int w)
    void copy_scaled(double *out, double scale, const double *x, Int w)
    void multiply(const double *m, const double *x, double *out, Int w)
    void add_outer(double *m, const double *x, Int w)
    void subtract_outer(double *m, const double *x, Int w)
    void add_stash(double *m, double *rounding, const double *stash, double *work, Int w)
    double window_demand(const double *gain, const double *cost, const double *price, Int experts, Int resources,
                         Int resource, Int window, Int n)
