# Row-major BLAS for both precisions, over the Fortran routines that SciPy carries.
from topkopt._kernels.real cimport real

# C = alpha op(A) op(B) + beta C, with op(A) of shape (m, k), op(B) of (k, n) and C of (m, n);
# all are C-ordered, with lda, ldb, ldc the distances between their rows.
cdef void gemm(bint trans_a, bint trans_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k,
               real alpha, const real* a, Py_ssize_t lda, const real* b, Py_ssize_t ldb,
               real beta, real* c, Py_ssize_t ldc) noexcept nogil
