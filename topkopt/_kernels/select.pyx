"""Row helpers: maximum, compaction, a heap for partial order, and the one `apply` of all sets."""
from libc.float cimport DBL_MAX, FLT_MAX
from libc.stdint cimport int32_t

import numpy as np

from topkopt._kernels.real cimport real


cdef extern from "rows.h" nogil:
    double max_f32(const float* b, Py_ssize_t n)
    double max_f64(const double* b, Py_ssize_t n)
    void clip_f32(const float* b, float* x, Py_ssize_t n, double shift, double offset,
                  double lower, double upper)
    void clip_f64(const double* b, double* x, Py_ssize_t n, double shift, double offset,
                  double lower, double upper)
    double clip_sum_f32(const float* b, Py_ssize_t n, double shift, double offset, double upper)
    double clip_sum_f64(const double* b, Py_ssize_t n, double shift, double offset, double upper)
    Py_ssize_t gather_f32(const float* b, Py_ssize_t n, double cut, double shift, double* kept)
    Py_ssize_t gather_f64(const double* b, Py_ssize_t n, double cut, double shift, double* kept)
    Py_ssize_t pad_f32(const float* b, Py_ssize_t n, double shift, double* x)
    Py_ssize_t pad_f64(const double* b, Py_ssize_t n, double shift, double* x)
    Py_ssize_t peaks_f32(const float* b, Py_ssize_t n, double* peaks)
    Py_ssize_t peaks_f64(const double* b, Py_ssize_t n, double* peaks)
    Py_ssize_t gather_peaks_f32(const float* b, Py_ssize_t n, const double* peaks, double cut,
                                double shift, double* kept)
    Py_ssize_t gather_peaks_f64(const double* b, Py_ssize_t n, const double* peaks, double cut,
                                double shift, double* kept)
    void axpy_f32(Py_ssize_t n, float a, const float* x, float* y)
    void axpy_f64(Py_ssize_t n, double a, const double* x, double* y)
    void combine_f32(const float* x, Py_ssize_t n, const float* w, Py_ssize_t m, float* s)
    void combine_f64(const double* x, Py_ssize_t n, const double* w, Py_ssize_t m, double* s)
    void spread_f32(const float* x, Py_ssize_t n, const float* d, Py_ssize_t m, float* w)
    void spread_f64(const double* x, Py_ssize_t n, const double* d, Py_ssize_t m, double* w)
    void without_f32(const float* s, double factor, const float* a, Py_ssize_t n, double* q)
    void without_f64(const double* s, double factor, const double* a, Py_ssize_t n, double* q)
    double scaled_dot_f32(const float* s, const float* a, double factor, Py_ssize_t n, double* v)
    double scaled_dot_f64(const double* s, const double* a, double factor, Py_ssize_t n, double* v)
    Py_ssize_t replace_f32(const double* v, double factor, Py_ssize_t n, float* a, float* d,
                           int32_t* index)
    Py_ssize_t replace_f64(const double* v, double factor, Py_ssize_t n, double* a, double* d,
                           int32_t* index)
    bint all_tame_f32(const float* b, Py_ssize_t n, float headroom)
    bint all_tame_f64(const double* b, Py_ssize_t n, double headroom)
    void count_f32(const float* b, Py_ssize_t n, float most, Py_ssize_t* n_wrong,
                   Py_ssize_t* n_finite, Py_ssize_t* n_huge)
    void count_f64(const double* b, Py_ssize_t n, double most, Py_ssize_t* n_wrong,
                   Py_ssize_t* n_finite, Py_ssize_t* n_huge)

# The kernels add entries up and divide sums by a small bias. So an entry is ordinary, and nothing
# overflows, if it can grow by this power of two. With float32 only the results can overflow,
# because the kernels calculate with doubles: there a smaller one will do.
cdef double HEADROOM = 2.0**224
cdef float HEADROOM_F32 = 2.0**28


cdef double[::1] scratch(Py_ssize_t size):
    return np.empty(max(size, 4))


cdef double row_max(const real* b, Py_ssize_t n) noexcept nogil:
    if real is float:
        return max_f32(b, n)
    else:
        return max_f64(b, n)


cdef void clip_row(const real* b, real* x, Py_ssize_t n, Threshold t,
                   double lower, double upper) noexcept nogil:
    if real is float:
        clip_f32(b, x, n, t.shift, t.offset, lower, upper)
    else:
        clip_f64(b, x, n, t.shift, t.offset, lower, upper)


cdef double clipped_sum(const real* b, Py_ssize_t n, Threshold t, double upper) noexcept nogil:
    if real is float:
        return clip_sum_f32(b, n, t.shift, t.offset, upper)
    else:
        return clip_sum_f64(b, n, t.shift, t.offset, upper)


cdef void fill_row(real* x, Py_ssize_t n, double value) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        x[j] = <real>value


cdef void axpy_row(Py_ssize_t n, real a, const real* x, real* y) noexcept nogil:
    if real is float:
        axpy_f32(n, a, x, y)
    else:
        axpy_f64(n, a, x, y)


cdef void combine_rows(const real* x, Py_ssize_t n, const real* w, Py_ssize_t m,
                       real* s) noexcept nogil:
    if real is float:
        combine_f32(x, n, w, m, s)
    else:
        combine_f64(x, n, w, m, s)


cdef void spread_rows(const real* x, Py_ssize_t n, const real* d, Py_ssize_t m,
                      real* w) noexcept nogil:
    if real is float:
        spread_f32(x, n, d, m, w)
    else:
        spread_f64(x, n, d, m, w)


cdef void without_row(const real* s, double factor, const real* a, Py_ssize_t n,
                      double* q) noexcept nogil:
    if real is float:
        without_f32(s, factor, a, n, q)
    else:
        without_f64(s, factor, a, n, q)


cdef double scaled_dot(const real* s, const real* a, double factor, Py_ssize_t n,
                       double* v) noexcept nogil:
    if real is float:
        return scaled_dot_f32(s, a, factor, n, v)
    else:
        return scaled_dot_f64(s, a, factor, n, v)


cdef Py_ssize_t replace_row(const double* v, double factor, Py_ssize_t n, real* a, real* d,
                            int32_t* index) noexcept nogil:
    if real is float:
        return replace_f32(v, factor, n, a, d, index)
    else:
        return replace_f64(v, factor, n, a, d, index)


cdef Py_ssize_t gather_above(const real* b, Py_ssize_t n, double cut, double shift,
                             double* kept) noexcept nogil:
    if real is float:
        return gather_f32(b, n, cut, shift, kept)
    else:
        return gather_f64(b, n, cut, shift, kept)


cdef Py_ssize_t pad_row(const real* b, Py_ssize_t n, double shift, double* x) noexcept nogil:
    if real is float:
        return pad_f32(b, n, shift, x)
    else:
        return pad_f64(b, n, shift, x)


cdef Py_ssize_t row_peaks(const real* b, Py_ssize_t n, double* peaks) noexcept nogil:
    if real is float:
        return peaks_f32(b, n, peaks)
    else:
        return peaks_f64(b, n, peaks)


cdef Py_ssize_t gather_below_peaks(const real* b, Py_ssize_t n, const double* peaks, double cut,
                                   double shift, double* kept) noexcept nogil:
    if real is float:
        return gather_peaks_f32(b, n, peaks, cut, shift, kept)
    else:
        return gather_peaks_f64(b, n, peaks, cut, shift, kept)


cdef inline void sift_down(double* heap, Py_ssize_t root, Py_ssize_t n) noexcept nogil:
    cdef double value = heap[root]
    cdef Py_ssize_t child = 2 * root + 1
    while child < n:
        if child + 1 < n and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[root] = heap[child]
        root = child
        child = 2 * root + 1
    heap[root] = value


cdef void heapify(double* heap, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t root = n // 2
    while root > 0:
        root -= 1
        sift_down(heap, root, n)


cdef double heap_pop(double* heap, Py_ssize_t n) noexcept nogil:
    cdef double top = heap[0]
    heap[0] = heap[n - 1]
    sift_down(heap, 0, n - 1)
    return top


cdef Py_ssize_t rank_of(double entry, const double* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t first = 0, last = n - 1, mid
    while first < last:
        mid = (first + last) // 2
        if b[mid] > entry:
            first = mid + 1
        else:
            last = mid
    return first


cdef bint all_tame(const real* b, Py_ssize_t n) noexcept nogil:
    if real is float:
        return all_tame_f32(b, n, HEADROOM_F32)
    else:
        return all_tame_f64(b, n, HEADROOM)


cdef void count_entries(const real* b, Py_ssize_t n, Py_ssize_t* n_wrong, Py_ssize_t* n_finite,
                        Py_ssize_t* n_huge) noexcept nogil:
    if real is float:
        count_f32(b, n, FLT_MAX / HEADROOM_F32, n_wrong, n_finite, n_huge)
    else:
        count_f64(b, n, DBL_MAX / HEADROOM, n_wrong, n_finite, n_huge)


def scan_rows(const real[:, ::1] rows):
    """Return (first bad row or -1, smallest number of finite entries in a row, any huge?).

    A row is bad when it holds a NaN or +inf; the rows after it are not looked at. An entry is huge
    when sums of such entries could overflow.
    """
    cdef Py_ssize_t i, n_wrong, n_finite, n_huge, n = rows.shape[1], fewest = n, bad = -1
    cdef bint huge = False
    with nogil:
        for i in range(rows.shape[0] if n else 0):
            if all_tame(&rows[i, 0], n):
                continue
            count_entries(&rows[i, 0], n, &n_wrong, &n_finite, &n_huge)
            if n_wrong > 0:
                bad = i
                break
            fewest = min(fewest, n_finite)
            huge = huge or n_huge > 0
    return bad, fewest, huge
