/* The kernels as functions of a shared library, for test_kernels.py. */
#include "kernels.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT double call_dot(const double *x, const double *y, int64_t w) { return dot(x, y, w); }
EXPORT void call_dot_three(const double *x, const double *y, double *out, int64_t w) { dot_three(x, y, out, w); }
EXPORT void call_add_scaled(double *out, double scale, const double *x, int64_t w) { add_scaled(out, scale, x, w); }
EXPORT void call_copy_scaled(double *out, double scale, const double *x, int64_t w) { copy_scaled(out, scale, x, w); }
EXPORT void call_multiply(const double *m, const double *x, double *out, int64_t w) { multiply(m, x, out, w); }
EXPORT void call_add_outer(double *m, const double *x, int64_t w) { add_outer(m, x, w); }
EXPORT void call_subtract_outer(double *m, const double *x, int64_t w) { subtract_outer(m, x, w); }
EXPORT void call_add_stash(double *m, double *rounding, const double *stash, double *work, int64_t w) {
    add_stash(m, rounding, stash, work, w);
}
EXPORT double call_window_demand(const double *gain, const double *cost, const double *price, int64_t experts,
                                 int64_t resources, int64_t resource, int64_t window, int64_t n) {
    return window_demand(gain, cost, price, experts, resources, resource, window, n);
}
EXPORT int64_t lanes_at_a_time(void) { return LANES; }
EXPORT int64_t contexts_in_a_stash(void) { return STASHED; }
EXPORT int64_t largest_small_matrix(void) { return LARGE; }
