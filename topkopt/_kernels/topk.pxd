# Projections onto the top-k cone and the three top-k simplices, one row at a time.
from topkopt._kernels.real cimport real

cdef enum TopKKind:
    TOPK_ALPHA = 0
    TOPK_BETA = 1
    TOPK_LABEL = 2

# kind alpha: {0 <= x_j <= <1,x>/k, <1,x> <= radius}, radius = inf for the cone; beta:
# {0 <= x_j <= radius/k, <1,x> <= radius}; label: the two of them with k - 1 in the cone.
cdef struct TopKSet:
    Py_ssize_t k
    double radius
    TopKKind kind

# Doubles of scratch for a row of n entries: TOPK_WORK * n, and at least 4
cdef enum:
    TOPK_WORK = 2

# Up to this length rows are looked at whole
cdef enum:
    SHORT = 64

# OUT x (may be b). TEMP work. INOUT start: NULL, or two numbers by which nearly the same row is
# solved faster next time; the first is NaN at first
cdef void project_topk_row(const real* b, real* x, Py_ssize_t n, TopKSet onto, double bias,
                           double* start, double* work) noexcept nogil

cdef extern from "topk_values.h" nogil:
    # Up to four rows of scores behind each other, with the labels and the loss of all of them.
    ctypedef struct ScoredRows:
        const double* scores
        const Py_ssize_t* labels
        Py_ssize_t n_rows
        Py_ssize_t n_classes
        double k
        double smoothing
    # With h the margins s_j - s_label + 1 of a row. OUT values (4): the largest value of <h,p> -
    # smoothing/2 <p,p> over the top-k simplex of kind alpha and radius 1, for the rows whose bit is
    # set in what is returned. INOUT starts: two numbers for each row, as in project_topk_row. TEMP
    # work: 4 n_classes
    int side_by_side(const ScoredRows* rows, double* starts, double* values, double* work)
