"""The bipartite simplex by variable fixing.

Solve    min_{p,q} 1/2 |p - x|^2 + 1/2 |q - y|^2   s.t.  p, q >= 0,  <1,p> = <1,q> <= r.
The solution is  p = max(0, x - t), q = max(0, y + t)  with equal sums, when these are at most r;
otherwise p and q are the projections of x and y onto the simplex of radius r.
"""
from libc.math cimport INFINITY

from topkopt._kernels.knapsack cimport capped_threshold, fix_boxed
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport Threshold, clip_row, fill_row, scratch


cdef double crossing(const double* above_x, Py_ssize_t n, const double* above_y, Py_ssize_t m,
                     double shift_y, double* work) noexcept nogil:
    # Root of sum max(0, x - t) = sum max(0, y + t): max(0, y + t) = -clip(-y - t, -inf, 0) makes
    # it one knapsack. TEMP work: 3 (n + m)
    cdef Py_ssize_t j, size = n + m
    cdef double* lo = work + size
    cdef double* hi = lo + size
    for j in range(n):
        work[j] = above_x[j]
        lo[j] = 0.0
        hi[j] = INFINITY
    for j in range(m):
        work[n + j] = -(above_y[j] + shift_y)
        lo[n + j] = -INFINITY
        hi[n + j] = 0.0
    return fix_boxed(work, lo, hi, size, 0.0, 0.0)


cdef void project_bipartite_row(const real* x, Py_ssize_t n, const real* y, Py_ssize_t m,
                                double radius, real* p, real* q, double* work) noexcept nogil:
    cdef Threshold t_x, t_y
    cdef Py_ssize_t n_above, m_above
    cdef double* work_y = work + 2 * n
    if n == 0 or m == 0 or radius == 0.0:
        fill_row(p, n, 0.0)
        fill_row(q, m, 0.0)
        return
    t_x = capped_threshold(x, n, INFINITY, radius, NULL, work, &n_above)
    t_y = capped_threshold(y, m, INFINITY, radius, NULL, work_y, &m_above)
    if t_x.shift + t_x.offset + t_y.shift + t_y.offset < 0.0:
        # The sums meet below the radius, between the two thresholds.
        t_x.offset = crossing(work, n_above, work_y, m_above, t_x.shift + t_y.shift,
                              work + 2 * (n + m))
        t_y.offset = -(t_x.offset + (t_x.shift + t_y.shift))
    clip_row(x, p, n, t_x, 0.0, INFINITY)
    clip_row(y, q, m, t_y, 0.0, INFINITY)


def project_bipartite_rows(const real[:, ::1] x, const real[:, ::1] y, real[:, ::1] p,
                           real[:, ::1] q, double radius):
    """Project each pair of rows onto the bipartite simplex; p may be x and q may be y."""
    cdef Py_ssize_t i, n = x.shape[1], m = y.shape[1]
    cdef double[::1] work = scratch((n + m) * BIPARTITE_WORK)
    with nogil:
        for i in range(x.shape[0]):
            project_bipartite_row(&x[i, 0] if n else NULL, n, &y[i, 0] if m else NULL, m, radius,
                                  &p[i, 0] if n else NULL, &q[i, 0] if m else NULL, &work[0])
