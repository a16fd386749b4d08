"""A thin row-major door to BLAS: Fortran order and the width of its integers stay behind it."""
from scipy.linalg.cython_blas cimport dgemm, sgemm

from topkopt._kernels.real cimport real


cdef void gemm(bint trans_a, bint trans_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k,
               real alpha, const real* a, Py_ssize_t lda, const real* b, Py_ssize_t ldb,
               real beta, real* c, Py_ssize_t ldc) noexcept nogil:
    # A C-ordered matrix is the transpose of a Fortran-ordered one: C' = op(B)' op(A)'.
    cdef char first = b"T" if trans_b else b"N"
    cdef char second = b"T" if trans_a else b"N"
    cdef int rows = <int>n, cols = <int>m, inner = <int>k
    cdef int ld_first = <int>ldb, ld_second = <int>lda, ld_out = <int>ldc
    if m == 0 or n == 0:
        return
    if real is float:
        sgemm(&first, &second, &rows, &cols, &inner, &alpha, <float*>b, &ld_first,
              <float*>a, &ld_second, &beta, c, &ld_out)
    else:
        dgemm(&first, &second, &rows, &cols, &inner, &alpha, <double*>b, &ld_first,
              <double*>a, &ld_second, &beta, c, &ld_out)
