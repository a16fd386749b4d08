/* Maxima of rows of doubles, and the entries of a row on both sides of a threshold. */
#ifndef TOPKOPT_ROWS_MAXIMA_H
#define TOPKOPT_ROWS_MAXIMA_H

#include <math.h>
#include <stddef.h>

#include "simd.h"

#define ROWS_LANES 32 /* So many maxima fit into the registers of AVX2, next to what they meet. */

TK_DISPATCH(double, max_abs, (const double *b, ptrdiff_t n), (b, n))
{
    double m = 0.0;
#pragma omp simd reduction(max : m) simdlen(8)
    for (ptrdiff_t j = 0; j < n; j++)
        m = fabs(b[j]) > m ? fabs(b[j]) : m;
    return m;
}

/* Writes the largest of b[i], b[i + width], b[i + 2 width], ... to maxima[i] for all i < width.
 * The width is a multiple of ROWS_LANES and at most n. */
TK_DISPATCH(void, strided_maxima,
            (const double *b, ptrdiff_t n, ptrdiff_t width, double *maxima), (b, n, width, maxima))
{
    const ptrdiff_t whole = n - n % width;
    for (ptrdiff_t g = 0; g < width; g += ROWS_LANES) {
        double m[ROWS_LANES];
        for (int i = 0; i < ROWS_LANES; i++)
            m[i] = b[g + i];
        for (ptrdiff_t j = g + width; j < whole; j += width)
            for (int i = 0; i < ROWS_LANES; i++)
                m[i] = b[j + i] > m[i] ? b[j + i] : m[i];
        for (int i = 0; i < ROWS_LANES; i++)
            maxima[g + i] = m[i];
    }
    for (ptrdiff_t i = 0; i < n - whole; i++)
        maxima[i] = b[whole + i] > maxima[i] ? b[whole + i] : maxima[i];
}

/* The entries around a threshold t. The counts are doubles because they are added up in the same
 * vectors as the sum. */
typedef struct {
    double n_above; /* the number of entries b_j > t */
    double n_from;  /* the number of entries b_j >= t */
    double sum;     /* the sum of b_j - t over b_j > t */
    double above;   /* the smallest b_j > t, or inf */
    double below;   /* the largest b_j < t, or -inf */
} Around;

TK_DISPATCH(Around, look_around, (const double *b, ptrdiff_t n, double t), (b, n, t))
{
    double n_above = 0.0, n_from = 0.0, sum = 0.0, above = INFINITY, below = -INFINITY;
#pragma omp simd reduction(+ : n_above, n_from, sum) reduction(min : above) reduction(max : below)
    for (ptrdiff_t j = 0; j < n; j++) {
        const double high = b[j] > t ? b[j] : INFINITY, low = b[j] < t ? b[j] : -INFINITY;
        sum += b[j] > t ? b[j] - t : 0.0;
        n_above += b[j] > t ? 1.0 : 0.0;
        n_from += b[j] < t ? 0.0 : 1.0;
        above = high < above ? high : above;
        below = low > below ? low : below;
    }
    return (Around){n_above, n_from, sum, above, below};
}

#endif
