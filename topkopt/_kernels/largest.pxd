# The largest entries of a row.

# Returns the k-th largest entry of a, whose entries are reordered: the k largest come first.
cdef double kth_largest(double* a, Py_ssize_t n, Py_ssize_t k) noexcept nogil

# OUT top: the k largest entries of h, descending; place: where in h they are. Of equal entries the
# first is the larger. TEMP place: n
cdef void take_largest(const double* h, Py_ssize_t n, Py_ssize_t k, double* top,
                       double* place) noexcept nogil

# The sum of the k largest entries of h, whose largest is given. INOUT start: a guess of how far the
# k-th is below the largest, NaN for none; becomes that. TEMP work: 2 n
cdef double largest_sum(const double* h, Py_ssize_t n, Py_ssize_t k, double largest,
                        double* start, double* work) noexcept nogil

# OUT p: w_1 on the largest entry of h, w_2 on the next, ...; with `label` a slot 0 takes part and
# keeps the weight it wins. Of equal entries the first is the larger. TEMP work: 2 n
cdef void weigh_largest(const double* h, double* p, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                        bint label, double* work) noexcept nogil
