# Entropic proxes, one row at a time.
#
# `start` is a guess of the threshold t (NaN: none); both return the t they found, to be passed as
# `start` when nearly the same row comes again.  `work` is TEMP, of the size given below.
from topkopt._kernels.real cimport real

cdef enum:
    ENTROPY_WORK = 3        # doubles per entry of the row
    TOPK_ENTROPY_WORK = 5

# min alpha/2 |x|^2 - <b,x> + <x,log x>,  sum x = radius, x <= upper.        IN b, OUT x (may be b)
cdef double prox_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, double radius,
                             double upper, double start, double* work) noexcept nogil

# min alpha/2 (|x|^2 + s^2) - <b,x> + <x,log x> + (1-s)log(1-s),  0 <= x <= s/k, s = sum x.
#                                                                            IN b, OUT x (may be b)
cdef double prox_topk_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, Py_ssize_t k,
                                  double start, double* work) noexcept nogil

# sum of x log x over the entries 0 < x < sqrt(2); what rounding left below 0 counts as 0. IN x
cdef double x_log_x_sum(const double* x, Py_ssize_t n) noexcept nogil
