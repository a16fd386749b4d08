"""Continuous quadratic knapsacks by variable fixing.

Solve    min_x 1/2 |x - b|^2 + bias/2 <1,x>^2   s.t.  lo <= x <= hi,  <1,x> = r  (or <= r).
The solution is  x = clip(b - t, lo, hi),  with t the root of the decreasing function
    sum_j clip(b_j - t, lo_j, hi_j) - total - slope t,                                          (1)
which is piecewise linear. If the sum is r, slope = 0 and total = r; if it is less, slope = 1/bias
and total = 0.

The root is bracketed; an entry whose clip no longer depends on where in the bracket the root is
leaves the list for good (Kiwiel 2008), so the work is a few passes over ever shorter lists. The
readable twin is reference/knapsack.py.
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, fabs

from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport (Threshold, clip_row, clipped_sum, gather_above,
                                      gather_below_peaks, row_max, row_peaks, row_sum, scratch,
                                      strided_maxima)

cdef enum:
    # The maxima of parts of a row give a lower bound on its threshold. Their number is a multiple
    # of this, as strided_maxima wants it.
    PARTS = 32
    # Where the root is more than so many totals from the shift, entries have lost digits of x. Its
    # sum has the rounding of the root once for each free entry: four of them count as few.
    FAR = 16
    FEW_FREE = 4
    # Up to this length, reading a list once more is faster than shortening it.
    SHORT = 64
    # After so many Newton steps every other step is to a breakpoint in the middle of the list, so
    # that the list shrinks geometrically.
    NEWTON_STEPS = 8
    # The shift is moved at most so many times: from a guess far off to one edge of a plateau, to
    # the other, and to its middle.
    REBASES = 4

# Sums of caps that differ by no more than this share of them are equal up to rounding.
cdef double ROUNDING = 4 * DBL_EPSILON


cdef extern from "knapsack.h" nogil:
    double clipped_shared(const double* b, double cap, Py_ssize_t n, double t,
                          Py_ssize_t* n_free, Py_ssize_t* n_upper)
    double leave_plateau(const double* b, double cap, Py_ssize_t n, double t, double excess)
    double clipped_each(const double* b, const double* lo, const double* hi, Py_ssize_t n,
                        double t, Py_ssize_t* n_free, Py_ssize_t* n_upper)
    ctypedef struct Certain "knapsack_certain":
        Py_ssize_t n_free
        double sum_free
        Py_ssize_t n_upper
    Py_ssize_t settle_shared(const double* b, Py_ssize_t n, double cap, double left, double right,
                             Certain* certain, double* kept)


# The entries whose place is still open, and their bounds. They are shared, which means that they
# are 0 and cap for all entries, or each entry has its own in lo and hi.
cdef struct OpenList:
    const double* entries
    Py_ssize_t n
    bint shared
    double cap
    double* lo
    double* hi
    double* kept        # where the entries go when the list is shortened; may be entries


# What is known of the entries that have left the list.
cdef struct Settled:
    double total        # the sum of the bounds that entries sit at, minus the wanted total
    double sum_free     # the sum of b over the entries between their bounds
    Py_ssize_t n_free
    Py_ssize_t n_upper


cdef inline double middle(double a, double b, double c) noexcept nogil:
    return max(min(a, b), min(max(a, b), c))


cdef inline double breakpoint_inside(OpenList row, Py_ssize_t j, double left,
                                     double right) noexcept nogil:
    # Returns the t between left and right at which an open entry reaches or leaves a bound.
    cdef double b = row.entries[j], lo = 0.0 if row.shared else row.lo[j]
    return b - lo if left < b - lo < right else b - (row.cap if row.shared else row.hi[j])


cdef Py_ssize_t settle_each(const double* entries, double* b, double* lo, double* hi,
                            Py_ssize_t n, double left, double right,
                            Settled* settled) noexcept nogil:
    # The root is between left and right. OUT b (may be entries); INOUT lo, hi: the entries that
    # remain open, and their bounds; returns their number. There are no branches, because which
    # entries settle is as good as random to the processor.
    cdef Py_ssize_t j, kept = 0
    cdef double v, low, high, zero = 0.0
    cdef bint at_lower, at_upper, is_free
    for j in range(n):
        v = entries[j]
        low = lo[j]
        high = hi[j]
        at_lower = v - low <= left
        at_upper = v - high >= right
        is_free = (v - low >= right) & (v - high <= left)
        settled.total += low if at_lower else zero
        settled.total += high if at_upper else zero
        settled.sum_free += v if is_free else zero
        settled.n_upper += at_upper
        settled.n_free += is_free
        b[kept] = v
        lo[kept] = low
        hi[kept] = high
        kept += 1 - (at_lower | at_upper | is_free)
    return kept


cdef inline Py_ssize_t settle(OpenList row, double left, double right,
                              Settled* settled) noexcept nogil:
    # Writes the entries that remain open if the root is between left and right to `kept`, and
    # returns their number. (The list is passed by value, so that its fields stay in registers.)
    cdef Py_ssize_t n_kept
    cdef Certain certain
    if not row.shared:
        return settle_each(row.entries, row.kept, row.lo, row.hi, row.n, left, right, settled)
    n_kept = settle_shared(row.entries, row.n, row.cap, left, right, &certain, row.kept)
    if certain.n_upper > 0:  # Without this, an infinite cap times 0 would be NaN.
        settled.total += certain.n_upper * row.cap
    settled.sum_free += certain.sum_free
    settled.n_upper += certain.n_upper
    settled.n_free += certain.n_free
    return n_kept


cdef inline double clipped_at(OpenList row, double t, Py_ssize_t* n_free,
                              Py_ssize_t* n_upper) noexcept nogil:
    # Returns the sum of clip(b - t, lo, hi) over the list, and adds to the two counts.
    if row.shared:
        return clipped_shared(row.entries, row.cap, row.n, t, n_free, n_upper)
    return clipped_each(row.entries, row.lo, row.hi, row.n, t, n_free, n_upper)


cdef inline double fix_variables(OpenList row, double total, double slope, double guess,
                                 Py_ssize_t enough) noexcept nogil:
    # Returns the root of (1). IN guess: where to start, NaN for the root of the piece on which
    # every entry is free; enough: a lower bound of the root will do once so few entries lie above
    # it, -1 for the root itself. TEMP the memory of the list. Every comparison is of t with a
    # breakpoint b - lo or b - hi, rounded the same way each time, so that an entry that is not
    # settled always has a breakpoint strictly inside the bracket. A piece of the function is told
    # by how many entries are free and how many sit at hi: both "free or at hi" and "at hi" shrink
    # as t grows, so equal counts mean equal sets.
    cdef double left = -INFINITY, right = INFINITY, excess, rate, t = guess, root
    cdef double size = fabs(total) if slope == 0.0 else 0.0  # of the solution
    cdef Py_ssize_t n_free, n_upper, n_settled, piece_free = row.n, piece_upper = 0, steps = 0
    cdef bint use_root
    cdef Settled settled = Settled(-total, 0.0, 0, 0)
    if t != t:
        t = (row_sum(row.entries, row.n) - total) / (row.n + slope)
    else:
        piece_free = -1
    while True:
        n_free = settled.n_free
        n_upper = settled.n_upper
        excess = clipped_at(row, t, &n_free, &n_upper)
        excess += settled.total + (settled.sum_free - settled.n_free * t) - slope * t
        rate = n_free + slope
        root = t + excess / rate if rate > 0 else INFINITY
        if excess == 0.0:
            return t
        if excess > 0.0:
            if n_free + n_upper <= enough:
                return t
            left = t
            n_settled = row.n - (n_free - settled.n_free) - (n_upper - settled.n_upper)
        else:
            right = t
            n_settled = n_upper - settled.n_upper
        # The last step has ended on the piece it was computed for, up to rounding. One that came
        # from far off has the rounding of where it came from, and is repeated.
        if (n_free == piece_free and n_upper == piece_upper
                and fabs(root - t) <= 16 * DBL_EPSILON * (fabs(t) + fabs(root) + size)):
            return root

        steps += 1
        if rate == 0.0 and row.shared and steps < NEWTON_STEPS:
            root = leave_plateau(row.entries, row.cap, row.n, t, excess)
        use_root = left < root < right and (steps < NEWTON_STEPS or steps % 2)
        # A long list is shortened once an eighth of it, at most, would remain.
        if not use_root or (row.n > SHORT and 8 * n_settled >= 7 * row.n):
            row.n = settle(row, left, right, &settled)
            row.entries = row.kept
            if row.n == 0 and settled.n_free + slope > 0:
                return (settled.total + settled.sum_free) / (settled.n_free + slope)
        if use_root:
            t = root
            piece_free = n_free if rate > 0.0 else -1
            piece_upper = n_upper
            continue
        piece_free = -1
        if row.n > 0:
            t = middle(breakpoint_inside(row, 0, left, right),
                       breakpoint_inside(row, row.n // 2, left, right),
                       breakpoint_inside(row, row.n - 1, left, right))
        if row.n == 0 or not left < t < right:
            # The function is flat at zero, or the bracket is down to neighbouring numbers, or the
            # bounds of an entry are so near to each other that it jumps at an end of the bracket.
            if right == INFINITY or (row.n == 0 and left > -INFINITY
                                     and settled.total < -ROUNDING * fabs(total)):
                return left
            return right


cdef double fix_boxed(double* b, double* lo, double* hi, Py_ssize_t n,
                      double total, double slope) noexcept nogil:
    return fix_variables(OpenList(b, n, False, INFINITY, lo, hi, b), total, slope, NAN, -1)


# The equation (1) when all bounds are 0 and cap.
cdef struct Equation:
    double cap
    double total
    double slope


cdef double fix_capped(const double* b, Py_ssize_t n, const Equation* of, double shift,
                       double guess, double* temp, Py_ssize_t enough=-1) noexcept nogil:
    # Returns the root minus shift. IN b: entries minus shift. TEMP temp: n doubles (may be b)
    return fix_variables(OpenList(b, n, True, of.cap, NULL, NULL, temp),
                         of.total + of.slope * shift, of.slope, guess, enough)


cdef Py_ssize_t gather_candidates(const real* b, Py_ssize_t n, const Equation* of, double* kept,
                                  Threshold* lower) noexcept nogil:
    # OUT kept: a short superset of the entries above the root, minus the largest of all; returns
    # their number. OUT lower: a bound on the root and on the kept entries; its shift is the largest
    # entry. TEMP kept[n:2 n]
    # With fewer entries the sum in (1) is smaller, so the root of any subset is a lower bound. That
    # of the maxima of parts is nearly tight, as these are most of the largest entries.
    cdef Py_ssize_t m, n_peaks, parts = PARTS
    cdef double* peaks = kept + n
    lower.offset = -INFINITY
    if of.total > of.cap:  # At least so many entries are positive: take twice as many parts.
        parts += <Py_ssize_t>(2 * min(of.total / of.cap, <double>n)) // PARTS * PARTS
    if 4 * parts > n:
        lower.shift = row_max(b, n)
        return gather_above(b, n, -INFINITY, lower.shift, kept)
    n_peaks = row_peaks(b, n, peaks)
    if 4 * parts > n_peaks:
        lower.shift = row_max(<const double*>peaks, n_peaks)
        m = gather_above(<const double*>peaks, n_peaks, -INFINITY, lower.shift, kept)
    else:
        strided_maxima(peaks, n_peaks, parts, kept)
        lower.shift = row_max(<const double*>kept, parts)
        m = gather_above(<const double*>kept, parts, -INFINITY, lower.shift, kept)
    if of.slope > 0.0 or m * of.cap > of.total:
        lower.offset = fix_capped(kept, m, of, lower.shift, NAN, kept, m // 2)
        # The bound is known up to rounding, and no entry may be lost.
        lower.offset -= 2 * DBL_EPSILON * (fabs(lower.shift) + fabs(lower.offset))
    return gather_below_peaks(b, n, peaks, lower.shift + lower.offset, lower.shift, kept)


cdef Threshold threshold_anywhere(const real* b, Py_ssize_t n, const Equation* of, double* work,
                                  Py_ssize_t* n_kept) noexcept nogil:
    # Returns the root, wherever it is. OUT work, n_kept: as in capped_threshold
    cdef Threshold t
    cdef double offset
    n_kept[0] = gather_candidates(b, n, of, work, &t)
    offset = fix_capped(work, n_kept[0], of, t.shift, NAN, work + n)
    # Where the kept entries all reach the cap, any smaller root would do for them, but not for the
    # others.
    t.offset = max(offset, t.offset)
    return t


cdef inline bint keeps_digits(const double* entries, Py_ssize_t n, double cap, double size,
                              double offset) noexcept nogil:
    # Whether an offset, or the sum of x where all its free entries have the rounding of that
    # offset, leaves the digits of a solution of this size. IN entries: minus the shift
    cdef Py_ssize_t n_free = 0, n_upper = 0
    if fabs(offset) * max(n, <Py_ssize_t>FEW_FREE) <= FAR * FEW_FREE * size:
        return True
    clipped_shared(entries, cap, n, offset, &n_free, &n_upper)
    return fabs(offset) * max(n_free, <Py_ssize_t>FEW_FREE) <= FAR * FEW_FREE * size


cdef bint threshold_near(const real* b, Py_ssize_t n, const Equation* of, double size,
                         double doubt, double* work, Py_ssize_t* n_kept,
                         Threshold* t) noexcept nogil:
    # Looks only at the entries from a little below a guess of the root, and relative to it. Returns
    # whether these were enough. IN size: the sum of x, or a bound on it; doubt: the rounding that
    # the guess may have. INOUT t: its shift is the guess; becomes the root. OUT work, n_kept: as in
    # capped_threshold
    # Of short rows most entries are looked at: entries that settle early cost less than a second
    # search.
    cdef double cap = of.cap, short_way = min(cap, size)
    cdef double margin = max(doubt, 0.5 * short_way if n > SHORT else FAR * size)
    cdef int rebase
    for rebase in range(REBASES):
        if rebase > 0:
            t.shift += t.offset  # Relative to a guess so far off, entries lost digits.
        n_kept[0] = gather_above(b, n, t.shift - margin, t.shift, work)
        if of.slope == 0.0 and n_kept[0] * cap < of.total * (1.0 - ROUNDING):
            return False
        if of.slope == 0.0 and n_kept[0] * cap <= of.total * (1.0 + ROUNDING):
            # All of them are at the cap. A quarter of a cap below the edge of that plateau, they
            # stay there when the row changes a little.
            t.offset = min(0.0, leave_plateau(work, cap, n_kept[0], -INFINITY, 0.0) - 0.25 * cap)
        else:
            t.offset = fix_capped(work, n_kept[0], of, t.shift, 0.0, work + n)
        if not t.offset >= -margin:
            return False
        if fabs(t.offset) <= short_way and keeps_digits(work, n_kept[0], cap, size, t.offset):
            break
    return True


cdef Threshold threshold_again(const real* b, Py_ssize_t n, const Equation* of, double size,
                               Threshold t, double* work, Py_ssize_t* n_kept) noexcept nogil:
    # Returns the root, which entries far from the shift of t have given without its last digits.
    # OUT work, n_kept: as in capped_threshold
    cdef Threshold near
    cdef double doubt = ROUNDING * (fabs(t.shift) + fabs(t.offset))
    near.shift = t.shift + t.offset
    if threshold_near(b, n, of, size, doubt, work, n_kept, &near):
        return near
    return threshold_anywhere(b, n, of, work, n_kept)


cdef Threshold capped_threshold(const real* b, Py_ssize_t n, double cap, double total,
                                double* start, double* work, Py_ssize_t* n_kept) noexcept nogil:
    cdef Threshold t
    cdef Equation equation = Equation(cap, total, 0.0)
    cdef Py_ssize_t n_free, n_upper
    if start != NULL:
        t.shift = start[0]
    if start == NULL or not threshold_near(b, n, &equation, total, 0.0, work, n_kept, &t):
        t = threshold_anywhere(b, n, &equation, work, n_kept)
        if ((start != NULL and -t.offset > min(cap, total))
                or not keeps_digits(work, n_kept[0], cap, total, t.offset)):
            # Entries far below the largest lost digits when that was subtracted, and so did their
            # sums, on which x depends. So the search is repeated near the root it found. On a
            # plateau that is the upper end, which is near to the entries at the cap.
            n_free = n_upper = 0
            clipped_shared(work, cap, n_kept[0], t.offset, &n_free, &n_upper)
            if n_free == 0 and fabs(n_upper * cap - total) <= ROUNDING * total:
                t.offset = max(t.offset, leave_plateau(work, cap, n_kept[0], t.offset, 0.0))
            t = threshold_again(b, n, &equation, total, t, work, n_kept)
    if start != NULL:
        start[0] = t.shift + t.offset
    return t


cdef double biased_offset(const double* entries, Py_ssize_t n, double shift, double bias,
                          double* temp) noexcept nogil:
    cdef Equation equation
    if bias == 0.0 or n == 0:
        return -shift
    equation = Equation(INFINITY, shift / bias, 1.0 / bias)
    return fix_capped(entries, n, &equation, 0.0, NAN, temp)


cdef Threshold knapsack_threshold(const real* b, Py_ssize_t n, const CappedSet* onto, double bias,
                                  double* start, double* work) noexcept nogil:
    cdef Threshold t, full
    cdef Equation equation
    cdef Py_ssize_t m
    cdef double lo = onto.lo, hi = onto.hi, total = onto.total
    cdef bint equality = onto.equality
    # In terms of x - lo, the bounds are 0 and cap, and the sum is at most `spare`. It is `spare` if
    # the problem is tight, which is certain if the sum at the smallest possible t says so. With a
    # start it is faster to search and see.
    cdef double cap = hi - lo, spare = total - n * lo, enough = 1.0 - ROUNDING
    cdef bint tight = equality or n * hi >= total * enough, certain = tight and start == NULL
    # By stationarity t >= bias <1,x>, so this is the smallest t at which the sum may be total.
    full.shift = 0.0
    full.offset = bias * total + lo
    if certain and not equality:
        tight = clipped_sum(b, n, full, cap) >= spare * enough
    if spare <= 0.0:
        t.shift = row_max(b, n)
        t.offset = -lo
        return t
    if tight:
        t = capped_threshold(b, n, cap, spare, start, work, &m)
        t.offset -= lo
        if equality or t.shift + t.offset >= bias * total:
            return t
        if certain:  # A smaller t has the same sum, so there is a plateau in between.
            full.offset -= lo
            return full
    if bias > 0.0:
        # The sum stays below total, and t = bias <1,x>: it is the root with slope 1/bias.
        equation = Equation(cap, -lo / bias - n * lo, 1.0 / bias)
        t = threshold_anywhere(b, n, &equation, work, &m)
        if -t.offset > FAR * spare:
            t = threshold_again(b, n, &equation, spare, t, work, &m)
        t.offset -= lo
    else:
        t.shift = 0.0
        t.offset = 0.0
    return t


cdef Py_ssize_t load_boxed(const real* b, const double* lo, const double* hi, Py_ssize_t n,
                           double shift, double* work) noexcept nogil:
    # OUT work: the finite entries minus shift, and n and 2 n behind them their lower and their
    # upper bounds. Returns the number of finite entries.
    cdef Py_ssize_t j, m = 0
    for j in range(n):
        if b[j] > -INFINITY:
            work[m] = b[j] - shift
            work[n + m] = lo[j]
            work[2 * n + m] = hi[j]
            m += 1
    return m


cdef Threshold rebased_threshold(const real* b, const double* lo, const double* hi, Py_ssize_t n,
                                 double total, double slope, double size,
                                 double* work) noexcept nogil:
    # Returns the root of (1) over the finite entries. Relative to a shift that is many sizes off,
    # entries have lost digits of the solution: then the root becomes the shift of another search.
    cdef Threshold t
    cdef Py_ssize_t m
    cdef int i
    t.shift = row_max(b, n)
    for i in range(REBASES):
        if i > 0:
            t.shift += t.offset
        m = load_boxed(b, lo, hi, n, t.shift, work)
        t.offset = fix_boxed(work, work + n, work + 2 * n, m, total + slope * t.shift, slope)
        if fabs(t.offset) <= FAR * size:
            break
    return t


cdef Threshold boxed_threshold(const real* b, const double* lo, const double* hi, Py_ssize_t n,
                               double total, bint equality, double bias,
                               double* work) noexcept nogil:
    # As knapsack_threshold, with bounds of its own for each entry. Entries of -inf sit at their
    # lower bounds. TEMP work: 3 n
    cdef Threshold t
    cdef Py_ssize_t j
    cdef double at_lower = 0.0, most = 0.0, size = fabs(total)
    for j in range(n):
        most += hi[j]
        size += fabs(lo[j])
        if b[j] == -INFINITY:
            at_lower += lo[j]
    t.shift = row_max(b, n)
    if equality or most > total:
        t = rebased_threshold(b, lo, hi, n, total - at_lower, 0.0, size, work)
        if equality or t.shift + t.offset >= bias * total:
            return t
    if bias > 0.0:
        return rebased_threshold(b, lo, hi, n, -at_lower, 1.0 / bias, size, work)
    t.shift = 0.0
    t.offset = 0.0
    return t


def project_capped_rows(const real[:, ::1] b, real[:, ::1] x, double lo, double hi, double total,
                        bint equality, double bias):
    """Project each row of b onto {lo <= x <= hi, <1,x> = total (or <= total)}; x may be b."""
    cdef Py_ssize_t i, n = b.shape[1]
    cdef CappedSet onto = CappedSet(lo, hi, total, equality)
    cdef double[::1] work = scratch(n * KNAPSACK_WORK)
    with nogil:
        for i in range(b.shape[0]):
            clip_row(&b[i, 0], &x[i, 0], n,
                     knapsack_threshold(&b[i, 0], n, &onto, bias, NULL, &work[0]), lo, hi)


def project_boxed_rows(const real[:, ::1] b, real[:, ::1] x, const double[:, ::1] lo,
                       const double[:, ::1] hi, double total, bint equality, double bias):
    """As `project_capped_rows`, with a lower and an upper bound for each entry."""
    cdef Py_ssize_t i, j, n = b.shape[1]
    cdef Threshold t
    cdef double[::1] work = scratch(n * 3)
    with nogil:
        for i in range(b.shape[0]):
            t = boxed_threshold(&b[i, 0], &lo[i, 0], &hi[i, 0], n, total, equality, bias, &work[0])
            for j in range(n):
                clip_row(&b[i, j], &x[i, j], 1, t, lo[i, j], hi[i, j])
