# Products of a sparse row, n numbers x at the places `at`, with a matrix of m columns.
from libc.stdint cimport int32_t, int64_t

from topkopt._kernels.real cimport real

ctypedef fused integer:
    int32_t
    int64_t


cdef extern from "sparse_rows.h" nogil:
    void sparse_f32_combine(const float*, const int32_t*, Py_ssize_t, const float*, Py_ssize_t,
                            float*)
    void sparse_f64_combine(const float*, const int64_t*, Py_ssize_t, const float*, Py_ssize_t,
                            float*)
    void sparse_d32_combine(const double*, const int32_t*, Py_ssize_t, const double*, Py_ssize_t,
                            double*)
    void sparse_d64_combine(const double*, const int64_t*, Py_ssize_t, const double*, Py_ssize_t,
                            double*)
    void sparse_f32_spread(const float*, const int32_t*, Py_ssize_t, const float*, Py_ssize_t,
                           double*)
    void sparse_f64_spread(const float*, const int64_t*, Py_ssize_t, const float*, Py_ssize_t,
                           double*)
    void sparse_d32_spread(const double*, const int32_t*, Py_ssize_t, const double*, Py_ssize_t,
                           double*)
    void sparse_d64_spread(const double*, const int64_t*, Py_ssize_t, const double*, Py_ssize_t,
                           double*)
    void sparse_f32_move(const float*, const int32_t*, Py_ssize_t, const float*, Py_ssize_t, float*)
    void sparse_f64_move(const float*, const int64_t*, Py_ssize_t, const float*, Py_ssize_t, float*)


cdef inline void combine_sparse(const real* x, const integer* at, Py_ssize_t n, const real* w,
                                Py_ssize_t m, real* s) noexcept nogil:
    # s = x W
    if real is float and integer is int32_t:
        sparse_f32_combine(x, at, n, w, m, s)
    elif real is float:
        sparse_f64_combine(x, at, n, w, m, s)
    elif integer is int32_t:
        sparse_d32_combine(x, at, n, w, m, s)
    else:
        sparse_d64_combine(x, at, n, w, m, s)


cdef inline void spread_sparse(const real* x, const integer* at, Py_ssize_t n, const real* v,
                               Py_ssize_t m, double* g) noexcept nogil:
    # G += x v'
    if real is float and integer is int32_t:
        sparse_f32_spread(x, at, n, v, m, g)
    elif real is float:
        sparse_f64_spread(x, at, n, v, m, g)
    elif integer is int32_t:
        sparse_d32_spread(x, at, n, v, m, g)
    else:
        sparse_d64_spread(x, at, n, v, m, g)


cdef inline void move_sparse(const real* x, const integer* at, Py_ssize_t n, const real* d,
                             Py_ssize_t m, real* w) noexcept nogil:
    # W += x d', in the precision of W
    if real is double:
        spread_sparse(x, at, n, d, m, w)
    elif integer is int32_t:
        sparse_f32_move(x, at, n, d, m, w)
    else:
        sparse_f64_move(x, at, n, d, m, w)
