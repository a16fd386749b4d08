# The entropic prox on the simplex, one row at a time.
from topkopt._kernels.real cimport real

# Doubles of scratch for a row of n entries: ENTROPY_WORK * n
cdef enum:
    ENTROPY_WORK = 3

# min alpha/2 |x|^2 - <b,x> + <x,log x>,  sum x = radius, x <= upper. OUT x (may be b). TEMP work
# `start` is a guess of the threshold t, NaN for none. Returns the t found, which is the start when
# nearly the same row comes again.
cdef double prox_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, double radius,
                             double upper, double start, double* work) noexcept nogil

# The sum of x log x over the entries 0 < x < sqrt(2). What rounding left below 0 counts as 0.
cdef double x_log_x_sum(const double* x, Py_ssize_t n) noexcept nogil
