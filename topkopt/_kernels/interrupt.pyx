"""How long loops end early: by Ctrl-C, of which the main thread alone hears, or by request."""
import threading

from cpython.exc cimport PyErr_CheckSignals


class Stopped(Exception):
    """The work of this thread is not wanted any more: another part of it has failed."""


class _Here(threading.local):
    stop = None     # the Event that ends the work of this thread


_here = _Here()


def stop_event():
    """Return the event that ends the work of this thread; None if it works for itself."""
    return _here.stop


def listen_to(stop):
    """Let this thread's work end when an event is set; None for none."""
    _here.stop = stop


cdef int look() except -1:
    PyErr_CheckSignals()
    stop = _here.stop
    if stop is not None and stop.is_set():
        raise Stopped
    return 0
