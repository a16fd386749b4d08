# The losses, one example at a time. A row of m scores comes with its labels: the sorted indices of
# the classes that are right (one of them, or any number for multilabel losses).
#
# Methods are double only (a fused method cannot be overridden) and never allocate; `work` is TEMP
# of work_size(m) doubles.

from libc.stdint cimport int32_t

cdef struct Labels:
    const Py_ssize_t* index
    Py_ssize_t n


# The labels of many rows, one list behind the other: that of row i is index[start[i]], ...,
# index[start[i + 1] - 1].
cdef struct LabelLists:
    const Py_ssize_t* index
    const Py_ssize_t* start


cdef inline LabelLists label_lists(const Py_ssize_t[::1] index,
                                   const Py_ssize_t[::1] start) noexcept nogil:
    # Where no row has a label, the list of them still needs an address.
    cdef LabelLists lists
    lists.start = &start[0]
    lists.index = &index[0] if index.shape[0] else lists.start
    return lists


cdef inline Labels labels_of(LabelLists lists, Py_ssize_t i) noexcept nogil:
    cdef Labels labels
    labels.index = lists.index + lists.start[i]
    labels.n = lists.start[i + 1] - lists.start[i]
    return labels


# Rows of scores that stand behind each other, and their labels.
cdef struct ScoreRows:
    const double* scores
    LabelLists labels
    Py_ssize_t n_rows
    Py_ssize_t n_classes


# A search leaves so many doubles to the next one for the same example. Before the first search the
# first of them is NaN.
cdef enum:
    START = 2

# The values of so many rows may be found together.
cdef enum:
    SIDE_BY_SIDE = 4

# Values with gradients may be asked for so many rows in one call.
cdef enum:
    TOGETHER = 64

# A derivative has at most so many columns.
cdef enum:
    COLUMNS = 2

# The derivative of a prox,
#     D = diag(delta) - sum over pools P of delta_P delta_P' / <1,delta_P> + sum of columns c c'.
# A class in no pool has the number -1, one that does not move delta = 0.
cdef struct Derivative:
    double* delta       # m
    int32_t* pool       # m
    double* columns     # COLUMNS rows of m
    int n_columns

# OUT out (m x m): D as a matrix
cdef void whole_derivative(const Derivative* d, Py_ssize_t m, double* out) noexcept nogil


cdef class Loss:
    # A convex loss has a conjugate, and so a dual problem and a certificate.
    cdef readonly bint convex
    # A multilabel loss takes any number of labels for a row, the others exactly one.
    cdef readonly bint multilabel

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil

    # Returns L(s). INOUT start: where the last evaluation for this example ended
    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil

    # OUT values: L of n_rows <= SIDE_BY_SIDE rows, which stand behind each other like their starts
    cdef void row_values(self, const double* s, const Labels* y, Py_ssize_t n_rows, Py_ssize_t m,
                         double* start, double* values, double* work) noexcept nogil

    # Returns L*(v) for a v that is in the domain of L*, up to rounding.
    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil

    # Returns how far v is outside the domain of L*.
    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil

    # OUT v: the minimiser of L*(v) - <q,v> + alpha/2 <v,v>. With alpha = 0 it is the gradient of
    # L at q; with alpha = kappa C, the dual step is a = -C v.
    # INOUT start: where the last search for this example ended (not that of values)
    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil

    # OUT d: the derivative in q of the v that row_prox finds; where that has a kink, the derivative
    # on one side of it
    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil

    # Returns L(s). OUT v: its gradient, or where there is a corner a subgradient. INOUT value_start
    # and start: as the starts of values and of proxes
    cdef double row_value_and_gradient(self, const double* s, Labels y, Py_ssize_t m, double* v,
                                       double* value_start, double* start,
                                       double* work) noexcept nogil

    # The same for rows that stand behind each other. OUT values, v. It raises what a function of
    # the user raises.
    cdef int rows_value_and_gradient(self, const ScoreRows* rows, double* values, double* v,
                                     double* value_start, double* start,
                                     double* work) except -1 nogil

    # OUT h: the second derivatives of L in each score, or about that, where the gradient of L is v
    cdef void row_curvatures(self, const double* v, Py_ssize_t m, double* h) noexcept nogil


# Loss.rows_value_and_gradient for up to TOGETHER rows that no search has left a start for. OUT
# values, v
cdef int evaluate_afresh(Loss loss, const ScoreRows* rows, double* values, double* v,
                         double* work) except -1 nogil
