/* Sums over rows of doubles.
 *
 * A single sum would make every addition wait for the one before. So each function keeps
 * ROWS_PARTS sums side by side, where entry j of a whole group goes to part j % ROWS_PARTS and the
 * entries behind the last whole group go to part 0. The parts are a local array and not an OpenMP
 * reduction because compilers hold the array in registers and send the reduction through memory;
 * a simd pragma on the inner loops makes them slower, too.
 */
#ifndef TOPKOPT_ROWS_SUMS_H
#define TOPKOPT_ROWS_SUMS_H

#include <math.h>
#include <stddef.h>

#include "simd.h"

#define ROWS_PARTS 8
#define ROWS_STRETCH 256 /* Long sums add up so many entries before they add the result. */

/* The order is that in which vectors of 4, then of 2, are folded. */
#define ROWS_TOTAL(part) \
    ((((part)[0] + (part)[4]) + ((part)[2] + (part)[6])) \
     + (((part)[1] + (part)[5]) + ((part)[3] + (part)[7])))

TK_DISPATCH(double, sum, (const double *b, ptrdiff_t n), (b, n))
{
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++)
            part[i] += b[j + i];
    for (; j < n; j++)
        part[0] += b[j];
    return ROWS_TOTAL(part);
}

TK_INLINE double sum_stretch(const double *b, ptrdiff_t n, double shift)
{
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++)
            part[i] += b[j + i] - shift;
    for (; j < n; j++)
        part[0] += b[j] - shift;
    return ROWS_TOTAL(part);
}

/* The sum of b - shift. It is taken stretch by stretch, so that the rounding error grows with the
 * number of stretches plus the length of one, and not with the length of the row. */
TK_DISPATCH(double, sum_more, (const double *b, ptrdiff_t n, double shift), (b, n, shift))
{
    double total = 0.0;
    for (; n > 0; b += ROWS_STRETCH, n -= ROWS_STRETCH)
        total += sum_stretch(b, n < ROWS_STRETCH ? n : ROWS_STRETCH, shift);
    return total;
}

/* <a,b> */
TK_DISPATCH(double, dot, (const double *a, const double *b, ptrdiff_t n), (a, b, n))
{
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++)
            part[i] += a[j + i] * b[j + i];
    for (; j < n; j++)
        part[0] += a[j] * b[j];
    return ROWS_TOTAL(part);
}

/* scale <p,p>. A large scale goes to one of the factors first, or small squares would underflow. */
TK_DISPATCH(double, scaled_square, (const double *p, ptrdiff_t n, double scale), (p, n, scale))
{
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++)
            part[i] += p[j + i] * (scale * p[j + i]);
    for (; j < n; j++)
        part[0] += p[j] * (scale * p[j]);
    return ROWS_TOTAL(part);
}

/* scale (<p,b> - 1/2 <p,p>), with the scale at one of the factors for the same reason. */
TK_DISPATCH(double, scaled_gain,
            (const double *p, const double *b, ptrdiff_t n, double scale), (p, b, n, scale))
{
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++)
            part[i] += p[j + i] * (scale * (b[j + i] - 0.5 * p[j + i]));
    for (; j < n; j++)
        part[0] += p[j] * (scale * (b[j] - 0.5 * p[j]));
    return ROWS_TOTAL(part);
}

/* Writes (s_j - s_own + margin) scale for all j but own to others, and returns the sum of their
 * sizes, which is infinite if one of them is. The last takes the place of own; others needs room for
 * m entries nevertheless, because the loop does not skip own. */
TK_DISPATCH(double, take_others,
            (const double *restrict s, ptrdiff_t own, ptrdiff_t m, double margin, double scale,
             double *restrict others),
            (s, own, m, margin, scale, others))
{
    const double own_score = s[own];
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= m; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++) {
            others[j + i] = ((s[j + i] - own_score) + margin) * scale;
            part[i] += fabs(others[j + i]);
        }
    for (; j < m; j++) {
        others[j] = ((s[j] - own_score) + margin) * scale;
        part[0] += fabs(others[j]);
    }
    others[own] = others[m - 1];
    return ROWS_TOTAL(part);
}

#endif
