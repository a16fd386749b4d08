/* A row relative to a threshold, clipped. rows.h includes this file once for each type.
 *
 * The threshold is shift + offset, and (b - shift) - offset keeps digits that b - (shift + offset)
 * would lose: see Threshold in select.pxd.
 */

TK_INLINE double NAMED(clipped)(REAL entry, double shift, double offset, double lower, double upper)
{
    double v = (entry - shift) - offset;
    v = v > lower ? v : lower;
    return v < upper ? v : upper;
}

/* x = clip((b - shift) - offset, lower, upper), where x may be b. */
TK_DISPATCH(void, NAMED(clip),
            (const REAL *b, REAL *x, ptrdiff_t n, double shift, double offset, double lower,
             double upper),
            (b, x, n, shift, offset, lower, upper))
{
#pragma omp simd
    for (ptrdiff_t j = 0; j < n; j++)
        x[j] = (REAL)NAMED(clipped)(b[j], shift, offset, lower, upper);
}

/* The sum of clip((b - shift) - offset, 0, upper); rows_sums.h says why it is taken in parts. */
TK_DISPATCH(double, NAMED(clip_sum),
            (const REAL *b, ptrdiff_t n, double shift, double offset, double upper),
            (b, n, shift, offset, upper))
{
    double part[ROWS_PARTS] = {0};
    ptrdiff_t j = 0;
    for (; j + ROWS_PARTS <= n; j += ROWS_PARTS)
        for (int i = 0; i < ROWS_PARTS; i++)
            part[i] += NAMED(clipped)(b[j + i], shift, offset, 0.0, upper);
    for (; j < n; j++)
        part[0] += NAMED(clipped)(b[j], shift, offset, 0.0, upper);
    return ROWS_TOTAL(part);
}
