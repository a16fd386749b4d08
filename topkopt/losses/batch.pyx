"""Losses and gradients of rows in either precision, for callers whose rows are checked already."""
from libc.math cimport NAN

from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport scratch
from topkopt.losses.base cimport START, LabelLists, Labels, Loss, label_lists, labels_of


def evaluate_rows(Loss loss, const real[:, ::1] scores, const Py_ssize_t[::1] label_index,
                  const Py_ssize_t[::1] label_start, real[::1] values, real[:, ::1] gradients):
    """Write the losses of rows of finite scores, and their gradients; without the GIL.

    Row i has the labels ``label_index[label_start[i]:label_start[i + 1]]``, which ascend.
    """
    cdef Py_ssize_t i, j, m = scores.shape[1]
    cdef double[::1] room = scratch(loss.work_size(m) + 2 * m)
    cdef double* s = &room[0]
    cdef double* v = s + m
    cdef double[START] value_start
    cdef double[START] start
    cdef double origin
    cdef Labels y
    cdef LabelLists labels = label_lists(label_index, label_start)
    with nogil:
        for i in range(scores.shape[0]):
            y = labels_of(labels, i)
            # Only differences count, and those to the label's score are small where it matters.
            origin = scores[i, y.index[0]] if y.n and not loss.multilabel else 0.0
            for j in range(m):
                s[j] = scores[i, j] - origin
            value_start[0] = start[0] = NAN
            values[i] = <real> loss.row_value_and_gradient(s, y, m, v, value_start, start, v + m)
            for j in range(m):
                gradients[i, j] = <real> v[j]
