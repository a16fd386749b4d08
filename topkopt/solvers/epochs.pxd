# The examples as the epochs see them, and the sums of a certificate. A subclass of Examples that
# overrides `step` turns every epoch of this module into its own.
from topkopt.losses.base cimport Labels, Loss
from topkopt._kernels.real cimport real


cdef class Examples:
    cdef readonly Loss loss
    cdef readonly Py_ssize_t n_classes
    cdef bint keeps_old             # whether `step` gets the old block in v
    cdef const Py_ssize_t[::1] label_index
    cdef const Py_ssize_t[::1] label_start
    cdef const double[::1] cost
    cdef const double[::1] square_norm
    cdef double[:, ::1] start        # where the search of each example's last step ended
    cdef double[:, ::1] value_start  # and that of its last value
    cdef unsigned char[::1] moved    # whether an example's last step changed its block
    cdef double[::1] gap             # what an example adds to the duality gap, at its last look
    cdef double[::1] scratch

    cdef Labels labels(self, Py_ssize_t i) noexcept nogil

    # Asks the memory for what is kept of an example whose turn comes soon
    cdef void announce(self, Py_ssize_t i) noexcept nogil

    # IN q: the scores without the block. INOUT v: minus the dual block over its cost, the new one
    # and (with keeps_old) the old one
    cdef void step(self, Py_ssize_t i, const double* q, double* v, double* work) noexcept nogil


# What the certificate is made of: weighted sums of losses and conjugates, and <A, scores>.
cdef struct Sums:
    double losses
    double conjugates
    double inner

# Adds what some rows contribute. Their scores are behind each other; a are the blocks of all rows
cdef void add_rows(Examples examples, const Py_ssize_t* rows, Py_ssize_t n_rows, const real* s,
                   const real* a, Sums* sums) noexcept nogil
