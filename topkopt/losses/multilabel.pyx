"""Losses of label sets: every label should score more than every other class."""
from libc.float cimport DBL_EPSILON, DBL_MAX
from libc.math cimport INFINITY, fabs, fmax, log
from libc.string cimport memcpy

from topkopt._kernels.bipartite cimport BIPARTITE_WORK, project_bipartite_row
from topkopt._kernels.entropy cimport ENTROPY_WORK, prox_entropy_row, x_log_x_sum
from topkopt._kernels.lambert cimport exp_row
from topkopt._kernels.select cimport row_dot, row_max, row_max_abs, row_sum, scaled_square
from topkopt._kernels.topk_entropy cimport TOPK_ENTROPY_WORK
from topkopt.losses.base cimport Derivative, Labels, Loss
from topkopt.losses.derivative cimport AT_BOUND, no_derivative, simplex_derivative
from topkopt.losses.entropy cimport softmax_prox, softmax_value, softmax_values_and_gradients
from topkopt.losses.rows cimport is_label, shifted_x_log_x, smoothed_curvatures

from topkopt import _validation
from topkopt.losses.declaration import Declaration


cdef class MultilabelHinge(Loss):
    """Multilabel hinge loss ``max(0, 1 + max_{j not in Y} s_j - min_{y in Y} s_y)``.

    With no label, or all of them, there is nothing to rank and the loss is 0.

    Parameters
    ----------
    smoothing : float, default 0
        Weight of the squared norm in the conjugate, over all classes.

    Examples
    --------
    >>> from topkopt.losses import MultilabelHinge
    >>> MultilabelHinge().value([3.0, 1.0, 0.5], [True, True, False])
    0.5
    """

    declaration = Declaration(
        name="multilabel_hinge",
        parameters=("smoothing",),
        tasks=("multilabel",),
    )
    cdef readonly double smoothing

    def __init__(self, smoothing=0.0):
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (3 + BIPARTITE_WORK) * m

    cdef double split(self, const double* s, Labels y, Py_ssize_t m, double* b) noexcept nogil:
        # Returns the largest margin 1 + s_j - s_y. OUT b: what each label, and behind the labels
        # each other class, adds to its margins. Because v sums to 0, a number may be taken from one
        # side and given to the other: here both sides have half of the largest margin as their
        # largest entry.
        cdef Py_ssize_t j, label = 0, other = y.n
        cdef double low = INFINITY, high, largest, half
        for j in range(m):
            if is_label(y, j, &label):
                b[label - 1] = s[j]
                low = min(low, s[j])
            else:
                b[other] = s[j]
                other += 1
        high = row_max(<const double*>b + y.n, m - y.n)
        largest = (high - low) + 1.0
        half = 0.5 * min(largest, DBL_MAX)
        for j in range(y.n):
            b[j] = half - min(b[j] - low, DBL_MAX)
        for j in range(y.n, m):
            b[j] = half + max(b[j] - high, -DBL_MAX)
        return largest

    cdef void best(self, double* b, Py_ssize_t n, Py_ssize_t m, double alpha, double* p,
                   double* work) noexcept nogil:
        # OUT p: the maximiser of <b,p> - (alpha + smoothing)/2 <p,p> on the bipartite simplex.
        # IN b: as `split` leaves it, the largest of either side are equal.
        cdef double curvature = alpha + self.smoothing, top = row_max(<const double*>b, m)
        cdef Py_ssize_t j, first = 0, second = n
        if curvature > DBL_EPSILON * fabs(top):
            top /= curvature
            for j in range(m):      # Entries as far down as this have no share.
                p[j] = max(b[j] / curvature, -fabs(top) - 1.0)
            project_bipartite_row(<const double*>p, n, <const double*>p + n, m - n, 1.0,
                                  p, p + n, work)
            return
        for j in range(m):
            p[j] = 0.0
            if j < n and b[j] > b[first]:
                first = j
            elif j >= n and b[j] > b[second]:
                second = j
        if b[first] + b[second] > 0.0:
            p[first] = 1.0
            p[second] = 1.0

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef double* p = work + m
        cdef double largest, value
        if y.n == 0 or y.n == m:
            return 0.0
        largest = self.split(s, y, m, work)
        if largest <= 0.0 or self.smoothing == 0.0 or largest == INFINITY:
            return max(0.0, largest)
        self.best(work, y.n, m, 0.0, p, p + m)
        value = row_dot(work, p, m) - 0.5 * scaled_square(p, m, self.smoothing)
        return 0.0 if value < 0.0 else value

    cdef void row_curvatures(self, const double* v, Py_ssize_t m, double* h) noexcept nogil:
        smoothed_curvatures(v, m, self.smoothing, h)

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef double total = 0.0
        cdef Py_ssize_t j
        for j in range(y.n):
            total += v[y.index[j]]
        return total + 0.5 * scaled_square(v, m, self.smoothing)

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0, other = y.n
        cdef double* inside = work + m
        cdef double far = 0.0
        if y.n == 0 or y.n == m:
            return row_max_abs(v, m)
        for j in range(m):
            if is_label(y, j, &label):
                work[label - 1] = -v[j]
            else:
                work[other] = v[j]
                other += 1
        project_bipartite_row(<const double*>work, y.n, <const double*>work + y.n, m - y.n, 1.0,
                              inside, inside + y.n, inside + m)
        for j in range(m):
            far = fmax(far, fabs(work[j] - inside[j]))
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0, other = y.n
        cdef double* p = work + m
        if y.n == 0 or y.n == m:
            for j in range(m):
                v[j] = 0.0
            return
        self.split(q, y, m, work)
        self.best(work, y.n, m, alpha, p, p + m)
        for j in range(m):
            if is_label(y, j, &label):
                v[j] = -p[label - 1]
            else:
                v[j] = p[other]
                other += 1

    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil:
        # The entries that are not 0 move so that all of v sums to 0. At the bound <1,p> = 1 each
        # side keeps its sum.
        cdef Py_ssize_t j, label = 0
        cdef double curvature = alpha + self.smoothing, total = 0.0
        cdef bint own
        no_derivative(d, m)
        if y.n == 0 or y.n == m or curvature <= 0.0:
            return
        for j in range(y.n):
            total -= v[y.index[j]]
        for j in range(m):
            own = is_label(y, j, &label)
            if v[j] != 0.0:
                d.delta[j] = 1.0 / curvature
                d.pool[j] = 1 if own and total >= 1.0 - AT_BOUND else 0


cdef class MultilabelSoftmax(Loss):
    """Multilabel softmax loss, the mean over the labels y of ``log(sum_j exp(s_j - s_y))``.

    With no label, or all of them, there is nothing to rank and the loss is 0.

    Examples
    --------
    >>> from topkopt.losses import MultilabelSoftmax
    >>> MultilabelSoftmax().gradient([0.0, 0.0], 0)
    array([-0.5,  0.5])
    """

    declaration = Declaration(
        name="multilabel_softmax",
        tasks=("multilabel",),
        smooth=True,
        curvature=0.5,
    )

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (1 + max(<Py_ssize_t>TOPK_ENTROPY_WORK, <Py_ssize_t>ENTROPY_WORK)) * m

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef double largest, total, below = 0.0
        cdef Py_ssize_t j
        if y.n == 0 or y.n == m:
            return 0.0
        if y.n == 1:
            return softmax_value(s, y.index[0], m, work)
        largest = row_max(s, m)
        exp_row(s, largest, work, m, &total)
        for j in range(y.n):
            below += largest - s[y.index[j]]
        return below / y.n + log(total)

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        # Returns <x, log x> for x = v + 1/N on the N labels and x = v elsewhere. On the labels
        # x log x = (1 + N v) (log(1 + N v) - log N)/N, which keeps its digits where v is small.
        cdef Py_ssize_t j, label = 0
        cdef double total = 0.0, n = y.n
        if y.n == 0 or y.n == m:
            return 0.0
        memcpy(work, v, m * sizeof(double))
        for j in range(y.n):
            label = y.index[j]
            work[label] = 0.0
            total += (shifted_x_log_x(n * v[label]) - (1.0 + n * v[label]) * log(n)) / n
        return total + x_log_x_sum(work, m)

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double far
        if y.n == 0 or y.n == m:
            return row_max_abs(v, m)
        far = fabs(row_sum(v, m))
        for j in range(m):
            far = fmax(far, -v[j] - 1.0 / y.n if is_label(y, j, &label) else -v[j])
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        if y.n == 0 or y.n == m:
            for j in range(m):
                v[j] = 0.0
            return
        if y.n == 1:
            softmax_prox(q, y.index[0], m, alpha, v, start, work)
            return
        for j in range(m):
            work[j] = q[j] + (alpha / y.n if is_label(y, j, &label) else 0.0)
        start[0] = prox_entropy_row(<const double*>work, v, m, alpha, 1.0, INFINITY, start[0],
                                    work + m)
        for j in range(y.n):
            v[y.index[j]] -= 1.0 / y.n

    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil:
        if y.n == 0 or y.n == m:
            no_derivative(d, m)
        else:
            simplex_derivative(d, v, y, m, alpha)

    cdef double row_value_and_gradient(self, const double* s, Labels y, Py_ssize_t m, double* v,
                                       double* value_start, double* start,
                                       double* work) noexcept nogil:
        cdef double largest, total, below = 0.0
        cdef Py_ssize_t j
        if y.n == 0 or y.n == m:
            for j in range(m):
                v[j] = 0.0
            return 0.0
        if y.n == 1:
            softmax_values_and_gradients(s, y.index, 1, m, &below, v)
            return below
        largest = row_max(s, m)
        exp_row(s, largest, v, m, &total)
        for j in range(m):
            v[j] /= total
        for j in range(y.n):
            v[y.index[j]] -= 1.0 / y.n
            below += largest - s[y.index[j]]
        return below / y.n + log(total)
