"""Losses and gradients of rows in either precision, for callers whose rows are checked already."""
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport scratch
from topkopt.losses.base cimport Labels, Loss, ScoreRows, evaluate_afresh, label_lists, labels_of

cdef enum:
    # So many rows, at most TOGETHER, are converted to doubles and back at a time.
    GROUP = 16


def evaluate_rows(Loss loss, const real[:, ::1] scores, const Py_ssize_t[::1] label_index,
                  const Py_ssize_t[::1] label_start, real[::1] values, real[:, ::1] gradients):
    """Write the losses of rows of finite scores, and their gradients; without the GIL.

    Row i has the labels ``label_index[label_start[i]:label_start[i + 1]]``, which ascend.
    """
    cdef Py_ssize_t i, j, first = 0, n = scores.shape[0], m = scores.shape[1]
    cdef double[::1] room = scratch(GROUP * (2 * m + 1) + loss.work_size(m))
    cdef double* s = &room[0]
    cdef double* v = s + GROUP * m
    cdef double* found = v + GROUP * m
    cdef double origin
    cdef Labels y
    cdef ScoreRows rows = ScoreRows(s, label_lists(label_index, label_start), 0, m)
    with nogil:
        while first < n:
            rows.n_rows = min(n - first, <Py_ssize_t>GROUP)
            for i in range(rows.n_rows):
                y = labels_of(rows.labels, i)
                # Only differences count, and those to the label's score are small where it matters.
                origin = scores[first + i, y.index[0]] if y.n and not loss.multilabel else 0.0
                for j in range(m):
                    s[i * m + j] = scores[first + i, j] - origin
            evaluate_afresh(loss, &rows, found, v, found + GROUP)
            for i in range(rows.n_rows):
                values[first + i] = <real> found[i]
                for j in range(m):
                    gradients[first + i, j] = <real> v[i * m + j]
            first += rows.n_rows
            rows.labels.start += rows.n_rows
