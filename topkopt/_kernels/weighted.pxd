# Projections onto the weighted top-k set and its label-included relative, one row at a time.
from topkopt._kernels.real cimport real

# Doubles of scratch for a row of n entries: WEIGHTED_WORK * n
cdef enum:
    WEIGHTED_WORK = 11

# {x in zeta Perm(w), 0 <= zeta <= radius}; label: {x : (x, z) in that set for some z}.
# IN w: the n_w > 0 positive weights, non-increasing; n_w <= n (label: n + 1). OUT x (may be b)
# INOUT start: as in _knapsack.pxd
cdef void project_weighted_row(const real* b, real* x, Py_ssize_t n, const double* w,
                               Py_ssize_t n_w, double radius, bint label, double bias,
                               double* start, double* work) noexcept nogil
