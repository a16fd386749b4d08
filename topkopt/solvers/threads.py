"""How many threads BLAS may use.

A product of small blocks is over before a second thread has begun, and where another program keeps
a core busy, each product waits for the thread that is not running: a training then takes many times
as long as with one thread. Large products do gain.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from topkopt._threads import Team, blas_threads

__all__ = ["threads_for", "worth_threads"]

# From so many floating-point operations on, about 5 ms on one core, a second thread pays.
_WORTH_THREADS = 1.5e8


def worth_threads(operations: float) -> bool:
    """Whether a matrix product of that many operations gains from a second thread."""
    return operations >= _WORTH_THREADS


def threads_for(operations: float, team: Team) -> AbstractContextManager[None]:
    """Let BLAS use the threads of a team while products of that many operations are computed.

    If they are small, it is one thread.
    """
    return blas_threads(team.size() if worth_threads(operations) else 1)
