"""Values and gradients of many rows in one pass, for callers whose rows are checked already."""
from libc.math cimport NAN, fabs

from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport row_dot, scratch
from topkopt.losses.base cimport START, Labels, Loss

cdef double CANCELLED = 1e-3    # what is left of two terms once three digits are gone


cdef double value_at(Loss loss, const double* s, const double* v, Labels y, Py_ssize_t m,
                     double* start, double* work) noexcept nogil:
    # L(s) = <s,v> - L*(v) at the gradient v costs less than a search of its own; but not where
    # the terms cancel, or the loss has no conjugate.
    cdef double linear, conjugate
    if loss.convex:
        linear = row_dot(s, v, m)
        conjugate = loss.row_conjugate(v, y, m, work)
        if linear - conjugate >= CANCELLED * (fabs(linear) + fabs(conjugate)):
            return linear - conjugate
    return loss.row_value(s, y, m, start, work)


def evaluate_rows(Loss loss, const real[:, ::1] scores, const Py_ssize_t[::1] label_index,
                  const Py_ssize_t[::1] label_start, real[::1] values, real[:, ::1] gradients):
    """Write the losses of rows of finite scores, and their gradients; without the GIL.

    Row i has the labels ``label_index[label_start[i]:label_start[i + 1]]``, which ascend.
    """
    cdef Py_ssize_t i, j, m = scores.shape[1]
    cdef double[::1] room = scratch(loss.work_size(m) + 2 * m)
    cdef double* s = &room[0]
    cdef double* v = s + m
    cdef double[START] start
    cdef double origin
    cdef Labels y
    # an empty label set still needs an address
    cdef const Py_ssize_t* labels = &label_index[0] if label_index.shape[0] else &label_start[0]
    with nogil:
        for i in range(scores.shape[0]):
            y.index = labels + label_start[i]
            y.n = label_start[i + 1] - label_start[i]
            # only differences count; to the label's score they are small where it matters
            origin = scores[i, y.index[0]] if y.n and not loss.multilabel else 0.0
            for j in range(m):
                s[j] = scores[i, j] - origin
            start[0] = NAN
            loss.row_prox(s, y, m, 0.0, v, start, v + m)
            start[0] = NAN
            values[i] = <real> value_at(loss, s, v, y, m, start, v + m)
            for j in range(m):
                gradients[i, j] = <real> v[j]
