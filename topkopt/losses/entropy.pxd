# The softmax of one label, which is also that of a label set of one.

# log(1 + sum_{j != own} exp(s_j - s_own)). TEMP work: m
cdef double softmax_value(const double* s, Py_ssize_t own, Py_ssize_t m,
                          double* work) noexcept nogil

# OUT v: the prox, see Loss.row_prox. TEMP work
cdef void softmax_prox(const double* q, Py_ssize_t own, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil

# IN own: the labels of n_rows that stand behind each other. OUT values, v: their gradients
cdef void softmax_values_and_gradients(const double* s, const Py_ssize_t* own, Py_ssize_t n_rows,
                                       Py_ssize_t m, double* values, double* v) noexcept nogil
