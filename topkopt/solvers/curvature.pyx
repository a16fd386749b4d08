"""Smoothed losses of all examples and their second derivatives, as Newton's method needs them.

With a centre c the loss of an example becomes

    L_sigma(s) = max_v  <s,v> - L*(v) - sigma/2 |v - c|^2,

whose gradient is the prox v at s + sigma c, and whose Hessian is the derivative D of that prox. An
example without features has no curvature to add: its v is the one that is best at once.
"""
import numpy as np

from libc.math cimport sqrt
from libc.stdint cimport int32_t
from libc.string cimport memcmp

from topkopt._kernels.interrupt cimport ENTRY_WORK, PULSE, look_for_interrupt
from topkopt._kernels.select cimport row_dot
from topkopt.losses.base cimport COLUMNS, SIDE_BY_SIDE, Derivative, Labels, whole_derivative
from topkopt.solvers.epochs cimport Examples


cdef double sigma_of(Examples examples, Py_ssize_t i, double sigma) noexcept nogil:
    # Returns the sigma of one example, which is 0 if the example has no features.
    return 0.0 if examples.square_norm[i] == 0.0 else sigma


def proxes(Examples examples, const double[:, ::1] s, const double[:, ::1] moved, double length,
           const double[:, ::1] centre, double sigma, double[:, ::1] v,
           const Py_ssize_t[::1] rows):
    """Write the v of some rows at the scores s + length moved.

    Returns the sum of costs times <moved, v>, the slope of these L_sigma in the direction.
    """
    cdef Py_ssize_t i, j, r, m = examples.n_classes, left = PULSE
    cdef double* q = &examples.scratch[0]
    cdef double* work = q + m
    cdef double own, slope = 0.0
    with nogil:
        for r in range(rows.shape[0]):
            i = rows[r]
            look_for_interrupt(&left, 2 * m * ENTRY_WORK)
            own = sigma_of(examples, i, sigma)
            for j in range(m):
                q[j] = s[i, j] + length * moved[i, j] + own * centre[i, j]
            examples.loss.row_prox(q, examples.labels(i), m, own, &v[i, 0], &examples.start[i, 0],
                                   work)
            slope += examples.cost[i] * row_dot(&moved[i, 0], &v[i, 0], m)
    return slope


def changed_rows(const double[:, ::1] v, const double[:, ::1] new, const Py_ssize_t[::1] rows):
    """Return those of the rows that differ."""
    cdef Py_ssize_t r, n = 0, width = v.shape[1] * sizeof(double)
    cdef Py_ssize_t[::1] out = np.empty(rows.shape[0], np.intp)
    with nogil:
        for r in range(rows.shape[0]):
            if memcmp(&v[rows[r], 0], &new[rows[r], 0], width) != 0:
                out[n] = rows[r]
                n += 1
    return np.asarray(out)[:n]


def sums(Examples examples, const double[:, ::1] s, const double[:, ::1] v):
    """Return the sums of costs times losses at the scores s and times conjugates at v."""
    cdef Py_ssize_t first = 0, j, size, m = examples.n_classes, left = PULSE
    cdef double[SIDE_BY_SIDE] values
    cdef Labels[SIDE_BY_SIDE] y
    cdef double* work = &examples.scratch[0]
    cdef double losses = 0.0, conjugates = 0.0, cost
    with nogil:
        while first < s.shape[0]:
            size = min(s.shape[0] - first, <Py_ssize_t>SIDE_BY_SIDE)
            look_for_interrupt(&left, size * m * ENTRY_WORK)
            for j in range(size):
                y[j] = examples.labels(first + j)
            examples.loss.row_values(&s[first, 0], y, size, m, &examples.value_start[first, 0],
                                     values, work)
            for j in range(size):
                cost = examples.cost[first + j]
                if cost > 0.0:
                    losses += cost * values[j]
                    conjugates += cost * examples.loss.row_conjugate(&v[first + j, 0], y[j], m,
                                                                     work)
            first += size
    return losses, conjugates


cdef class Curvature:
    """The derivatives D of the examples whose v moves with its scores.

    Parameters
    ----------
    examples : Examples
        All examples.
    s, centre, sigma : ndarray of shape (n, m), ndarray of shape (n, m), float
        Where L_sigma is differentiated.
    v : ndarray of shape (n, m)
        The prox there, as `proxes` leaves it.
    rows : ndarray of intp
        The examples that count.
    """

    cdef readonly Py_ssize_t n_classes
    cdef readonly object rows       # The examples whose derivatives are not 0.
    cdef readonly Py_ssize_t rank   # The sum of the ranks of these derivatives.
    cdef double[:, ::1] delta
    cdef int32_t[:, ::1] pool
    cdef double[:, ::1] columns
    cdef Py_ssize_t[::1] column_start

    def __init__(self, Examples examples, const double[:, ::1] s, const double[:, ::1] centre,
                 double sigma, const double[:, ::1] v, const Py_ssize_t[::1] rows):
        cdef Py_ssize_t i, j, r, rank, n = 0, n_columns = 0, m = examples.n_classes, left = PULSE
        cdef Py_ssize_t n_rows = rows.shape[0]
        cdef double* q = &examples.scratch[0]
        cdef Derivative d
        cdef Py_ssize_t[::1] moving = np.empty(n_rows, np.intp)
        cdef Py_ssize_t[::1] size = np.empty(m + 1, np.intp)
        # Memory that is never touched is never given out: this is as much as there may be.
        self.delta = np.empty((n_rows + 1, m))
        self.pool = np.empty((n_rows + 1, m), np.int32)
        self.columns = np.empty((COLUMNS * (n_rows + 1), m))
        self.column_start = np.zeros(n_rows + 1, np.intp)
        self.n_classes = m
        self.rank = 0
        with nogil:
            for r in range(n_rows):
                i = rows[r]
                look_for_interrupt(&left, m * ENTRY_WORK)
                if examples.square_norm[i] == 0.0:
                    continue
                for j in range(m):
                    q[j] = s[i, j] + sigma * centre[i, j]
                d = self.at(n)
                d.columns = &self.columns[n_columns, 0]
                examples.loss.row_derivative(q, examples.labels(i), m, sigma, &v[i, 0], &d, q + m)
                rank = rank_of(&d, m, &size[0])
                if rank > 0:
                    self.rank += rank
                    moving[n] = i
                    n += 1
                    n_columns += d.n_columns
                    self.column_start[n] = n_columns
        self.rows = np.asarray(moving)[:n]

    cdef Derivative at(self, Py_ssize_t i) noexcept nogil:
        cdef Derivative d
        d.delta = &self.delta[i, 0]
        d.pool = &self.pool[i, 0]
        d.columns = &self.columns[self.column_start[i], 0]
        d.n_columns = 0
        if i + 1 < self.column_start.shape[0]:
            d.n_columns = <int>(self.column_start[i + 1] - self.column_start[i])
        return d

    def apply(self, const double[:, ::1] u):
        """Return D u for each of the moving examples; u has a row for each of them."""
        cdef Py_ssize_t i, j, c, m = self.n_classes
        cdef double[:, ::1] out = np.empty((u.shape[0], m))
        cdef double[::1] mass = np.empty(m + 1)
        cdef double[::1] inner = np.empty(m + 1)
        cdef double along
        cdef Derivative d
        with nogil:
            for i in range(u.shape[0]):
                d = self.at(i)
                pool_masses(&d, m, &mass[0])
                for j in range(m + 1):
                    inner[j] = 0.0
                for j in range(m):
                    inner[d.pool[j] + 1] += d.delta[j] * u[i, j]
                for j in range(m):
                    out[i, j] = d.delta[j] * u[i, j]
                    if d.pool[j] >= 0 and mass[d.pool[j] + 1] > 0.0:
                        out[i, j] -= d.delta[j] * (inner[d.pool[j] + 1] / mass[d.pool[j] + 1])
                for c in range(d.n_columns):
                    along = row_dot(d.columns + c * m, &u[i, 0], m)
                    for j in range(m):
                        out[i, j] += along * d.columns[c * m + j]
        return np.asarray(out)

    def diagonals(self):
        """Return the diagonal of D for each of the moving examples."""
        cdef Py_ssize_t i, j, c, m = self.n_classes, n = self.rows.shape[0]
        cdef double[:, ::1] out = np.empty((n, m))
        cdef double[::1] mass = np.empty(m + 1)
        cdef Derivative d
        with nogil:
            for i in range(n):
                d = self.at(i)
                pool_masses(&d, m, &mass[0])
                for j in range(m):
                    out[i, j] = d.delta[j]
                    if d.pool[j] >= 0 and d.delta[j] > 0.0:
                        out[i, j] *= 1.0 - d.delta[j] / mass[d.pool[j] + 1]
                    for c in range(d.n_columns):
                        out[i, j] += d.columns[c * m + j] * d.columns[c * m + j]
        return np.asarray(out)

    def pairs(self, Py_ssize_t first, Py_ssize_t last):
        """Return the entries (a, b), a <= b, of D as rows, for the moving examples first to last.

        They are in the order (0, 0), (0, 1), ..., (0, m - 1), (1, 1), ...
        """
        cdef Py_ssize_t i, a, b, place, m = self.n_classes
        cdef double[:, ::1] out = np.empty((m * (m + 1) // 2, last - first))
        cdef double[:, ::1] whole = np.empty((m, m))
        cdef Derivative d
        with nogil:
            for i in range(first, last):
                d = self.at(i)
                whole_derivative(&d, m, &whole[0, 0])
                place = 0
                for a in range(m):
                    for b in range(a, m):
                        out[place, i - first] = whole[a, b]
                        place += 1
        return np.asarray(out)

    def factors(self):
        """Return F, a row for each rank, and the moving example of each: D is its F'F.

        A pool is diag(g) (I - u u') diag(g) with g^2 = delta and u = g/|g|; the reflection that
        takes u to one of its entries turns I - u u' into a unit matrix without that entry.
        """
        cdef Py_ssize_t i, r, m = self.n_classes, row = 0, c, j, n = self.rows.shape[0]
        cdef double[:, ::1] out = np.zeros((self.rank, m))
        cdef Py_ssize_t[::1] owner = np.empty(self.rank, np.intp)
        cdef Derivative d
        with nogil:
            for i in range(n):
                d = self.at(i)
                r = row
                for c in range(d.n_columns):
                    for j in range(m):
                        out[row, j] = d.columns[c * m + j]
                    row += 1
                for j in range(m):
                    if d.pool[j] < 0:
                        if d.delta[j] > 0.0:
                            out[row, j] = sqrt(d.delta[j])
                            row += 1
                    elif first_of_pool(&d, j):
                        row += factor_pool(&d, m, j, &out[row, 0])
                while r < row:
                    owner[r] = i
                    r += 1
        return np.asarray(out), np.asarray(owner)


cdef Py_ssize_t rank_of(const Derivative* d, Py_ssize_t m, Py_ssize_t* size) noexcept nogil:
    # Returns the rank of D. A pool of n moving classes has the rank n - 1. TEMP size: m + 1
    cdef Py_ssize_t j, rank = d.n_columns
    for j in range(m):
        size[j + 1] = 0
    for j in range(m):
        if d.delta[j] > 0.0:
            if d.pool[j] >= 0:
                size[d.pool[j] + 1] += 1
            else:
                rank += 1
    for j in range(m):
        if size[j + 1] > 1:
            rank += size[j + 1] - 1
    return rank


cdef void pool_masses(const Derivative* d, Py_ssize_t m, double* mass) noexcept nogil:
    # OUT mass (m + 1): the sum of delta over the classes in no pool, then those over each pool
    cdef Py_ssize_t j
    for j in range(m + 1):
        mass[j] = 0.0
    for j in range(m):
        mass[d.pool[j] + 1] += d.delta[j]


cdef bint first_of_pool(const Derivative* d, Py_ssize_t j) noexcept nogil:
    cdef Py_ssize_t i
    if d.delta[j] <= 0.0:
        return False
    for i in range(j):
        if d.pool[i] == d.pool[j] and d.delta[i] > 0.0:
            return False
    return True


cdef Py_ssize_t factor_pool(const Derivative* d, Py_ssize_t m, Py_ssize_t first,
                            double* out) noexcept nogil:
    # OUT out: the rows of F that make up the pool whose first class is `first`, see
    # Curvature.factors. Returns their number.
    cdef Py_ssize_t i, j, row = 0, pivot = first
    cdef int32_t pool = d.pool[first]
    cdef double mass = 0.0, share
    for j in range(first, m):
        if d.pool[j] == pool:
            mass += d.delta[j]
            if d.delta[j] > d.delta[pivot]:
                pivot = j
    share = 1.0 / (mass * (1.0 + sqrt(d.delta[pivot] / mass)))
    for i in range(first, m):
        if d.pool[i] != pool or d.delta[i] <= 0.0 or i == pivot:
            continue
        for j in range(first, m):
            if d.pool[j] == pool and d.delta[j] > 0.0:
                out[row * m + j] = -sqrt(d.delta[i]) * d.delta[j] * share
        out[row * m + pivot] = -sqrt(d.delta[i] / mass) * sqrt(d.delta[pivot])
        out[row * m + i] += sqrt(d.delta[i])
        row += 1
    return row
