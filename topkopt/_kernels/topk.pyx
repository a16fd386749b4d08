"""The top-k cone and the top-k simplices by path following.

Solve    min_x 1/2 |x - b|^2 + bias/2 s^2   s.t.  0 <= x_j <= s/k,  s = <1,x> <= r.
The solution is  x = clip(b - t, 0, u)  with u = s/k.

As u grows from 0 the entries split into U (at the cap), M (between) and L (zero); M starts at the
k-th largest entry and only ever grows, left into U and right into L. Between two mergers the
derivative of the optimal value with respect to u is linear in u: the path ends at its root.

Most rows need not follow it: from a guess of t and u, solving on the piece they are on and moving
there comes to rest after a few jumps, and where it rests all conditions of optimality hold.
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, fabs

from topkopt._kernels.knapsack cimport biased_offset, capped_threshold, knapsack_threshold
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport (Threshold, clip_row, clipped_sum, fill_row, gather_above,
                                      heap_pop, heapify, pad_row, row_max, scratch, strided_maxima)

cdef enum:
    PARTS = 32         # of a list, whose maxima give a guess of its threshold
    ROOM = 3           # for the padding of a list
    REBASES = 4        # of entries, each time nearer to t


cdef extern from "topk.h" nogil:
    enum:
        TOPK_FAR
    double cap_on_piece(double sum_upper, double n_upper, double sum_middle, double n_middle,
                        double k, double bias, double t)
    bint jump_along_path(const double* b, Py_ssize_t n, double k, double bias, double most,
                         double shift, double* offset, double* cap)


cdef double shifted_sum(const double* entries, Py_ssize_t m, double offset) noexcept nogil:
    cdef Threshold t
    t.shift = 0.0
    t.offset = offset
    return clipped_sum(entries, m, t, INFINITY)


cdef Threshold follow_path(double* heap, Py_ssize_t m, Py_ssize_t k, double bias, double shift,
                           double* top, double* cap) noexcept nogil:
    # IN heap: the m >= k entries that can be positive, minus shift. TEMP heap, top (k entries)
    # OUT cap: u, zero when x = 0
    cdef Threshold t
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
        u = cap_on_piece(sum_upper, left, sum_middle, n_middle, k, bias, shift)
        u_left = INFINITY
        u_right = INFINITY
        if left > 0 and n_middle > k - left:
            u_left = (n_middle * top[left - 1] - sum_middle) / (n_middle - (k - left))
        if m > 0:
            u_right = (sum_middle - n_middle * heap[0]) / (k - left)
        if not (u > u_left or u > u_right):  # also when numbers near 1e308 made it NaN
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
    # INOUT cap: u, first a guess of it. TEMP entries (m + 3), temp (m)
    cdef Threshold t = guess
    if jump_along_path(entries, pad_row(<const double*>entries, m, 0.0, entries), k, bias,
                       INFINITY, t.shift, &t.offset, cap):
        return t
    t.offset = biased_offset(entries, m, t.shift, bias, temp)
    cap[0] = shifted_sum(entries, m, t.offset) / k
    if row_max(<const double*>entries, m) - t.offset <= cap[0]:  # no entry reaches its cap
        return t
    return follow_path(entries, m, k, bias, t.shift, temp, cap)


cdef Threshold free_cone(double* entries, Py_ssize_t m, Py_ssize_t k, double bias,
                         Threshold guess, double* temp, double* cap) noexcept nogil:
    # Where the radius does not bind: as solve_cone, on a list that holds only entries near t or
    # above it. The maxima of parts tell about where t is.
    cdef Threshold t = guess
    cdef double cut, u = cap[0]
    cdef Py_ssize_t n_few, parts = PARTS + 2 * k // PARTS * PARTS
    if 4 * parts > m:
        return solve_cone(entries, m, k, bias, guess, temp, cap)
    strided_maxima(entries, m, parts, temp)
    t = solve_cone(temp, parts, k, bias, t, temp + parts, &u)
    while u > 0.0:
        cap[0] = u
        # Without entries that should be there t is too small, never too large: one more round
        # with those above it is enough.
        cut = t.offset - DBL_EPSILON * fabs(t.offset)
        n_few = gather_above(<const double*>entries, m, cut, 0.0, temp)
        if 2 * n_few + ROOM > m or n_few < k:
            break
        t = solve_cone(temp, n_few, k, bias, t, temp + n_few + ROOM, &u)
        if t.offset >= cut:
            cap[0] = u
            return t
    return solve_cone(entries, m, k, bias, t, temp, cap)


cdef bint project_by_jumps(const real* b, real* x, Py_ssize_t n, Py_ssize_t k, double radius,
                           double bias, double largest, double* start,
                           double* work) noexcept nogil:
    # Returns whether it came to rest; only then is x written.
    cdef Threshold t
    cdef double most = radius / k, cap = min(most, largest)
    cdef int _
    t.shift = largest
    t.offset = -2 * cap
    if start != NULL and start[0] == start[0]:
        t.offset = start[0]
        cap = start[1]
    for _ in range(REBASES):
        if not jump_along_path(work, pad_row(b, n, t.shift, work), k, bias, most, t.shift,
                               &t.offset, &cap):
            return False
        if fabs(t.offset) <= TOPK_FAR * k * cap or cap == 0.0:
            if start != NULL:
                start[0] = (t.shift - largest) + t.offset
                start[1] = cap if cap > 0.0 else most
            clip_row(b, x, n, t, 0.0, cap)
            return True
        t.shift += t.offset     # entries far from the shift lost digits when it was subtracted
        t.offset = 0.0
    return False


cdef void project_alpha_row(const real* b, real* x, Py_ssize_t n, Py_ssize_t k, double radius,
                            double bias, const Threshold* free_guess, double* start,
                            double* work) noexcept nogil:
    # free_guess: NULL, or a guess of t if it is known that the radius does not bind
    cdef Threshold t
    cdef Py_ssize_t m
    cdef double largest = row_max(b, n), cap = radius / k, rest
    cdef bint binds = False
    if largest <= 0.0 or radius == 0.0:  # even the k largest entries have no positive sum
        fill_row(x, n, 0.0)
        return
    if (start != NULL or n <= SHORT) and project_by_jumps(b, x, n, k, radius, bias, largest, start,
                                                          work):
        return
    if free_guess != NULL:
        t.shift = largest
        t.offset = (free_guess.shift - largest) + free_guess.offset
        m = gather_above(b, n, -INFINITY, largest, work)
    elif cap > largest:  # entries that reach their cap leave the sum below this radius
        t.shift = largest if bias > 0.0 else 0.0  # t is 0 in most rows without a bias
        m = gather_above(b, n, -INFINITY, t.shift, work)
        t.offset = biased_offset(work, m, t.shift, bias, work + n)
        cap = shifted_sum(work, m, t.offset) / k
    else:
        t = capped_threshold(b, n, cap, radius, NULL, work, &m)
        # The sum of the k largest b - x: as long as it outweighs the bias, s should grow.
        rest = shifted_sum(work, m, t.offset + cap) + k * (t.shift + t.offset)
        binds = rest >= bias * k * radius
        if rest + radius <= 0.0:  # then so is the sum of the k largest entries
            cap = 0.0
    if m < k:  # too few finite entries to share the cap
        cap = 0.0
    elif cap > 0.0 and not binds:
        t = free_cone(work, m, k, bias, t, work + n, &cap)
        if k * cap > radius:
            cap = radius / k
            t = capped_threshold(b, n, cap, radius, NULL, work, &m)
    if start != NULL and cap > 0.0:
        start[0] = (t.shift - largest) + t.offset
        start[1] = cap
        if project_by_jumps(b, x, n, k, radius, bias, largest, start, work):
            return  # with the digits that longer sums have lost
    clip_row(b, x, n, t, 0.0, cap)


cdef void project_topk_row(const real* b, real* x, Py_ssize_t n, Py_ssize_t k, double radius,
                           TopKKind kind, double bias, double* start,
                           double* work) noexcept nogil:
    cdef Threshold t, over
    cdef double cap = radius / k, rest = radius - cap, doubt
    cdef bint grows
    if kind == TOPK_ALPHA:
        project_alpha_row(b, x, n, k, radius, bias, NULL, start, work)
        return
    t = knapsack_threshold(b, n, 0.0, cap, radius, False, bias, start, work)
    # Above this threshold, which is known up to rounding, the sum is the radius.
    doubt = 4 * DBL_EPSILON * (fabs(t.shift) + fabs(t.offset))
    if (kind == TOPK_LABEL and t.shift + t.offset <= bias * radius + doubt
            and clipped_sum(b, n, t, cap) < rest):
        # The label's own slot is above the cap: the others are in the cone of k - 1, which has the
        # same cap at its radius. Its t there would be smaller: if s should not grow even at this
        # one, the radius does not bind.
        over.shift = t.shift
        over.offset = t.offset + cap
        grows = (clipped_sum(b, n, over, INFINITY) + (k - 1) * (t.shift + t.offset)
                 >= bias * (k - 1) * rest)
        project_alpha_row(b, x, n, k - 1, rest, bias, NULL if grows else &t, NULL, work)
        return
    clip_row(b, x, n, t, 0.0, cap)


def project_topk_rows(const real[:, ::1] b, real[:, ::1] x, Py_ssize_t k, double radius,
                      int kind, double bias):
    """Project each row of b onto a top-k set (kind 0 alpha, 1 beta, 2 label); x may be b."""
    cdef Py_ssize_t i, n = b.shape[1]
    cdef double[::1] work = scratch(n * TOPK_WORK)
    with nogil:
        for i in range(b.shape[0]):
            project_topk_row(&b[i, 0], &x[i, 0], n, k, radius, <TopKKind>kind, bias, NULL,
                             &work[0])
