/* The bulk loop as a C programmer would write it: one expert, one resource, identity link, full feedback,
   corrected exponentiated gradient, every other of the first d tasks to the expert. It keeps the inverses and the estimates and nothing else: no ledger, no
   reservation, no precision to refactor from, no noise estimate. It is the yardstick, not the product. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double dot(const double *a, const double *b, int d) {
    double s = 0.0;
    for (int i = 0; i < d; i++) s += a[i] * b[i];
    return s;
}

static void product(const double *m, const double *x, double *out, int d) {
    for (int i = 0; i < d; i++) out[i] = dot(m + (size_t)i * d, x, d);
}

static void learn(double *m, const double *u, double spread, int d) {
    double k = 1.0 / (1.0 + spread);
    for (int i = 0; i < d; i++) {
        double ui = k * u[i];
        for (int j = 0; j < d; j++) m[(size_t)i * d + j] -= ui * u[j];
    }
}

static void move(double *theta, const double *u, double step, int d) {
    for (int i = 0; i < d; i++) theta[i] += step * u[i];
}

/* Returns what was spent. rewards is [n][2]: the model's, the expert's. */
double run(int d, long n, const double *contexts, const double *rewards, const double *costs, double budget,
           double max_cost, double ridge, double width, signed char *routes) {
    size_t square = (size_t)d * d;
    size_t bytes = (2 * square + 5 * (size_t)d) * sizeof(double);
    double *m = aligned_alloc(64, (bytes + 63) / 64 * 64); /* at a cache line: elsewhere d = 200 takes a quarter longer */
    memset(m, 0, bytes);
    double *h = m + square, *tm = h + square, *th = tm + d, *tc = th + d, *um = tc + d, *uh = um + d;
    for (int i = 0; i < d; i++) m[(size_t)i * d + i] = h[(size_t)i * d + i] = 1.0 / ridge;
    double rate = budget / n, alpha = 1.0, gamma = 0.5, spent = 0.0, epsilon = sqrt(2.0 / n);
    for (long t = 0; t < n; t++) {
        const double *x = contexts + (size_t)t * d;
        product(m, x, um, d);
        product(h, x, uh, d);
        double sm = dot(x, um, d), sh = dot(x, uh, d);
        double rm = dot(x, tm, d), rh = dot(x, th, d), c = dot(x, tc, d);
        double low = c - width * sqrt(sh);
        double gain = rh + width * sqrt(sh) - rm - width * sqrt(sm) - gamma / rate * (low > 0.0 ? low : 0.0);
        int ask = (t < d ? (int)(t & 1) : gain > 0.0) && spent + max_cost <= budget;
        double cost = ask ? costs[t] : 0.0;
        routes[t] = (signed char)ask;
        spent += cost;
        double g = cost - rate;
        alpha *= g >= 0.0 ? pow(1.0 + epsilon, g) : pow(1.0 - epsilon, -g);
        gamma = alpha / (1.0 + alpha);
        move(tm, um, (rewards[2 * t] - rm) / (1.0 + sm), d);
        learn(m, um, sm, d);
        if (ask) {
            move(th, uh, (rewards[2 * t + 1] - rh) / (1.0 + sh), d);
            move(tc, uh, (cost - c) / (1.0 + sh), d);
            learn(h, uh, sh, d);
        }
    }
    free(m);
    return spent;
}
