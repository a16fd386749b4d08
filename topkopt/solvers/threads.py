"""How many threads BLAS may use.

A product of small blocks is over before a second thread has begun, and where another program keeps
a core busy, each product waits for the thread that is not running: a training then takes many times
as long as with one thread. Large products do gain.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["threads_for"]

_WORTH_THREADS = 1.5e8  # floating-point operations: about 5 ms on one core


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def threads_for(operations: float) -> AbstractContextManager[object]:
    """Limit BLAS to one thread while products of that many operations are computed, if few."""
    if operations >= _WORTH_THREADS:
        return nullcontext()
    return _controller().limit(limits=1, user_api="blas")
