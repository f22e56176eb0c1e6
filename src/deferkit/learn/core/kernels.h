/* Vector kernels: the inner loops of the learner, four doubles at a time.

   Every multiply-add is rounded once (IEEE fma) and every sum has one order, so that the result is fixed by this
   source, whatever the compiler and the processor: the bulk loop, the one-at-a-time calls and a replay on another
   build agree to the last bit. Vectors are `w` long, a multiple of four, padded with zeros; matrices are w rows
   of w, row by row. */
#ifndef DEFERKIT_KERNELS_H
#define DEFERKIT_KERNELS_H

#include <math.h>
#include <stdint.h>

enum { LANES = 4, STASHED = 16 }; /* N_LANES and STASH of layout.py */

/* ------------------------------------------------------------------ four doubles */

#if (defined(__GNUC__) || defined(__clang__)) && !defined(DEFERKIT_PORTABLE)

#define INLINE static inline __attribute__((always_inline))
typedef double lanes __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t lane_mask __attribute__((vector_size(32)));

/* 32-byte vectors are passed only between inlined functions, so that their calling convention does not matter */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
INLINE lanes multiply_add(lanes a, lanes b, lanes c) {
    return (lanes)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#else /* arm64 has fma in hardware; on older x86-64, libm rounds once as well */
INLINE lanes multiply_add(lanes a, lanes b, lanes c) {
    return (lanes){fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1]), fma(a[2], b[2], c[2]), fma(a[3], b[3], c[3])};
}
#endif

INLINE lanes load(const double *p) { return *(const lanes *)p; }
INLINE void store(double *p, lanes v) { *(lanes *)p = v; }
INLINE lanes broadcast(double x) { return (lanes){x, x, x, x}; }
INLINE lanes add(lanes a, lanes b) { return a + b; }
INLINE lanes subtract(lanes a, lanes b) { return a - b; }
INLINE double lane_sum(lanes v) { return (v[0] + v[2]) + (v[1] + v[3]); }
INLINE lanes where_greater(lanes x, lanes y, lanes then, lanes otherwise) {
    lane_mask greater = (lane_mask)(x > y);
    return (lanes)((greater & (lane_mask)then) | (~greater & (lane_mask)otherwise));
}

#else /* a compiler without vector extensions, or the test of this path: the same bits, slower */

#define INLINE static inline
typedef struct {
    double v[LANES];
} lanes;

INLINE lanes multiply_add(lanes a, lanes b, lanes c) {
    lanes r;
    for (int k = 0; k < LANES; k++) r.v[k] = fma(a.v[k], b.v[k], c.v[k]);
    return r;
}
INLINE lanes load(const double *p) {
    lanes r;
    for (int k = 0; k < LANES; k++) r.v[k] = p[k];
    return r;
}
INLINE void store(double *p, lanes v) {
    for (int k = 0; k < LANES; k++) p[k] = v.v[k];
}
INLINE lanes broadcast(double x) {
    lanes r;
    for (int k = 0; k < LANES; k++) r.v[k] = x;
    return r;
}
INLINE lanes add(lanes a, lanes b) {
    for (int k = 0; k < LANES; k++) a.v[k] += b.v[k];
    return a;
}
INLINE lanes subtract(lanes a, lanes b) {
    for (int k = 0; k < LANES; k++) a.v[k] -= b.v[k];
    return a;
}
INLINE double lane_sum(lanes v) { return (v.v[0] + v.v[2]) + (v.v[1] + v.v[3]); }
INLINE lanes where_greater(lanes x, lanes y, lanes then, lanes otherwise) {
    for (int k = 0; k < LANES; k++) then.v[k] = x.v[k] > y.v[k] ? then.v[k] : otherwise.v[k];
    return then;
}

#endif

/* ------------------------------------------------------------------ vectors */

/* xᵀy */
INLINE double dot(const double *x, const double *y, int64_t w) {
    lanes s = broadcast(0.0);
    for (int64_t i = 0; i < w; i += LANES) s = multiply_add(load(x + i), load(y + i), s);
    return lane_sum(s);
}

/* xᵀy of three consecutive vectors y: their sums do not depend on each other */
INLINE void dot_three(const double *x, const double *y, double *out, int64_t w) {
    lanes a = broadcast(0.0), b = a, c = a;
    for (int64_t i = 0; i < w; i += LANES) {
        lanes v = load(x + i);
        a = multiply_add(v, load(y + i), a);
        b = multiply_add(v, load(y + w + i), b);
        c = multiply_add(v, load(y + 2 * w + i), c);
    }
    out[0] = lane_sum(a), out[1] = lane_sum(b), out[2] = lane_sum(c);
}

/* out ← out + scale · x */
INLINE void add_scaled(double *out, double scale, const double *x, int64_t w) {
    lanes k = broadcast(scale);
    for (int64_t i = 0; i < w; i += LANES) store(out + i, multiply_add(k, load(x + i), load(out + i)));
}

/* out ← scale · x */
INLINE void copy_scaled(double *out, double scale, const double *x, int64_t w) {
    lanes k = broadcast(scale), zero = broadcast(0.0);
    for (int64_t i = 0; i < w; i += LANES) store(out + i, multiply_add(k, load(x + i), zero));
}

/* ------------------------------------------------------------------ symmetric matrices */

/* Small matrices are worked through in blocks of n vectors of columns, which stay in registers while the rows pass by:
   there are enough of them that none has to wait for the one before. Large ones do not fit the cache, and are worked
   through row by row. The order of every sum is the same. */
enum { LARGE = 64 };

#define BLOCK(n)                                                                                    \
    INLINE void multiply_##n(const double *m, const double *x, double *out, int64_t w) {            \
        lanes s[n];                                                                                 \
        for (int k = 0; k < n; k++) s[k] = broadcast(0.0);                                          \
        for (int64_t i = 0; i < w; i++) {                                                           \
            lanes xi = broadcast(x[i]);                                                             \
            for (int k = 0; k < n; k++) s[k] = multiply_add(load(m + i * w + LANES * k), xi, s[k]); \
        }                                                                                           \
        for (int k = 0; k < n; k++) store(out + LANES * k, s[k]);                                   \
    }                                                                                               \
    INLINE void subtract_outer_##n(double *m, const double *x, const double *columns, int64_t w) {  \
        lanes c[n];                                                                                 \
        for (int k = 0; k < n; k++) c[k] = load(columns + LANES * k);                               \
        for (int64_t i = 0; i < w; i++) {                                                           \
            lanes xi = broadcast(-x[i]);                                                            \
            for (int k = 0; k < n; k++) {                                                           \
                double *at = m + i * w + LANES * k;                                                 \
                store(at, multiply_add(xi, c[k], load(at)));                                        \
            }                                                                                       \
        }                                                                                           \
    }
BLOCK(1)
BLOCK(2)
BLOCK(3)
BLOCK(4)
BLOCK(5)
BLOCK(6)
BLOCK(7)
BLOCK(8)
#undef BLOCK

/* Calls function_n for each block of columns j to j + 4·n. 9 and 10 vectors are divided evenly: a block of one or two
   would wait for itself. */
#define FOR_BLOCKS(function, ...)                                                   \
    for (int64_t j = 0, left = w / LANES, n; left > 0; j += LANES * n, left -= n) { \
        n = left == 9 || left == 10 ? 5 : left < 8 ? left : 8;                      \
        switch (n) {                                                                \
        case 1: function##_1(__VA_ARGS__); break;                                   \
        case 2: function##_2(__VA_ARGS__); break;                                   \
        case 3: function##_3(__VA_ARGS__); break;                                   \
        case 4: function##_4(__VA_ARGS__); break;                                   \
        case 5: function##_5(__VA_ARGS__); break;                                   \
        case 6: function##_6(__VA_ARGS__); break;                                   \
        case 7: function##_7(__VA_ARGS__); break;                                   \
        default: function##_8(__VA_ARGS__); break;                                  \
        }                                                                           \
    }

/* out ← m · x for a symmetric m; out may not overlap x */
static void multiply(const double *m, const double *x, double *out, int64_t w) {
    if (w <= LARGE) {
        FOR_BLOCKS(multiply, m + j, x, out + j, w)
        return;
    }
    for (int64_t i = 0; i < w; i += 4) {
        const double *row = m + i * w;
        lanes x0 = broadcast(x[i]), x1 = broadcast(x[i + 1]), x2 = broadcast(x[i + 2]), x3 = broadcast(x[i + 3]);
        for (int64_t j = 0; j < w; j += LANES) {
            lanes s = multiply_add(load(row + j), x0, i > 0 ? load(out + j) : broadcast(0.0));
            s = multiply_add(load(row + w + j), x1, s);
            s = multiply_add(load(row + 2 * w + j), x2, s);
            store(out + j, multiply_add(load(row + 3 * w + j), x3, s));
        }
    }
}

/* m ← m + xxᵀ; elements (i, j) and (j, i) stay equal to the last bit */
INLINE void add_outer(double *m, const double *x, int64_t w) {
    for (int64_t i = 0; i < w; i++) add_scaled(m + i * w, x[i], x, w);
}

/* m ← m − xxᵀ, likewise */
static void subtract_outer(double *m, const double *x, int64_t w) {
    if (w <= LARGE) {
        FOR_BLOCKS(subtract_outer, m + j, x, x + j, w)
        return;
    }
    for (int64_t i = 0; i < w; i++) add_scaled(m + i * w, -x[i], x, w);
}

/* Adds a full stash of contexts to the lower half of a matrix. What a sum loses to rounding is kept and added with the
   next stash (Kahan): after a million times the same context, the directions that it does not touch would otherwise be
   off in the fifth digit. */
static void add_stash(double *m, double *rounding, const double *stash, double *work, int64_t w) {
    enum { HALF = STASHED / 2 };
    for (int64_t i = 0; i < w; i++) {
        int64_t end = i - i % LANES + LANES;
        for (int64_t first = 0; first < STASHED; first += HALF) {
            const double *s = stash + first * w;
            lanes x[HALF];
            for (int k = 0; k < HALF; k++) x[k] = broadcast(s[k * w + i]);
            for (int64_t j = 0; j < end; j += LANES) {
                lanes more = first > 0 ? load(work + j) : broadcast(0.0);
                for (int k = 0; k < HALF; k++) more = multiply_add(x[k], load(s + k * w + j), more);
                store(work + j, more);
            }
        }
        for (int64_t j = 0; j < end; j += LANES) {
            lanes before = load(m + i * w + j), more = subtract(load(work + j), load(rounding + i * w + j));
            lanes after = add(before, more);
            store(rounding + i * w + j, subtract(subtract(after, before), more));
            store(m + i * w + j, after);
        }
    }
}

/* ------------------------------------------------------------------ the window of the re-solved price */

/* How much of a resource the n contexts of the window use at these prices: each goes to the expert with the largest
   gain − Σ price · cost if that is above 0. gain is [expert, window], cost [expert, resource, window]. */
INLINE double window_demand_of(const double *gain, const double *cost, const double *price, int64_t experts,
                               int64_t resources, int64_t resource, int64_t window, int64_t n) {
    lanes sum = broadcast(0.0);
    for (int64_t i = 0; i < n; i += LANES) {
        lanes best = broadcast(0.0), used = best;
        for (int64_t k = 0; k < experts; k++) {
            const double *c = cost + k * resources * window + i;
            lanes value = load(gain + k * window + i);
            for (int64_t r = 0; r < resources; r++)
                value = multiply_add(broadcast(-price[r]), load(c + r * window), value);
            used = where_greater(value, best, load(c + resource * window), used);
            best = where_greater(value, best, value, best);
        }
        sum = add(sum, used);
    }
    return lane_sum(sum);
}

static double window_demand(const double *gain, const double *cost, const double *price, int64_t experts,
                            int64_t resources, int64_t resource, int64_t window, int64_t n) {
    if (experts == 1 && resources == 1) /* the common case, without loops over the two */
        return window_demand_of(gain, cost, price, 1, 1, 0, window, n);
    return window_demand_of(gain, cost, price, experts, resources, resource, window, n);
}

#endif
