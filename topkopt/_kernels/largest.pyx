"""The largest entries of a row: which they are, what they sum to, and weights in their order."""
from libc.math cimport INFINITY, fabs

from topkopt._kernels.select cimport Around, look_around, row_sum

cdef enum:
    # Up to this k the k largest are kept in order by insertion, which reads the row once.
    FEW = 32
    # largest_sum crosses up to so many ranks one by one on the way to the k-th, and looks at the
    # row so many times before it lists the k largest instead.
    NEAR = 3
    LOOKS = 12
    # A sum may have the rounding of numbers up to so many times its own size.
    LOSS = 16


cdef inline void swap(double* a, double* b) noexcept nogil:
    cdef double t = a[0]
    a[0] = b[0]
    b[0] = t


cdef double kth_largest(double* a, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
    # Quickselect: the part of a that holds rank k is split again and again at the median of three
    # of its entries.
    cdef Py_ssize_t first = 0, last = n - 1, i, j, middle
    cdef double pivot
    while first < last:
        middle = first + (last - first) // 2
        pivot = max(min(a[first], a[last]), min(max(a[first], a[last]), a[middle]))
        i = first
        j = last
        while i <= j:
            while a[i] > pivot:
                i += 1
            while a[j] < pivot:
                j -= 1
            if i <= j:
                swap(&a[i], &a[j])
                i += 1
                j -= 1
        if k - 1 <= j:
            last = j
        elif k - 1 >= i:
            first = i
        else:
            break
    return a[k - 1]


cdef inline bint comes_first(double a, double place_a, double b, double place_b) noexcept nogil:
    return a > b or (a == b and place_a < place_b)


cdef void sift_down(double* heap, double* place, Py_ssize_t root, Py_ssize_t n) noexcept nogil:
    # Restores a heap of entries and their places, whose last in order is at the top, below `root`.
    cdef Py_ssize_t child = 2 * root + 1
    cdef double entry = heap[root], its_place = place[root]
    while child < n:
        if child + 1 < n and comes_first(heap[child], place[child], heap[child + 1],
                                         place[child + 1]):
            child += 1
        if not comes_first(entry, its_place, heap[child], place[child]):
            break
        heap[root] = heap[child]
        place[root] = place[child]
        root = child
        child = 2 * root + 1
    heap[root] = entry
    place[root] = its_place


cdef void sort_places(double* top, double* place, Py_ssize_t k) noexcept nogil:
    # Sorts entries and their places in descending order, by heapsort. Of equal entries the first
    # place comes first.
    cdef Py_ssize_t j
    for j in range(k // 2 - 1, -1, -1):
        sift_down(top, place, j, k)
    for j in range(k - 1, 0, -1):
        swap(&top[0], &top[j])
        swap(&place[0], &place[j])
        sift_down(top, place, 0, j)


cdef void take_many(const double* h, Py_ssize_t n, Py_ssize_t k, double* top,
                    double* place) noexcept nogil:
    # All entries above the k-th largest, and the first of those that are equal to it, then sorted.
    cdef Py_ssize_t j, size = 0, equal = k
    cdef double kth
    for j in range(n):
        place[j] = h[j]
    kth = kth_largest(place, n, k)
    for j in range(k):
        equal -= place[j] > kth
    for j in range(n):
        if h[j] > kth or (h[j] == kth and equal > 0):
            equal -= h[j] == kth
            top[size] = h[j]
            place[size] = <double>j
            size += 1
    sort_places(top, place, k)


cdef inline void insert(double* top, double* place, Py_ssize_t i, double v,
                        Py_ssize_t j) noexcept nogil:
    # Inserts entry j, which is v, into a descending list. Its place i, at the end, is free.
    while i > 0 and top[i - 1] < v:
        top[i] = top[i - 1]
        place[i] = place[i - 1]
        i -= 1
    top[i] = v
    place[i] = <double>j


cdef void take_largest(const double* h, Py_ssize_t n, Py_ssize_t k, double* top,
                       double* place) noexcept nogil:
    cdef Py_ssize_t j
    if k > FEW:
        take_many(h, n, k, top, place)
        return
    for j in range(k):
        insert(top, place, j, h[j], j)
    for j in range(k, n):
        if h[j] > top[k - 1]:
            insert(top, place, k - 1, h[j], j)


cdef double largest_sum(const double* h, Py_ssize_t n, Py_ssize_t k, double largest,
                        double* start, double* work) noexcept nogil:
    # The sum is the smallest value of  k t + sum_j max(0, h_j - t),  which is reached at the k-th
    # largest entry. So this walks to a t next to that entry, where one rank more or less is made up
    # for in the sum.
    cdef Around now
    cdef double t = largest + start[0], low = -INFINITY, guess, total, kth
    cdef Py_ssize_t j, _
    if t != t:
        t = row_sum(h, n) / n
    for _ in range(LOOKS):
        now = look_around(h, n, t)
        if now.below == -INFINITY and now.n_from == n and fabs(t) > 2 * fabs(now.above):
            t = now.above  # From far below all entries, sums lose digits.
            continue
        total = k * t + now.sum
        kth = now.above if now.n_above >= k else t
        if now.n_above == k + 1:
            total -= now.above - t
        elif now.n_from == k - 1:
            total += now.below - t
            kth = now.below
        elif now.n_above > k:
            # t is too low. The mean of the entries above it is a better guess, unless few ranks are
            # left to cross.
            low = t
            t = now.above if now.n_above <= k + NEAR else t + now.sum / now.n_above
            continue
        elif now.n_from < k:
            # t is too high. If the entries were spread evenly, k of them would be above the guess.
            guess = t - (largest - t) * (k / max(1.0, now.n_from) - 1.0)
            t = guess if now.n_from < k - NEAR and low < guess < t else now.below
            continue
        if kth != t and k * fabs(t) > LOSS * fabs(total):
            t = kth  # A sum that is small next to t has lost digits.
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
    cdef Py_ssize_t j, rank, slot, k = min(n, n_w)
    cdef double* top = work
    cdef double* place = work + n
    take_largest(h, n, k, top, place)
    for j in range(n):
        p[j] = 0.0
    for rank in range(k):
        j = <Py_ssize_t>place[rank]
        slot = rank + (label and h[j] < 0.0)
        if slot < n_w:
            p[j] = w[slot]
