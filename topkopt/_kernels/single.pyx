"""The two plainest top-k losses on rows of float32: value and gradient in a few looks at a row.

Top-k hinge:    the mean of the k largest margins 1 + u_j, if positive; p = 1/k on these.
Top-k entropy:  log(1 + e^M), M = max <u,q> - <q,log q> over the softmaxes q <= 1/k; p = sigma(M) q.
                With T_j = log(e^(u_j) + e^(u_{j+1}) + ...) in descending order, the first n entries
                are at the cap, n being the first j with (1 - j/k) e^(u_{j+1} - T_{j+1}) <= 1/k.

u are the differences s_j - s_own of the other entries; v is p there, and -<1,p> at own.
"""
from libc.math cimport exp, fmax, log, log1p
from libc.string cimport memset


cdef extern from "single.h" nogil:
    enum:
        SINGLE_LANES
        SINGLE_MOST_K
    void tk_largest_places(const float* s, Py_ssize_t m, Py_ssize_t own, Py_ssize_t k,
                           Py_ssize_t* index)
    float tk_exp_below(const float* s, Py_ssize_t m, float near, float* e)
    void tk_scale(float* v, Py_ssize_t m, float factor)


def takes(Py_ssize_t m, Py_ssize_t k):
    """Return whether rows of m entries are long, and k small, enough for this module."""
    return m >= SINGLE_LANES and k < SINGLE_MOST_K


cdef inline double log1p_exp(double t) noexcept nogil:
    return t + log1p(exp(-t)) if t > 0.0 else log1p(exp(t))


cdef inline double log_add(double a, double b) noexcept nogil:
    return a + log1p_exp(b - a)


cdef double hinge_row(const float* s, Py_ssize_t m, Py_ssize_t own, Py_ssize_t k,
                      float* v) noexcept nogil:
    cdef Py_ssize_t[SINGLE_MOST_K] place
    cdef Py_ssize_t i
    cdef double total = 0.0, mine = s[own]
    memset(v, 0, m * sizeof(float))
    tk_largest_places(s, m, own, k, place)
    for i in range(k):
        total += 1.0 + (s[place[i]] - mine)
    if total <= 0.0:
        return 0.0
    for i in range(k):
        v[place[i]] = <float> (1.0 / k)
    v[own] = -1.0
    return total / k


cdef double entropy_row(const float* s, Py_ssize_t m, Py_ssize_t own, Py_ssize_t k,
                        float* v) noexcept nogil:
    cdef Py_ssize_t[SINGLE_MOST_K] place
    cdef double[SINGLE_MOST_K] tail
    cdef Py_ssize_t j, n = 0
    cdef double mine = s[own], near, rest, t, t_own, largest = 0.0, log_sigma
    tk_largest_places(s, m, own, k, place)
    near = s[place[k - 1]]
    rest = <double> tk_exp_below(s, m, <float> near, v) - k - v[own]
    tail[k - 1] = log1p(fmax(rest, 0.0))
    for j in range(k - 2, -1, -1):
        tail[j] = log_add(s[place[j]] - near, tail[j + 1])
    while n < k - 1 and log1p(-n / <double> k) + (s[place[n]] - near) - tail[n] > -log(<double> k):
        largest += (s[place[n]] - mine) + log(<double> k)
        n += 1
    t = tail[n] - log1p(-n / <double> k)
    largest = largest / k + (near - mine + t) * (k - n) / k
    log_sigma = -log1p_exp(-largest)
    tk_scale(v, m, <float> exp(log_sigma - t))
    for j in range(k):
        t_own = -log(<double> k) if j < n else s[place[j]] - near - t
        v[place[j]] = <float> exp(log_sigma + t_own)
    v[own] = <float> -exp(log_sigma)
    return log1p_exp(largest)


def topk_hinge_rows(const float[:, ::1] scores, const Py_ssize_t[::1] own, Py_ssize_t k,
                    float[::1] values, float[:, ::1] gradients):
    """Write value and gradient of the top-k hinge loss (alpha) of rows that `takes`; nogil."""
    cdef Py_ssize_t i, m = scores.shape[1]
    with nogil:
        for i in range(scores.shape[0]):
            values[i] = <float> hinge_row(&scores[i, 0], m, own[i], k, &gradients[i, 0])


def topk_entropy_rows(const float[:, ::1] scores, const Py_ssize_t[::1] own, Py_ssize_t k,
                      float[::1] values, float[:, ::1] gradients):
    """Write value and gradient of the top-k entropy loss of rows that `takes`; nogil."""
    cdef Py_ssize_t i, m = scores.shape[1]
    with nogil:
        for i in range(scores.shape[0]):
            values[i] = <float> entropy_row(&scores[i, 0], m, own[i], k, &gradients[i, 0])
