"""Epochs that leave classes of an example alone, for sparse data with many classes.

Dual blocks of hinge losses have few entries that are not 0. Where the others stay 0, the step of an
example is that of the same loss with the classes in use alone: the set of its dual blocks is cut by
a face. Scores and changes then touch these columns of W only. Other classes can come in when all of
them are visited again.
"""
import numpy as np

from libc.stdint cimport int32_t

from topkopt._kernels.interrupt cimport ENTRY_WORK, PULSE, look_for_interrupt
from topkopt._kernels.real cimport real
from topkopt._kernels.simd cimport prefetch
from topkopt._kernels.sparse_rows cimport integer
from topkopt.losses.base cimport Labels
from topkopt.solvers.epochs cimport Examples

cdef enum:
    NARROW = 4      # part of the classes that may be in use
    AHEAD = 2       # steps before an example's turn its data are asked for


cdef struct Used:
    int32_t* classes
    Py_ssize_t n
    Py_ssize_t own      # the place of the label, or -1


cdef void look_up(Examples examples, Py_ssize_t row, const real* a, Used* used) noexcept nogil:
    # OUT used: the classes whose entry of a is not 0
    cdef Py_ssize_t j, n = 0, label = examples.labels(row).index[0]
    for j in range(examples.n_classes):
        used.classes[n] = <int32_t>j
        n += a[j] != 0
    used.n, used.own = n, -1
    for j in range(n):
        if used.classes[j] == label:
            used.own = j


cdef bint narrow_step(Examples examples, Py_ssize_t row, const Used* used, const real* s, real* a,
                      real* d) noexcept nogil:
    # IN s: the scores of the classes in use. INOUT a: the whole block. OUT d: its changes there.
    # Returns whether there are any
    cdef Py_ssize_t c, n = used.n
    cdef double norm = examples.square_norm[row], cost = examples.cost[row]
    cdef double* q = &examples.scratch[0]
    cdef double* v = q + n
    cdef Labels y
    cdef real new
    cdef bint moved = False
    y.index = &used.own
    y.n = 1
    for c in range(n):
        q[c] = s[c] - norm * a[used.classes[c]]
    examples.loss.row_prox(q, y, n, norm * cost, v, &examples.start[row, 0], v + n)
    for c in range(n):
        new = <real>(-cost * v[c])
        d[c] = new - a[used.classes[c]]
        moved = moved or d[c] != 0
        a[used.classes[c]] = new
    examples.moved[row] = moved
    return moved


def narrow_sparse_epoch(Examples examples, const real[::1] data, const integer[::1] indices,
                        const integer[::1] indptr, real[:, ::1] w, real[:, ::1] a,
                        const Py_ssize_t[::1] order, Py_ssize_t least, Py_ssize_t[::1] others):
    """Visit those rows of a CSR matrix that use few classes, but at least so many.

    Returns how many these were; w and a are updated. OUT others: the rows that were not visited.
    """
    cdef Py_ssize_t m = examples.n_classes, i, j, c, row, n_visited = 0, left = PULSE
    dtype = np.float32 if real is float else np.float64
    cdef real[::1] s = np.empty(m, dtype)
    cdef real[::1] d = np.empty(m, dtype)
    cdef int32_t[::1] classes = np.empty(m + 1, np.int32)
    cdef Used used
    cdef const real* column
    used.classes = &classes[0]
    with nogil:
        for i in range(order.shape[0]):
            if i + AHEAD < order.shape[0]:
                row = order[i + AHEAD]
                examples.announce(row)
                prefetch(&a[row, 0], m * sizeof(real))
            row = order[i]
            look_for_interrupt(&left, m + NARROW * (indptr[row + 1] - indptr[row] + ENTRY_WORK))
            look_up(examples, row, &a[row, 0], &used)
            if used.own < 0 or used.n < least or NARROW * used.n > m:
                others[i - n_visited] = row
                continue
            n_visited += 1
            for c in range(used.n):
                s[c] = 0
            for j in range(indptr[row], indptr[row + 1]):
                column = &w[indices[j], 0]
                for c in range(used.n):
                    s[c] += data[j] * column[used.classes[c]]
            if narrow_step(examples, row, &used, &s[0], &a[row, 0], &d[0]):
                for j in range(indptr[row], indptr[row + 1]):
                    for c in range(used.n):
                        w[indices[j], used.classes[c]] += data[j] * d[c]
    return n_visited
