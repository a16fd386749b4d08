/* The loops over a row that every projection is made of, written so that compilers vectorise them.
 *
 * Each is defined for float and double. Sums are of doubles, in an order that depends only on n.
 */
#ifndef TOPKOPT_ROWS_H
#define TOPKOPT_ROWS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "simd.h"

#define ROWS_LANES 32 /* maxima kept at once, in registers where there are enough */
#define ROWS_SKIP 16 /* entries that gather looks at together: most hold none to keep */
#define ROWS_LIST 64 /* shorter rows are added faster than their non-zero entries are listed */
#define ROWS_TILE 16 /* scores that are added up at once */
#define ROWS_PAD 4 /* padded rows are a multiple of it: loops need no remainder */
#define ROWS_PEAKS 8 /* maxima of a block of a row */
#define ROWS_HIGH 64 /* peaks that are looked at together */
#define ROWS_PART 256 /* entries of a long sum that are added up among themselves first */

/* OUT total: the sum of TERM(j) over all j < n. Eight sums side by side need not wait for each
 * other, and stay in registers, where OpenMP's reductions go through memory. */
#define ADD_UP(REAL, total, n, TERM)                                                             \
    do {                                                                                         \
        REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;                     \
        ptrdiff_t j = 0;                                                                         \
        for (; j + 8 <= (n); j += 8) {                                                           \
            s0 += TERM(j);                                                                       \
            s1 += TERM(j + 1);                                                                   \
            s2 += TERM(j + 2);                                                                   \
            s3 += TERM(j + 3);                                                                   \
            s4 += TERM(j + 4);                                                                   \
            s5 += TERM(j + 5);                                                                   \
            s6 += TERM(j + 6);                                                                   \
            s7 += TERM(j + 7);                                                                   \
        }                                                                                        \
        for (; j < (n); j++)                                                                     \
            s0 += TERM(j);                                                                       \
        (total) = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7));                             \
    } while (0)

TK_INLINE double clip(double v, double lower, double upper)
{
    v = v > lower ? v : lower;
    return v < upper ? v : upper;
}

/* Terms of sums, by the names of the loops that use them. */
#define TERM_ENTRY(j) b[j]
#define TERM_MORE(j) (b[j] - shift)
#define TERM_CLIPPED(j) clip((b[j] - shift) - offset, 0.0, upper)
#define TERM_SCALED(j) (v[j] = factor * a[j], s[j] * v[j])
#define TERM_NOTHING(j) (b[j] * headroom * 0) /* NaN where an infinite number is multiplied by 0 */
#define TERM_PRODUCT(j) a[j] * b[j]
#define TERM_SQUARE(j) p[j] * (scale * p[j]) /* no underflow where scale is large */
#define TERM_REST(j) p[j] * (scale * (b[j] - p[j]))
#define TERM_OTHER(j) (others[j] = ((s[j] - own_score) + margin) * scale, fabs(others[j]))

/* How many entries a peak stands for. */
TK_INLINE ptrdiff_t peak_depth(ptrdiff_t n)
{
    return n < 4096 ? 4 : 32;
}

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
        for (ptrdiff_t j = 0; j < n; j++)                                                        \
            x[j] = (REAL)clip((b[j] - shift) - offset, lower, upper);                            \
    }                                                                                            \
                                                                                                 \
    /* sum of clip((b - shift) - offset, 0, upper) */                                            \
    TK_INLINE double clip_sum_##NAME##_body(const REAL *b, ptrdiff_t n, double shift,            \
                                            double offset, double upper)                         \
    {                                                                                            \
        double sum;                                                                              \
        ADD_UP(double, sum, n, TERM_CLIPPED);                                                    \
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
            int64_t above = 0;                                                                   \
            _Pragma("omp simd reduction(+ : above)")                                             \
            for (ptrdiff_t i = 0; i < ROWS_SKIP; i++)                                            \
                above += b[j + i] > cut;                                                         \
            if (above == 0)                                                                      \
                continue;                                                                        \
            if (above == ROWS_SKIP) {                                                            \
                for (ptrdiff_t i = 0; i < ROWS_SKIP; i++)                                        \
                    kept[m + i] = b[j + i] - shift;                                              \
                m += ROWS_SKIP;                                                                  \
                continue;                                                                        \
            }                                                                                    \
            for (ptrdiff_t i = 0; i < ROWS_SKIP; i++) {                                          \
                REAL v = b[j + i];                                                               \
                kept[m] = v - shift;                                                             \
                m += v > cut;                                                                    \
            }                                                                                    \
        }                                                                                        \
        for (; j < n; j++) {                                                                     \
            REAL v = b[j];                                                                       \
            kept[m] = v - shift;                                                                 \
            m += v > cut;                                                                        \
        }                                                                                        \
        return m;                                                                                \
    }                                                                                            \
                                                                                                 \
    /* OUT x = b - shift, followed by -inf up to a multiple of ROWS_PAD, which it returns.        \
       x may be b, if it has room. */                                                            \
    TK_INLINE ptrdiff_t pad_##NAME##_body(const REAL *b, ptrdiff_t n, double shift, double *x)   \
    {                                                                                            \
        _Pragma("omp simd")                                                                      \
        for (ptrdiff_t j = 0; j < n; j++)                                                        \
            x[j] = b[j] - shift;                                                                 \
        for (; n % ROWS_PAD; n++)                                                                \
            x[n] = -INFINITY;                                                                    \
        return n;                                                                                \
    }                                                                                            \
                                                                                                 \
    /* OUT peaks: peak i of a block is the largest of its entries i, i + ROWS_PEAKS, ...; returns\
       how many, ROWS_PEAKS for each begun block */                                              \
    TK_INLINE ptrdiff_t peaks_##NAME##_body(const REAL *b, ptrdiff_t n, double *peaks)           \
    {                                                                                            \
        const ptrdiff_t block = peak_depth(n) * ROWS_PEAKS;                                      \
        ptrdiff_t m = 0, j = 0;                                                                  \
        for (; j + block <= n; j += block, m += ROWS_PEAKS) {                                    \
            REAL high[ROWS_PEAKS];                                                               \
            for (int i = 0; i < ROWS_PEAKS; i++)                                                 \
                high[i] = b[j + i];                                                              \
            for (ptrdiff_t e = ROWS_PEAKS; e < block; e += ROWS_PEAKS)                           \
                for (int i = 0; i < ROWS_PEAKS; i++)                                             \
                    high[i] = b[j + e + i] > high[i] ? b[j + e + i] : high[i];                   \
            for (int i = 0; i < ROWS_PEAKS; i++)                                                 \
                peaks[m + i] = high[i];                                                          \
        }                                                                                        \
        if (j == n)                                                                              \
            return m;                                                                            \
        for (int i = 0; i < ROWS_PEAKS; i++)                                                     \
            peaks[m + i] = -INFINITY;                                                            \
        for (ptrdiff_t i = 0; j + i < n; i++) {                                                  \
            double *peak = peaks + m + i % ROWS_PEAKS;                                           \
            *peak = b[j + i] > *peak ? b[j + i] : *peak;                                         \
        }                                                                                        \
        return m + ROWS_PEAKS;                                                                   \
    }                                                                                            \
                                                                                                 \
    /* As gather, reading only below the peaks above cut. No branch depends on the entries. */   \
    TK_INLINE ptrdiff_t gather_peaks_##NAME##_body(const REAL *b, ptrdiff_t n,                   \
                                                   const double *peaks, double cut,              \
                                                   double shift, double *kept)                   \
    {                                                                                            \
        const ptrdiff_t depth = peak_depth(n), block = depth * ROWS_PEAKS;                       \
        const ptrdiff_t whole = n - n % block, n_peaks = whole / depth;                          \
        ptrdiff_t m = 0, high[ROWS_HIGH];                                                        \
        for (ptrdiff_t p = 0; p < n_peaks;) {                                                    \
            const ptrdiff_t end = p + ROWS_HIGH < n_peaks ? p + ROWS_HIGH : n_peaks;             \
            ptrdiff_t n_high = 0;                                                                \
            for (; p < end; p++) {                                                               \
                high[n_high] = p;                                                                \
                n_high += peaks[p] > cut;                                                        \
            }                                                                                    \
            if (2 * n_high > ROWS_HIGH) { /* as well all of them */                              \
                const ptrdiff_t first = (end - 1) / ROWS_HIGH * ROWS_HIGH * depth;               \
                m += gather_##NAME##_body(b + first, end * depth - first, cut, shift, kept + m); \
                continue;                                                                        \
            }                                                                                    \
            for (ptrdiff_t h = 0; h < n_high; h++) {                                             \
                const REAL *v = b + high[h] / ROWS_PEAKS * block + high[h] % ROWS_PEAKS;         \
                for (ptrdiff_t e = 0; e < block; e += ROWS_PEAKS) {                              \
                    kept[m] = v[e] - shift;                                                      \
                    m += v[e] > cut;                                                             \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        return m + gather_##NAME##_body(b + whole, n - whole, cut, shift, kept + m);             \
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
    /* Tiles of s = x W stay in registers; the last one overlaps the one before. m >= width */   \
    TK_INLINE void combine_tiles_##NAME(const REAL *x, ptrdiff_t n, const REAL *w, ptrdiff_t m,  \
                                        REAL *s, const int width)                                \
    {                                                                                            \
        for (ptrdiff_t i = 0; i < m; i += width) {                                               \
            const ptrdiff_t first = i + width > m ? m - width : i;                               \
            REAL sum[ROWS_TILE] = {0};                                                           \
            for (ptrdiff_t j = 0; j < n; j++)                                                    \
                _Pragma("omp simd")                                                              \
                for (int e = 0; e < width; e++)                                                  \
                    sum[e] += x[j] * w[j * m + first + e];                                       \
            for (int e = 0; e < width; e++)                                                      \
                s[first + e] = sum[e];                                                           \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    /* s = x W, with the n rows of W of length m behind each other */                            \
    TK_INLINE void combine_##NAME##_body(const REAL *x, ptrdiff_t n, const REAL *w, ptrdiff_t m, \
                                         REAL *s)                                                \
    {                                                                                            \
        if (m >= ROWS_TILE)                                                                      \
            combine_tiles_##NAME(x, n, w, m, s, ROWS_TILE);                                      \
        else if (m >= ROWS_TILE / 4)                                                             \
            combine_tiles_##NAME(x, n, w, m, s, ROWS_TILE / 4);                                  \
        else                                                                                     \
            combine_tiles_##NAME(x, n, w, m, s, 1);                                              \
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
    /* OUT v = factor a; returns <s,v> */                                                        \
    TK_INLINE double scaled_dot_##NAME##_body(const REAL *restrict s, const REAL *restrict a,    \
                                              double factor, ptrdiff_t n, double *restrict v)    \
    {                                                                                            \
        double sum;                                                                              \
        ADD_UP(double, sum, n, TERM_SCALED);                                                     \
        return sum;                                                                              \
    }                                                                                            \
                                                                                                 \
    /* INOUT a: becomes -factor v. OUT d: the change, index: where it is not zero (n + 1        \
       entries); returns how often. Short rows are not listed: they return 0 or n. */            \
    TK_INLINE ptrdiff_t replace_##NAME##_body(const double *v, double factor, ptrdiff_t n,       \
                                              REAL *a, REAL *d, int32_t *index)                  \
    {                                                                                            \
        ptrdiff_t nonzero = 0;                                                                   \
        int64_t changed = 0;                                                                     \
        _Pragma("omp simd reduction(+ : changed)")                                               \
        for (ptrdiff_t j = 0; j < n; j++) {                                                      \
            const REAL next = (REAL)(-factor * v[j]);                                            \
            changed += next != a[j];                                                             \
            d[j] = next - a[j];                                                                  \
            a[j] = next;                                                                         \
        }                                                                                        \
        if (n < ROWS_LIST)                                                                       \
            return changed ? n : 0;                                                              \
        for (ptrdiff_t j = 0; j < n; j++) {                                                      \
            index[nonzero] = (int32_t)j;                                                         \
            nonzero += d[j] != 0;                                                                \
        }                                                                                        \
        return nonzero;                                                                          \
    }                                                                                            \
                                                                                                 \
    /* Whether all entries times headroom are finite */                                          \
    TK_INLINE int all_tame_##NAME##_body(const REAL *b, ptrdiff_t n, REAL headroom)              \
    {                                                                                            \
        REAL sum;                                                                                \
        ADD_UP(REAL, sum, n, TERM_NOTHING);                                                      \
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
    TK_DISPATCH(ptrdiff_t, pad_##NAME,                                                           \
                (const REAL *b, ptrdiff_t n, double shift, double *x), (b, n, shift, x))         \
    TK_DISPATCH(ptrdiff_t, peaks_##NAME, (const REAL *b, ptrdiff_t n, double *peaks),            \
                (b, n, peaks))                                                                   \
    TK_DISPATCH(ptrdiff_t, gather_peaks_##NAME,                                                  \
                (const REAL *b, ptrdiff_t n, const double *peaks, double cut, double shift,      \
                 double *kept),                                                                  \
                (b, n, peaks, cut, shift, kept))                                                 \
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
    TK_DISPATCH(double, scaled_dot_##NAME,                                                       \
                (const REAL *s, const REAL *a, double factor, ptrdiff_t n, double *v),           \
                (s, a, factor, n, v))                                                            \
    TK_DISPATCH(ptrdiff_t, replace_##NAME,                                                       \
                (const double *v, double factor, ptrdiff_t n, REAL *a, REAL *d, int32_t *index), \
                (v, factor, n, a, d, index))                                                     \
    TK_DISPATCH(int, all_tame_##NAME, (const REAL *b, ptrdiff_t n, REAL headroom),               \
                (b, n, headroom))

DEFINE_ROWS(float, f32)
DEFINE_ROWS(double, f64)

/* OUT n_wrong, n_finite, n_huge: how many entries are NaN or +inf; how many of the others are not
 * -inf, and how many of these have a magnitude above most. */
#define DEFINE_COUNT(REAL, NAME)                                                                 \
    TK_INLINE void count_##NAME##_body(const REAL *b, ptrdiff_t n, REAL most,                    \
                                       ptrdiff_t *n_wrong, ptrdiff_t *n_finite,                  \
                                       ptrdiff_t *n_huge)                                        \
    {                                                                                            \
        int64_t right = 0, finite = 0, tame = 0;                                                 \
        _Pragma("omp simd reduction(+ : right, finite, tame)")                                   \
        for (ptrdiff_t j = 0; j < n; j++) {                                                      \
            right += b[j] < (REAL)INFINITY;                                                      \
            finite += (b[j] < (REAL)INFINITY) & (b[j] > -(REAL)INFINITY);                        \
            tame += (b[j] <= most) & (b[j] >= -most);                                            \
        }                                                                                        \
        *n_wrong = n - right;                                                                    \
        *n_finite = finite;                                                                      \
        *n_huge = finite - tame;                                                                 \
    }                                                                                            \
    TK_DISPATCH(void, count_##NAME,                                                              \
                (const REAL *b, ptrdiff_t n, REAL most, ptrdiff_t *n_wrong, ptrdiff_t *n_finite, \
                 ptrdiff_t *n_huge),                                                             \
                (b, n, most, n_wrong, n_finite, n_huge))

DEFINE_COUNT(float, f32)
DEFINE_COUNT(double, f64)

TK_INLINE double sum_body(const double *b, ptrdiff_t n)
{
    double sum;
    ADD_UP(double, sum, n, TERM_ENTRY);
    return sum;
}

/* sum of b - shift, in parts: rounding adds up with their length and their number only */
TK_INLINE double sum_more_body(const double *b, ptrdiff_t n, double shift)
{
    double total = 0.0;
    for (; n > 0; b += ROWS_PART, n -= ROWS_PART) {
        double sum;
        ADD_UP(double, sum, n < ROWS_PART ? n : ROWS_PART, TERM_MORE);
        total += sum;
    }
    return total;
}

TK_INLINE double dot_body(const double *a, const double *b, ptrdiff_t n)
{
    double sum;
    ADD_UP(double, sum, n, TERM_PRODUCT);
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

/* scale <p,p> */
TK_INLINE double scaled_square_body(const double *p, ptrdiff_t n, double scale)
{
    double sum;
    ADD_UP(double, sum, n, TERM_SQUARE);
    return sum;
}

/* scale <p,b - p> */
TK_INLINE double scaled_rest_body(const double *p, const double *b, ptrdiff_t n, double scale)
{
    double sum;
    ADD_UP(double, sum, n, TERM_REST);
    return sum;
}

/* OUT others: (s_j - s_own + margin) scale for all j but own, in the order in which the last has
 * taken the place of own. others has m entries, but the last of them means nothing. Returns the sum
 * of their sizes, own's included. */
TK_INLINE double take_others_body(const double *restrict s, ptrdiff_t own, ptrdiff_t m,
                                  double margin, double scale, double *restrict others)
{
    const double own_score = s[own];
    double size;
    ADD_UP(double, size, m, TERM_OTHER);
    others[own] = others[m - 1];
    return size;
}

TK_DISPATCH(double, scaled_square, (const double *p, ptrdiff_t n, double scale), (p, n, scale))
TK_DISPATCH(double, scaled_rest,
            (const double *p, const double *b, ptrdiff_t n, double scale), (p, b, n, scale))
TK_DISPATCH(double, take_others,
            (const double *s, ptrdiff_t own, ptrdiff_t m, double margin, double scale,
             double *others),
            (s, own, m, margin, scale, others))

/* OUT maxima[i]: the largest of b[i], b[i + width], b[i + 2 width], ...; n >= width, a multiple of
 * ROWS_LANES */
TK_INLINE void strided_maxima_body(const double *b, ptrdiff_t n, ptrdiff_t width, double *maxima)
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

TK_DISPATCH(void, strided_maxima,
            (const double *b, ptrdiff_t n, ptrdiff_t width, double *maxima), (b, n, width, maxima))
TK_DISPATCH(double, sum, (const double *b, ptrdiff_t n), (b, n))
TK_DISPATCH(double, sum_more, (const double *b, ptrdiff_t n, double shift), (b, n, shift))
TK_DISPATCH(double, dot, (const double *a, const double *b, ptrdiff_t n), (a, b, n))
TK_DISPATCH(double, max_abs, (const double *b, ptrdiff_t n), (b, n))

/* What a knapsack needs to know of its entries at a threshold t: the sum of clip(b - t, lo, hi),
 * and how many entries are strictly between their bounds or at the upper one. Comparisons are of
 * t with the breakpoints b - lo and b - hi. */
TK_INLINE double clipped_each_body(const double *b, const double *lo, const double *hi, ptrdiff_t n,
                                   double t, ptrdiff_t *n_free, ptrdiff_t *n_upper)
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

/* The same with 0 and cap as the bounds of all entries. */
TK_INLINE double clipped_shared_body(const double *b, double cap, ptrdiff_t n, double t,
                                     ptrdiff_t *n_free, ptrdiff_t *n_upper)
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

TK_DISPATCH(double, clipped_shared,
            (const double *b, double cap, ptrdiff_t n, double t, ptrdiff_t *n_free,
             ptrdiff_t *n_upper),
            (b, cap, n, t, n_free, n_upper))
TK_DISPATCH(double, clipped_each,
            (const double *b, const double *lo, const double *hi, ptrdiff_t n, double t,
             ptrdiff_t *n_free, ptrdiff_t *n_upper),
            (b, lo, hi, n, t, n_free, n_upper))

/* The entries around t: how many are above it and how many not below, the sum of what the former
 * have more than t, the smallest of them, and the largest of those below. */
typedef struct {
    double n_above, n_from, sum, above, below;
} Around;

TK_INLINE Around look_around_body(const double *b, ptrdiff_t n, double t)
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

TK_DISPATCH(Around, look_around, (const double *b, ptrdiff_t n, double t), (b, n, t))

/* From a t where no entry is between 0 and cap and the sum misses its total by excess: the root if
 * only the next entry moves. Infinite if there is none. */
TK_INLINE double leave_plateau_body(const double *b, double cap, ptrdiff_t n, double t,
                                    double excess)
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

TK_DISPATCH(double, leave_plateau,
            (const double *b, double cap, ptrdiff_t n, double t, double excess),
            (b, cap, n, t, excess))

/* The root of a knapsack with bounds 0 and cap lies between left and right. OUT n_free, n_upper: how
 * many entries are certain to be between the bounds or at the cap, sum_free: the sum of the former,
 * kept (may be b): the entries that may still be either; returns how many. */
TK_INLINE int is_open(double v, double cap, double left, double right)
{
    return ((v > left) & (v < right)) | ((v - cap > left) & (v - cap < right));
}

TK_INLINE ptrdiff_t settle_shared_body(const double *b, ptrdiff_t n, double cap, double left,
                                       double right, ptrdiff_t *n_free, ptrdiff_t *n_upper,
                                       double *sum_free, double *kept)
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
    *n_upper = upper;
    *n_free = inside;
    *sum_free = sum;
    for (; j + ROWS_SKIP <= n; j += ROWS_SKIP) {
        int64_t any = 0;
#pragma omp simd reduction(| : any)
        for (ptrdiff_t i = 0; i < ROWS_SKIP; i++)
            any |= is_open(b[j + i], cap, left, right);
        if (any)
            for (ptrdiff_t i = 0; i < ROWS_SKIP; i++) {
                double v = b[j + i];
                kept[m] = v;
                m += is_open(v, cap, left, right);
            }
    }
    for (; j < n; j++) {
        double v = b[j];
        kept[m] = v;
        m += is_open(v, cap, left, right);
    }
    return m;
}

TK_DISPATCH(ptrdiff_t, settle_shared,
            (const double *b, ptrdiff_t n, double cap, double left, double right,
             ptrdiff_t *n_free, ptrdiff_t *n_upper, double *sum_free, double *kept),
            (b, n, cap, left, right, n_free, n_upper, sum_free, kept))

#endif
