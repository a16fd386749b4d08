# The entropic prox on the top-k simplex, one row at a time.
from topkopt._kernels.real cimport real

# Doubles of scratch for a row of n entries: TOPK_ENTROPY_WORK * n
cdef enum:
    TOPK_ENTROPY_WORK = 5

# min alpha/2 (|x|^2 + s^2) - <b,x> + <x,log x> + (1-s)log(1-s),  0 <= x <= s/k, s = sum x.
# OUT x (may be b). TEMP work. `start` and what is returned are those of prox_entropy_row.
cdef double prox_topk_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, Py_ssize_t k,
                                  double start, double* work) noexcept nogil
