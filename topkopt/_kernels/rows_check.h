/* What a row holds besides ordinary numbers. rows.h includes this file once for each type. */

/* Whether every entry times headroom is finite. Zero times infinity is NaN, so the products times
 * zero add up to zero if and only if all are finite. rows_sums.h says why there are parts. */
TK_DISPATCH(int, NAMED(all_tame), (const REAL *b, ptrdiff_t n, REAL headroom), (b, n, headroom))
{
    REAL nothing[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++)
            nothing[i] += b[j + i] * headroom * 0;
    for (; j < n; j++)
        nothing[0] += b[j] * headroom * 0;
    return ROWS_TOTAL(nothing) == 0;
}

/* Counts the entries that are NaN or +inf (wrong), those that are finite, and of the latter those
 * with a magnitude above most (huge). NaN fails every comparison, so the loop counts entries that
 * pass one. */
TK_DISPATCH(void, NAMED(count),
            (const REAL *b, ptrdiff_t n, REAL most, ptrdiff_t *n_wrong, ptrdiff_t *n_finite,
             ptrdiff_t *n_huge),
            (b, n, most, n_wrong, n_finite, n_huge))
{
    int64_t right = 0, finite = 0, tame = 0;
#pragma omp simd reduction(+ : right, finite, tame)
    for (ptrdiff_t j = 0; j < n; j++) {
        right += b[j] < (REAL)INFINITY;
        finite += (b[j] < (REAL)INFINITY) & (b[j] > -(REAL)INFINITY);
        tame += (b[j] <= most) & (b[j] >= -most);
    }
    *n_wrong = n - right;
    *n_finite = finite;
    *n_huge = finite - tame;
}
