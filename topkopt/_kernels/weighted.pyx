"""The weighted top-k set by path following over pools.

Solve    min_x 1/2 |x - b|^2 + bias/2 <1,x>^2   s.t.  x in zeta Perm(w),  0 <= zeta <= r.
The solution, for b sorted descending, is  x = b - v,  v = iso(b - zeta w),  with iso the
non-increasing isotonic regression (pool adjacent violators).

As zeta grows pools only merge, and the derivative of the optimal value is concave in zeta. So
Newton's method from zeta = 0 never passes the root, and it stands on it once a step merges nothing.

Where the label owns a slot of its own (w has one weight more than x has entries), v becomes
clip(mu, A, B) with A = iso(b - zeta w_{1..p}), B = iso(b - zeta w_{2..m}) and mu = bias <1,x>.
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, fabs

from topkopt._kernels.knapsack cimport capped_threshold, fix_boxed
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport (Threshold, fill_row, gather_above, heap_pop, heapify, rank_of,
                                      row_max, scratch)
from topkopt._kernels.topk cimport TOPK_ALPHA, TOPK_LABEL, project_topk_row

# Neighbouring ranks that share one value of v: their number and their sums of b and of w.
cdef struct Pools:
    double* size
    double* sum_b
    double* sum_w
    Py_ssize_t n


cdef Pools pools_in(double* work, Py_ssize_t n) noexcept nogil:
    cdef Pools pools
    pools.size = work
    pools.sum_b = work + n
    pools.sum_w = work + 2 * n
    pools.n = 0
    return pools


cdef void start_pools(Pools* pools, const double* b, Py_ssize_t n, const double* w,
                      Py_ssize_t n_w) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        pools.size[j] = 1.0
        pools.sum_b[j] = b[j]
        pools.sum_w[j] = w[j] if j < n_w else 0.0
    pools.n = n


cdef inline double pool_value(const Pools* pools, Py_ssize_t i, double zeta) noexcept nogil:
    return (pools.sum_b[i] - zeta * pools.sum_w[i]) / pools.size[i]


cdef bint merge_pools(Pools* pools, double zeta) noexcept nogil:
    # Pool adjacent violators, starting from the pools there are. Returns whether any merged.
    cdef Py_ssize_t i, last = 0
    for i in range(1, pools.n):
        last += 1
        pools.size[last] = pools.size[i]
        pools.sum_b[last] = pools.sum_b[i]
        pools.sum_w[last] = pools.sum_w[i]
        while last > 0 and pool_value(pools, last - 1, zeta) < pool_value(pools, last, zeta):
            last -= 1
            pools.size[last] += pools.size[last + 1]
            pools.sum_b[last] += pools.sum_b[last + 1]
            pools.sum_w[last] += pools.sum_w[last + 1]
    last += 1
    if last == pools.n:
        return False
    pools.n = last
    return True


cdef void unfold_pools(const Pools* pools, double zeta, double* v, double* slope) noexcept nogil:
    # OUT v, slope: the value of each rank, and its derivative with respect to zeta. With zeta = 0
    # v is the mean of b over the pool: x = (b - v) - zeta slope loses no digits of a large b then
    cdef Py_ssize_t i, j = 0, end
    cdef double value, rate
    for i in range(pools.n):
        value = pool_value(pools, i, zeta)
        rate = -pools.sum_w[i] / pools.size[i]
        end = j + <Py_ssize_t>pools.size[i]
        while j < end:
            v[j] = value
            slope[j] = rate
            j += 1


# The entries in descending order, as far as they are known; the others wait in a heap.
cdef struct Ranking:
    double* ranked
    Py_ssize_t n_ranked
    double* heap
    Py_ssize_t n_heap


cdef Ranking rank_entries(double* entries, Py_ssize_t n, double* ranked) noexcept nogil:
    cdef Ranking order
    heapify(entries, n)
    order.ranked = ranked
    order.n_ranked = 0
    order.heap = entries
    order.n_heap = n
    return order


cdef inline double rank_next(Ranking* order) noexcept nogil:
    cdef double entry = heap_pop(order.heap, order.n_heap)
    order.n_heap -= 1
    order.ranked[order.n_ranked] = entry
    order.n_ranked += 1
    return entry


cdef bint absorb(Pools* pools, Ranking* order, double zeta) noexcept nogil:
    # Entries beyond the last weight matter only once they join the last pool: those that do are
    # ranked here, the others never. Returns whether any joined.
    cdef Py_ssize_t last = pools.n - 1
    cdef bint joined = False
    while order.n_heap > 0 and pool_value(pools, last, zeta) < order.heap[0]:
        pools.size[last] += 1.0
        pools.sum_b[last] += rank_next(order)
        joined = True
    if joined:
        merge_pools(pools, zeta)
    return joined


cdef double newton_zeta(Pools* pools, Ranking* order, double radius, double bias,
                        double shift) noexcept nogil:
    cdef double total = 0.0, gain, cost, zeta
    cdef bint changed
    cdef Py_ssize_t i
    for i in range(pools.n):
        total += pools.sum_w[i]
    while True:
        gain = shift * total
        cost = bias * total * total
        for i in range(pools.n):
            gain += pools.sum_b[i] * pools.sum_w[i] / pools.size[i]
            cost += pools.sum_w[i] * pools.sum_w[i] / pools.size[i]
        zeta = gain / cost
        if not zeta > 0.0:
            return 0.0
        if zeta > radius:
            zeta = radius
        changed = merge_pools(pools, zeta)
        while absorb(pools, order, zeta):
            changed = True
        if not changed:
            return zeta


cdef double balance(const double* b, const double* lower, const double* upper, Py_ssize_t n,
                    double bias, double shift, double* work) noexcept nogil:
    # mu - shift with mu = bias sum (b - clip(mu, A, B)); clip(mu, A, B) = -clip(-mu, -B, -A)
    # makes it a knapsack. TEMP work: 3 n
    cdef double total = 0.0
    cdef Py_ssize_t j
    if bias == 0.0:
        return -shift
    for j in range(n):
        work[j] = 0.0
        work[n + j] = -upper[j]
        work[2 * n + j] = -lower[j]
        total += b[j]
    return fix_boxed(work, work + n, work + 2 * n, n, shift / bias - total, 1.0 / bias)


# The label-included problem at one zeta: A, B and mu, the derivative of the optimal value with
# respect to zeta, the rate at which that derivative changes, and what tells its linear piece.
cdef struct LabelPoint:
    double* lower
    double* lower_rate
    double* upper
    double* upper_rate
    double mu
    double derivative
    double rate
    Py_ssize_t piece[4]


cdef Py_ssize_t isotonic(const double* b, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                         double zeta, double at, double* v, double* rate,
                         double* work) noexcept nogil:
    # OUT v, rate: the pools of iso(b - zeta w), unfolded at zeta or at 0. Returns how many pools.
    # TEMP work: 3 n
    cdef Pools pools = pools_in(work, n)
    start_pools(&pools, b, n, w, n_w)
    merge_pools(&pools, zeta)
    unfold_pools(&pools, at, v, rate)
    return pools.n


cdef void differentiate(LabelPoint* at, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                        double bias) noexcept nogil:
    cdef double mu_rate = 0.0, n_free = 0.0
    cdef Py_ssize_t j, n_above = 0, n_below = 0
    for j in range(n):
        if at.lower[j] > at.mu:
            mu_rate -= at.lower_rate[j]
            n_above += 1
        elif at.upper[j] < at.mu:
            mu_rate -= at.upper_rate[j]
            n_below += 1
    n_free = n - n_above - n_below
    mu_rate *= bias / (1.0 + bias * n_free)
    at.piece[2] = n_above
    at.piece[3] = n_below
    at.derivative = 0.0
    at.rate = 0.0
    for j in range(min(n, n_w)):
        if at.lower[j] > at.mu:
            at.derivative -= (at.lower[j] - at.mu) * w[j]
            at.rate -= (at.lower_rate[j] - mu_rate) * w[j]
        elif at.upper[j] < at.mu and j + 1 < n_w:
            at.derivative -= (at.upper[j] - at.mu) * w[j + 1]
            at.rate -= (at.upper_rate[j] - mu_rate) * w[j + 1]


cdef void evaluate_label(LabelPoint* at, const double* b, Py_ssize_t n, const double* w,
                         Py_ssize_t n_w, double zeta, double bias, double shift,
                         double* work) noexcept nogil:
    # TEMP work: 7 n, of which the first four belong to the point
    cdef double* temp = work + 4 * n
    at.lower = work
    at.lower_rate = work + n
    at.upper = work + 2 * n
    at.upper_rate = work + 3 * n
    at.piece[0] = isotonic(b, n, w, n_w, zeta, zeta, at.lower, at.lower_rate, temp)
    at.piece[1] = isotonic(b, n, w + 1, n_w - 1, zeta, zeta, at.upper, at.upper_rate, temp)
    at.mu = balance(b, at.lower, at.upper, n, bias, shift, temp)
    differentiate(at, n, w, n_w, bias)


cdef inline bint same_piece(const Py_ssize_t* a, const Py_ssize_t* b) noexcept nogil:
    return a[0] == b[0] and a[1] == b[1] and a[2] == b[2] and a[3] == b[3]


cdef void unfold_at_zero(LabelPoint* at, const double* b, Py_ssize_t n, const double* w,
                         Py_ssize_t n_w, double zeta, double* v, double* rate,
                         double* temp) noexcept nogil:
    # OUT v, rate: see label_zeta. TEMP temp: 3 n, and A and B of the point
    cdef Py_ssize_t j
    for j in range(n):
        if at.lower[j] >= at.mu:
            rate[j] = at.lower_rate[j]
        elif at.upper[j] <= at.mu:
            rate[j] = at.upper_rate[j]
        else:
            rate[j] = NAN
    isotonic(b, n, w, n_w, zeta, 0.0, v, at.upper_rate, temp)
    isotonic(b, n, w + 1, n_w - 1, zeta, 0.0, at.upper_rate, at.lower_rate, temp)
    for j in range(n):
        if rate[j] != rate[j]:
            v[j] = at.mu
            rate[j] = 0.0
        elif at.lower[j] < at.mu:
            v[j] = at.upper_rate[j]


cdef double label_zeta(const double* b, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                       double radius, double bias, double shift, double* v, double* rate,
                       double* work) noexcept nogil:
    # Returns the root zeta of the derivative on [0, radius]. OUT v, rate: clip(mu, A, B) is
    # v + zeta rate there. TEMP work: 7 n
    cdef LabelPoint at
    cdef double left = 0.0, right = radius, zeta = radius, root
    cdef Py_ssize_t refinements = 0
    cdef Py_ssize_t[4] piece
    piece[:] = [-1, -1, -1, -1]
    while True:
        evaluate_label(&at, b, n, w, n_w, zeta, bias, shift, work)
        if at.derivative == 0.0 or (at.derivative < 0.0 and zeta == radius):
            break
        root = zeta - at.derivative / at.rate if at.rate > 0.0 else radius
        if same_piece(piece, at.piece):
            # On the right piece; a step from afar has left the rounding of where it came from.
            refinements += 1
            if refinements > 2 or fabs(root - zeta) <= 2 * DBL_EPSILON * zeta:
                break
        if at.derivative > 0.0:
            right = zeta
        else:
            left = zeta
        piece[0] = -1
        if left < root < right:
            piece = at.piece
        else:
            root = 0.5 * (left + right)
            if not left < root < right:
                break
        zeta = root
    unfold_at_zero(&at, b, n, w, n_w, zeta, v, rate, work + 4 * n)
    return zeta


cdef bint label_stays_zero(const double* b, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                           double shift) noexcept nogil:
    # Is the derivative at zeta = 0, where A = B = b and mu = 0, not negative?
    cdef double gain = 0.0, entry
    cdef Py_ssize_t j
    for j in range(min(n, n_w)):
        entry = b[j] + shift
        if entry > 0.0:
            gain += entry * w[j]
        elif j + 1 < n_w:
            gain += entry * w[j + 1]
    return gain <= 0.0


cdef Threshold candidates(const real* b, Py_ssize_t n, Py_ssize_t n_w, double total,
                          double* start, double* work, Py_ssize_t* n_kept) noexcept nogil:
    # The entries that can be positive: flat weights of the same sum reach the furthest down.
    cdef Threshold t
    if n_w <= n:
        t = capped_threshold(b, n, total / n_w, total, start, work, n_kept)
        t.offset -= 2 * DBL_EPSILON * (fabs(t.shift) + fabs(t.offset))  # to lose no entry
        n_kept[0] = gather_above(<const double*>work, n_kept[0], t.offset, 0.0, work)
        return t
    t.shift = row_max(b, n)
    t.offset = -INFINITY
    n_kept[0] = gather_above(b, n, -INFINITY, t.shift, work)
    return t


cdef void project_weighted_row(const real* b, real* x, Py_ssize_t n, const double* w,
                               Py_ssize_t n_w, double radius, bint label, double bias,
                               double* start, double* work) noexcept nogil:
    cdef double* v = work + 2 * n
    cdef double* rate = work + 3 * n
    cdef double* temp = work + 4 * n
    cdef double total = 0.0, zeta = 0.0, entry
    cdef Py_ssize_t j, m, rank
    cdef Threshold t
    cdef Pools pools
    cdef Ranking order
    for j in range(n_w):
        total += w[j]
    total *= radius
    if n_w == 0 or total == 0.0:
        fill_row(x, n, 0.0)
        return
    if w[0] == w[n_w - 1]:
        project_topk_row(b, x, n, n_w, total, TOPK_LABEL if label else TOPK_ALPHA, bias, start,
                         work)
        return

    t = candidates(b, n, n_w, total, start, work, &m)
    order = rank_entries(work, m, work + n)
    if m + label >= n_w and m > 0:
        while order.n_ranked < (m if label else n_w):
            rank_next(&order)
        if not label:
            pools = pools_in(temp, m)
            start_pools(&pools, order.ranked, n_w, w, n_w)
            zeta = newton_zeta(&pools, &order, radius, bias, t.shift)
            unfold_pools(&pools, 0.0, v, rate)
        elif not label_stays_zero(order.ranked, m, w, n_w, t.shift):
            zeta = label_zeta(order.ranked, m, w, n_w, radius, bias, t.shift, v, rate, temp)
    if zeta == 0.0:
        fill_row(x, n, 0.0)
        return
    for j in range(n):
        entry = b[j] - t.shift
        if entry > t.offset and entry >= order.ranked[order.n_ranked - 1]:
            rank = rank_of(entry, order.ranked, order.n_ranked)
            x[j] = <real>max(0.0, (entry - v[rank]) - zeta * rate[rank])
        else:
            x[j] = 0


def project_weighted_rows(const real[:, ::1] b, real[:, ::1] x, const double[::1] w,
                          double radius, bint label, double bias):
    """Project each row of b onto the weighted top-k set of the positive weights w; x may be b."""
    cdef Py_ssize_t i, n = b.shape[1], n_w = w.shape[0]
    cdef const double* weights = &w[0] if n_w else NULL
    cdef double[::1] work = scratch(n * WEIGHTED_WORK)
    with nogil:
        for i in range(b.shape[0]):
            project_weighted_row(&b[i, 0], &x[i, 0], n, weights, n_w, radius, label, bias, NULL,
                                 &work[0])
