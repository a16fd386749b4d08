# The derivative of a prox, D = dv/dq, on the piece where the solution v is: which of its entries
# are free to move, which move together, and which do not.
from topkopt._kernels.weighted cimport WeightedSet
from topkopt.losses.base cimport Derivative, Labels

# What is closer than this to a bound of size 1 counts as being there
cdef double AT_BOUND

# No class moves. OUT d
cdef void no_derivative(Derivative* d, Py_ssize_t m) noexcept nogil

# The second derivatives of what the prox minimises, in an entry of p and in that of the label
cdef struct Curvatures:
    double other
    double own

# v = p on the others and -<1,p> on the label. Entries of p from `top` on are at a cap: that of a
# cone, <1,p>/k for all of them, or a constant (k = 0). Those between it and 0 are free.
cdef struct Cap:
    double top
    Py_ssize_t k
    Curvatures curvature    # of entries at the cap, and of the label's
    bint sum_stays          # whether <1,p> is at its bound

# INOUT d: delta is one over the curvature of each entry of p; becomes the derivative
cdef void capped_derivative(Derivative* d, const double* v, Py_ssize_t own, Py_ssize_t m,
                            Cap cap) noexcept nogil

# The same for p in a weighted set of radius 1, the curvature of p being the same for all entries.
# TEMP work: 5 m
cdef void weighted_derivative(Derivative* d, const double* q, const double* v, Py_ssize_t own,
                              Py_ssize_t m, const WeightedSet* onto, Curvatures curved,
                              double* work) noexcept nogil

# x = v + 1/n on the n labels is in the simplex and has the curvature alpha + 1/x. OUT d
cdef void simplex_derivative(Derivative* d, const double* v, Labels y, Py_ssize_t m,
                             double alpha) noexcept nogil
