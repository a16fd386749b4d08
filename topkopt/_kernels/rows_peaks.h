/* A short index of a row, its peaks, and the search for large entries with its help. rows.h
 * includes this file once for each type, after rows_gather.h.
 *
 * A row is cut into blocks of ROWS_PEAKS * depth entries. Peak i of a block is the largest of its
 * entries i, i + ROWS_PEAKS, i + 2 ROWS_PEAKS, ..., so that a block is read as vectors. Who looks
 * for the entries above some cut reads the peaks, and then only the entries below the peaks that
 * are above it.
 */

/* Writes the peaks and returns their number: ROWS_PEAKS for each block, the last of which may be
 * incomplete. Peaks without entries are -inf. */
TK_DISPATCH(ptrdiff_t, NAMED(peaks), (const REAL *b, ptrdiff_t n, double *peaks), (b, n, peaks))
{
    const ptrdiff_t block = peak_depth(n) * ROWS_PEAKS;
    ptrdiff_t m = 0, j = 0;
    for (; j + block <= n; j += block, m += ROWS_PEAKS) {
        REAL high[ROWS_PEAKS];
        for (int i = 0; i < ROWS_PEAKS; i++)
            high[i] = b[j + i];
        for (ptrdiff_t e = ROWS_PEAKS; e < block; e += ROWS_PEAKS)
            for (int i = 0; i < ROWS_PEAKS; i++)
                high[i] = b[j + e + i] > high[i] ? b[j + e + i] : high[i];
        for (int i = 0; i < ROWS_PEAKS; i++)
            peaks[m + i] = high[i];
    }
    if (j == n)
        return m;
    for (int i = 0; i < ROWS_PEAKS; i++)
        peaks[m + i] = -INFINITY;
    for (ptrdiff_t i = 0; j + i < n; i++) {
        double *peak = peaks + m + i % ROWS_PEAKS;
        *peak = b[j + i] > *peak ? b[j + i] : *peak;
    }
    return m + ROWS_PEAKS;
}

/* As gather, but in no particular order. Where more than half of the peaks are above cut, reading
 * the stretch from end to end is faster than jumping to and fro. The incomplete block at the end
 * is always read. */
TK_DISPATCH(ptrdiff_t, NAMED(gather_peaks),
            (const REAL *b, ptrdiff_t n, const double *peaks, double cut, double shift,
             double *kept),
            (b, n, peaks, cut, shift, kept))
{
    const ptrdiff_t depth = peak_depth(n), block = depth * ROWS_PEAKS;
    const ptrdiff_t whole = n - n % block, n_peaks = whole / depth;
    ptrdiff_t m = 0, high[ROWS_HIGH];
    for (ptrdiff_t first = 0; first < n_peaks; first += ROWS_HIGH) {
        const ptrdiff_t end = first + ROWS_HIGH < n_peaks ? first + ROWS_HIGH : n_peaks;
        ptrdiff_t n_high = 0;
        for (ptrdiff_t p = first; p < end; p++) {
            high[n_high] = p;
            n_high += peaks[p] > cut;
        }
        if (2 * n_high > ROWS_HIGH) {
            m += TK_BODY(NAMED(gather))(b + first * depth, (end - first) * depth, cut, shift,
                                        kept + m);
            continue;
        }
        for (ptrdiff_t h = 0; h < n_high; h++) {
            const REAL *below = b + high[h] / ROWS_PEAKS * block + high[h] % ROWS_PEAKS;
            m = NAMED(append)(below, block, ROWS_PEAKS, cut, shift, kept, m);
        }
    }
    return m + TK_BODY(NAMED(gather))(b + whole, n - whole, cut, shift, kept + m);
}
