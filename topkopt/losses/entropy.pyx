"""Entropic losses: the differences u = s_j - s_y of the other classes j."""
import numpy as np

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, exp, fabs, fmax, log, log1p

from topkopt._kernels.entropy cimport ENTROPY_WORK, prox_entropy_row, x_log_x_sum
from topkopt._kernels.lambert cimport exp_row
from topkopt._kernels.largest cimport take_largest
from topkopt._kernels.select cimport row_max, row_sum, take_others
from topkopt._kernels.topk cimport TOPK_ALPHA, TopKSet, project_topk_row
from topkopt._kernels.topk_entropy cimport TOPK_ENTROPY_WORK, prox_topk_entropy_row
from topkopt.losses.base cimport Derivative, Labels, Loss, ScoreRows, labels_of
from topkopt.losses.derivative cimport AT_BOUND, Cap, capped_derivative, simplex_derivative
from topkopt.losses.rows cimport (into_class_order, keep_finite, log1p_exp, out_of_class_order,
                                  return_others, shifted_x_log_x, take_differences)

from topkopt import _validation
from topkopt.losses.declaration import Declaration

# Up to this alpha the plain softmax step loses at most three digits.
cdef double PLAIN_ALPHA = 1e3


cdef double softmax_value(const double* s, Py_ssize_t own, Py_ssize_t m,
                          double* work) noexcept nogil:
    # Returns log(1 + sum_{j != own} exp(s_j - s_own)). If the label has the largest score, the
    # other summands may be far below rounding, and log1p keeps them.
    cdef double largest = row_max(s, m), total
    exp_row(s, largest, work, m, &total)
    if largest > s[own]:
        return (largest - s[own]) + log(total)
    work[own] = 0.0
    return log1p(row_sum(work, m))


cdef void softmax_values_and_gradients(const double* s, const Py_ssize_t* own, Py_ssize_t n_rows,
                                       Py_ssize_t m, double* values, double* v) noexcept nogil:
    # The exponentials of all rows are one loop: in rows of their own, short ones would cost more.
    cdef Py_ssize_t i, j
    cdef double total, others
    cdef double* p
    for i in range(n_rows):
        values[i] = row_max(s + i * m, m)
        for j in range(m):
            v[i * m + j] = s[i * m + j] - values[i]
    exp_row(<const double*>v, 0.0, v, n_rows * m, &total)
    for i in range(n_rows):
        # The sum of the others keeps its digits where the label has nearly all.
        p = v + i * m
        total = p[own[i]]
        p[own[i]] = 0.0
        others = row_sum(<const double*>p, m)
        total += others
        if values[i] == s[i * m + own[i]]:
            values[i] = log1p(others)
        else:
            values[i] = (values[i] - s[i * m + own[i]]) + log(total)
        for j in range(m):
            p[j] /= total
        p[own[i]] = -others / total


cdef void softmax_prox(const double* q, Py_ssize_t own, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
    # With k = 1 the label is one more entry of the simplex, with the entry alpha, and there is no
    # cap to look for. A large alpha would take digits from the other entries.
    cdef Py_ssize_t j
    if alpha > PLAIN_ALPHA:
        topk_entropy_prox(q, own, m, alpha, 1, v, start, work)
        return
    for j in range(m):
        work[j] = q[j] - q[own]
    work[own] = alpha
    if row_max(<const double*>work, m) == INFINITY:
        keep_finite(work, m, DBL_MAX)
    start[0] = prox_entropy_row(<const double*>work, v, m, alpha, 1.0, INFINITY, start[0],
                                work + m)
    v[own] = 0.0
    v[own] = -row_sum(v, m)


cdef void topk_entropy_prox(const double* q, Py_ssize_t own, Py_ssize_t m, double alpha,
                            Py_ssize_t k, double* v, double* start, double* work) noexcept nogil:
    take_differences(q, own, m, work)
    start[0] = prox_topk_entropy_row(<const double*>work, v, m - 1, alpha, k, start[0],
                                     work + m - 1)
    return_others(own, m, v)


cdef class TopKEntropy(Loss):
    """Top-k entropy loss ``log(1 + e^M)``, M the largest ``<u,q> - <q, log q>`` over q_j <= 1/k.

    q runs over the simplex and u are the differences ``s_j - s_y`` of the other classes. With
    k = 1 it is the softmax loss.

    Parameters
    ----------
    k : int
        At least 1 and less than the number of classes.

    Examples
    --------
    >>> from topkopt.losses import Softmax, TopKEntropy
    >>> float(TopKEntropy(1).value([0.0, 1.0, 2.0], 0) - Softmax().value([0.0, 1.0, 2.0], 0))
    0.0
    """

    declaration = Declaration(
        name="topk_entropy",
        parameters=("k",),
        smooth=True,
        curvature=0.5,
        probabilities="softmax",
        example={"k": 2},
    )
    cdef readonly Py_ssize_t k

    def __init__(self, k):
        self.k = _validation.check_k(k, np.iinfo(np.intp).max, "the number of other classes")

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_k(self.k, m - 1, "the number of other classes")

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (2 + max(<Py_ssize_t>TOPK_ENTROPY_WORK, <Py_ssize_t>ENTROPY_WORK)) * m

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        if self.k == 1:
            return softmax_value(s, y.index[0], m, work)
        return log1p_exp(self.most(s, y.index[0], m, work, start, work + m))

    cdef double most(self, const double* s, Py_ssize_t own, Py_ssize_t m, double* q,
                     double* start, double* work) noexcept nogil:
        # Returns M. OUT q (m - 1 entries): where it is attained, in the order of take_others
        cdef Py_ssize_t j, n = m - 1
        cdef double largest = 0.0, cap = 1.0 / self.k, t
        take_differences(s, own, m, work)
        t = prox_entropy_row(<const double*>work, q, n, 0.0, 1.0, cap, start[0], work + m)
        start[0] = t
        for j in range(n):      # Below the cap log q_j = u_j - t, so u_j - log q_j is t.
            largest += t * q[j] if q[j] < cap else (work[j] + log(<double>self.k)) * cap
        return largest

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        # The label's entry of v is negative, and so counts as 0 in the sum of x log x.
        return shifted_x_log_x(v[y.index[0]]) + x_log_x_sum(v, m)

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, n = m - 1
        cdef double* inside = work + n
        cdef double far
        take_others(v, y.index[0], m, v[y.index[0]], 1.0, work)
        far = fabs(v[y.index[0]] + row_sum(work, n))
        project_topk_row(<const double*>work, inside, n, TopKSet(self.k, 1.0, TOPK_ALPHA), 0.0,
                         NULL, inside + n)
        for j in range(n):
            far = fmax(far, fabs(work[j] - inside[j]))
        return far

    cdef double row_value_and_gradient(self, const double* s, Labels y, Py_ssize_t m, double* v,
                                       double* value_start, double* start,
                                       double* work) noexcept nogil:
        # The gradient is the distribution that row_value finds, times e^M / (1 + e^M).
        cdef Py_ssize_t j, own = y.index[0]
        cdef double largest, share
        if self.k == 1:
            softmax_values_and_gradients(s, y.index, 1, m, &largest, v)
            return largest
        largest = self.most(s, own, m, v, value_start, work)
        share = 1.0 / (1.0 + exp(-largest))
        for j in range(m - 1):
            v[j] *= share
        return_others(own, m, v)
        return log1p_exp(largest)

    cdef int rows_value_and_gradient(self, const ScoreRows* rows, double* values, double* v,
                                     double* value_start, double* start,
                                     double* work) except -1 nogil:
        if self.k > 1:
            return Loss.rows_value_and_gradient(self, rows, values, v, value_start, start, work)
        softmax_values_and_gradients(rows.scores, labels_of(rows.labels, 0).index, rows.n_rows,
                                     rows.n_classes, values, v)
        return 0

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        topk_entropy_prox(q, y.index[0], m, alpha, self.k, v, start, work)

    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = -v[y.index[0]]
        cdef Cap cap
        if self.k == 1:
            simplex_derivative(d, v, y, m, alpha)
            return
        for j in range(m):      # The curvature of an entry p is alpha + 1/p.
            d.delta[j] = v[j] / (1.0 + alpha * v[j])
        cap.k = self.k
        cap.top = total / self.k * (1.0 - AT_BOUND)
        cap.sum_stays = total >= 1.0 or total <= 0.0
        if not cap.sum_stays:
            cap.curvature.other = alpha + self.k / total
            cap.curvature.own = alpha + 1.0 / (1.0 - total)
        capped_derivative(d, v, y.index[0], m, cap)


cdef class Softmax(TopKEntropy):
    """Softmax (multinomial logistic, cross-entropy) loss ``log(sum_j exp(s_j - s_y))``.

    Examples
    --------
    >>> from topkopt.losses import Softmax
    >>> Softmax().gradient([0.0, 0.0], 0)
    array([-0.5,  0.5])
    """

    declaration = Declaration(
        name="softmax",
        smooth=True,
        curvature=0.5,
        probabilities="softmax",
    )

    def __init__(self):
        super().__init__(1)

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        softmax_prox(q, y.index[0], m, alpha, v, start, work)


cdef class TruncatedTopKEntropy(Loss):
    """Truncated top-k entropy loss ``log(1 + sum_J exp(s_j - s_y))``.

    J are the m - k smallest of the other classes, so that k - 1 mistakes cost nothing. The loss
    is not convex: it has no conjugate, and its training no certificate.

    Parameters
    ----------
    k : int
        At least 1 (the softmax loss) and less than the number of classes.

    Examples
    --------
    >>> from topkopt.losses import TruncatedTopKEntropy
    >>> TruncatedTopKEntropy(2).gradient([0.0, 5.0, 0.0], 0)
    array([-0.5,  0. ,  0.5])
    """

    declaration = Declaration(
        name="truncated_topk_entropy",
        parameters=("k",),
        smooth=True,
        curvature=0.5,
        convex=False,
        probabilities="softmax",
        example={"k": 2},
    )
    cdef readonly Py_ssize_t k

    def __init__(self, k):
        self.k = _validation.check_k(k, np.iinfo(np.intp).max, "the number of other classes")

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_k(self.k, m - 1, "the number of other classes")

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return 5 * m

    cdef double truncate(self, const double* s, Labels y, Py_ssize_t m, double* e, double* total,
                         double* work) noexcept nogil:
        # Returns the largest of 0 and the u of J. OUT e: the exponentials of u minus that, 0 for
        # the k - 1 largest u; total: their sum. TEMP work: 4 m
        cdef Py_ssize_t j, n = m - 1, left = self.k - 1
        cdef double* top = work + m
        cdef double largest
        take_differences(s, y.index[0], m, work)
        into_class_order(work, y.index[0], m)
        if left > 0:
            take_largest(work, n, self.k, top, top + n)
            # The k - 1 largest are those above the k-th, and then the first that are equal to it.
            for j in range(n):
                if work[j] > top[self.k - 1]:
                    work[j] = -INFINITY
                    left -= 1
            for j in range(n):
                if left > 0 and work[j] == top[self.k - 1]:
                    work[j] = -INFINITY
                    left -= 1
        largest = max(0.0, row_max(<const double*>work, n))
        exp_row(work, largest, e, n, total)
        return largest

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef double total, largest = self.truncate(s, y, m, work, &total, work + m)
        return log1p(total) if largest == 0.0 else largest + log(total + exp(-largest))

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        # Only ever called for the gradient, alpha = 0.
        self.row_value_and_gradient(q, y, m, v, start, start, work)

    cdef double row_value_and_gradient(self, const double* s, Labels y, Py_ssize_t m, double* v,
                                       double* value_start, double* start,
                                       double* work) noexcept nogil:
        cdef double total, largest = self.truncate(s, y, m, v, &total, work)
        cdef double whole = total + exp(-largest)
        cdef Py_ssize_t j
        for j in range(m - 1):
            v[j] /= whole
        out_of_class_order(v, y.index[0], m)
        return_others(y.index[0], m, v)
        return log1p(total) if largest == 0.0 else largest + log(whole)
