"""The objective and its gradient in one pass over the examples, block by block.

For the scores S = X W of a block of rows the loss gives values and gradients v, and G = X'(cost v)
grows block by block: of n rows and m classes only a block is ever in memory. By Fenchel-Young these
are also the sums of a certificate, for the dual blocks a = -cost v. Products are as precise as X;
what is added up over the blocks is added in double precision.
"""
import numpy as np

from libc.string cimport memset

from topkopt._kernels.blas cimport gemm
from topkopt._kernels.interrupt cimport ENTRY_WORK, PULSE, look_for_interrupt
from topkopt._kernels.real cimport real
from topkopt._kernels.sparse_rows cimport combine_sparse, integer, spread_sparse
from topkopt.losses.base cimport LabelLists, Labels, ScoreRows
from topkopt.solvers.epochs cimport Examples

cdef enum:
    # The losses of so many rows of a sparse matrix are computed together.
    SPARSE_BLOCK = 64


# The sums over the examples of costs times losses and of costs times conjugates.
cdef struct Total:
    double losses
    double conjugates


cdef class Buffers:
    # The memory that a block of rows needs: its scores in double precision, and what is computed
    # from them.
    cdef double[::1] scores
    cdef double[::1] gradients
    cdef double[::1] values

    def __init__(self, Py_ssize_t n_rows, Py_ssize_t m):
        self.scores = np.empty(max(1, n_rows * m))
        self.gradients = np.empty(max(1, n_rows * m))
        self.values = np.empty(max(1, n_rows))


cdef int pull_rows(Examples examples, Py_ssize_t first, Py_ssize_t n_rows, real* s,
                   Buffers buffers, Total* total) except -1 nogil:
    # INOUT s: the scores of rows that stand behind each other, which become cost v; total: the
    # losses are added
    cdef Py_ssize_t i, j, m = examples.n_classes
    cdef LabelLists labels = LabelLists(&examples.label_index[0], &examples.label_start[first])
    cdef ScoreRows rows = ScoreRows(&buffers.scores[0], labels, n_rows, m)
    cdef double* v = &buffers.gradients[0]
    cdef double cost
    if real is double:
        rows.scores = s
    else:
        for j in range(n_rows * m):
            buffers.scores[j] = s[j]
    examples.loss.rows_value_and_gradient(
        &rows, &buffers.values[0], v, &examples.value_start[first, 0], &examples.start[first, 0],
        &examples.scratch[0])
    for i in range(n_rows):
        cost = examples.cost[first + i]
        if cost > 0.0:
            total.losses += cost * buffers.values[i]
        for j in range(m):
            s[i * m + j] = <real>(cost * v[i * m + j])
    return 0


cdef void keep_rows(Examples examples, Py_ssize_t first, Py_ssize_t n_rows, const real* s,
                    real* a, Buffers buffers, Total* total) noexcept nogil:
    # IN s: cost v. OUT a: the dual blocks -cost v, unless it is NULL. INOUT total: the conjugates
    # are added, of cost v as rounding has left it
    cdef Py_ssize_t i, j, m = examples.n_classes
    cdef double* v = &buffers.gradients[0]
    cdef double cost
    cdef Labels y
    for i in range(n_rows):
        cost = examples.cost[first + i]
        if a != NULL:
            for j in range(m):
                a[i * m + j] = -s[i * m + j]
        if cost > 0.0:
            y = examples.labels(first + i)
            for j in range(m):
                v[j] = s[i * m + j] / cost
            total.conjugates += cost * examples.loss.row_conjugate(v, y, m, &examples.scratch[0])


cdef inline void copy_rows(const real[:, :] x, Py_ssize_t first, Py_ssize_t n_rows,
                           real* rows) noexcept nogil:
    cdef Py_ssize_t i, j, d = x.shape[1]
    for i in range(n_rows):
        for j in range(d):
            rows[i * d + j] = x[first + i, j]


def dense_evaluation(Examples examples, const real[:, :] x, const real[:, ::1] w,
                     double[:, ::1] g, Py_ssize_t block_size, real[:, ::1] a=None,
                     bint conjugates=False):
    """Fill g with X'(cost v) for the scores X W, and a, if given, with -cost v.

    Returns the sums of costs times losses and, if a is given or they are asked for, conjugates.
    """
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], m = examples.n_classes, first = 0, size, j
    cdef Py_ssize_t row_work = m * (2 * d + ENTRY_WORK), left = PULSE
    dtype = np.float32 if real is float else np.float64
    # BLAS takes rows that are apart from each other, but no rows that overlap.
    cdef bint direct = (x.strides[1] == <Py_ssize_t>sizeof(real)
                        and x.strides[0] >= d * <Py_ssize_t>sizeof(real))
    cdef real[:, ::1] copied = np.empty((1 if direct else block_size, d), dtype)
    cdef real[:, ::1] s = np.zeros((block_size, m), dtype)
    cdef real[:, ::1] part = np.empty((d if real is float else 0, m), dtype)
    cdef const real* rows = NULL
    cdef Py_ssize_t apart = d
    cdef bint begun = np.any(w)  # A training begins with a W of 0: there is nothing to multiply.
    cdef Buffers buffers = Buffers(block_size, m)
    cdef Total total = Total(0.0, 0.0)
    with nogil:
        if d:
            memset(&g[0, 0], 0, d * m * sizeof(double))
        while first < n:
            size = min(block_size, n - first)
            look_for_interrupt(&left, size * row_work)
            if d:
                if direct:
                    rows = &x[first, 0]
                    apart = x.strides[0] // <Py_ssize_t>sizeof(real)
                else:
                    copy_rows(x, first, size, &copied[0, 0])
                    rows = &copied[0, 0]
            if begun:
                gemm(False, False, size, m, d, <real>1, rows, apart, &w[0, 0], m, <real>0,
                     &s[0, 0], m)
            else:
                memset(&s[0, 0], 0, size * m * sizeof(real))
            pull_rows(examples, first, size, &s[0, 0], buffers, &total)
            if d:
                if real is double:
                    gemm(True, False, d, m, size, 1.0, rows, apart, &s[0, 0], m, 1.0, &g[0, 0], m)
                else:
                    gemm(True, False, d, m, size, <real>1, rows, apart, &s[0, 0], m, <real>0,
                         &part[0, 0], m)
                    for j in range(d * m):
                        (&g[0, 0])[j] += (&part[0, 0])[j]
            if a is not None or conjugates:
                keep_rows(examples, first, size, &s[0, 0], NULL if a is None else &a[first, 0],
                          buffers, &total)
            first += size
    return total.losses, total.conjugates


def sparse_evaluation(Examples examples, const real[::1] data, const integer[::1] indices,
                      const integer[::1] indptr, const real[:, ::1] w, double[:, ::1] g,
                      real[:, ::1] a=None, bint conjugates=False):
    """As `dense_evaluation`, for the rows of a CSR matrix."""
    cdef Py_ssize_t n = indptr.shape[0] - 1, m = examples.n_classes, first = 0, size, i
    cdef Py_ssize_t begin, length, left = PULSE
    dtype = np.float32 if real is float else np.float64
    cdef real[:, ::1] s = np.empty((SPARSE_BLOCK, m), dtype)
    cdef Buffers buffers = Buffers(SPARSE_BLOCK, m)
    cdef Total total = Total(0.0, 0.0)
    with nogil:
        if g.shape[0]:
            memset(&g[0, 0], 0, g.shape[0] * m * sizeof(double))
        while first < n:
            size = min(<Py_ssize_t>SPARSE_BLOCK, n - first)
            look_for_interrupt(
                &left, m * (2 * (indptr[first + size] - indptr[first]) + size * ENTRY_WORK))
            for i in range(size):
                begin, length = indptr[first + i], indptr[first + i + 1] - indptr[first + i]
                if length:
                    combine_sparse(&data[begin], &indices[begin], length, &w[0, 0], m, &s[i, 0])
                else:
                    memset(&s[i, 0], 0, m * sizeof(real))
            pull_rows(examples, first, size, &s[0, 0], buffers, &total)
            for i in range(size):
                begin, length = indptr[first + i], indptr[first + i + 1] - indptr[first + i]
                if length:
                    spread_sparse(&data[begin], &indices[begin], length,
                                  <const real*>&s[i, 0], m, &g[0, 0])
            if a is not None or conjugates:
                keep_rows(examples, first, size, &s[0, 0], NULL if a is None else &a[first, 0],
                          buffers, &total)
            first += size
    return total.losses, total.conjugates


def scores_evaluation(Examples examples, real[:, ::1] s, Py_ssize_t block_size,
                      real[:, ::1] a=None, bint conjugates=False):
    """Replace the scores s of all examples by cost v, and fill a, if given, with -cost v.

    Returns the sums of costs times losses and, if a is given or they are asked for, conjugates.
    """
    cdef Py_ssize_t n = s.shape[0], m = examples.n_classes, first = 0, size, left = PULSE
    cdef Buffers buffers = Buffers(block_size, m)
    cdef Total total = Total(0.0, 0.0)
    with nogil:
        while first < n:
            size = min(block_size, n - first)
            look_for_interrupt(&left, size * m * ENTRY_WORK)
            pull_rows(examples, first, size, &s[first, 0], buffers, &total)
            if a is not None or conjugates:
                keep_rows(examples, first, size, &s[first, 0],
                          NULL if a is None else &a[first, 0], buffers, &total)
            first += size
    return total.losses, total.conjugates


def dense_curvatures(Examples examples, const double[:, :] x, const double[:, ::1] w,
                     double[:, ::1] h, Py_ssize_t block_size):
    """Add to h the second derivatives X' diag(cost h_j) X of each class j.

    The rows of h are the classes; its columns are the places (a, b), a <= b, of their matrices, row
    by row. One matrix product makes them all, of the curvatures and the products x_a x_b.
    """
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], m = examples.n_classes
    cdef Py_ssize_t first = 0, size, i, j, b, at, pairs = d * (d + 1) // 2, left = PULSE
    cdef double[:, ::1] rows = np.empty((block_size, d))
    cdef double[:, ::1] s = np.empty((block_size, m))
    cdef double[:, ::1] products = np.empty((block_size, pairs))
    cdef double[::1] curvatures = np.empty(m)
    cdef Buffers buffers = Buffers(block_size, m)
    cdef Total total = Total(0.0, 0.0)
    with nogil:
        while first < n:
            size = min(block_size, n - first)
            look_for_interrupt(&left, size * m * (pairs + ENTRY_WORK))
            copy_rows(x, first, size, &rows[0, 0])
            gemm(False, False, size, m, d, 1.0, <const double*>&rows[0, 0], d, &w[0, 0], m, 0.0,
                 &s[0, 0], m)
            pull_rows(examples, first, size, &s[0, 0], buffers, &total)
            for i in range(size):
                examples.loss.row_curvatures(&buffers.gradients[i * m], m, &curvatures[0])
                for j in range(m):
                    s[i, j] = examples.cost[first + i] * curvatures[j]
                at = 0
                for j in range(d):
                    for b in range(j, d):
                        products[i, at] = rows[i, j] * rows[i, b]
                        at += 1
            gemm(True, False, m, pairs, size, 1.0, <const double*>&s[0, 0], m,
                 <const double*>&products[0, 0], pairs, 1.0, &h[0, 0], pairs)
            first += size
