# Threshold searches for the knapsack sets {lo <= x <= hi, <1, x> = r} and their relatives.
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport Threshold

# Doubles of scratch that the searches below need for a row of n entries: KNAPSACK_WORK * n
cdef enum:
    KNAPSACK_WORK = 2

# Root t of sum_j clip(b_j - t, lo_j, hi_j) = total + slope * t by variable fixing. TEMP b, lo, hi
cdef double fix_boxed(double* b, double* lo, double* hi, Py_ssize_t n,
                      double total, double slope) noexcept nogil

# INOUT start, here and below: a guess of the root, NaN for none, and the root found; NULL for
# neither. It is for callers that search nearly the same row again and again.

# Root of sum_j clip(b_j - t, 0, cap) = total, total > 0. OUT work[:m]: m entries of b, minus the
# shift, among them all that lie above the root; m is written to n_kept. TEMP the rest of work
cdef Threshold capped_threshold(const real* b, Py_ssize_t n, double cap, double total,
                                double* start, double* work, Py_ssize_t* n_kept) noexcept nogil

# Root t >= 0 of bias * sum_j max(0, b_j - t) = t, minus shift: the biased problem on x >= 0.
# IN entries: b minus shift, at least the positive b. TEMP temp: n doubles (may be entries)
cdef double biased_offset(const double* entries, Py_ssize_t n, double shift, double bias,
                          double* temp) noexcept nogil

# {lo <= x <= hi, <1,x> = total}, or <= total without `equality`
cdef struct CappedSet:
    double lo
    double hi
    double total
    bint equality

# Solves min 1/2 |x - b|^2 + bias/2 <1,x>^2 over that set.
cdef Threshold knapsack_threshold(const real* b, Py_ssize_t n, const CappedSet* onto, double bias,
                                  double* start, double* work) noexcept nogil
