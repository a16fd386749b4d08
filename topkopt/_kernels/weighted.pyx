"""The weighted top-k set by path following over pools.

Solve    min_x 1/2 |x - b|^2 + bias/2 <1,x>^2   s.t.  x in zeta Perm(w),  0 <= zeta <= r.
The solution, for b sorted descending, is
    x = b - v,   v = iso(b - zeta w),                                                           (1)
with iso the non-increasing isotonic regression (pool adjacent violators).  On a pool of ranks with
mean entry b_P and mean weight w_P, v = b_P - zeta w_P.  While the pools P stay as they are, the
derivative of the optimal value with respect to zeta is
    zeta (sum_P |P| w_P^2 + bias (sum w)^2) - sum_P |P| b_P w_P.                                (2)

As zeta grows pools only merge, and the derivative is concave in zeta. So Newton's method from
zeta = 0 never passes the root, and it stands on it once a step merges nothing.

Where the label owns a slot of its own (w has one weight more than x has entries), (1) becomes
    v = clip(mu, A, B),   A = iso(b - zeta w_{1..p}),   B = iso(b - zeta w_{2..m}),           (3)
with mu = bias <1,x>.

The code stores shares b - v, which keep their digits where b and v are large. The readable twin is
reference/weighted.py.
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, fabs

from topkopt._kernels.knapsack cimport capped_threshold, fix_boxed
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport (Threshold, fill_row, gather_above, gather_below_peaks,
                                      heap_pop, heapify, rank_of, row_peaks, row_sum_more, scratch)
from topkopt._kernels.topk cimport TOPK_ALPHA, TOPK_LABEL, TopKSet, project_topk_row

cdef enum:
    # In a row this long most entries are far from positive, so that an index of its peaks pays.
    MANY = 256


# Pools of neighbouring ranks that share one value of v. For each of them: how many ranks it has,
# the first (and so the largest) of their b, the sum of b minus that first, and the sum of w.
# Relative to the first entry no digits are lost, because the entries of a pool are no further apart
# than their x, however large they are.
cdef struct Pools:
    double* size
    double* first
    double* more
    double* sum_w
    Py_ssize_t n


cdef Pools pools_in(double* work, Py_ssize_t n) noexcept nogil:
    # Returns no pools yet, with room for n of them in work. TEMP work: 4 n
    cdef Pools pools
    pools.size = work
    pools.first = work + n
    pools.more = work + 2 * n
    pools.sum_w = work + 3 * n
    pools.n = 0
    return pools


cdef void start_pools(Pools* pools, const double* b, Py_ssize_t n, const double* w,
                      Py_ssize_t n_w) noexcept nogil:
    # At zeta = 0 every rank is a pool of its own. Ranks beyond the n_w weights have the weight 0.
    cdef Py_ssize_t j
    for j in range(n):
        pools.size[j] = 1.0
        pools.first[j] = b[j]
        pools.more[j] = 0.0
        pools.sum_w[j] = w[j] if j < n_w else 0.0
    pools.n = n


cdef inline double pool_offset(const Pools* pools, Py_ssize_t i, double zeta) noexcept nogil:
    # Returns the value v = b_P - zeta w_P of a pool, minus its first entry.
    return (pools.more[i] - zeta * pools.sum_w[i]) / pools.size[i]


cdef inline bint out_of_order(const Pools* pools, Py_ssize_t i, Py_ssize_t j,
                              double zeta) noexcept nogil:
    # Whether the value of pool i is below that of pool j, which comes after it.
    return (pools.first[i] - pools.first[j]
            < pool_offset(pools, j, zeta) - pool_offset(pools, i, zeta))


cdef bint merge_pools(Pools* pools, double zeta) noexcept nogil:
    # Pool adjacent violators, starting from the pools there are: each is appended to the list of
    # those before it, and merged with the last of them as long as the two are out of order. Returns
    # whether any merged.
    cdef Py_ssize_t i, last = 0
    for i in range(1, pools.n):
        last += 1
        pools.size[last] = pools.size[i]
        pools.first[last] = pools.first[i]
        pools.more[last] = pools.more[i]
        pools.sum_w[last] = pools.sum_w[i]
        while last > 0 and out_of_order(pools, last - 1, last, zeta):
            last -= 1
            pools.more[last] += (pools.more[last + 1]
                                 + pools.size[last + 1] * (pools.first[last + 1]
                                                           - pools.first[last]))
            pools.size[last] += pools.size[last + 1]
            pools.sum_w[last] += pools.sum_w[last + 1]
    last += 1
    if last == pools.n:
        return False
    pools.n = last
    return True


cdef void sum_pools(Pools* pools, const double* b) noexcept nogil:
    # Mergers have added the entries one by one. This forms the same sums again, with less rounding.
    cdef Py_ssize_t i, size, j = 0
    for i in range(pools.n):
        size = <Py_ssize_t>pools.size[i]
        if size > 2:
            pools.more[i] = row_sum_more(b + j, size, pools.first[i])
        j += size


cdef void unfold_pools(const Pools* pools, const double* b, double zeta, double* share,
                       double* rate) noexcept nogil:
    # OUT share: b - v for each rank; rate (or NULL): its derivative w_P with respect to zeta.
    cdef Py_ssize_t i, j = 0, end
    cdef double offset, mean_w
    for i in range(pools.n):
        offset = pool_offset(pools, i, zeta)
        mean_w = pools.sum_w[i] / pools.size[i]
        end = j + <Py_ssize_t>pools.size[i]
        while j < end:
            share[j] = (b[j] - pools.first[i]) - offset
            if rate != NULL:
                rate[j] = mean_w
            j += 1


# The entries in descending order, as far as they are known; the others wait in a heap.
cdef struct Ranking:
    double* ranked
    Py_ssize_t n_ranked
    double* heap
    Py_ssize_t n_heap


cdef Ranking rank_entries(double* entries, Py_ssize_t n, double* ranked) noexcept nogil:
    # Ranks nothing yet. TEMP entries, which become the heap. OUT ranked, later, by rank_next
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
    # Entries beyond the last weight matter only once they join the last pool, which happens when
    # their v = b exceeds that of the pool. Those that do are ranked here, the others never. Returns
    # whether any joined.
    cdef Py_ssize_t last = pools.n - 1
    cdef bint joined = False
    while (order.n_heap > 0
           and pools.first[last] - order.heap[0] < -pool_offset(pools, last, zeta)):
        pools.size[last] += 1.0
        pools.more[last] += rank_next(order) - pools.first[last]
        joined = True
    if joined:
        merge_pools(pools, zeta)
    return joined


cdef double best_zeta(const Pools* pools, double radius, double bias,
                      double total) noexcept nogil:
    # Returns the root of (2) on [0, radius], as if the pools would stay as they are. IN total: the
    # sum of w.
    cdef double gain = 0.0, cost = bias * total * total
    cdef Py_ssize_t i
    for i in range(pools.n):
        gain += (pools.first[i] + pools.more[i] / pools.size[i]) * pools.sum_w[i]
        cost += pools.sum_w[i] * pools.sum_w[i] / pools.size[i]
    return min(radius, gain / cost) if gain > 0.0 else 0.0


cdef double newton_zeta(Pools* pools, Ranking* order, double radius,
                        double bias) noexcept nogil:
    # Newton's method for zeta, as described at the top. INOUT pools, order: from the state at
    # zeta = 0 to that at the root.
    cdef double total = 0.0, zeta
    cdef bint changed = True
    cdef Py_ssize_t i
    for i in range(pools.n):
        total += pools.sum_w[i]
    while changed:
        zeta = best_zeta(pools, radius, bias, total)
        if zeta == 0.0:
            return 0.0
        changed = merge_pools(pools, zeta)
        while absorb(pools, order, zeta):
            changed = True
    sum_pools(pools, order.ranked)
    return best_zeta(pools, radius, bias, total)


# The label-included problem (3) at one zeta. Its x is b - mu, clipped to [b - B, b - A].
cdef struct LabelPoint:
    double* upper           # b - A and its derivative with respect to zeta
    double* upper_rate
    double* lower           # b - B and its derivative
    double* lower_rate
    Threshold mu
    double derivative       # that of the optimal value with respect to zeta
    double rate             # the second derivative
    # The derivative is piecewise linear. A piece is told by how many pools A and B have, and by how
    # many x are at their upper and at their lower bounds.
    Py_ssize_t piece[4]


cdef Threshold balance(const double* b, const double* lower, const double* upper, Py_ssize_t n,
                       double bias, double* work) noexcept nogil:
    # Returns the mu = bias <1,x> of (3), the threshold of a knapsack. TEMP work: 3 n
    cdef Threshold mu
    cdef Py_ssize_t j
    mu.shift = 0.0
    mu.offset = 0.0
    if bias > 0.0:
        mu.shift = b[0]
        for j in range(n):
            work[j] = b[j] - mu.shift
            work[n + j] = lower[j]
            work[2 * n + j] = upper[j]
        mu.offset = fix_boxed(work, work + n, work + 2 * n, n, mu.shift / bias, 1.0 / bias)
    return mu


cdef Py_ssize_t isotonic(const double* b, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                         double zeta, double* share, double* rate, double* work) noexcept nogil:
    # OUT share, rate: b - iso(b - zeta w) for each rank, and its derivative with respect to zeta.
    # Returns the number of pools. TEMP work: 4 n
    cdef Pools pools = pools_in(work, n)
    start_pools(&pools, b, n, w, n_w)
    merge_pools(&pools, zeta)
    sum_pools(&pools, b)
    unfold_pools(&pools, b, zeta, share, rate)
    return pools.n


cdef inline double without_bounds(const LabelPoint* at, double entry) noexcept nogil:
    # Returns b - mu, subtracting the shift first, as that keeps the digits.
    return (entry - at.mu.shift) - at.mu.offset


cdef void differentiate(LabelPoint* at, const double* b, Py_ssize_t n, const double* w,
                        Py_ssize_t n_w, double bias) noexcept nogil:
    # OUT at: its derivatives and the last two numbers of its piece. By the envelope theorem the
    # derivative is the sum of (v - mu) w' over the ranks at a bound, where w' is the weight of the
    # rank in A or in B. For the second derivative, mu = bias <1,x> moves along: the x at a bound
    # move by their rates, and the n_free others by -dmu.
    cdef double mu_rate = 0.0, n_free = 0.0, free
    cdef Py_ssize_t j, n_above = 0, n_below = 0
    for j in range(n):
        free = without_bounds(at, b[j])
        if free > at.upper[j]:
            mu_rate += at.upper_rate[j]
            n_above += 1
        elif free < at.lower[j]:
            mu_rate += at.lower_rate[j]
            n_below += 1
    n_free = n - n_above - n_below
    mu_rate *= bias / (1.0 + bias * n_free)
    at.piece[2] = n_above
    at.piece[3] = n_below
    at.derivative = 0.0
    at.rate = 0.0
    for j in range(min(n, n_w)):
        free = without_bounds(at, b[j])
        if free > at.upper[j]:
            at.derivative -= (free - at.upper[j]) * w[j]
            at.rate += (at.upper_rate[j] + mu_rate) * w[j]
        elif free < at.lower[j] and j + 1 < n_w:
            at.derivative -= (free - at.lower[j]) * w[j + 1]
            at.rate += (at.lower_rate[j] + mu_rate) * w[j + 1]


cdef void evaluate_label(LabelPoint* at, const double* b, Py_ssize_t n, const double* w,
                         Py_ssize_t n_w, double zeta, double bias, double* work) noexcept nogil:
    # OUT at: the point at zeta. TEMP work: 8 n, of which the first 4 n belong to the point.
    cdef double* temp = work + 4 * n
    cdef Py_ssize_t j
    at.upper = work
    at.upper_rate = work + n
    at.lower = work + 2 * n
    at.lower_rate = work + 3 * n
    at.piece[0] = isotonic(b, n, w, n_w, zeta, at.upper, at.upper_rate, temp)
    at.piece[1] = isotonic(b, n, w + 1, n_w - 1, zeta, at.lower, at.lower_rate, temp)
    for j in range(n):
        at.lower[j] = min(at.lower[j], at.upper[j])  # A <= B holds, but for rounding.
    at.mu = balance(b, at.lower, at.upper, n, bias, temp)
    differentiate(at, b, n, w, n_w, bias)


cdef inline double label_share(const LabelPoint* at, double entry, Py_ssize_t j) noexcept nogil:
    return max(at.lower[j], min(at.upper[j], without_bounds(at, entry)))


cdef void rebalance(LabelPoint* at, const double* b, Py_ssize_t n, double bias) noexcept nogil:
    # One Newton step for mu = bias <1,x>. Where x is small next to b, mu has lost digits of it to
    # the rounding of that sum; here the sum keeps what each addition loses.
    cdef double total = 0.0, lost = 0.0, n_free = 0.0, x, longer
    cdef Py_ssize_t j
    for j in range(n):
        x = label_share(at, b[j], j)
        n_free += at.lower[j] < x < at.upper[j]
        longer = total + x
        lost += (total - longer) + x if fabs(total) >= fabs(x) else (x - longer) + total
        total = longer
    at.mu.offset += (((bias * total - at.mu.shift) - at.mu.offset + bias * lost)
                     / (1.0 + bias * n_free))


cdef inline bint same_piece(const Py_ssize_t* a, const Py_ssize_t* b) noexcept nogil:
    return a[0] == b[0] and a[1] == b[1] and a[2] == b[2] and a[3] == b[3]


cdef double label_zeta(const double* b, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                       double radius, double bias, double* x, double* work) noexcept nogil:
    # Returns the root zeta of the derivative on [0, radius], by Newton steps inside a bracket. OUT
    # x: the solution. TEMP work: 8 n
    cdef LabelPoint at
    # A zeta far beyond the entries is never better, and its rounding would hide them.
    cdef double most = min(radius, 4 * n * max(fabs(b[0]), fabs(b[n - 1])) / w[0])
    cdef double left = 0.0, right = most, zeta = most, root
    cdef Py_ssize_t j, refinements = 0
    cdef Py_ssize_t[4] piece
    piece[:] = [-1, -1, -1, -1]
    while True:
        evaluate_label(&at, b, n, w, n_w, zeta, bias, work)
        if at.derivative == 0.0 or (at.derivative < 0.0 and zeta == most):
            break
        root = zeta - at.derivative / at.rate if at.rate > 0.0 else most
        if same_piece(piece, at.piece):
            # The step ended on the piece it was computed for. It may have the rounding of a zeta
            # far away, so it is repeated up to two times from nearby.
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
    if bias > 0.0:
        rebalance(&at, b, n, bias)
    for j in range(n):
        x[j] = label_share(&at, b[j], j)
    return zeta


cdef bint label_stays_zero(const double* b, Py_ssize_t n, const double* w,
                           Py_ssize_t n_w) noexcept nogil:
    # Returns whether the derivative at zeta = 0 is not negative, so that x = 0 is the solution.
    # There A = B = b and mu = 0: positive entries are at the bound A, the others at B.
    cdef double gain = 0.0
    cdef Py_ssize_t j
    for j in range(min(n, n_w)):
        if b[j] > 0.0:
            gain += b[j] * w[j]
        elif j + 1 < n_w:
            gain += b[j] * w[j + 1]
    return gain <= 0.0


cdef Py_ssize_t gather_candidates(const real* b, Py_ssize_t n, Py_ssize_t n_w, double total,
                                  double* start, double* work) noexcept nogil:
    # OUT work: the entries that can be positive; returns their number. Among all weights of this
    # sum flat ones reach the furthest down, and for these the threshold is that of a knapsack. TEMP
    # work: 2 n
    cdef Threshold t
    cdef double cut = -INFINITY
    cdef Py_ssize_t n_kept
    if n_w <= n:
        t = capped_threshold(b, n, total / n_w, total, start, work, &n_kept)
        # The threshold is known up to rounding, and no entry may be lost.
        cut = t.shift + t.offset - 2 * DBL_EPSILON * (fabs(t.shift) + fabs(t.offset))
    if n < MANY:
        return gather_above(b, n, cut, 0.0, work)
    # Of a long row only the entries below high peaks are looked at.
    row_peaks(b, n, work + n)
    return gather_below_peaks(b, n, work + n, cut, 0.0, work)


cdef void scatter_shares(const real* b, real* x, Py_ssize_t n, const Ranking* order,
                         const double* share) noexcept nogil:
    # OUT x: the share of its rank for each entry that has one, 0 for the others.
    cdef double last = order.ranked[order.n_ranked - 1]
    cdef Py_ssize_t j
    for j in range(n):
        if b[j] >= last:
            x[j] = <real>max(0.0, share[rank_of(b[j], order.ranked, order.n_ranked)])
        else:
            x[j] = 0


cdef void project_weighted_row(const real* b, real* x, Py_ssize_t n, const WeightedSet* onto,
                               double bias, double* start, double* work) noexcept nogil:
    cdef const double* w = onto.w
    cdef double* share = work + 2 * n
    cdef double* temp = work + 3 * n
    cdef double total = 0.0, zeta = 0.0
    cdef Py_ssize_t j, m, n_w = onto.n_w
    cdef Pools pools
    cdef Ranking order
    for j in range(n_w):
        total += w[j]
    total *= onto.radius
    if n_w == 0 or total == 0.0:
        fill_row(x, n, 0.0)
        return
    if w[0] == w[n_w - 1]:
        # With equal weights the set is a top-k simplex.
        project_topk_row(b, x, n,
                         TopKSet(n_w, total, TOPK_LABEL if onto.label else TOPK_ALPHA), bias,
                         start, work)
        return

    m = gather_candidates(b, n, n_w, total, start, work)
    order = rank_entries(work, m, work + n)
    # Each weight needs an entry (one of them the slot of the label), or zeta must be 0.
    if m + onto.label >= n_w and m > 0:
        while order.n_ranked < (m if onto.label else n_w):
            rank_next(&order)
        if not onto.label:
            pools = pools_in(temp, m)
            start_pools(&pools, order.ranked, n_w, w, n_w)
            zeta = newton_zeta(&pools, &order, onto.radius, bias)
            unfold_pools(&pools, order.ranked, zeta, share, NULL)
        elif not label_stays_zero(order.ranked, m, w, n_w):
            zeta = label_zeta(order.ranked, m, w, n_w, onto.radius, bias, share, temp)
    if zeta == 0.0:
        fill_row(x, n, 0.0)
        return
    scatter_shares(b, x, n, &order, share)


def project_weighted_rows(const real[:, ::1] b, real[:, ::1] x, const double[::1] w,
                          double radius, bint label, double bias):
    """Project each row of b onto the weighted top-k set of the positive weights w; x may be b."""
    cdef Py_ssize_t i, n = b.shape[1], n_w = w.shape[0]
    cdef const double* weights = &w[0] if n_w else NULL
    cdef WeightedSet onto = WeightedSet(weights, n_w, radius, label)
    cdef double[::1] work = scratch(n * WEIGHTED_WORK)
    with nogil:
        for i in range(b.shape[0]):
            project_weighted_row(&b[i, 0], &x[i, 0], n, &onto, bias, NULL, &work[0])
