"""V(t) = W(e^t), the Lambert function of an exponential.

Solve V + log V = t for V > 0. The mathematics and the vectorised loops are in `lambert.h`; this
module gives them to Python and to the other kernels.
"""
from topkopt._kernels.real cimport real


cdef extern from "lambert.h" nogil:
    void tk_v_row(const double* t, double* w, Py_ssize_t n)
    void tk_v_rowf(const float* t, float* w, Py_ssize_t n)
    double tk_v_scalar(double t)
    double tk_v_sums(const double* b, double t, double* w, Py_ssize_t n, double* slope)
    double tk_exp_sum(const double* b, double t, double* e, Py_ssize_t n)


cdef void lambertw_exp_row(const real* t, real* w, Py_ssize_t n) noexcept nogil:
    if real is float:
        tk_v_rowf(t, w, n)
    else:
        tk_v_row(t, w, n)


cdef double lambertw_exp_scalar(double t) noexcept nogil:
    return tk_v_scalar(t)


cdef double lambertw_exp_sums(const double* b, double t, double* w, Py_ssize_t n,
                              double* slope) noexcept nogil:
    return tk_v_sums(b, t, w, n, slope)


cdef void exp_row(const double* b, double t, double* e, Py_ssize_t n, double* total) noexcept nogil:
    total[0] = tk_exp_sum(b, t, e, n)


def lambertw_exp(const real[::1] t, real[::1] w):
    """Write V(t) into `w`, which has the length and type of `t` and may be `t`."""
    cdef Py_ssize_t n = t.shape[0]
    if n == 0:
        return
    with nogil:
        lambertw_exp_row(&t[0], &w[0], n)
