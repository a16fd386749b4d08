"""How the solution of a prox moves with its argument.

On each of its pieces the prox objective is a quadratic with a diagonal Hessian Q, and v may move in
the directions that the piece allows, the columns of B. Then

    dv/dq = B (B'Q B)^-1 B'.

Let delta be the diagonal of the inverse of Q. Entries that are tied by their sum alone are a pool,
and contribute diag(delta) - delta delta'/<1,delta>. To change the sum of a pool, other entries have
to move too: such a direction contributes c c' with a column c of its own. Let w say how other
classes move along with each entry of a pool M, and let c = w'Q w. Then B'Q B = Q_M + c 11', and
with a = delta on M and N = <1,a> the contributions are those of the pool M and of the column

    (a + N w) / sqrt(N (1 + c N)).
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t

from topkopt._kernels.weighted cimport WeightedSet
from topkopt.losses.base cimport Derivative, Labels
from topkopt.losses.rows cimport is_label

cdef double AT_BOUND = 1e-12


cdef void no_derivative(Derivative* d, Py_ssize_t m) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(m):
        d.delta[j] = 0.0
        d.pool[j] = -1
    d.n_columns = 0


cdef double* new_column(Derivative* d, Py_ssize_t m) noexcept nogil:
    cdef Py_ssize_t j
    cdef double* column = d.columns + d.n_columns * m
    for j in range(m):
        column[j] = 0.0
    d.n_columns += 1
    return column


cdef void scale_column(double* column, Py_ssize_t m, double square) noexcept nogil:
    cdef Py_ssize_t j
    cdef double scale = 1.0 / sqrt(square)
    for j in range(m):
        column[j] *= scale


cdef void capped_derivative(Derivative* d, const double* v, Py_ssize_t own, Py_ssize_t m,
                            Cap cap) noexcept nogil:
    cdef Py_ssize_t j, n_top = 0, n_free = 0
    cdef double mass = 0.0, with_top = 0.0, with_own = -1.0
    cdef double* column
    d.n_columns = 0
    for j in range(m):
        d.pool[j] = -1
        if j == own or v[j] <= 0.0:
            d.delta[j] = 0.0
        elif v[j] >= cap.top:
            d.delta[j] = 0.0
            n_top += 1
        else:
            d.pool[j] = 0
            mass += d.delta[j]
            n_free += 1
    if cap.sum_stays or n_free + n_top == 0:
        return
    if cap.k > 0 and n_top >= cap.k:        # All of p is at the cap and moves as one.
        with_top = 1.0
        with_own = -<double>n_top
        mass = 1.0
    elif n_free == 0:
        return
    elif cap.k > 0:
        with_top = 1.0 / (cap.k - n_top)
        with_own = -cap.k * with_top
    column = new_column(d, m)
    for j in range(m):
        if j == own:
            column[j] = mass * with_own
        elif v[j] >= cap.top and v[j] > 0.0:
            column[j] = mass * with_top
        else:
            column[j] = d.delta[j]
    # From here on with_top is the curvature of what the entries of the pool carry along.
    with_top = (n_top * with_top * with_top * cap.curvature.other
                + with_own * with_own * cap.curvature.own)
    scale_column(column, m, with_top if n_free == 0 else mass * (1.0 + with_top * mass))


cdef void follow_the_label(Derivative* d, Py_ssize_t m, Py_ssize_t own, double mass,
                           double own_curvature) noexcept nogil:
    # Adds the column of pool 0, of the given mass, whose sum moves with the label alone.
    cdef Py_ssize_t j
    cdef double* column = new_column(d, m)
    for j in range(m):
        column[j] = d.delta[j] if d.pool[j] == 0 else 0.0
    column[own] = -mass
    scale_column(column, m, mass * (1.0 + own_curvature * mass))


# The n classes of positive p, ranked by their scores, and the pools of neighbouring ranks. Each
# rank has its class and its b, the score over the curvature minus that of the first rank. Each pool
# has the sum of b - zeta w in `more`, that of w in `weight`, and the number of ranks in `size`.
cdef struct Ranks:
    double* rank_class
    double* b
    double* more
    double* weight
    double* size
    Py_ssize_t n
    double curvature


cdef Ranks rank_support(const double* q, const double* v, Py_ssize_t own, Py_ssize_t m,
                        double curvature, double* work) noexcept nogil:
    # The ranks are found by insertion, because most supports are short. TEMP work: 5 m
    cdef Ranks ranks
    cdef Py_ssize_t j, place
    ranks.rank_class = work
    ranks.b = work + m
    ranks.more = work + 2 * m
    ranks.weight = work + 3 * m
    ranks.size = work + 4 * m
    ranks.n = 0
    ranks.curvature = curvature
    for j in range(m):
        if j == own or v[j] <= 0.0:
            continue
        place = ranks.n
        while place > 0 and q[<Py_ssize_t>ranks.rank_class[place - 1]] < q[j]:
            ranks.rank_class[place] = ranks.rank_class[place - 1]
            place -= 1
        ranks.rank_class[place] = j
        ranks.n += 1
    for place in range(ranks.n):
        ranks.b[place] = (q[<Py_ssize_t>ranks.rank_class[place]]
                          - q[<Py_ssize_t>ranks.rank_class[0]]) / curvature
    return ranks


cdef void pool_ranks(Derivative* d, const Ranks* ranks, Py_ssize_t first, Py_ssize_t last,
                     const double* w, Py_ssize_t n_w, double zeta,
                     double* direction) noexcept nogil:
    # Pools adjacent violators of b - zeta w among the ranks from first to last. OUT d: the pools of
    # these classes, with numbers from first + 1 on; direction: the mean weight of their pools
    cdef Py_ssize_t i, j, n = 0, pool
    for i in range(first, last):
        ranks.weight[n] = w[i] if i < n_w else 0.0
        ranks.more[n] = ranks.b[i] - zeta * ranks.weight[n]
        ranks.size[n] = 1.0
        while n > 0 and ranks.more[n - 1] * ranks.size[n] < ranks.more[n] * ranks.size[n - 1]:
            n -= 1
            ranks.more[n] += ranks.more[n + 1]
            ranks.weight[n] += ranks.weight[n + 1]
            ranks.size[n] += ranks.size[n + 1]
        n += 1
    i = first
    for pool in range(n):
        for _ in range(<Py_ssize_t>ranks.size[pool]):
            j = <Py_ssize_t>ranks.rank_class[i]
            direction[j] = ranks.weight[pool] / ranks.size[pool]
            if ranks.size[pool] > 1.0:
                d.delta[j] = 1.0 / ranks.curvature
                d.pool[j] = <int32_t>(first + 1 + pool)
            i += 1


cdef double mass_of(const double* x, const Ranks* ranks, Py_ssize_t first,
                    Py_ssize_t last) noexcept nogil:
    cdef double total = 0.0
    cdef Py_ssize_t i
    for i in range(first, last):
        total += x[<Py_ssize_t>ranks.rank_class[i]]
    return total


cdef double weight_of(const double* w, Py_ssize_t n_w, Py_ssize_t first,
                      Py_ssize_t last) noexcept nogil:
    cdef double total = 0.0
    cdef Py_ssize_t i
    for i in range(first, min(last, n_w)):
        total += w[i]
    return total


cdef int side(double q, double q_own, double curvature, double x, double mu) noexcept nogil:
    # The price of an entry is what the projection takes from it, b - x. Returns 1 if that is above
    # mu, -1 if it is below, and 0 if the two are equal up to the rounding of scores.
    cdef double t = ((1.0 + (q - q_own)) / curvature - x) - mu
    cdef double slack = 64 * DBL_EPSILON * (1.0 + (1.0 + fabs(q) + fabs(q_own)) / curvature)
    return 1 if t > slack else -1 if t < -slack else 0


cdef void weighted_derivative(Derivative* d, const double* q, const double* v, Py_ssize_t own,
                              Py_ssize_t m, const WeightedSet* onto, Curvatures curved,
                              double* work) noexcept nogil:
    # Where the label has a slot, the first ranks are pooled under w_1, w_2, ... and the last ranks
    # under w_2, w_3, ... (see weighted.pyx). Those in between are free and have the price mu.
    cdef Ranks ranks
    cdef Py_ssize_t i, j, above, below
    cdef double mu, weight, zeta = 1.0, square = 0.0, total = 0.0, mass, share, moved
    cdef double curvature = curved.other, own_curvature = curved.own
    cdef const double* w = onto.w
    cdef Py_ssize_t n_w = onto.n_w
    cdef double* direction
    cdef double* both
    no_derivative(d, m)
    if curvature <= 0.0:
        return
    ranks = rank_support(q, v, own, m, curvature, work)
    above = ranks.n
    below = ranks.n
    if onto.label:
        mu = -v[own] * own_curvature / curvature
        above = 0
        for i in range(ranks.n):
            j = <Py_ssize_t>ranks.rank_class[i]
            if side(q[j], q[own], curvature, v[j], mu) <= 0:
                break
            above += 1
        for i in range(ranks.n - 1, above - 1, -1):
            j = <Py_ssize_t>ranks.rank_class[i]
            if side(q[j], q[own], curvature, v[j], mu) >= 0:
                break
            below -= 1
    weight = weight_of(w, n_w, 0, above) + weight_of(w, n_w, below + 1, ranks.n + 1)
    if weight > 0.0:
        zeta = (mass_of(v, &ranks, 0, above) + mass_of(v, &ranks, below, ranks.n)) / weight

    direction = new_column(d, m)
    pool_ranks(d, &ranks, 0, above, w, n_w, zeta, direction)
    pool_ranks(d, &ranks, below, ranks.n, w + 1, n_w - 1, zeta, direction)
    for j in range(m):
        total += direction[j]
        square += curvature * direction[j] * direction[j]
    mass = (below - above) / curvature
    for i in range(above, below):
        j = <Py_ssize_t>ranks.rank_class[i]
        d.delta[j] = 1.0 / curvature
        d.pool[j] = 0
    if zeta >= 1.0 - AT_BOUND or total <= 0.0:      # Then zeta does not move.
        d.n_columns = 0
        if mass > 0.0:
            follow_the_label(d, m, own, mass, own_curvature)
        return
    direction[own] = -total
    if mass == 0.0:
        scale_column(direction, m, square + own_curvature * total * total)
        return
    # What moves with zeta is like one more entry of the free pool, whose curvature is that of
    # direction/total. One column moves mass between that entry and the pool, the other moves the
    # sum of both.
    both = new_column(d, m)
    square /= total * total
    for j in range(m):
        share = d.delta[j] if d.pool[j] == 0 else 0.0
        moved = direction[j] / total
        both[j] = share + moved / square
        direction[j] = share / mass - moved
    direction[own] = 0.0
    scale_column(direction, m, 1.0 / mass + square)
    mass += 1.0 / square
    both[own] = -mass
    scale_column(both, m, mass * (1.0 + own_curvature * mass))


cdef void simplex_derivative(Derivative* d, const double* v, Labels y, Py_ssize_t m,
                             double alpha) noexcept nogil:
    cdef Py_ssize_t j, label = 0
    cdef double x
    for j in range(m):
        x = v[j] + 1.0 / y.n if is_label(y, j, &label) else v[j]
        d.delta[j] = x / (1.0 + alpha * x) if x > 0.0 else 0.0
        d.pool[j] = 0
    d.n_columns = 0
