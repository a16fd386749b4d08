# The derivative of a prox, D = dv/dq, on the piece where the solution v is: which of its entries
# are free to move, which move together, and which do not.
from topkopt._kernels.weighted cimport WeightedSet
from topkopt.losses.base cimport Derivative, Labels

# Numbers that are closer than this to a bound of size 1 count as being at the bound.
cdef double AT_BOUND

# OUT d: the derivative 0, where no class moves
cdef void no_derivative(Derivative* d, Py_ssize_t m) noexcept nogil

# The second derivatives of what the prox minimises, in an entry of p and in that of the label
cdef struct Curvatures:
    double other
    double own

# The v of a loss is p on the other classes and -<1,p> on the label. Entries of p from `top` on are
# at a cap, which is <1,p>/k if k > 0 and a constant if k = 0; those between 0 and `top` are free.
# The curvatures are those of an entry at the cap and of the label's. If <1,p> is at its own bound,
# it does not move, and sum_stays is true.
cdef struct Cap:
    double top
    Py_ssize_t k
    Curvatures curvature
    bint sum_stays

# INOUT d: delta is one over the curvature of each entry of p; becomes the derivative
cdef void capped_derivative(Derivative* d, const double* v, Py_ssize_t own, Py_ssize_t m,
                            Cap cap) noexcept nogil

# The same for p in a weighted set of radius 1, the curvature of p being the same for all entries.
# TEMP work: 5 m
cdef void weighted_derivative(Derivative* d, const double* q, const double* v, Py_ssize_t own,
                              Py_ssize_t m, const WeightedSet* onto, Curvatures curved,
                              double* work) noexcept nogil

# OUT d: the derivative of a softmax, where x, which is v + 1/n on the n labels and v elsewhere, is
# in the simplex and has the curvature alpha + 1/x
cdef void simplex_derivative(Derivative* d, const double* v, Labels y, Py_ssize_t m,
                             double alpha) noexcept nogil
