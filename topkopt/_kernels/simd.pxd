# What asks the processor for more than arithmetic.

cdef extern from "simd.h" nogil:
    # Names the instructions that the loops run on this processor.
    const char* tk_instructions()

    # Asks the memory for `size` bytes that are needed soon.
    void prefetch(const void* start, Py_ssize_t size)
