# Rows of scores as the losses see them: the label's entry aside, and logarithms near their ends.
from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, exp, fabs, log, log1p
from libc.string cimport memmove

from topkopt._kernels.select cimport row_sum, take_others
from topkopt.losses.base cimport Labels


cdef inline void keep_finite(double* u, Py_ssize_t n, double most) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        u[j] = max(-most, min(u[j], most))


cdef inline void take_differences(const double* s, Py_ssize_t own, Py_ssize_t m,
                                  double* u) noexcept nogil:
    # OUT u (m entries): s_j - s_own in the order of take_others. Differences that overflow become
    # the largest number there is.
    if take_others(s, own, m, 0.0, 1.0, u) == INFINITY:
        keep_finite(u, m, DBL_MAX)


cdef inline void return_others(Py_ssize_t own, Py_ssize_t m, double* v) noexcept nogil:
    # INOUT v: p in the order of take_others; becomes p on the others, -<1,p> on the label
    cdef double total = row_sum(v, m - 1)
    v[m - 1] = v[own]
    v[own] = -total


# take_others puts the last class in the place of the label. These put the others into the order of
# the classes and back, for where equal entries are told apart by that order. They take arrays of m
# entries, of which the last is not used.
cdef inline void into_class_order(double* others, Py_ssize_t own, Py_ssize_t m) noexcept nogil:
    memmove(others + own, others + own + 1, (m - 1 - own) * sizeof(double))


cdef inline void out_of_class_order(double* others, Py_ssize_t own, Py_ssize_t m) noexcept nogil:
    memmove(others + own + 1, others + own, (m - 1 - own) * sizeof(double))
    others[own] = others[m - 1]


cdef inline bint is_label(Labels y, Py_ssize_t j, Py_ssize_t* next_label) noexcept nogil:
    # For j = 0, 1, 2, ... in turn; next_label starts at 0.
    if next_label[0] < y.n and y.index[next_label[0]] == j:
        next_label[0] += 1
        return True
    return False


cdef inline double x_log_x(double x) noexcept nogil:
    return x * log(x) if x > 0.0 else 0.0   # Less than 0 is rounding, and counts as 0.


cdef inline double shifted_x_log_x(double z) noexcept nogil:
    # Returns (1 + z) log(1 + z), also for small z with all digits.
    return (1.0 + z) * log1p(z) if z > -1.0 else 0.0


cdef inline double log1p_exp(double t) noexcept nogil:
    return t + log1p(exp(-t)) if t > 0.0 else log1p(exp(t))


cdef inline void smoothed_curvatures(const double* v, Py_ssize_t m, double smoothing,
                                     double* h) noexcept nogil:
    # OUT h: the second derivatives of a smoothed hinge, which are 0 beyond its corners
    cdef Py_ssize_t j
    for j in range(m):
        h[j] = 1.0 / smoothing if 0.0 < fabs(v[j]) < 1.0 else 0.0
