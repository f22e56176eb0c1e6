/* Prints a digest of the bits that every kernel gives on fixed inputs, for widths on both sides of LARGE: builds for
   other processors and other compiler flags must print the same. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { WIDEST = 208, WINDOW = 64 };

static uint64_t counter;

/* numbers between -1 and 1 with all 53 bits in use, times 2^-24 to 2^23, so that sums cancel and lose bits: SplitMix64 */
static double number(void) {
    uint64_t z = (counter += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return ((double)(z >> 11) / 4503599627370496.0 - 1.0) * ldexp(1.0, (int)(z % 48) - 24);
}

static double *fill(double *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = number();
    return to;
}

/* FNV-1a over the bits */
static uint64_t digest(uint64_t hash, const double *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, from + i, sizeof bits);
        for (int k = 0; k < 64; k += 8) hash = (hash ^ (bits >> k & 255)) * UINT64_C(0x100000001B3);
    }
    return hash;
}

static void report(const char *kernel, int64_t w, const double *from, int64_t n) {
    printf("%s %" PRId64 " %016" PRIx64 "\n", kernel, w, digest(UINT64_C(0xCBF29CE484222325), from, n));
}

static double *room(int64_t n) {
    double *made = calloc((size_t)n, sizeof(double));
    if (made == NULL) exit(2);
    return made;
}

int main(void) {
    double *x = room(WIDEST), *y = room(3 * WIDEST), *out = room(WIDEST), *work = room(2 * WIDEST);
    double *m = room(WIDEST * WIDEST), *rounding = room(WIDEST * WIDEST), *stash = room(STASHED * WIDEST);
    for (int64_t w = LANES; w <= WIDEST; w += w < 80 ? LANES : 32) {
        fill(x, w), fill(y, 3 * w), fill(m, w * w), fill(stash, STASHED * w);
        out[0] = dot(x, y, w);
        report("dot", w, out, 1);
        dot_three(x, y, out, w);
        report("dot_three", w, out, 3);
        fill(out, w), add_scaled(out, number(), x, w);
        report("add_scaled", w, out, w);
        copy_scaled(out, number(), x, w);
        report("copy_scaled", w, out, w);
        multiply(m, x, out, w);
        report("multiply", w, out, w);
        add_outer(m, x, w);
        report("add_outer", w, m, w * w);
        subtract_outer(m, y, w);
        report("subtract_outer", w, m, w * w);
        memset(rounding, 0, (size_t)(w * w) * sizeof(double));
        add_stash(m, rounding, stash, work, w), add_stash(m, rounding, stash, work, w);
        report("add_stash", w, m, w * w);
        report("add_stash_rounding", w, rounding, w * w);
    }
    for (int64_t experts = 1; experts <= 3; experts++)
        for (int64_t resources = 1; resources <= 3; resources++) {
            double *gain = fill(room(experts * WINDOW), experts * WINDOW), price[3];
            double *cost = fill(room(experts * resources * WINDOW), experts * resources * WINDOW);
            for (int64_t i = 0; i < experts * resources * WINDOW; i++) cost[i] = fabs(cost[i]);
            for (int64_t r = 0; r < 3; r++) price[r] = fabs(number());
            for (int64_t r = 0; r < resources; r++) {
                out[0] = window_demand(gain, cost, price, experts, resources, r, WINDOW, WINDOW);
                report("window_demand", 100 * experts + 10 * resources + r, out, 1);
            }
            free(gain), free(cost);
        }
    free(x), free(y), free(out), free(work), free(m), free(rounding), free(stash);
    return 0;
}
