# Row helpers shared by every set: look at a row once, keep what matters, write the answer.
from libc.stdint cimport int32_t

from topkopt._kernels.real cimport real

# A threshold t is kept as shift + offset, so that (b - shift) - offset does not lose the digits
# that b - t would when every entry of b is large: b - shift is exact for the entries that matter.
cdef struct Threshold:
    double shift
    double offset

# Memory for a whole call. It is NumPy's because NumPy asks for large pages: faulting in small ones
# takes longer than projecting a long row. There are at least 4 doubles, a padded row of one entry.
cdef double[::1] scratch(Py_ssize_t size)

cdef double row_max(const real* b, Py_ssize_t n) noexcept nogil

# x = clip(b - t, lower, upper), where x may be b.
cdef void clip_row(const real* b, real* x, Py_ssize_t n, Threshold t,
                   double lower, double upper) noexcept nogil
# The sum of clip(b - t, 0, upper).
cdef double clipped_sum(const real* b, Py_ssize_t n, Threshold t, double upper) noexcept nogil
cdef void fill_row(real* x, Py_ssize_t n, double value) noexcept nogil

# y += a x
cdef void axpy_row(Py_ssize_t n, real a, const real* x, real* y) noexcept nogil

# s = x W, where the n rows of W have the length m and stand behind each other.
cdef void combine_rows(const real* x, Py_ssize_t n, const real* w, Py_ssize_t m,
                       real* s) noexcept nogil

# W += x d', for the same W.
cdef void spread_rows(const real* x, Py_ssize_t n, const real* d, Py_ssize_t m,
                      real* w) noexcept nogil

# q = s - factor a
cdef void without_row(const real* s, double factor, const real* a, Py_ssize_t n,
                      double* q) noexcept nogil

# Writes factor a to v and returns <s,v>.
cdef double scaled_dot(const real* s, const real* a, double factor, Py_ssize_t n,
                       double* v) noexcept nogil

# Replaces a by -factor v and writes its change to d. The positions where d is not zero go to index,
# which needs room for n + 1 of them, and their number is returned. Short rows are not listed: for
# them the result is n if anything has changed, and 0 otherwise.
cdef Py_ssize_t replace_row(const double* v, double factor, Py_ssize_t n, real* a, real* d,
                            int32_t* index) noexcept nogil

# Writes the entries above cut to kept, minus shift and in order, and returns their number. kept
# needs room for n doubles, and may be b.
cdef Py_ssize_t gather_above(const real* b, Py_ssize_t n, double cut, double shift,
                             double* kept) noexcept nogil

# Writes b - shift to x, followed by -inf up to a multiple of 4, and returns that length. x needs
# room for n + 3 doubles, and may be b.
cdef Py_ssize_t pad_row(const real* b, Py_ssize_t n, double shift, double* x) noexcept nogil

# Writes the peaks of b, which are maxima of a few entries each, and returns their number. There
# must be room for n / 4 + 8 of them.
cdef Py_ssize_t row_peaks(const real* b, Py_ssize_t n, double* peaks) noexcept nogil

# As gather_above, but in no particular order, and of b it reads little more than the entries of
# peaks above cut.
cdef Py_ssize_t gather_below_peaks(const real* b, Py_ssize_t n, const double* peaks, double cut,
                                   double shift, double* kept) noexcept nogil

# A binary max-heap takes O(n) to build, and O(log n) for each of the largest entries.
cdef void heapify(double* heap, Py_ssize_t n) noexcept nogil
cdef double heap_pop(double* heap, Py_ssize_t n) noexcept nogil

# The first position of entry in b, which is sorted descending and holds it.
cdef Py_ssize_t rank_of(double entry, const double* b, Py_ssize_t n) noexcept nogil

cdef extern from "rows_maxima.h" nogil:
    # Writes the largest of b[i], b[i + width], b[i + 2 width], ... to maxima[i], i < width. The
    # width is a multiple of 32 and at most n.
    void strided_maxima(const double* b, Py_ssize_t n, Py_ssize_t width, double* maxima)
    double row_max_abs "max_abs"(const double* b, Py_ssize_t n)
    # The entries around a threshold t.
    ctypedef struct Around:
        double n_above  # the number of entries b_j > t
        double n_from   # the number of entries b_j >= t
        double sum      # the sum of b_j - t over b_j > t
        double above    # the smallest b_j > t, or inf
        double below    # the largest b_j < t, or -inf
    Around look_around(const double* b, Py_ssize_t n, double t)

cdef extern from "rows_sums.h" nogil:
    double row_sum "sum"(const double* b, Py_ssize_t n)
    # The sum of b - shift, more accurate than row_sum on long rows.
    double row_sum_more "sum_more"(const double* b, Py_ssize_t n, double shift)
    double row_dot "dot"(const double* a, const double* b, Py_ssize_t n)

    # Writes (s_j - s_own + margin) scale for all j but own to others, and returns the sum of
    # their sizes. The last takes the place of own; others needs room for m nevertheless.
    double take_others(const double* s, Py_ssize_t own, Py_ssize_t m, double margin, double scale,
                       double* others)

    # scale <p,p> and scale (<p,b> - 1/2 <p,p>), even where a square of p would underflow.
    double scaled_square(const double* p, Py_ssize_t n, double scale)
    double scaled_gain(const double* p, const double* b, Py_ssize_t n, double scale)
