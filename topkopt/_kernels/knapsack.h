/* Passes over the open entries of a knapsack (see knapsack.pyx): x = clip(b - t, lo, hi), whose sum
 * decreases in the threshold t. "Shared" means that lo = 0 and hi = cap for all entries.
 */
#ifndef TOPKOPT_KNAPSACK_H
#define TOPKOPT_KNAPSACK_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "simd.h"

/* A good bracket leaves few entries open. So this many entries are compared at once, and mostly all
 * of them are passed over together. */
#define KNAPSACK_SKIP 16

/* The sum of clip(b - t, lo, hi). The numbers of entries strictly between their bounds and of those
 * at the upper one are added to n_free and n_upper. An entry changes from one to the other as t
 * passes b - lo or b - hi, which are compared with t as they are, without further rounding. */
TK_DISPATCH(double, clipped_each,
            (const double *b, const double *lo, const double *hi, ptrdiff_t n, double t,
             ptrdiff_t *n_free, ptrdiff_t *n_upper),
            (b, lo, hi, n, t, n_free, n_upper))
{
    double sum = 0.0;
    int64_t lower = 0, upper = 0;
#pragma omp simd reduction(+ : sum, lower, upper)
    for (ptrdiff_t j = 0; j < n; j++) {
        int at_lower = b[j] - lo[j] <= t;
        int at_upper = b[j] - hi[j] >= t;
        double v = at_lower ? lo[j] : b[j] - t;
        sum += at_upper ? hi[j] : v;
        lower += at_lower;
        upper += at_upper & !at_lower;
    }
    *n_free += n - lower - upper;
    *n_upper += upper;
    return sum;
}

/* The same for lo = 0 and hi = cap. */
TK_DISPATCH(double, clipped_shared,
            (const double *b, double cap, ptrdiff_t n, double t, ptrdiff_t *n_free,
             ptrdiff_t *n_upper),
            (b, cap, n, t, n_free, n_upper))
{
    double sum = 0.0;
    int64_t above = 0, upper = 0;
#pragma omp simd reduction(+ : sum, above, upper)
    for (ptrdiff_t j = 0; j < n; j++) {
        double v = b[j] - t;
        v = v > 0.0 ? v : 0.0;
        sum += v < cap ? v : cap;
        above += b[j] > t;
        upper += (b[j] > t) & (b[j] - cap >= t);
    }
    *n_free += above - upper;
    *n_upper += upper;
    return sum;
}

/* At t no entry is strictly between 0 and cap, and the sum exceeds the wanted one by excess. If it
 * is too small (excess < 0), t has to fall below the largest entry at 0; if it is too large, t has
 * to rise above the least b - cap of an entry at cap. This returns the root if that entry alone
 * moves, and an infinite number if there is none. */
TK_DISPATCH(double, leave_plateau,
            (const double *b, double cap, ptrdiff_t n, double t, double excess),
            (b, cap, n, t, excess))
{
    double below = -INFINITY, above = INFINITY;
#pragma omp simd reduction(max : below) reduction(min : above)
    for (ptrdiff_t j = 0; j < n; j++) {
        const double enters = b[j] <= t ? b[j] : -INFINITY;
        const double leaves = b[j] > t ? b[j] - cap : INFINITY;
        below = enters > below ? enters : below;
        above = leaves < above ? leaves : above;
    }
    return excess + (excess < 0.0 ? below : above);
}

/* Whether v reaches or leaves a bound somewhere between left and right. */
TK_INLINE int is_open(double v, double cap, double left, double right)
{
    return ((v > left) & (v < right)) | ((v - cap > left) & (v - cap < right));
}

/* Appends the open ones of n entries to the m in kept and returns how many there are then. Every
 * entry is written and only m depends on it, for no processor predicts which are open. */
TK_INLINE ptrdiff_t append_open(const double *b, ptrdiff_t n, double cap, double left, double right,
                                double *kept, ptrdiff_t m)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        const double v = b[j];
        kept[m] = v;
        m += is_open(v, cap, left, right);
    }
    return m;
}

/* How many of some entries are certain to be between their bounds, the sum of these, and how many
 * are certain to be at the upper bound. */
typedef struct {
    ptrdiff_t n_free;
    double sum_free;
    ptrdiff_t n_upper;
} knapsack_certain;

/* The root is between left and right. OUT certain: what that settles; kept, which may be b: the
 * entries that are still open, whose number is returned. All others are certain to be at 0. */
TK_DISPATCH(ptrdiff_t, settle_shared,
            (const double *b, ptrdiff_t n, double cap, double left, double right,
             knapsack_certain *certain, double *kept),
            (b, n, cap, left, right, certain, kept))
{
    ptrdiff_t m = 0, j = 0;
    int64_t upper = 0, inside = 0;
    double sum = 0.0;
#pragma omp simd reduction(+ : sum, upper, inside)
    for (ptrdiff_t i = 0; i < n; i++) {
        int is_free = (b[i] >= right) & (b[i] - cap <= left);
        upper += b[i] - cap >= right;
        inside += is_free;
        sum += is_free ? b[i] : 0.0;
    }
    certain->n_free = inside;
    certain->sum_free = sum;
    certain->n_upper = upper;
    for (; j + KNAPSACK_SKIP <= n; j += KNAPSACK_SKIP) {
        int64_t any = 0;
#pragma omp simd reduction(| : any)
        for (ptrdiff_t i = 0; i < KNAPSACK_SKIP; i++)
            any |= is_open(b[j + i], cap, left, right);
        if (any)
            m = append_open(b + j, KNAPSACK_SKIP, cap, left, right, kept, m);
    }
    return append_open(b + j, n - j, cap, left, right, kept, m);
}

#endif
