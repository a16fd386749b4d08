# What asks the processor for more than arithmetic.

cdef extern from "simd.h" nogil:
    # Asks the memory for `size` bytes that are needed soon.
    void prefetch(const void* start, Py_ssize_t size)
