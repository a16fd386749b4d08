# Long loops without the GIL look for Ctrl-C now and then.
from cpython.exc cimport PyErr_CheckSignals

cdef enum:
    PULSE = 1 << 27     # units of work, of about a nanosecond or less, between two looks
    ENTRY_WORK = 64     # what an entry of a row costs at most in the step or the value of a loss


# INOUT left: the units until the next look, PULSE at first. Raises KeyboardInterrupt
cdef inline int look_for_interrupt(Py_ssize_t* left, Py_ssize_t work) except -1 nogil:
    left[0] -= work
    if left[0] > 0:
        return 0
    left[0] = PULSE
    with gil:
        PyErr_CheckSignals()
    return 0
