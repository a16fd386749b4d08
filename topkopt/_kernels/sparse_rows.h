/* Products of a sparse row, n numbers x at the places `at`, with the rows of a matrix of m columns. */
#ifndef TOPKOPT_SPARSE_ROWS_H
#define TOPKOPT_SPARSE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "simd.h"

#define SPARSE_TILE 16  /* columns whose sums stay in registers */
#define SPARSE_AHEAD 6  /* entries before its turn a row of the matrix is asked for */

/* combine: s = x W. spread: G += x v', in double precision. move: the same, in that of x. */
#define SPARSE_ROWS(NAME, REAL, INDEX) \
    TK_INLINE void NAME##_tile(const REAL *x, const INDEX *at, ptrdiff_t n, const REAL *w, \
                               ptrdiff_t m, REAL *s, const int width) \
    { \
        REAL sum[SPARSE_TILE] = {0}; \
        for (ptrdiff_t j = 0; j < n; j++) { \
            const REAL *row = w + at[j] * m; \
            if (j + SPARSE_AHEAD < n) \
                prefetch(w + at[j + SPARSE_AHEAD] * m, width * (ptrdiff_t)sizeof(REAL)); \
            for (int e = 0; e < width; e++) \
                sum[e] += x[j] * row[e]; \
        } \
        for (int e = 0; e < width; e++) \
            s[e] = sum[e]; \
    } \
    TK_DISPATCH(void, NAME##_combine, \
                (const REAL *x, const INDEX *at, ptrdiff_t n, const REAL *w, ptrdiff_t m, REAL *s), \
                (x, at, n, w, m, s)) \
    { \
        ptrdiff_t first = 0; \
        for (; first + SPARSE_TILE <= m; first += SPARSE_TILE) \
            NAME##_tile(x, at, n, w + first, m, s + first, SPARSE_TILE); \
        for (; first + 4 <= m; first += 4) \
            NAME##_tile(x, at, n, w + first, m, s + first, 4); \
        for (ptrdiff_t e = first; e < m; e++) \
            s[e] = 0; \
        for (ptrdiff_t j = 0; j < n && first < m; j++) \
            for (ptrdiff_t e = first; e < m; e++) \
                s[e] += x[j] * w[at[j] * m + e]; \
    }

#define SPARSE_SPREAD(NAME, REAL, INDEX, SUM) \
    TK_DISPATCH(void, NAME, \
                (const REAL *x, const INDEX *at, ptrdiff_t n, const REAL *restrict v, ptrdiff_t m, \
                 SUM *restrict g), \
                (x, at, n, v, m, g)) \
    { \
        for (ptrdiff_t j = 0; j < n; j++) { \
            SUM *restrict row = g + at[j] * m; \
            if (j + SPARSE_AHEAD < n) \
                prefetch(g + at[j + SPARSE_AHEAD] * m, m * (ptrdiff_t)sizeof(SUM)); \
            for (ptrdiff_t e = 0; e < m; e++) \
                row[e] += x[j] * v[e]; \
        } \
    }

SPARSE_ROWS(sparse_f32, float, int32_t)
SPARSE_ROWS(sparse_f64, float, int64_t)
SPARSE_ROWS(sparse_d32, double, int32_t)
SPARSE_ROWS(sparse_d64, double, int64_t)
SPARSE_SPREAD(sparse_f32_spread, float, int32_t, double)
SPARSE_SPREAD(sparse_f64_spread, float, int64_t, double)
SPARSE_SPREAD(sparse_d32_spread, double, int32_t, double)
SPARSE_SPREAD(sparse_d64_spread, double, int64_t, double)
SPARSE_SPREAD(sparse_f32_move, float, int32_t, float)
SPARSE_SPREAD(sparse_f64_move, float, int64_t, float)

#endif
