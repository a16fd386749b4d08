# The softmax of one label, which is also that of a label set of one.

# log(1 + sum_{j != own} exp(s_j - s_own)). TEMP work: m
cdef double softmax_value(const double* s, Py_ssize_t own, Py_ssize_t m,
                          double* work) noexcept nogil

# OUT v: the prox, see Loss.row_prox. TEMP work
cdef void softmax_prox(const double* q, Py_ssize_t own, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil

# Returns the value. OUT v: the gradient
cdef double softmax_value_and_gradient(const double* s, Py_ssize_t own, Py_ssize_t m,
                                       double* v) noexcept nogil
