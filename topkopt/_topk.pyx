"""The top-k cone and the top-k simplices by path following.

Solve    min_x 1/2 |x - b|^2 + bias/2 s^2   s.t.  0 <= x_j <= s/k,  s = <1,x> <= r.
The solution is  x = clip(b - t, 0, u)  with u = s/k.

As u grows from 0 the entries split into U (at the cap), M (between) and L (zero); M starts at the
k-th largest entry and only ever grows, left into U and right into L. Between two mergers the
derivative of the optimal value with respect to u is linear in u: the path ends at its root.
"""
from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from topkopt._knapsack cimport biased_offset, capped_threshold, knapsack_threshold
from topkopt._real cimport real
from topkopt._select cimport (Threshold, clip_row, clipped_sum, fill_row, gather_above, heap_pop,
                              heapify, row_max)


cdef inline bint radius_binds(const double* kept, Py_ssize_t m, Py_ssize_t k, double radius,
                              double bias, Threshold t) noexcept nogil:
    # Is s = radius optimal? With v = b - x, it is when the k largest v sum to k bias radius
    # or more: growing s further would then still lower the objective.
    cdef double u = radius / k, above = 0.0
    cdef Py_ssize_t j
    for j in range(m):
        if kept[j] - t.offset >= u:
            above += kept[j] - t.offset - u
    return above + k * (t.shift + t.offset) >= bias * k * radius


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
        u = ((sum_upper + (k - left) * sum_middle / n_middle + k * shift)
             / (bias * k * k + left + <double>(k - left) * (k - left) / n_middle))
        u_left = INFINITY
        u_right = INFINITY
        if left > 0 and n_middle > k - left:
            u_left = (n_middle * top[left - 1] - sum_middle) / (n_middle - (k - left))
        if m > 0:
            u_right = (sum_middle - n_middle * heap[0]) / (k - left)
        if u <= u_left and u <= u_right:
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


cdef bint caps_stay_away(const double* entries, Py_ssize_t n, Py_ssize_t k, double largest,
                         Threshold t, double* total) noexcept nogil:
    # Does clip(b - t, 0, inf), with t = bias s, keep its largest entry below s/k?
    # IN entries: b minus t.shift. OUT total: s
    cdef Threshold shifted
    shifted.shift = 0.0
    shifted.offset = t.offset
    total[0] = clipped_sum(entries, n, shifted, INFINITY)
    return k * ((largest - t.shift) - t.offset) <= total[0]


cdef void project_alpha_row(const real* b, real* x, Py_ssize_t n, Py_ssize_t k, double radius,
                            double bias, double* start, double* work) noexcept nogil:
    cdef Threshold t, uncapped
    cdef Py_ssize_t m
    cdef double largest = row_max(b, n), total, cap
    cdef double* temp = work + n
    if largest <= 0.0 or radius == 0.0:  # even the k largest entries have no positive sum
        fill_row(x, n, 0.0)
        return
    if radius > k * largest:
        uncapped.shift = largest
        m = gather_above(b, n, 0.0, largest, work)
        uncapped.offset = biased_offset(work, m, largest, bias, temp)
        if not caps_stay_away(work, m, k, largest, uncapped, &total):
            # A cap that is reached is at most the largest entry, so this radius cannot bind.
            radius = k * largest
        elif total <= radius:
            clip_row(b, x, n, uncapped, 0.0, INFINITY)
            return
    cap = radius / k
    t = capped_threshold(b, n, cap, radius, start, work, &m)
    if m < k:  # too few finite entries to share the cap
        cap = 0.0
    elif not radius_binds(work, m, k, radius, bias, t):
        uncapped.shift = t.shift
        uncapped.offset = biased_offset(work, m, t.shift, bias, temp)
        if caps_stay_away(work, m, k, largest, uncapped, &total):
            t = uncapped
        else:
            t = follow_path(work, m, k, bias, t.shift, temp, &cap)
    clip_row(b, x, n, t, 0.0, cap)


cdef void project_topk_row(const real* b, real* x, Py_ssize_t n, Py_ssize_t k, double radius,
                           TopKKind kind, double bias, double* start,
                           double* work) noexcept nogil:
    cdef Threshold t
    cdef double cap = radius / k, rest = radius - cap
    if kind == TOPK_ALPHA:
        project_alpha_row(b, x, n, k, radius, bias, start, work)
        return
    t = knapsack_threshold(b, n, 0.0, cap, radius, False, bias, start, work)
    if kind == TOPK_LABEL and clipped_sum(b, n, t, cap) < rest:
        # The label's own slot is above the cap: the others are in the cone of k - 1.
        project_alpha_row(b, x, n, k - 1, rest, bias, NULL, work)
        return
    clip_row(b, x, n, t, 0.0, cap)


def project_topk_rows(const real[:, ::1] b, real[:, ::1] x, Py_ssize_t k, double radius,
                      int kind, double bias):
    """Project each row of b onto a top-k set (kind 0 alpha, 1 beta, 2 label); x may be b."""
    cdef Py_ssize_t i, n = b.shape[1]
    cdef double* work = <double*>malloc(max(n, 1) * TOPK_WORK * sizeof(double))
    if work == NULL:
        raise MemoryError
    with nogil:
        for i in range(b.shape[0]):
            project_topk_row(&b[i, 0], &x[i, 0], n, k, radius, <TopKKind>kind, bias, NULL,
                             work)
    free(work)
