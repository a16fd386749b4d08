"""The top-k cone and the top-k simplices by path following.

Solve    min_x 1/2 |x - b|^2 + bias/2 s^2   s.t.  0 <= x_j <= s/k,  s = <1,x> <= r.
The solution is  x = clip(b - t, 0, u)  with u = s/k.

As u grows from 0 the entries split into U (at the cap), M (between) and L (zero); M starts at the
k-th largest entry and only ever grows, left into U and right into L. Between two mergers the
derivative of the optimal value with respect to u is linear in u: the path ends at its root. Its
twin is reference/topk.py.

Most short rows, and most rows whose solution is known from the last time, need not follow the path:
jumps from a guess of t and u come to rest at the solution. They are in topk.h, and derived in
reference/jumps.py; equations (1) to (5) below are those of that file.
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, fabs

from topkopt._kernels.knapsack cimport (CappedSet, biased_offset, capped_threshold,
                                        knapsack_threshold)
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport (Threshold, clip_row, clipped_sum, fill_row, gather_above,
                                      heap_pop, heapify, pad_row, row_max, scratch, strided_maxima)

cdef enum:
    # A long list is first solved for the maxima of parts of it. Their number is a multiple of
    # this, as strided_maxima wants it.
    PARTS = 32
    # pad_row writes up to so many entries behind a list.
    ROOM = 3
    # Jumps may end far from the shift, where the entries near t have lost digits. Then t becomes
    # the shift and the row is solved again, at most so many times in all.
    REBASES = 4


cdef extern from "topk.h" nogil:
    # The top-k cone with bias and caps u <= max_cap, for entries from which shift is subtracted.
    ctypedef struct Cone "Cone_one":
        double k
        double bias
        double max_cap
        double shift
    ctypedef struct Point "Point_one":
        double offset
        double cap
    double cap_on_piece "cap_on_piece_one"(double sum_upper, double n_upper, double sum_middle,
                                           double n_middle, const Cone* cone, double t)
    bint jump_along_path(const double* b, Py_ssize_t n, const Cone* cone, Point* point)
    bint keeps_digits "keeps_digits_one"(const double* b, Py_ssize_t n, const Point* point,
                                         double k)


cdef double sum_above(const double* entries, Py_ssize_t m, double offset) noexcept nogil:
    # Returns the sum of max(entry - offset, 0).
    cdef Threshold t
    t.shift = 0.0
    t.offset = offset
    return clipped_sum(entries, m, t, INFINITY)


cdef Threshold follow_path(double* heap, Py_ssize_t m, Py_ssize_t k, double bias, double shift,
                           double* top, double* cap) noexcept nogil:
    # Follows the path of reference/topk.py from u = 0 to its end. IN heap: m >= k entries minus
    # shift, among them all that can be positive in x. OUT cap: u, which is 0 if x is. TEMP heap,
    # top (k entries).
    cdef Threshold t
    cdef Cone cone = Cone(k, bias, INFINITY, shift)
    cdef Py_ssize_t j, left = k - 1, n_middle = 1
    cdef double sum_upper = 0.0, sum_middle, u, u_left, u_right
    t.shift = shift
    heapify(heap, m)
    for j in range(k):
        top[j] = heap_pop(heap, m)
        m -= 1
        sum_upper += top[j]
    sum_middle = top[k - 1]
    sum_upper -= sum_middle
    while True:
        # U is top[:left] and M the next n_middle entries. The path ends on this piece at the u of
        # (3), unless M meets the least of U (at u_left) or the greatest of L (at u_right) before.
        u = cap_on_piece(sum_upper, left, sum_middle, n_middle, &cone, shift)
        u_left = INFINITY
        u_right = INFINITY
        if left > 0 and n_middle > k - left:
            u_left = (n_middle * top[left - 1] - sum_middle) / (n_middle - (k - left))
        if m > 0:
            u_right = (sum_middle - n_middle * heap[0]) / (k - left)
        # Numbers near 1e308 can make u NaN, and the loop must end then too.
        if not (u > u_left or u > u_right):
            break
        if u_left < u_right:
            left -= 1
            sum_upper -= top[left]
            sum_middle += top[left]
        else:
            sum_middle += heap_pop(heap, m)
            m -= 1
        n_middle += 1
    cap[0] = u if u > 0.0 else 0.0
    t.offset = (sum_middle - (k - left) * cap[0]) / n_middle
    return t


cdef Threshold solve_cone(double* entries, Py_ssize_t m, Py_ssize_t k, double bias,
                          Threshold guess, double* temp, double* cap) noexcept nogil:
    # Solves for t and u without a radius: by jumps, then by the guess that no entry reaches its cap
    # (t = bias s then), then along the path. INOUT cap: a guess of u, which becomes u. TEMP entries
    # (m + ROOM), temp (m).
    cdef Threshold t = guess
    cdef Cone cone = Cone(k, bias, INFINITY, t.shift)
    cdef Point point = Point(t.offset, cap[0])
    if jump_along_path(entries, pad_row(<const double*>entries, m, 0.0, entries), &cone, &point):
        t.offset = point.offset
        cap[0] = point.cap
        return t
    t.offset = biased_offset(entries, m, t.shift, bias, temp)
    cap[0] = sum_above(entries, m, t.offset) / k
    if row_max(<const double*>entries, m) - t.offset <= cap[0]:
        return t
    return follow_path(entries, m, k, bias, t.shift, temp, cap)


cdef Threshold free_cone(double* entries, Py_ssize_t m, Py_ssize_t k, double bias,
                         Threshold guess, double* temp, double* cap) noexcept nogil:
    # As solve_cone, for long lists: entries well below t do not matter, so find a lower bound of t
    # and solve for the entries above it. The solution for the maxima of parts of the list is a
    # first guess. There are more than 2 k parts, so that many of the k largest entries are the
    # maxima of their parts.
    cdef Threshold t = guess
    cdef double cut, u = cap[0]
    cdef Py_ssize_t n_few, parts = PARTS + 2 * k // PARTS * PARTS
    if 4 * parts > m:  # The maxima would be too large a share of the list to save time.
        return solve_cone(entries, m, k, bias, guess, temp, cap)
    strided_maxima(entries, m, parts, temp)
    t = solve_cone(temp, parts, k, bias, t, temp + parts, &u)
    while u > 0.0:
        cap[0] = u
        # A list that lacks entries gives a t that is too small or right, never too large. So the
        # entries above this t include all that matter, and if their t is not below the cut, which
        # allows for rounding, none was missing.
        cut = t.offset - DBL_EPSILON * fabs(t.offset)
        n_few = gather_above(<const double*>entries, m, cut, 0.0, temp)
        # Both lists must fit into temp, and fewer than k entries cannot share the cap.
        if 2 * n_few + ROOM > m or n_few < k:
            break
        t = solve_cone(temp, n_few, k, bias, t, temp + n_few + ROOM, &u)
        if t.offset >= cut:
            cap[0] = u
            return t
    return solve_cone(entries, m, k, bias, t, temp, cap)


cdef bint project_by_jumps(const real* b, real* x, Py_ssize_t n, TopKSet onto, double bias,
                           double largest, double* start, double* work) noexcept nogil:
    # Returns whether the jumps came to rest; only then is x written. INOUT start: NULL, or the last
    # t - largest and u of this row; the first is NaN if there are none.
    cdef Cone cone = Cone(onto.k, bias, onto.radius / onto.k, largest)
    cdef double cap = min(cone.max_cap, largest)
    # Without a start, guess that the largest entry exceeds t by 2 u.
    cdef Point point = Point(-2 * cap, cap)
    cdef Threshold t
    cdef Py_ssize_t padded
    cdef int _
    if start != NULL and start[0] == start[0]:
        point = Point(start[0], start[1])
    for _ in range(REBASES):
        padded = pad_row(b, n, cone.shift, work)
        if not jump_along_path(work, padded, &cone, &point):
            return False
        # Entries far from the shift lost digits of x when it was subtracted.
        if keeps_digits(work, padded, &point, onto.k):
            if start != NULL:
                start[0] = (cone.shift - largest) + point.offset
                start[1] = point.cap if point.cap > 0.0 else cone.max_cap
            t = Threshold(cone.shift, point.offset)
            clip_row(b, x, n, t, 0.0, point.cap)
            return True
        cone.shift += point.offset
        point.offset = 0.0
    return False


cdef void project_alpha_row(const real* b, real* x, Py_ssize_t n, TopKSet onto, double bias,
                            const Threshold* free_guess, double* start,
                            double* work) noexcept nogil:
    # Projects onto the top-k simplex alpha: by jumps if the row is short or there is a start;
    # otherwise decides first whether the radius binds, and follows the path of the cone if not.
    # IN free_guess: NULL, or a guess of t if it is known that the radius does not bind.
    cdef Threshold t
    cdef Py_ssize_t m, k = onto.k
    cdef double radius = onto.radius, largest = row_max(b, n), cap = radius / k, rest
    cdef bint binds = False
    # Without positive entries the k largest have no positive sum, and x is 0.
    if largest <= 0.0 or radius == 0.0:
        fill_row(x, n, 0.0)
        return
    if (start != NULL or n <= SHORT) and project_by_jumps(b, x, n, onto, bias, largest, start,
                                                          work):
        return
    if free_guess != NULL:
        t.shift = largest
        t.offset = (free_guess.shift - largest) + free_guess.offset
        m = gather_above(b, n, -INFINITY, largest, work)
    elif cap > largest:
        # No entry is as large as radius / k, so the radius is taken for one that does not bind, and
        # is looked at again below. The first guess is the solution without caps, which is t = 0
        # unless there is a bias.
        t.shift = largest if bias > 0.0 else 0.0
        m = gather_above(b, n, -INFINITY, t.shift, work)
        t.offset = biased_offset(work, m, t.shift, bias, work + n)
        cap = sum_above(work, m, t.offset) / k
    else:
        t = capped_threshold(b, n, cap, radius, NULL, work, &m)
        # The radius binds if (2) holds with <= at u = radius / k, that is if the sum of the k
        # largest b - x, which is `rest`, is at least k bias s: the objective falls as s grows.
        rest = sum_above(work, m, t.offset + cap) + k * (t.shift + t.offset)
        binds = rest >= bias * k * radius
        # By (5) the sum of the k largest entries is at most rest + radius: if that is not positive,
        # x is 0. So it is if fewer than k entries are finite, as they cannot share the cap.
        if rest + radius <= 0.0:
            cap = 0.0
    if m < k:
        cap = 0.0
    elif cap > 0.0 and not binds:
        t = free_cone(work, m, k, bias, t, work + n, &cap)
        if k * cap > radius:
            cap = radius / k
            t = capped_threshold(b, n, cap, radius, NULL, work, &m)
    if start != NULL and cap > 0.0:
        start[0] = (t.shift - largest) + t.offset
        start[1] = cap
        # One more jump, from the solution, regains the digits that long sums have lost.
        if project_by_jumps(b, x, n, onto, bias, largest, start, work):
            return
    clip_row(b, x, n, t, 0.0, cap)


cdef void project_topk_row(const real* b, real* x, Py_ssize_t n, TopKSet onto, double bias,
                           double* start, double* work) noexcept nogil:
    cdef Threshold t, over
    cdef Py_ssize_t k = onto.k
    cdef double radius = onto.radius, cap = radius / k, rest = radius - cap, doubt
    cdef CappedSet capped = CappedSet(0.0, cap, radius, False)
    cdef bint grows
    if onto.kind == TOPK_ALPHA:
        project_alpha_row(b, x, n, onto, bias, NULL, start, work)
        return
    t = knapsack_threshold(b, n, &capped, bias, start, work)
    # If t > bias radius, the sum is the radius and need not be computed. As t is known only up to
    # rounding, the sum is computed too where t is larger by no more than `doubt`.
    doubt = 4 * DBL_EPSILON * (fabs(t.shift) + fabs(t.offset))
    if (onto.kind == TOPK_LABEL and t.shift + t.offset <= bias * radius + doubt
            and clipped_sum(b, n, t, cap) < rest):
        # The sum is below (k - 1) radius / k = rest, where x_j <= s/(k - 1) is the tighter bound
        # (see project_topk_simplex in reference/topk.py). So the solution is that of the simplex
        # alpha with k - 1 and radius rest, whose cap at the radius is the same. That radius binds
        # if (2) holds with <= there, as in project_alpha_row. At the radius the sum is larger and t
        # smaller than here, and as at most k - 1 entries are at the cap, the left side of the
        # comparison falls with t: if it is too small at this t, the radius does not bind.
        over.shift = t.shift
        over.offset = t.offset + cap
        grows = (clipped_sum(b, n, over, INFINITY) + (k - 1) * (t.shift + t.offset)
                 >= bias * (k - 1) * rest)
        project_alpha_row(b, x, n, TopKSet(k - 1, rest, TOPK_ALPHA), bias,
                          NULL if grows else &t, NULL, work)
        return
    clip_row(b, x, n, t, 0.0, cap)


def project_topk_rows(const real[:, ::1] b, real[:, ::1] x, Py_ssize_t k, double radius,
                      int kind, double bias):
    """Project each row of b onto a top-k set (kind 0 alpha, 1 beta, 2 label); x may be b."""
    cdef Py_ssize_t i, n = b.shape[1]
    cdef TopKSet onto = TopKSet(k, radius, <TopKKind>kind)
    cdef double[::1] work = scratch(n * TOPK_WORK)
    with nogil:
        for i in range(b.shape[0]):
            project_topk_row(&b[i, 0], &x[i, 0], n, onto, bias, NULL, &work[0])
