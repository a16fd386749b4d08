"""Where changes lead: dual blocks, and W with them, move on by a multiple of their last change."""
import numpy as np

from libc.stdint cimport int32_t

from topkopt._kernels.real cimport real
from topkopt._kernels.sparse_rows cimport integer, move_sparse

cdef enum:
    FEW = 4     # one class in so many is few, and each is looked up by itself


cdef inline bint lead_row_on(real* a, real* before, real ahead, Py_ssize_t m) noexcept nogil:
    # INOUT a: y = a + ahead (a - before); before: a as it was. Returns whether they differed
    cdef Py_ssize_t j
    cdef real now, change
    cdef bint moved = False
    for j in range(m):
        now = a[j]
        change = now - before[j]
        moved |= change != 0
        before[j] = now
        a[j] = now + ahead * change
    return moved


def lead_on(real[:, ::1] a, real[:, ::1] before, double momentum, const Py_ssize_t[::1] rows,
            unsigned char[::1] moved):
    """Move some rows of a on by a multiple of their change since before, which becomes what a was.

    OUT moved: whether a row had changed.
    """
    cdef Py_ssize_t i, row
    with nogil:
        for i in range(rows.shape[0]):
            row = rows[i]
            moved[row] = lead_row_on(&a[row, 0], &before[row, 0], <real>momentum, a.shape[1])


def lead_matrix_on(real[:, ::1] w, real[:, ::1] before, double momentum):
    """The same for all rows of a matrix."""
    if w.shape[0]:
        lead_row_on(&w[0, 0], &before[0, 0], <real>momentum, w.shape[0] * w.shape[1])


def lead_sparse_on(real[:, ::1] a, real[:, ::1] before, double momentum,
                   const Py_ssize_t[::1] rows, unsigned char[::1] moved, const real[::1] data,
                   const integer[::1] indices, const integer[::1] indptr, real[:, ::1] w):
    """As `lead_on`, for the dual blocks of rows of a CSR matrix; W = X'A moves with them."""
    cdef Py_ssize_t i, j, c, row, begin, end, n_pushed, m = a.shape[1]
    dtype = np.float32 if real is float else np.float64
    cdef real[::1] push = np.empty(m, dtype)
    cdef int32_t[::1] pushed = np.empty(m + 1, np.int32)
    cdef real ahead = <real>momentum
    with nogil:
        for i in range(rows.shape[0]):
            row = rows[i]
            begin, end = indptr[row], indptr[row + 1]
            moved[row] = lead_row_on(&a[row, 0], &before[row, 0], ahead, m)
            if not moved[row] or ahead == 0 or begin == end:
                continue
            n_pushed = 0
            for j in range(m):
                push[j] = a[row, j] - before[row, j]
                pushed[n_pushed] = <int32_t>j
                n_pushed += push[j] != 0
            if FEW * n_pushed > m:
                move_sparse(&data[begin], &indices[begin], end - begin, &push[0], m, &w[0, 0])
                continue
            for j in range(begin, end):
                for c in range(n_pushed):
                    w[indices[j], pushed[c]] += data[j] * push[pushed[c]]
