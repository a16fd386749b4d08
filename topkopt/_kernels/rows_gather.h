/* The maximum of a row and the entries near it, as doubles. rows.h includes this file once for each
 * type.
 */

TK_DISPATCH(double, NAMED(max), (const REAL *b, ptrdiff_t n), (b, n))
{
    REAL m = b[0];
#pragma omp simd reduction(max : m) simdlen(16)
    for (ptrdiff_t j = 1; j < n; j++)
        m = b[j] > m ? b[j] : m;
    return m;
}

/* Appends the entries b[0], b[stride], ..., before b[n], that are above cut to the m in kept, minus
 * shift, and returns how many there are then. Every entry is written and only m depends on the
 * comparison, for no processor predicts which entries are above. */
TK_INLINE ptrdiff_t NAMED(append)(const REAL *b, ptrdiff_t n, ptrdiff_t stride, double cut,
                                  double shift, double *kept, ptrdiff_t m)
{
    for (ptrdiff_t j = 0; j < n; j += stride) {
        const REAL v = b[j];
        kept[m] = v - shift;
        m += v > cut;
    }
    return m;
}

/* Writes the entries above cut to kept, minus shift and in order, and returns their number.
 * kept needs room for n entries, and may be b. */
TK_DISPATCH(ptrdiff_t, NAMED(gather),
            (const REAL *b, ptrdiff_t n, double cut, double shift, double *kept),
            (b, n, cut, shift, kept))
{
    ptrdiff_t m = 0, j = 0;
    for (; j + ROWS_SKIP <= n; j += ROWS_SKIP) {
        int64_t above = 0;
#pragma omp simd reduction(+ : above)
        for (ptrdiff_t i = 0; i < ROWS_SKIP; i++)
            above += b[j + i] > cut;
        if (above == 0)
            continue;
        if (above == ROWS_SKIP) {
            for (ptrdiff_t i = 0; i < ROWS_SKIP; i++)
                kept[m + i] = b[j + i] - shift;
            m += ROWS_SKIP;
            continue;
        }
        m = NAMED(append)(b + j, ROWS_SKIP, 1, cut, shift, kept, m);
    }
    return NAMED(append)(b + j, n - j, 1, cut, shift, kept, m);
}

/* Writes b - shift to x, followed by -inf up to a multiple of ROWS_PAD, and returns that length.
 * x may be b if there is room. */
TK_DISPATCH(ptrdiff_t, NAMED(pad),
            (const REAL *b, ptrdiff_t n, double shift, double *x), (b, n, shift, x))
{
#pragma omp simd
    for (ptrdiff_t j = 0; j < n; j++)
        x[j] = b[j] - shift;
    for (; n % ROWS_PAD; n++)
        x[n] = -INFINITY;
    return n;
}
