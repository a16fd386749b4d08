# Long loops without the GIL look now and then whether they should end.

cdef enum:
    PULSE = 1 << 27     # units of work, of about a nanosecond or less, between two looks
    ENTRY_WORK = 64     # what an entry of a row costs at most in the step or the value of a loss


# Raises KeyboardInterrupt after Ctrl-C, and Stopped in a thread whose work is not wanted any more
cdef int look() except -1


# INOUT left: the units until the next look, PULSE at first
cdef inline int look_for_interrupt(Py_ssize_t* left, Py_ssize_t work) except -1 nogil:
    left[0] -= work
    if left[0] > 0:
        return 0
    left[0] = PULSE
    with gil:
        look()
    return 0
