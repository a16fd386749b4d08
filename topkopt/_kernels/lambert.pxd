# V(t) = W(e^t), the Lambert function of an exponential, one row at a time.
from topkopt._kernels.real cimport real


# w = V(t).                                             IN t, OUT w (may be t)
cdef void lambertw_exp_row(const real* t, real* w, Py_ssize_t n) noexcept nogil

cdef double lambertw_exp_scalar(double t) noexcept nogil

# w = V(b - t); returns sum(w).                         IN b, OUT w, slope = sum(V'(b - t))
cdef double lambertw_exp_sums(const double* b, double t, double* w, Py_ssize_t n,
                              double* slope) noexcept nogil

# e = exp(b - t), with total finite for b - t <= 700.   IN b, OUT e, total = sum(e)
cdef void exp_row(const double* b, double t, double* e, Py_ssize_t n, double* total) noexcept nogil


# Derivatives of V at t in terms of w = V(t).

cdef inline double lambertw_exp_derivative(double w) noexcept nogil:
    return w / (1 + w)


cdef inline double lambertw_exp_second(double w) noexcept nogil:
    # w/(1+w)^3, by quotients that do not overflow
    return w / (1 + w) / (1 + w) / (1 + w)


cdef inline double lambertw_exp_third(double w) noexcept nogil:
    # w(1-2w)/(1+w)^5
    return lambertw_exp_second(w) * ((1 - 2 * w) / (1 + w)) / (1 + w)
