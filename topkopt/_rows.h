/* The loops over a row that every projection is made of, written so that compilers vectorise them.
 *
 * Each is defined for float and double. Sums are of doubles, in an order that depends only on n.
 */
#ifndef TOPKOPT_ROWS_H
#define TOPKOPT_ROWS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "_simd.h"

#define ROWS_LANES 32 /* maxima kept at once, in registers where there are enough */
#define ROWS_SKIP 16 /* entries that gather looks at together: most hold none to keep */

#define DEFINE_ROWS(REAL, NAME)                                                                  \
                                                                                                 \
    TK_INLINE double max_##NAME##_body(const REAL *b, ptrdiff_t n)                          \
    {                                                                                            \
        REAL m = b[0];                                                                           \
        _Pragma("omp simd reduction(max : m) simdlen(16)")                                             \
        for (ptrdiff_t j = 1; j < n; j++)                                                        \
            m = b[j] > m ? b[j] : m;                                                             \
        return m;                                                                                \
    }                                                                                            \
                                                                                                 \
    /* x = clip((b - shift) - offset, lower, upper); x may be b */                               \
    TK_INLINE void clip_##NAME##_body(const REAL *b, REAL *x, ptrdiff_t n, double shift,    \
                                           double offset, double lower, double upper)            \
    {                                                                                            \
        _Pragma("omp simd")                                                                      \
        for (ptrdiff_t j = 0; j < n; j++) {                                                      \
            double v = (b[j] - shift) - offset;                                                  \
            v = v > lower ? v : lower;                                                           \
            x[j] = (REAL)(v < upper ? v : upper);                                                \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    /* sum of clip((b - shift) - offset, 0, upper) */                                            \
    TK_INLINE double clip_sum_##NAME##_body(const REAL *b, ptrdiff_t n, double shift,       \
                                                 double offset, double upper)                    \
    {                                                                                            \
        double sum = 0.0;                                                                        \
        _Pragma("omp simd reduction(+ : sum) simdlen(8)")                                             \
        for (ptrdiff_t j = 0; j < n; j++) {                                                      \
            double v = (b[j] - shift) - offset;                                                  \
            v = v > 0.0 ? v : 0.0;                                                               \
            sum += v < upper ? v : upper;                                                        \
        }                                                                                        \
        return sum;                                                                              \
    }                                                                                            \
                                                                                                 \
    /* OUT kept: the entries above cut, minus shift, in order; returns how many.                 \
       kept may be b. At most n entries are written. */                                          \
    TK_INLINE ptrdiff_t gather_##NAME##_body(const REAL *b, ptrdiff_t n, double cut,        \
                                                  double shift, double *kept)                    \
    {                                                                                            \
        ptrdiff_t m = 0, j = 0;                                                                  \
        for (; j + ROWS_SKIP <= n; j += ROWS_SKIP) {                                             \
            int any = 0;                                                                         \
            for (ptrdiff_t i = 0; i < ROWS_SKIP; i++)                                            \
                any |= b[j + i] > cut;                                                           \
            if (any)                                                                             \
                for (ptrdiff_t i = 0; i < ROWS_SKIP; i++) {                                      \
                    REAL v = b[j + i];                                                           \
                    kept[m] = v - shift;                                                         \
                    m += v > cut;                                                                \
                }                                                                                \
        }                                                                                        \
        for (; j < n; j++) {                                                                     \
            REAL v = b[j];                                                                       \
            kept[m] = v - shift;                                                                 \
            m += v > cut;                                                                        \
        }                                                                                        \
        return m;                                                                                \
    }                                                                                            \
                                                                                                 \
    /* OUT maxima[i]: the largest of b[i], b[i + width], b[i + 2 width], ...;                    \
       n >= width, a multiple of ROWS_LANES */                                                   \
    TK_INLINE void strided_maxima_##NAME##_body(const REAL *b, ptrdiff_t n, ptrdiff_t width,     \
                                                double *maxima)                                  \
    {                                                                                            \
        const ptrdiff_t whole = n - n % width;                                                   \
        for (ptrdiff_t g = 0; g < width; g += ROWS_LANES) {                                      \
            REAL m[ROWS_LANES];                                                                  \
            for (int i = 0; i < ROWS_LANES; i++)                                                 \
                m[i] = b[g + i];                                                                 \
            for (ptrdiff_t j = g + width; j < whole; j += width)                                 \
                for (int i = 0; i < ROWS_LANES; i++)                                             \
                    m[i] = b[j + i] > m[i] ? b[j + i] : m[i];                                    \
            for (int i = 0; i < ROWS_LANES; i++)                                                 \
                maxima[g + i] = m[i];                                                            \
        }                                                                                        \
        for (ptrdiff_t i = 0; i < n - whole; i++)                                                \
            maxima[i] = b[whole + i] > maxima[i] ? b[whole + i] : maxima[i];                     \
    }                                                                                            \
                                                                                                 \
    /* y += a x */                                                                               \
    TK_INLINE void axpy_##NAME##_body(ptrdiff_t n, REAL a, const REAL *x, REAL *y)               \
    {                                                                                            \
        _Pragma("omp simd")                                                                      \
        for (ptrdiff_t j = 0; j < n; j++)                                                        \
            y[j] += a * x[j];                                                                    \
    }                                                                                            \
                                                                                                 \
    /* s = x W, with the n rows of W of length m behind each other */                            \
    TK_INLINE void combine_##NAME##_body(const REAL *x, ptrdiff_t n, const REAL *w, ptrdiff_t m, \
                                         REAL *s)                                                \
    {                                                                                            \
        for (ptrdiff_t i = 0; i < m; i++)                                                        \
            s[i] = 0;                                                                            \
        for (ptrdiff_t j = 0; j < n; j++)                                                        \
            axpy_##NAME##_body(m, x[j], w + j * m, s);                                           \
    }                                                                                            \
                                                                                                 \
    /* W += x d', the converse of combine */                                                     \
    TK_INLINE void spread_##NAME##_body(const REAL *x, ptrdiff_t n, const REAL *d, ptrdiff_t m,  \
                                        REAL *w)                                                 \
    {                                                                                            \
        for (ptrdiff_t j = 0; j < n; j++)                                                        \
            axpy_##NAME##_body(m, x[j], d, w + j * m);                                           \
    }                                                                                            \
                                                                                                 \
    /* q = s - factor a */                                                                       \
    TK_INLINE void without_##NAME##_body(const REAL *s, double factor, const REAL *a,            \
                                         ptrdiff_t n, double *q)                                 \
    {                                                                                            \
        _Pragma("omp simd")                                                                      \
        for (ptrdiff_t j = 0; j < n; j++)                                                        \
            q[j] = s[j] - factor * a[j];                                                         \
    }                                                                                            \
                                                                                                 \
    /* INOUT a: becomes -factor v. OUT d: the change, index: where it is not zero (n + 1        \
       entries); returns how often */                                                            \
    TK_INLINE ptrdiff_t replace_##NAME##_body(const double *v, double factor, ptrdiff_t n,       \
                                              REAL *a, REAL *d, int32_t *index)                  \
    {                                                                                            \
        ptrdiff_t nonzero = 0;                                                                   \
        _Pragma("omp simd")                                                                      \
        for (ptrdiff_t j = 0; j < n; j++) {                                                      \
            const REAL next = (REAL)(-factor * v[j]);                                            \
            d[j] = next - a[j];                                                                  \
            a[j] = next;                                                                         \
        }                                                                                        \
        for (ptrdiff_t j = 0; j < n; j++) {                                                      \
            index[nonzero] = (int32_t)j;                                                         \
            nonzero += d[j] != 0;                                                                \
        }                                                                                        \
        return nonzero;                                                                          \
    }                                                                                            \
                                                                                                 \
    TK_INLINE int all_finite_##NAME##_body(const REAL *b, ptrdiff_t n)                      \
    {                                                                                            \
        REAL sum = 0; /* b - b is NaN for NaN and the infinities, 0 for the others */            \
        _Pragma("omp simd reduction(+ : sum) simdlen(16)")                                       \
        for (ptrdiff_t j = 0; j < n; j++)                                                        \
            sum += b[j] - b[j];                                                                  \
        return sum == 0;                                                                         \
    }                                                                                            \
                                                                                                 \
    TK_DISPATCH(double, max_##NAME, (const REAL *b, ptrdiff_t n), (b, n))                        \
    TK_DISPATCH(void, clip_##NAME,                                                               \
                (const REAL *b, REAL *x, ptrdiff_t n, double shift, double offset, double lower, \
                 double upper),                                                                  \
                (b, x, n, shift, offset, lower, upper))                                          \
    TK_DISPATCH(double, clip_sum_##NAME,                                                         \
                (const REAL *b, ptrdiff_t n, double shift, double offset, double upper),         \
                (b, n, shift, offset, upper))                                                    \
    TK_DISPATCH(ptrdiff_t, gather_##NAME,                                                        \
                (const REAL *b, ptrdiff_t n, double cut, double shift, double *kept),            \
                (b, n, cut, shift, kept))                                                        \
    TK_DISPATCH(void, strided_maxima_##NAME,                                                     \
                (const REAL *b, ptrdiff_t n, ptrdiff_t width, double *maxima),                   \
                (b, n, width, maxima))                                                           \
    TK_DISPATCH(void, axpy_##NAME, (ptrdiff_t n, REAL a, const REAL *x, REAL *y), (n, a, x, y))  \
    TK_DISPATCH(void, combine_##NAME,                                                            \
                (const REAL *x, ptrdiff_t n, const REAL *w, ptrdiff_t m, REAL *s),               \
                (x, n, w, m, s))                                                                 \
    TK_DISPATCH(void, spread_##NAME,                                                             \
                (const REAL *x, ptrdiff_t n, const REAL *d, ptrdiff_t m, REAL *w),               \
                (x, n, d, m, w))                                                                 \
    TK_DISPATCH(void, without_##NAME,                                                            \
                (const REAL *s, double factor, const REAL *a, ptrdiff_t n, double *q),           \
                (s, factor, a, n, q))                                                            \
    TK_DISPATCH(ptrdiff_t, replace_##NAME,                                                       \
                (const double *v, double factor, ptrdiff_t n, REAL *a, REAL *d, int32_t *index), \
                (v, factor, n, a, d, index))                                                     \
    TK_DISPATCH(int, all_finite_##NAME, (const REAL *b, ptrdiff_t n), (b, n))

DEFINE_ROWS(float, f32)
DEFINE_ROWS(double, f64)

TK_INLINE double sum_body(const double *b, ptrdiff_t n)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum) simdlen(8)
    for (ptrdiff_t j = 0; j < n; j++)
        sum += b[j];
    return sum;
}

TK_INLINE double dot_body(const double *a, const double *b, ptrdiff_t n)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum) simdlen(8)
    for (ptrdiff_t j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

TK_INLINE double max_abs_body(const double *b, ptrdiff_t n)
{
    double m = 0.0;
#pragma omp simd reduction(max : m) simdlen(8)
    for (ptrdiff_t j = 0; j < n; j++)
        m = fabs(b[j]) > m ? fabs(b[j]) : m;
    return m;
}

TK_DISPATCH(double, sum, (const double *b, ptrdiff_t n), (b, n))
TK_DISPATCH(double, dot, (const double *a, const double *b, ptrdiff_t n), (a, b, n))
TK_DISPATCH(double, max_abs, (const double *b, ptrdiff_t n), (b, n))

/* What a knapsack needs to know of its entries at a threshold t: the sum of clip(b - t, lo, hi),
 * and how many entries are strictly between their bounds or at the upper one. Comparisons are of
 * t with the breakpoints b - lo and b - hi. step = 0: one pair of bounds for all entries. */
TK_INLINE double clipped(const double *b, const double *lo, const double *hi, ptrdiff_t step,
                             ptrdiff_t n, double t, ptrdiff_t *n_free, ptrdiff_t *n_upper)
{
    double sum = 0.0;
    int64_t lower = 0, upper = 0;
#pragma omp simd reduction(+ : sum, lower, upper)
    for (ptrdiff_t j = 0; j < n; j++) {
        int at_lower = b[j] - lo[j * step] <= t;
        int at_upper = b[j] - hi[j * step] >= t;
        double v = at_lower ? lo[j * step] : b[j] - t;
        sum += at_upper ? hi[j * step] : v;
        lower += at_lower;
        upper += at_upper & !at_lower;
    }
    *n_free += n - lower - upper;
    *n_upper += upper;
    return sum;
}

TK_INLINE double clipped_shared_body(const double *b, const double *lo, const double *hi, ptrdiff_t n,
                                     double t, ptrdiff_t *n_free, ptrdiff_t *n_upper)
{
    const double lower = *lo, upper = *hi;
    return clipped(b, &lower, &upper, 0, n, t, n_free, n_upper);
}

TK_INLINE double clipped_each_body(const double *b, const double *lo, const double *hi, ptrdiff_t n,
                                   double t, ptrdiff_t *n_free, ptrdiff_t *n_upper)
{
    return clipped(b, lo, hi, 1, n, t, n_free, n_upper);
}

TK_DISPATCH(double, clipped_shared,
            (const double *b, const double *lo, const double *hi, ptrdiff_t n, double t,
             ptrdiff_t *n_free, ptrdiff_t *n_upper),
            (b, lo, hi, n, t, n_free, n_upper))
TK_DISPATCH(double, clipped_each,
            (const double *b, const double *lo, const double *hi, ptrdiff_t n, double t,
             ptrdiff_t *n_free, ptrdiff_t *n_upper),
            (b, lo, hi, n, t, n_free, n_upper))

#endif
