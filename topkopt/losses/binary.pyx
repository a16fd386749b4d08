"""One binary problem per class: sums over the classes of a loss of one score."""
from libc.float cimport DBL_EPSILON, DBL_MIN
from libc.math cimport INFINITY, NAN, exp, fabs, fmax, log, log1p

from topkopt._kernels.lambert cimport lambertw_exp_scalar
from topkopt.losses.base cimport Derivative, Labels, Loss
from topkopt.losses.rows cimport (is_label, log1p_exp, shifted_x_log_x, smoothed_curvatures,
                                  x_log_x)

from topkopt import _validation
from topkopt.losses.declaration import Declaration

cdef enum:
    # Six steps suffice. This bound ends a search that rounding would keep going for ever.
    NEWTON_STEPS = 60


cdef class OneVsAll(Loss):
    """A sum over the classes of a loss of c_j s_j, c_j = 1 for labels and -1 for the others."""

    separable = True
    cdef double most    # The slope of the loss of one score is never steeper than this.

    def __cinit__(self):
        self.most = INFINITY

    cdef double margin_value(self, double z) noexcept nogil:
        return NAN

    cdef double margin_conjugate(self, double p) noexcept nogil:
        # Returns the conjugate at -p, where 0 <= p <= most.
        return NAN

    cdef double margin_prox(self, double z, double alpha) noexcept nogil:
        # Returns the p that minimises conjugate(-p) + z p + alpha/2 p^2.
        return NAN

    cdef double margin_derivative(self, double p, double alpha) noexcept nogil:
        # Returns -dp/dz for p = margin_prox(z, alpha).
        return NAN

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double total = 0.0
        for j in range(m):
            total += self.margin_value(s[j] if is_label(y, j, &label) else -s[j])
        return total

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double total = 0.0
        for j in range(m):
            total += self.margin_conjugate(-v[j] if is_label(y, j, &label) else v[j])
        return total

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double far = 0.0, p
        for j in range(m):
            p = -v[j] if is_label(y, j, &label) else v[j]
            far = fmax(far, fmax(-p, p - self.most))
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        for j in range(m):
            if is_label(y, j, &label):
                v[j] = -self.margin_prox(q[j], alpha)
            else:
                v[j] = self.margin_prox(-q[j], alpha)

    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil:
        cdef Py_ssize_t j
        d.n_columns = 0
        for j in range(m):
            d.delta[j] = self.margin_derivative(fabs(v[j]), alpha)
            d.pool[j] = -1

    cdef double margin_value_and_slope(self, double z, double* p) noexcept nogil:
        # OUT p: minus the slope of the loss at z
        p[0] = self.margin_prox(z, 0.0)
        return self.margin_value(z)

    cdef double row_value_and_gradient(self, const double* s, Labels y, Py_ssize_t m, double* v,
                                       double* value_start, double* start,
                                       double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double total = 0.0
        for j in range(m):
            if is_label(y, j, &label):
                total += self.margin_value_and_slope(s[j], v + j)
                v[j] = -v[j]
            else:
                total += self.margin_value_and_slope(-s[j], v + j)
        return total


cdef class OneVsAllHinge(OneVsAll):
    """Sum over the classes of ``max(0, 1 - c_j s_j)``, c_j = 1 for labels, -1 for the others.

    Parameters
    ----------
    smoothing : float, default 0
        The terms become ``max over 0 <= p <= 1 of p (1 - c_j s_j) - smoothing/2 p^2``.

    Examples
    --------
    >>> from topkopt.losses import OneVsAllHinge
    >>> OneVsAllHinge().value([0.5, -2.0, 0.0], 0)
    1.5
    """

    declaration = Declaration(
        name="ova_hinge",
        parameters=("smoothing",),
        tasks=("multiclass", "multilabel"),
    )
    cdef readonly double smoothing

    def __cinit__(self):
        self.most = 1.0

    def __init__(self, smoothing=0.0):
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")

    cdef double margin_value(self, double z) noexcept nogil:
        cdef double p = self.margin_prox(z, 0.0)
        return p * ((1.0 - z) - 0.5 * self.smoothing * p)

    cdef double margin_value_and_slope(self, double z, double* p) noexcept nogil:
        p[0] = self.margin_prox(z, 0.0)
        return p[0] * ((1.0 - z) - 0.5 * self.smoothing * p[0])

    cdef void row_curvatures(self, const double* v, Py_ssize_t m, double* h) noexcept nogil:
        smoothed_curvatures(v, m, self.smoothing, h)

    cdef double margin_conjugate(self, double p) noexcept nogil:
        return 0.5 * self.smoothing * p * p - p

    cdef double margin_prox(self, double z, double alpha) noexcept nogil:
        cdef double curvature = alpha + self.smoothing
        if 1.0 - z <= 0.0:
            return 0.0
        return (1.0 - z) / curvature if 1.0 - z < curvature else 1.0

    cdef double margin_derivative(self, double p, double alpha) noexcept nogil:
        return 1.0 / (alpha + self.smoothing) if 0.0 < p < 1.0 else 0.0


cdef class OneVsAllLogistic(OneVsAll):
    """Sum over the classes of ``log(1 + exp(-c_j s_j))``, c_j = 1 for labels, -1 for the others.

    Examples
    --------
    >>> from topkopt.losses import OneVsAllLogistic
    >>> OneVsAllLogistic().gradient([0.0, 0.0], 0)
    array([-0.5,  0.5])
    """

    declaration = Declaration(
        name="ova_logistic",
        tasks=("multiclass", "multilabel"),
        smooth=True,
        curvature=0.25,
        probabilities="logistic",
    )

    def __cinit__(self):
        self.most = 1.0

    cdef double margin_value(self, double z) noexcept nogil:
        return log1p_exp(-z)

    cdef double margin_value_and_slope(self, double z, double* p) noexcept nogil:
        cdef double e = exp(-fabs(z))
        p[0] = (e if z > 0.0 else 1.0) / (1.0 + e)
        return fmax(0.0, -z) + log1p(e)

    cdef double margin_conjugate(self, double p) noexcept nogil:
        return x_log_x(p) + shifted_x_log_x(-p)

    cdef double margin_prox(self, double z, double alpha) noexcept nogil:
        # Solves log(p/(1-p)) + alpha p = b with b = -z. If p solves it, 1 - p solves it for
        # alpha - b, and the problem is turned so that p <= 1/2, which keeps the digits of p. In
        # terms of u = log(p/(1-p)) the root lies within log 2 to the left of the root of
        # u + alpha/2 e^u = b, which is a value of V. From there each step of Newton's method turns
        # an error e into at most e^2/2.
        cdef double b = -z, u = 0.0, half = 0.5 * alpha, e = 0.0, p = 0.0, change, lift
        cdef bint turned = b > half
        cdef int _
        if turned:
            b = alpha - b
        u = b
        if half > DBL_MIN:
            lift = log(half)
            e = lambertw_exp_scalar(b + lift)
            u = min(0.0, b - e if e < 1.0 else log(e) - lift)
        for _ in range(NEWTON_STEPS):
            e = exp(u)
            p = e / (1.0 + e)
            change = (u + alpha * p - b) / (1.0 + alpha * p / (1.0 + e))
            u = min(0.0, u - change)
            if fabs(change) <= DBL_EPSILON * fmax(1.0, fabs(u)):
                break
        e = exp(u)
        p = e / (1.0 + e)
        return 1.0 - p if turned else p

    cdef double margin_derivative(self, double p, double alpha) noexcept nogil:
        # The curvature of the conjugate is 1/p + 1/(1-p), so this is 1/(alpha + 1/p + 1/(1-p)).
        return p * (1.0 - p) / (1.0 + alpha * p * (1.0 - p))
