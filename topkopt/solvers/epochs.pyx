"""Epochs of stochastic dual coordinate ascent over dense, sparse and kernel data.

One step replaces the dual block a_i of an example by the maximiser of the dual (`Loss.row_prox`)
and moves W by x_i (a_new - a_old)'. Reading and writing all of W in every step is bound by memory,
so dense data is walked in blocks: the scores of a block come from one matrix product, each step
corrects them by the Gram matrix of the block for the steps before it, and one more product brings
W up to date. These are the iterates of the one-by-one loop, up to rounding.
"""
import numpy as np

from libc.math cimport NAN
from libc.stdint cimport int32_t
from libc.string cimport memset

from topkopt._kernels.blas cimport gemm
from topkopt._kernels.interrupt cimport ENTRY_WORK, PULSE, look_for_interrupt
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport (axpy_row, combine_rows, replace_row, scaled_dot, spread_rows,
                                      without_row)
from topkopt._kernels.simd cimport prefetch
from topkopt._kernels.sparse_rows cimport combine_sparse, integer, move_sparse
from topkopt.losses.base cimport SIDE_BY_SIDE, START, Labels, Loss

cdef enum:
    RUN = 16            # steps between two matrix products that correct the rest of a block
    AHEAD = 4           # steps before an example's turn its data are asked for
    WIDE = 512          # bytes of a row of W from which on sparse data ask for it ahead of time
    SPARSE_SHARE = 16   # a change is sparse when at most this part of it is not zero


cdef double FIRM = 1e12   # curvature next to which that of a conjugate is nothing


cdef class Examples:
    """What every epoch needs to know of the examples, besides their features.

    Parameters
    ----------
    loss : Loss
        The loss of an example.
    label_index, label_start : ndarray of intp
        The labels of example i are ``label_index[label_start[i]:label_start[i + 1]]``.
    cost : ndarray of shape (n,)
        C times the sample weight of each example.
    square_norm : ndarray of shape (n,)
        The squared norm of each example.
    n_classes : int
        The number m of classes.
    """

    def __init__(self, Loss loss, label_index, label_start, cost, square_norm, n_classes):
        self.loss = loss
        # an empty label set still needs an address
        self.label_index = np.append(label_index, np.intp(-1))
        self.label_start = label_start
        self.cost = cost
        self.square_norm = square_norm
        self.n_classes = n_classes
        self.start = np.full((len(cost), START), NAN)
        self.value_start = np.full((len(cost), START), NAN)
        self.moved = np.ones(len(cost), np.uint8)
        self.gap = np.zeros(len(cost))
        self.scratch = np.empty((1 + SIDE_BY_SIDE) * n_classes + loss.work_size(n_classes) + 1)

    def part(self, rows):
        """Return a slice of the examples, with scratch of its own: threads can take one each.

        What is known of an example is shared, so that the whole knows what its parts have learnt.
        """
        cdef Examples part = type(self).__new__(type(self))
        first, last, _ = rows.indices(len(self.cost))
        part.loss = self.loss
        part.keeps_old = self.keeps_old
        part.label_index = self.label_index
        part.label_start = self.label_start[first:last + 1]
        part.cost = self.cost[first:last]
        part.square_norm = self.square_norm[first:last]
        part.n_classes = self.n_classes
        part.start = self.start[first:last]
        part.value_start = self.value_start[first:last]
        part.moved = self.moved[first:last]
        part.gap = self.gap[first:last]
        part.scratch = np.empty(len(self.scratch))
        return part

    cdef Labels labels(self, Py_ssize_t i) noexcept nogil:
        cdef Labels y
        y.index = &self.label_index[self.label_start[i]]
        y.n = self.label_start[i + 1] - self.label_start[i]
        return y

    @property
    def moved_rows(self):
        """Whether the last step of each example changed its block."""
        return np.asarray(self.moved)

    @property
    def row_gaps(self):
        """The part of the duality gap that each example had in its last certificate."""
        return np.asarray(self.gap)

    cdef void announce(self, Py_ssize_t i) noexcept nogil:
        prefetch(&self.label_start[i], 1)
        prefetch(&self.square_norm[i], 1)
        prefetch(&self.cost[i], 1)
        prefetch(&self.start[i, 0], 1)

    cdef void step(self, Py_ssize_t i, const double* q, double* v, double* work) noexcept nogil:
        self.loss.row_prox(q, self.labels(i), self.n_classes,
                           self.square_norm[i] * self.cost[i], v, &self.start[i, 0], work)


# The change of a dual block: dense in d, and as a list of its non-zero entries when they are few.
cdef struct Change:
    Py_ssize_t n_nonzero
    int32_t* index


cdef inline bint is_sparse(const Change* change, Py_ssize_t m) noexcept nogil:
    return SPARSE_SHARE * change.n_nonzero <= m


cdef inline void add_change(const Change* change, real factor, const real* d, real* y,
                            Py_ssize_t m) noexcept nogil:
    # y += factor d
    cdef Py_ssize_t j
    if factor == 0:
        return
    if is_sparse(change, m):
        for j in range(change.n_nonzero):
            y[change.index[j]] += factor * d[change.index[j]]
    else:
        axpy_row(m, factor, d, y)


cdef void update_block(Examples examples, Py_ssize_t i, const real* s, real* a, real* d,
                       Change* change) noexcept nogil:
    # One step of example i. IN s: its scores. INOUT a: its dual block. OUT d: the change of a
    cdef Py_ssize_t j, m = examples.n_classes
    cdef double* q = &examples.scratch[0]
    cdef double* v = q + m
    without_row(s, examples.square_norm[i], <const real*>a, m, q)
    if examples.keeps_old:
        for j in range(m):
            v[j] = -a[j] / examples.cost[i]
    examples.step(i, q, v, v + m)
    change.n_nonzero = replace_row(v, examples.cost[i], m, a, d, change.index)
    examples.moved[i] = change.n_nonzero != 0


cdef void walk_block(Examples examples, const Py_ssize_t* rows, Py_ssize_t n_rows, real* s,
                     const real* gram, real* a, real* d, Change* changes) noexcept nogil:
    # The steps of a block in order. INOUT s: the scores of the block, a: all dual blocks.
    # IN gram: inner products within the block. OUT d: the changes. TEMP changes: RUN of them
    cdef Py_ssize_t m = examples.n_classes, first, last, i, j
    last = 0
    while last < n_rows:
        first = last
        last = min(first + RUN, n_rows)
        for i in range(first, last):
            for j in range(first, i):
                add_change(&changes[j - first], gram[i * n_rows + j], d + j * m, s + i * m, m)
            update_block(examples, rows[i], s + i * m, a + rows[i] * m, d + i * m,
                         &changes[i - first])
        if last < n_rows:
            # S[last:] += G[last:, first:last] @ D[first:last]
            gemm(False, False, n_rows - last, m, last - first, <real>1,
                 gram + last * n_rows + first, n_rows, d + first * m, m, <real>1, s + last * m, m)


def walk_known_block(Examples examples, const Py_ssize_t[::1] rows, real[:, ::1] s,
                     const real[:, ::1] gram, real[:, ::1] a, real[:, ::1] d):
    """Take the steps of a block whose scores s and inner products gram are known.

    s becomes the scores that each step saw, a is updated, and d filled with the changes of a.
    """
    cdef Py_ssize_t i, n = rows.shape[0]
    cdef int32_t[:, ::1] index = np.empty((RUN, examples.n_classes + 1), np.int32)
    cdef Change[RUN] changes
    with nogil:
        for i in range(RUN):
            changes[i].index = &index[i, 0]
        walk_block(examples, &rows[0], n, &s[0, 0], &gram[0, 0], &a[0, 0], &d[0, 0], changes)


def gather_rows(const real[:, :] x, const Py_ssize_t[::1] rows, real[:, ::1] out):
    """Copy some rows of x."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(rows.shape[0]):
            copy_row(x, rows[i], &out[i, 0])


def add_product(bint transposed, const real[:, ::1] x, const real[:, ::1] b, real[:, ::1] c,
                bint added, columns):
    """Fill a slice of the columns of c with those of x b, or x' b; if added, add them."""
    cdef Py_ssize_t n_inner = x.shape[0] if transposed else x.shape[1]
    cdef Py_ssize_t first = columns.start, last = columns.stop
    cdef real beta = 1 if added else 0
    with nogil:
        gemm(transposed, False, c.shape[0], last - first, n_inner, <real>1, &x[0, 0], x.shape[1],
             &b[0, first], b.shape[1], beta, &c[0, first], c.shape[1])


cdef inline void copy_row(const real[:, :] x, Py_ssize_t i, real* row) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(x.shape[1]):
        row[j] = x[i, j]


def dense_epoch(Examples examples, const real[:, :] x, real[:, ::1] w, real[:, ::1] a,
                const Py_ssize_t[::1] order, Py_ssize_t block_size):
    """Visit the rows of x in the given order; w and a are updated."""
    cdef Py_ssize_t n_features = x.shape[1], m = examples.n_classes, first, size, i
    cdef Py_ssize_t row_work = m * (n_features + ENTRY_WORK), left = PULSE
    dtype = np.float32 if real is float else np.float64
    if n_features == 0:     # BLAS and addresses need a feature: one that is always 0
        n_features, x, w = 1, np.zeros((x.shape[0], 1), dtype), np.zeros((1, m), dtype)
    block_size = min(block_size, max(order.shape[0], 1))
    cdef const real* row
    cdef real[:, ::1] xb = np.empty((block_size, n_features), dtype)
    cdef real[:, ::1] s = np.empty((block_size, m), dtype)
    cdef real[:, ::1] d = np.empty((block_size, m), dtype)
    cdef real[::1] gram = np.empty(block_size * block_size, dtype)
    cdef int32_t[:, ::1] index = np.empty((RUN, m + 1), np.int32)
    cdef Change[RUN] changes
    with nogil:
        for i in range(RUN):
            changes[i].index = &index[i, 0]
        first = 0
        while first < order.shape[0]:
            look_for_interrupt(&left, block_size * row_work)
            if block_size == 1:     # W is small enough to be read and written in every step
                if first + AHEAD < order.shape[0]:
                    i = order[first + AHEAD]
                    examples.announce(i)
                    prefetch(&x[i, 0], n_features * sizeof(real))
                    prefetch(&a[i, 0], m * sizeof(real))
                row = &x[order[first], 0]
                if x.strides[1] != sizeof(real):
                    copy_row(x, order[first], &xb[0, 0])
                    row = &xb[0, 0]
                combine_rows(row, n_features, &w[0, 0], m, &s[0, 0])
                update_block(examples, order[first], &s[0, 0], &a[order[first], 0], &d[0, 0],
                             &changes[0])
                if is_sparse(&changes[0], m):
                    for i in range(n_features):
                        add_change(&changes[0], row[i], &d[0, 0], &w[i, 0], m)
                else:
                    spread_rows(row, n_features, <const real*>&d[0, 0], m, &w[0, 0])
                first += 1
                continue
            size = min(block_size, order.shape[0] - first)
            for i in range(size):
                copy_row(x, order[first + i], &xb[i, 0])
            # S = X_B @ W;  G = X_B @ X_B.T;  (steps);  W += X_B.T @ D
            gemm(False, False, size, m, n_features, <real>1, &xb[0, 0], n_features, &w[0, 0], m,
                 <real>0, &s[0, 0], m)
            gemm(False, True, size, size, n_features, <real>1, &xb[0, 0], n_features, &xb[0, 0],
                 n_features, <real>0, &gram[0], size)
            walk_block(examples, &order[first], size, &s[0, 0], &gram[0], &a[0, 0], &d[0, 0],
                       changes)
            gemm(True, False, n_features, m, size, <real>1, &xb[0, 0], n_features, &d[0, 0], m,
                 <real>1, &w[0, 0], m)
            first += size


def kernel_epoch(Examples examples, const real[:, :] k, real[:, ::1] a,
                 const Py_ssize_t[::1] order, Py_ssize_t block_size,
                 const double[::1] shift=None):
    """Visit the examples of the Gram matrix k + diag(shift) in the given order; a is updated."""
    cdef Py_ssize_t n = k.shape[0], m = examples.n_classes, first, size, i, j
    cdef Py_ssize_t row_work = m * (n + ENTRY_WORK), left = PULSE
    dtype = np.float32 if real is float else np.float64
    block_size = min(block_size, max(order.shape[0], 1))
    cdef real[:, ::1] kb = np.empty((block_size, n), dtype)
    cdef real[:, ::1] s = np.empty((block_size, m), dtype)
    cdef real[:, ::1] d = np.empty((block_size, m), dtype)
    cdef real[::1] gram = np.empty(block_size * block_size, dtype)
    cdef int32_t[:, ::1] index = np.empty((RUN, m + 1), np.int32)
    cdef Change[RUN] changes
    with nogil:
        for i in range(RUN):
            changes[i].index = &index[i, 0]
        first = 0
        while first < order.shape[0]:
            size = min(block_size, order.shape[0] - first)
            look_for_interrupt(&left, size * row_work)
            for i in range(size):
                copy_row(k, order[first + i], &kb[i, 0])
                if shift is not None:
                    kb[i, order[first + i]] += <real>shift[order[first + i]]
                for j in range(size):
                    gram[i * size + j] = kb[i, order[first + j]]
            # S = K_B @ A;  (steps)
            gemm(False, False, size, m, n, <real>1, &kb[0, 0], n, &a[0, 0], m, <real>0,
                 &s[0, 0], m)
            walk_block(examples, &order[first], size, &s[0, 0], &gram[0], &a[0, 0], &d[0, 0],
                       changes)
            first += size


cdef inline void sparse_scores(const real[::1] data, const integer[::1] indices, Py_ssize_t begin,
                               Py_ssize_t end, const real[:, ::1] w, real* s) noexcept nogil:
    # s = x @ W for the sparse row x
    if begin < end:
        combine_sparse(&data[begin], &indices[begin], end - begin, &w[0, 0], w.shape[1], s)
    else:
        memset(s, 0, w.shape[1] * sizeof(real))


def sparse_epoch(Examples examples, const real[::1] data, const integer[::1] indices,
                 const integer[::1] indptr, real[:, ::1] w, real[:, ::1] a,
                 const Py_ssize_t[::1] order):
    """Visit the rows of a CSR matrix in the given order, one by one; w and a are updated."""
    cdef Py_ssize_t m = examples.n_classes, i, j, row, begin, end, left = PULSE
    dtype = np.float32 if real is float else np.float64
    cdef real[::1] s = np.empty(m, dtype)
    cdef real[::1] d = np.empty(m, dtype)
    cdef int32_t[::1] index = np.empty(m + 1, np.int32)
    cdef Change change
    cdef bint wide = m * sizeof(real) >= WIDE
    change.index = &index[0]
    with nogil:
        for i in range(order.shape[0]):
            if wide and i + 1 < order.shape[0]:
                row = order[i + 1]
                examples.announce(row)
                prefetch(&a[row, 0], m * sizeof(real))
                for j in range(indptr[row], indptr[row + 1]):
                    prefetch(&w[indices[j], 0], m * sizeof(real))
            row = order[i]
            look_for_interrupt(&left, m * (indptr[row + 1] - indptr[row] + ENTRY_WORK))
            begin, end = indptr[row], indptr[row + 1]
            sparse_scores(data, indices, begin, end, w, &s[0])
            update_block(examples, row, &s[0], &a[row, 0], &d[0], &change)
            if is_sparse(&change, m):
                for j in range(begin, end):
                    add_change(&change, data[j], &d[0], &w[indices[j], 0], m)
            elif begin < end:
                move_sparse(&data[begin], &indices[begin], end - begin, <const real*>&d[0], m,
                            &w[0, 0])


cdef void add_rows(Examples examples, const Py_ssize_t* rows, Py_ssize_t n_rows, const real* s,
                   const real* a, Sums* sums) noexcept nogil:
    cdef Py_ssize_t i, j, size, m = examples.n_classes
    cdef double* v = &examples.scratch[0]
    cdef double* work = v + m
    cdef const double* scores = work
    cdef double[SIDE_BY_SIDE] losses
    cdef double[SIDE_BY_SIDE * START] start
    cdef Labels[SIDE_BY_SIDE] y
    cdef double cost, conjugate, inner
    if real is float:
        work += SIDE_BY_SIDE * m
    while n_rows > 0:
        size = min(n_rows, <Py_ssize_t>SIDE_BY_SIDE)
        if real is double:
            scores = s
        else:
            for j in range(size * m):
                v[m + j] = s[j]
        for i in range(size):
            y[i] = examples.labels(rows[i])
            for j in range(START):
                start[i * START + j] = examples.value_start[rows[i], j]
        examples.loss.row_values(scores, y, size, m, start, losses, work)
        for i in range(size):
            for j in range(START):
                examples.value_start[rows[i], j] = start[i * START + j]
            cost = examples.cost[rows[i]]
            examples.gap[rows[i]] = 0.0
            if cost > 0.0:
                inner = -cost * scaled_dot(s + i * m, a + rows[i] * m, -1.0 / cost, m, v)
                sums.losses += cost * losses[i]
                sums.inner += inner
                if examples.loss.convex:
                    conjugate = examples.loss.row_conjugate(v, y[i], m, work)
                    sums.conjugates += cost * conjugate
                    examples.gap[rows[i]] = cost * (losses[i] + conjugate) + inner
        s += size * m
        rows += size
        n_rows -= size


def dense_sums(Examples examples, const real[:, :] x, const real[:, ::1] w,
               const real[:, ::1] a, const Py_ssize_t[::1] rows, Py_ssize_t block_size,
               const double[::1] shift=None):
    """Return (sum C_i L_i, sum C_i L_i*, <A, S>) of some rows; S = X W + diag(shift) A.

    A kernel passes K for X and A for W; others have no shift.
    """
    cdef Py_ssize_t n = rows.shape[0], n_features = x.shape[1], m = examples.n_classes
    cdef Py_ssize_t first, size, i
    cdef Py_ssize_t row_work = m * (n_features + ENTRY_WORK), left = PULSE
    dtype = np.float32 if real is float else np.float64
    # BLAS takes rows that lie apart, but not rows that overlap or are left out
    cdef bint direct = (x.strides[1] == <Py_ssize_t>sizeof(real)
                        and x.strides[0] >= n_features * <Py_ssize_t>sizeof(real)
                        and n == x.shape[0])
    cdef real[:, ::1] xb = np.empty((1 if direct else block_size, n_features), dtype)
    cdef real[:, ::1] s = np.zeros((block_size, m), dtype)
    cdef const real* part
    cdef Py_ssize_t distance = n_features
    cdef Sums sums = Sums(0.0, 0.0, 0.0)
    with nogil:
        first = 0
        while first < n:
            size = min(block_size, n - first)
            look_for_interrupt(&left, size * row_work)
            if n_features:
                if direct:
                    part = &x[first, 0]
                    distance = x.strides[0] // <Py_ssize_t>sizeof(real)
                else:
                    for i in range(size):
                        copy_row(x, rows[first + i], &xb[i, 0])
                    part = &xb[0, 0]
                gemm(False, False, size, m, n_features, <real>1, part, distance, &w[0, 0], m,
                     <real>0, &s[0, 0], m)
            if shift is not None:
                for i in range(size):
                    axpy_row(m, <real>shift[rows[first + i]], &a[rows[first + i], 0], &s[i, 0])
            add_rows(examples, &rows[first], size, &s[0, 0], &a[0, 0], &sums)
            first += size
    return sums.losses, sums.conjugates, sums.inner


def sparse_sums(Examples examples, const real[::1] data, const integer[::1] indices,
                const integer[::1] indptr, const real[:, ::1] w, const real[:, ::1] a,
                const Py_ssize_t[::1] rows):
    """As `dense_sums`, for rows of a CSR matrix."""
    cdef Py_ssize_t first = 0, i, row, size, n = rows.shape[0], m = examples.n_classes, left = PULSE
    dtype = np.float32 if real is float else np.float64
    cdef real[:, ::1] s = np.empty((SIDE_BY_SIDE, m), dtype)
    cdef Sums sums = Sums(0.0, 0.0, 0.0)
    with nogil:
        while first < n:
            size = min(n - first, <Py_ssize_t>SIDE_BY_SIDE)
            for i in range(size):
                row = rows[first + i]
                look_for_interrupt(&left, m * (indptr[row + 1] - indptr[row] + ENTRY_WORK))
                sparse_scores(data, indices, indptr[row], indptr[row + 1], w, &s[i, 0])
            add_rows(examples, &rows[first], size, &s[0, 0], &a[0, 0], &sums)
            first += size
    return sums.losses, sums.conjugates, sums.inner


def conjugates(Examples examples, const real[:, ::1] a, const Py_ssize_t[::1] rows):
    """Return sum C_i L_i* of the blocks a of some rows, which stand behind each other."""
    cdef Py_ssize_t i, j, m = examples.n_classes
    cdef double* v = &examples.scratch[0]
    cdef double cost, total = 0.0
    with nogil:
        for i in range(rows.shape[0]):
            cost = examples.cost[rows[i]]
            for j in range(m):
                v[j] = -a[i, j] / cost
            total += cost * examples.loss.row_conjugate(v, examples.labels(rows[i]), m, v + m)
    return total


def make_feasible(Examples examples, real[:, ::1] a, const Py_ssize_t[::1] rows):
    """Move the blocks a of some rows, which stand behind each other, into their domains.

    The prox of FIRM v for alpha = FIRM is the point of the domain nearest to v, but for 1/FIRM.
    """
    cdef Py_ssize_t i, j, m = examples.n_classes
    cdef double* q = &examples.scratch[0]
    cdef double* v = q + m
    cdef double cost
    cdef double[START] start
    with nogil:
        for i in range(rows.shape[0]):
            cost = examples.cost[rows[i]]
            for j in range(m):
                q[j] = -FIRM * a[i, j] / cost
            start[0] = NAN
            examples.loss.row_prox(q, examples.labels(rows[i]), m, FIRM, v, start, v + m)
            for j in range(m):
                a[i, j] = <real>(-cost * v[j])
