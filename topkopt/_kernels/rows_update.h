/* What a step of the solver does with rows of scores, weights and dual variables. rows.h includes
 * this file once for each type.
 */

/* y += a x */
TK_DISPATCH(void, NAMED(axpy), (ptrdiff_t n, REAL a, const REAL *x, REAL *y), (n, a, x, y))
{
#pragma omp simd
    for (ptrdiff_t j = 0; j < n; j++)
        y[j] += a * x[j];
}

/* s = x W, tile by tile, so that the sums stay in registers. The width of a tile is a constant
 * wherever this is inlined, and at most m. The last tile ends with the row and so may overlap the
 * one before, whose sums it finds once more. */
TK_INLINE void NAMED(combine_tiles)(const REAL *x, ptrdiff_t n, const REAL *w, ptrdiff_t m, REAL *s,
                                    const int width)
{
    for (ptrdiff_t i = 0; i < m; i += width) {
        const ptrdiff_t first = i + width > m ? m - width : i;
        REAL sum[ROWS_TILE] = {0};
        for (ptrdiff_t j = 0; j < n; j++)
#pragma omp simd
            for (int e = 0; e < width; e++)
                sum[e] += x[j] * w[j * m + first + e];
        for (int e = 0; e < width; e++)
            s[first + e] = sum[e];
    }
}

/* s = x W, where the n rows of W have the length m and stand behind each other. */
TK_DISPATCH(void, NAMED(combine),
            (const REAL *x, ptrdiff_t n, const REAL *w, ptrdiff_t m, REAL *s), (x, n, w, m, s))
{
    if (m >= ROWS_TILE)
        NAMED(combine_tiles)(x, n, w, m, s, ROWS_TILE);
    else if (m >= ROWS_TILE / 4)
        NAMED(combine_tiles)(x, n, w, m, s, ROWS_TILE / 4);
    else
        NAMED(combine_tiles)(x, n, w, m, s, 1);
}

/* W += x d', for the same W. */
TK_DISPATCH(void, NAMED(spread),
            (const REAL *x, ptrdiff_t n, const REAL *d, ptrdiff_t m, REAL *w), (x, n, d, m, w))
{
    for (ptrdiff_t j = 0; j < n; j++)
        TK_BODY(NAMED(axpy))(m, x[j], d, w + j * m);
}

/* q = s - factor a */
TK_DISPATCH(void, NAMED(without),
            (const REAL *s, double factor, const REAL *a, ptrdiff_t n, double *q),
            (s, factor, a, n, q))
{
#pragma omp simd
    for (ptrdiff_t j = 0; j < n; j++)
        q[j] = s[j] - factor * a[j];
}

/* Writes factor a to v and returns <s,v>; rows_sums.h says why the sum is taken in parts. */
TK_DISPATCH(double, NAMED(scaled_dot),
            (const REAL *restrict s, const REAL *restrict a, double factor, ptrdiff_t n,
             double *restrict v),
            (s, a, factor, n, v))
{
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++) {
            v[j + i] = factor * a[j + i];
            part[i] += s[j + i] * v[j + i];
        }
    for (; j < n; j++) {
        v[j] = factor * a[j];
        part[0] += s[j] * v[j];
    }
    return ROWS_TOTAL(part);
}

/* Replaces a by -factor v and writes its change to d. The positions where d is not zero go to
 * index, which needs room for n + 1 of them, and their number is returned. Rows shorter than
 * ROWS_LIST are not listed: for them the result is n if anything has changed, and 0 otherwise. */
TK_DISPATCH(ptrdiff_t, NAMED(replace),
            (const double *v, double factor, ptrdiff_t n, REAL *a, REAL *d, int32_t *index),
            (v, factor, n, a, d, index))
{
    ptrdiff_t nonzero = 0;
    int64_t changed = 0;
#pragma omp simd reduction(+ : changed)
    for (ptrdiff_t j = 0; j < n; j++) {
        const REAL next = (REAL)(-factor * v[j]);
        changed += next != a[j];
        d[j] = next - a[j];
        a[j] = next;
    }
    if (n < ROWS_LIST)
        return changed ? n : 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        index[nonzero] = (int32_t)j;
        nonzero += d[j] != 0;
    }
    return nonzero;
}
