# Row helpers shared by every set: look at a row once, keep what matters, write the answer.
from libc.stdint cimport int32_t

from topkopt._kernels.real cimport real

# A threshold t is kept as shift + offset, so that (b - shift) - offset does not lose the digits
# that b - t would when every entry of b is large: b - shift is exact for the entries that matter.
cdef struct Threshold:
    double shift
    double offset

# Memory for a whole call, from NumPy because it asks for large pages: to fault in small ones
# takes longer than to project a long row. At least 4 doubles, a padded row of one entry.
cdef double[::1] scratch(Py_ssize_t size)

cdef double row_max(const real* b, Py_ssize_t n) noexcept nogil

# x = clip(b - t, lower, upper), in place allowed
cdef void clip_row(const real* b, real* x, Py_ssize_t n, Threshold t,
                   double lower, double upper) noexcept nogil
# sum of clip(b - t, 0, upper)
cdef double clipped_sum(const real* b, Py_ssize_t n, Threshold t, double upper) noexcept nogil
cdef void fill_row(real* x, Py_ssize_t n, double value) noexcept nogil

# y += a x
cdef void axpy_row(Py_ssize_t n, real a, const real* x, real* y) noexcept nogil

# s = x W, with the n rows of W, of length m, behind each other
cdef void combine_rows(const real* x, Py_ssize_t n, const real* w, Py_ssize_t m,
                       real* s) noexcept nogil

# W += x d', the converse
cdef void spread_rows(const real* x, Py_ssize_t n, const real* d, Py_ssize_t m,
                      real* w) noexcept nogil

# OUT q = s - factor a
cdef void without_row(const real* s, double factor, const real* a, Py_ssize_t n,
                      double* q) noexcept nogil

# OUT v = factor a; returns <s,v>
cdef double scaled_dot(const real* s, const real* a, double factor, Py_ssize_t n,
                       double* v) noexcept nogil

# INOUT a: becomes -factor v. OUT d: its change, index (n + 1 entries): where that is not zero;
# returns how often
cdef Py_ssize_t replace_row(const double* v, double factor, Py_ssize_t n, real* a, real* d,
                            int32_t* index) noexcept nogil

# OUT kept (n doubles, may be b): the entries above cut, minus shift, in order; returns how many
cdef Py_ssize_t gather_above(const real* b, Py_ssize_t n, double cut, double shift,
                             double* kept) noexcept nogil

# OUT x (n + 3 doubles, may be b): b - shift, followed by -inf up to a multiple of 4; returns that
cdef Py_ssize_t pad_row(const real* b, Py_ssize_t n, double shift, double* x) noexcept nogil

# OUT peaks (n / 4 + 8 doubles): maxima of a few entries each; returns how many
cdef Py_ssize_t row_peaks(const real* b, Py_ssize_t n, double* peaks) noexcept nogil

# As gather_above, in no particular order, reading of b only what the peaks say is worth it
cdef Py_ssize_t gather_below_peaks(const real* b, Py_ssize_t n, const double* peaks, double cut,
                                   double shift, double* kept) noexcept nogil

# A binary max-heap: O(n) to build, O(log n) for each of the largest entries that is asked for
cdef void heapify(double* heap, Py_ssize_t n) noexcept nogil
cdef double heap_pop(double* heap, Py_ssize_t n) noexcept nogil

# The first rank of entry in b, which is sorted descending and holds it
cdef Py_ssize_t rank_of(double entry, const double* b, Py_ssize_t n) noexcept nogil

cdef extern from "rows.h" nogil:
    # OUT maxima[i]: the largest of b[i], b[i + width], b[i + 2 width], ...; needs n >= width, a
    # multiple of 32
    void strided_maxima(const double* b, Py_ssize_t n, Py_ssize_t width, double* maxima)
    double row_sum "sum"(const double* b, Py_ssize_t n)
    # sum of b - shift
    double row_sum_more "sum_more"(const double* b, Py_ssize_t n, double shift)
    double row_dot "dot"(const double* a, const double* b, Py_ssize_t n)
    double row_max_abs "max_abs"(const double* b, Py_ssize_t n)
    # How many entries are above t and how many not below, what those above have more than t in
    # all, the smallest of them, and the largest below t
    ctypedef struct Around:
        double n_above
        double n_from
        double sum
        double above
        double below
    Around look_around(const double* b, Py_ssize_t n, double t)

    # OUT others (m entries): (s_j - s_own + margin) scale for j != own, in the order in which the
    # last has taken the place of own; returns the sum of their sizes
    double take_others(const double* s, Py_ssize_t own, Py_ssize_t m, double margin, double scale,
                       double* others)

    # scale <p,p> and scale <p,b - p>, where squares of p may underflow
    double scaled_square(const double* p, Py_ssize_t n, double scale)
    double scaled_rest(const double* p, const double* b, Py_ssize_t n, double scale)
