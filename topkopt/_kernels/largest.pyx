"""The largest entries of a row: which they are, what they sum to, and weights in their order."""
from libc.math cimport INFINITY, fabs

from topkopt._kernels.select cimport Around, heap_pop, heapify, look_around, rank_of, row_sum

cdef enum:
    FEW = 32             # up to this k the k largest are kept by insertion
    NEAR = 3             # ranks that are crossed one by one on the way to the k-th
    LOSS = 16            # times its own size, the rounding that a sum may have
    LOOKS = 12           # for the k-th largest entry, before k of them are listed


cdef void take_largest(const double* h, Py_ssize_t n, Py_ssize_t k, double* top,
                       double* heap) noexcept nogil:
    # OUT top: the k largest entries of h, descending. TEMP heap: n
    cdef Py_ssize_t i, j
    cdef double v
    if k > FEW:
        for j in range(n):
            heap[j] = h[j]
        heapify(heap, n)
        for j in range(k):
            top[j] = heap_pop(heap, n - j)
        return
    for j in range(k):
        top[j] = -INFINITY
    for j in range(n):
        v = h[j]
        if v > top[k - 1]:
            i = k - 1
            while i > 0 and top[i - 1] < v:
                top[i] = top[i - 1]
                i -= 1
            top[i] = v


cdef double largest_sum(const double* h, Py_ssize_t n, Py_ssize_t k, double largest,
                        double* start, double* work) noexcept nogil:
    # The sum of the k largest entries: the smallest value of  k t + sum_j max(0, h_j - t),  which
    # has its place at the k-th of them. INOUT start: a guess of where that is, below the largest;
    # NaN for none. TEMP work: 2 n
    cdef Around now
    cdef double t = largest + start[0], low = -INFINITY, guess, total, kth
    cdef Py_ssize_t j, _
    if t != t:
        t = row_sum(h, n) / n
    for _ in range(LOOKS):
        now = look_around(h, n, t)
        if now.below == -INFINITY and now.n_from == n and fabs(t) > 2 * fabs(now.above):
            t = now.above       # from far below all of them, sums lose digits
            continue
        total = k * t + now.sum
        kth = now.above if now.n_above >= k else t
        if now.n_above == k + 1:
            total -= now.above - t
        elif now.n_from == k - 1:
            total += now.below - t
            kth = now.below
        elif now.n_above > k:
            low = t
            t = now.above if now.n_above <= k + NEAR else t + now.sum / now.n_above
            continue
        elif now.n_from < k:
            guess = t - (largest - t) * (k / max(1.0, now.n_from) - 1.0)
            t = guess if now.n_from < k - NEAR and low < guess < t else now.below
            continue
        if kth != t and k * fabs(t) > LOSS * fabs(total):
            t = kth             # a sum that is small next to t has lost digits
            continue
        start[0] = (0.5 * (kth + now.below) if now.n_from == k < n else kth) - largest
        return total
    take_largest(h, n, k, work, work + n)
    total = 0.0
    for j in range(k):
        total += work[j]
    start[0] = work[k - 1] - largest
    return total


cdef void weigh_largest(const double* h, double* p, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                        bint label, double* work) noexcept nogil:
    # OUT p: w_1 on the largest entry of h, w_2 on the next, ...; with `label` a slot 0 takes part
    # and keeps the weight it wins. Of equal entries the first is the larger. TEMP work: 3 n
    cdef Py_ssize_t j, first, rank, k = min(n, n_w)
    cdef double* top = work
    cdef double* placed = work + n
    take_largest(h, n, k, top, placed)
    for j in range(k):
        placed[j] = 0.0
    for j in range(n):
        p[j] = 0.0
        if h[j] < top[k - 1]:
            continue
        first = rank_of(h[j], top, k)
        rank = first + <Py_ssize_t>placed[first] + (label and h[j] < 0.0)
        placed[first] += 1.0
        if rank < n_w:
            p[j] = w[rank]
