/* Passes over a row for the entropic proxes: values w = V(b - t), or e^(b - t) when there is no
 * quadratic term, and the totals that a root finder in t needs.
 *
 * Moving the threshold by a small amount needs no new exponentials.  V(t) solves w + log w = t, so
 * w is a starting point for V(t + r) whose residual is r itself, and one step of Fritsch, Shafer
 * and Crowley (see lambert.h) gives V(t + r) with the relative error r^4/72 at most.
 */
#ifndef TOPKOPT_ENTROPY_H
#define TOPKOPT_ENTROPY_H

#include <float.h>

#include "lambert.h"

/* A dozen steps towards a root is already exceptional. After so many patient ones the bracket is
 * halved instead, and the last bound only guards against an endless loop. */
#define TK_PATIENT_STEPS 20
#define TK_MAX_STEPS 200
/* Short steps in a row. The second or third is already below rounding. */
#define TK_MAX_MOVES 4
/* Guesses of a threshold in single precision, which end early when they change t by less than the
 * second number, and fail where the sum is below the third. */
#define TK_GUESSES 2
#define TK_GOOD_GUESS 0.01
#define TK_TINY 1e-30
/* Moving values over such a distance r leaves a relative error r^4/72 < 1e-16, as said above. */
#define TK_SHORT_STEP 3e-4
/* Steps converge at least quadratically: after one this short the next would be below rounding. */
#define TK_LAST_STEP 1e-8
/* So small a quadratic term changes no digit of a solution of sum 1: V(t) is e^t. */
#define TK_NO_ALPHA (DBL_EPSILON / 8)

/* Over the elements below the cap: sum w, sum w', sum w w' and sum w'' (derivatives in b); how many
 * are not below. */
typedef struct {
    double sum, slope, excess, curvature, capped;
} tk_totals;

typedef struct {
    tk_lanes sum, slope, excess, curvature, capped;
} tk_tallies;

/* What is added up, element by element; below the cap only, and of the first `counted` elements. */
typedef struct {
    double sum[TK_CHUNK], slope[TK_CHUNK], excess[TK_CHUNK], curvature[TK_CHUNK], capped[TK_CHUNK];
} tk_terms;

TK_INLINE void tk_tabulate(const double *restrict w, ptrdiff_t blocks, ptrdiff_t counted, double cap,
                           int exponential, tk_terms *restrict terms)
{
    for (ptrdiff_t j = 0; j < blocks * TK_BLOCK; j++) {
        terms->sum[j] = w[j] < cap ? w[j] : 0.0;
        terms->capped[j] = w[j] < cap ? 0.0 : 1.0;
    }
    for (ptrdiff_t j = counted > 0 ? counted : 0; j < blocks * TK_BLOCK; j++)
        terms->sum[j] = terms->capped[j] = 0.0;
    if (exponential) /* w'' = w' = w, and the model of the root finder needs no excess */
        return;
    for (ptrdiff_t j = 0; j < blocks * TK_BLOCK; j++) {
        const double g = 1.0 / (1.0 + terms->sum[j]);
        terms->slope[j] = terms->sum[j] * g;
        terms->excess[j] = terms->sum[j] * terms->slope[j];
        terms->curvature[j] = terms->slope[j] * g * g;
    }
}

TK_INLINE void tk_tally(const tk_terms *terms, ptrdiff_t blocks, int exponential,
                        tk_tallies *tallies)
{
    tk_accumulate(terms->sum, blocks, &tallies->sum);
    tk_accumulate(terms->capped, blocks, &tallies->capped);
    if (exponential)
        return;
    tk_accumulate(terms->slope, blocks, &tallies->slope);
    tk_accumulate(terms->excess, blocks, &tallies->excess);
    tk_accumulate(terms->curvature, blocks, &tallies->curvature);
}

TK_INLINE tk_totals tk_finish(const tk_tallies *tallies, int exponential)
{
    tk_totals totals;
    totals.sum = tk_add_up(&tallies->sum);
    totals.slope = exponential ? totals.sum : tk_add_up(&tallies->slope);
    totals.excess = tk_add_up(&tallies->excess);
    totals.curvature = exponential ? totals.sum : tk_add_up(&tallies->curvature);
    totals.capped = tk_add_up(&tallies->capped);
    return totals;
}

TK_INLINE double tk_sum(const double *restrict y, ptrdiff_t blocks)
{
    double total[TK_BLOCK];
    memcpy(total, y, sizeof total);
    for (ptrdiff_t b = 1; b < blocks; b++)
        for (int i = 0; i < TK_BLOCK; i++)
            total[i] += y[b * TK_BLOCK + i];
    for (int width = TK_BLOCK / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            total[i] += total[i + width];
    return total[0];
}

#define TK_FEW (4 * TK_CHUNK) /* so few need no compensated sums, which cost as much as V there */

TK_INLINE void tk_add_chunk(const tk_terms *terms, ptrdiff_t blocks, double cap, int exponential,
                            tk_totals *totals)
{
    const double sum = tk_sum(terms->sum, blocks);
    totals->sum += sum;
    totals->slope += exponential ? sum : tk_sum(terms->slope, blocks);
    totals->excess += exponential ? 0.0 : tk_sum(terms->excess, blocks);
    totals->curvature += exponential ? sum : tk_sum(terms->curvature, blocks);
    totals->capped += cap < INFINITY ? tk_sum(terms->capped, blocks) : 0.0;
}

/* IN b, OUT w = V(b - t) or e^(b - t); returns the totals of the first `counted`. */
TK_DISPATCH_AS_IS(tk_totals, tk_entropy_pass,
                  (const double *b, double t, double cap, double *w, ptrdiff_t n, ptrdiff_t counted,
                   int exponential),
                  (b, t, cap, w, n, counted, exponential))
{
    double x[TK_CHUNK], y[TK_CHUNK];
    tk_terms terms;
    tk_tallies tallies;
    tk_totals totals = {0.0, 0.0, 0.0, 0.0, 0.0};
    if (n > TK_FEW)
        memset(&tallies, 0, sizeof tallies);
    for (ptrdiff_t i = 0; i < n; i += TK_CHUNK) {
        ptrdiff_t blocks, m = tk_chunk_length(i, n, &blocks);
        tk_load_shifted(b + i, t, x, m, blocks);
        if (exponential)
            for (ptrdiff_t c = 0; c < blocks; c++)
                for (int l = 0; l < TK_BLOCK; l++)
                    y[c * TK_BLOCK + l] = tk_exp(x[c * TK_BLOCK + l]);
        else if (counted < n) /* then the k largest are behind the others, which are parted too */
            tk_v_parted_chunk(x, y, blocks);
        else
            tk_v_chunk(x, y, blocks);
        memcpy(w + i, y, (size_t)m * sizeof *y);
        tk_tabulate(y, blocks, counted - i, cap, exponential, &terms);
        if (n <= TK_FEW)
            tk_add_chunk(&terms, blocks, cap, exponential, &totals);
        else
            tk_tally(&terms, blocks, exponential, &tallies);
    }
    return n <= TK_FEW ? totals : tk_finish(&tallies, exponential);
}

/* The same in single precision and without a cap: a good guess at half the cost. */
TK_DISPATCH(tk_totals, tk_entropy_guess,
            (const double *b, double t, double *w, ptrdiff_t n, ptrdiff_t counted),
            (b, t, w, n, counted))
{
    float x[TK_CHUNK], y[TK_CHUNK];
    double v[TK_CHUNK];
    tk_terms terms;
    tk_totals totals = {0.0, 0.0, 0.0, 0.0, 0.0};
    for (ptrdiff_t i = 0; i < n; i += TK_CHUNK) {
        ptrdiff_t blocks, m = tk_chunk_length(i, n, &blocks);
        for (ptrdiff_t j = 0; j < m; j++) {
            const double d = b[i + j] - t;
            x[j] = (float)(d < 1e30 ? d : 1e30);
        }
        for (ptrdiff_t j = m; j < blocks * TK_BLOCK; j++)
            x[j] = -1e4f;
        tk_v_chunkf(x, y, blocks);
        for (ptrdiff_t j = 0; j < blocks * TK_BLOCK; j++)
            v[j] = y[j];
        memcpy(w + i, v, (size_t)m * sizeof *v);
        tk_tabulate(v, blocks, counted - i, INFINITY, 0, &terms);
        tk_add_chunk(&terms, blocks, INFINITY, 0, &totals);
    }
    return totals;
}

TK_INLINE double tk_v_moved(double w, double r)
{
    const double p = 1.0 + w, a = p * (p + r * 0.6666666666666666);
    /* So large a w goes with t; p^3 would overflow. */
    return w > 1e50 ? w + r : w + w * (r * (a - 0.5 * r) / (p * (a - r)));
}

/* IN OUT w, which becomes V(V^-1(w) + r), |r| small, or w e^r. */
TK_DISPATCH_AS_IS(tk_totals, tk_entropy_move,
                  (double *w, double r, double cap, ptrdiff_t n, ptrdiff_t counted,
                   int exponential),
                  (w, r, cap, n, counted, exponential))
{
    double y[TK_CHUNK];
    tk_terms terms;
    tk_tallies tallies;
    tk_totals totals = {0.0, 0.0, 0.0, 0.0, 0.0};
    if (n > TK_FEW)
        memset(&tallies, 0, sizeof tallies);
    const double factor = exponential ? exp(r) : 1.0;
    for (ptrdiff_t i = 0; i < n; i += TK_CHUNK) {
        ptrdiff_t blocks, m = tk_chunk_length(i, n, &blocks);
        memcpy(y, w + i, (size_t)m * sizeof *y);
        for (ptrdiff_t j = m; j < blocks * TK_BLOCK; j++)
            y[j] = 0.0;
        if (exponential)
            for (ptrdiff_t j = 0; j < blocks * TK_BLOCK; j++)
                y[j] *= factor;
        else
            for (ptrdiff_t j = 0; j < blocks * TK_BLOCK; j++)
                y[j] = tk_v_moved(y[j], r);
        memcpy(w + i, y, (size_t)m * sizeof *y);
        tk_tabulate(y, blocks, counted - i, cap, exponential, &terms);
        if (n <= TK_FEW)
            tk_add_chunk(&terms, blocks, cap, exponential, &totals);
        else
            tk_tally(&terms, blocks, exponential, &tallies);
    }
    return n <= TK_FEW ? totals : tk_finish(&tallies, exponential);
}

/* sum of x log x over the entries 0 < x < sqrt(2); what rounding left below 0 counts as 0. Near 1
 * the logarithm is that of x itself: 1/x has lost the digits of 1 - x. */
TK_DISPATCH(double, tk_x_log_x, (const double *x, ptrdiff_t n), (x, n))
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum) simdlen(8)
    for (ptrdiff_t j = 0; j < n; j++) {
        const double v = x[j] >= DBL_MIN ? x[j] : 1.0; /* 1/x overflows below */
        const double l = tk_log(v < 0.75 ? 1.0 / v : v);
        sum += v < 0.75 ? -v * l : v * l;
    }
    return sum;
}

#endif
