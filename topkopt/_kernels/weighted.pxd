# Projections onto the weighted top-k set and its label-included relative, one row at a time.
from topkopt._kernels.real cimport real

# Doubles of scratch for a row of n entries: WEIGHTED_WORK * n
cdef enum:
    WEIGHTED_WORK = 11

# {x in zeta Perm(w), 0 <= zeta <= radius}; label: {x : (x, z) in that set for some z}. The n_w > 0
# weights are positive and non-increasing, and there are at most n of them (label: n + 1).
cdef struct WeightedSet:
    const double* w
    Py_ssize_t n_w
    double radius
    bint label

# min 1/2 |x - b|^2 + bias/2 <1,x>^2 over that set. OUT x (may be b). INOUT start: as in
# knapsack.pxd
cdef void project_weighted_row(const real* b, real* x, Py_ssize_t n, const WeightedSet* onto,
                               double bias, double* start, double* work) noexcept nogil
