# Projection onto the bipartite simplex, one pair of rows at a time.
from topkopt._kernels.real cimport real

# Doubles of scratch for rows of n and m entries: BIPARTITE_WORK * (n + m)
cdef enum:
    BIPARTITE_WORK = 5

# OUT p, q (may be x, y). TEMP work
cdef void project_bipartite_row(const real* x, Py_ssize_t n, const real* y, Py_ssize_t m,
                                double radius, real* p, real* q, double* work) noexcept nogil
