"""Work on ranges of rows, on several threads at once.

The ranges follow from the number of threads alone, never from the clock or from who is free: a
fixed number repeats bit for bit, and what ranges have added up is added in their order. Which
thread does which range does not matter. Work that is over before a second thread has begun stays
where it is.

The process has one pool of helpers. They take ranges only while fewer threads are at work than the
call asked for, so that many callers at once, as in a pool of the user's, keep no more cores busy
than one of them would.
"""

from __future__ import annotations

import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from topkopt._kernels.interrupt import Stopped, listen_to, stop_event

__all__ = ["ALONE", "Team", "as_team", "blas_threads"]

# A thread pays for so many numbers that a kernel visits, each for about a nanosecond or more.
_WORTH_A_THREAD = 1 << 17
# After so many numbers a kernel returns, so that Ctrl-C is heard.
_AT_A_TIME = 1 << 24
# Kernels may take so many rows side by side, and no range parts them.
_GROUP = 4
# A thread that waits looks for Ctrl-C after so many seconds, as Windows does not wake it for that.
_PATIENCE = 0.1

Part = TypeVar("Part")
Result = TypeVar("Result")


# How many -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """A number of threads that share work; the caller is one of them.

    None stands for as many as BLAS would use, which is asked when work is worth a thread.
    """

    n_threads: int | None = 1

    def size(self) -> int:
        """Return how many threads that are at this moment; in one of them, just this one."""
        if self.n_threads is not None:
            return self.n_threads
        return 1 if stop_event() is not None else _blas_count()

    def settled(self) -> Team:
        """Return this team with the size that it has at this moment."""
        return Team(self.size())

    def ranges(self, n_rows: int, numbers: float) -> list[slice]:
        """Return contiguous ranges of rows, one for each thread that pays.

        Parameters
        ----------
        n_rows : int
            The rows to share out.
        numbers : float
            How many numbers are visited in all. A matrix product counts as many as a kernel would
            visit in its time: one for about 32 multiplications.
        """
        if numbers < _WORTH_A_THREAD or n_rows <= _GROUP or self.n_threads == 1:
            return [slice(0, n_rows)]
        groups = -(-n_rows // _GROUP)
        n_parts = int(min(self.size(), 1 + numbers // _WORTH_A_THREAD, groups))
        ends = [min(n_rows, part * groups // n_parts * _GROUP) for part in range(n_parts + 1)]
        return [slice(first, last) for first, last in pairwise(ends)]

    def run(
        self, work: Callable[[Part], Result], parts: Sequence[Part], *, blas: bool = False
    ) -> list[Result]:
        """Return work(part) for all parts.

        The first exception is raised as soon as the others have stopped, which long kernels do when
        they look for interrupts. Work that calls BLAS says so: it gets one thread of BLAS then.
        """
        if len(parts) == 1 or self.n_threads == 1 or stop_event() is not None:
            return [work(part) for part in parts]
        with blas_threads(1 if blas else None):
            return _pool.run(_Call(work, parts, self.size()))

    def each_row(self, work: Callable[[slice], Any], n_rows: int, row_numbers: float) -> None:
        """Call work(rows) for ranges of rows that know nothing of each other.

        They are cut further, so that Ctrl-C is heard between them.
        """
        step = _GROUP * max(1, int(_AT_A_TIME // (_GROUP * max(row_numbers, 1))))

        def walk(rows: slice) -> None:
            stop = stop_event()
            for first in range(rows.start, rows.stop, step):
                if stop is not None and stop.is_set():
                    raise Stopped
                work(slice(first, min(first + step, rows.stop)))

        self.run(walk, self.ranges(n_rows, n_rows * row_numbers))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count this thread among those at work, also while it works on nothing in ranges."""
        pool, outer = _pool, _here.counted
        if outer:
            yield
            return
        pool.count(1)
        _here.counted = True
        try:
            yield
        finally:
            _here.counted = False
            pool.count(-1)


ALONE = Team()
_AS_BLAS = Team(None)


def as_team(n_threads: Any) -> Team:
    """Return as many threads as asked for, or for None as BLAS would use at this moment."""
    if n_threads is None:
        return _AS_BLAS
    try:
        if isinstance(n_threads, bool):
            raise TypeError
        number = operator.index(n_threads)
    except TypeError:
        raise TypeError(
            f"n_threads must be an integer or None, got {n_threads!r}; None takes as many as BLAS "
            "would."
        ) from None
    if number < 1:
        raise ValueError(
            f"n_threads must be at least 1, got {number}; None takes as many as BLAS would."
        )
    return Team(number)


# BLAS -----------------------------------------------------------------------------------------


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


class _Held:
    """The limit of BLAS, which most libraries know for the whole process and not by thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: int | None = None  # the thread that has set a limit
        self.depth = 0
        self.before: list[int] = []  # what it found

    def take(self) -> bool:
        """Whether this thread may set a limit: no other one has."""
        with self.lock:
            if self.holder not in (None, threading.get_ident()):
                return False
            if self.holder is None:
                self.before = [library.num_threads for library in _blas().lib_controllers]
                self.holder = threading.get_ident()
            self.depth += 1
            return True

    def leave(self) -> None:
        with self.lock:
            self.depth -= 1
            if not self.depth:
                self.holder = None

    def counts(self) -> list[int]:
        """Return what BLAS would use without us."""
        with self.lock:
            if self.holder is not None:
                return self.before
        return [library.num_threads for library in _blas().lib_controllers]


@contextmanager
def blas_threads(limit: int | None) -> Iterator[None]:
    """Limit BLAS to so many threads; None leaves it as it is.

    While one thread of ours holds a limit, the others leave it alone: whoever comes last could only
    put back what it has found, and that was not the user's.
    """
    if limit is None or not _held.take():
        yield
        return
    try:
        with _blas().limit(limits=limit, user_api="blas"):
            yield
    finally:
        _held.leave()


def _blas_count() -> int:
    counts = [count for count in _held.counts() if count]
    return max(counts, default=0) or _cores()


def _cores() -> int:
    """Return what a BLAS that threadpoolctl does not know would use, such as Accelerate."""
    for name in ("VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdecimal():
            return max(1, int(os.environ[name]))
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Helpers --------------------------------------------------------------------------------------


class _Call:
    """Parts of a piece of work, begun one after the other by whoever is free."""

    def __init__(self, work: Callable[[Any], Any], parts: Sequence[Any], n_threads: int):
        self.work, self.parts, self.n_threads = work, parts, n_threads
        self.results: list[Any] = [None] * len(parts)
        self.begun = 0
        self.helping = 0  # helpers that work on a part
        self.stop = threading.Event()
        self.error: BaseException | None = None

    def do(self, place: int) -> None:
        """Do one part, or note why that failed."""
        try:
            listen_to(self.stop)
            self.results[place] = self.work(self.parts[place])
        except BaseException as error:
            self.fail(error)
        finally:
            listen_to(None)

    def fail(self, error: BaseException) -> None:
        """Stop all parts; the first error is the one that counts."""
        if self.error is None and not isinstance(error, Stopped):
            self.error = error
        self.stop.set()


class _Pool:
    """Helpers for the calls of all threads; they are daemons that sleep between calls."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.calls: list[_Call] = []  # those with parts that nobody has begun
        self.helpers = 0
        self.busy = 0  # threads at work, callers among them

    def count(self, more: int) -> None:
        """Note that so many more threads are at work."""
        with self.changed:
            self.busy += more
            if more < 0:
                self.changed.notify_all()

    def run(self, call: _Call) -> list[Any]:
        """Work on a call together with the helpers, and return its results."""
        own = 0 if _here.counted else 1
        try:
            with self.changed:
                self.busy += own
                self.calls.append(call)
                self._hire(min(call.n_threads, len(call.parts)) - 1)
                self.changed.notify_all()
            while (place := self._begin(call)) is not None:
                call.do(place)
        except BaseException as error:
            call.fail(error)
        self._end(call, own)
        if call.error is not None:
            raise call.error
        return call.results

    def _begin(self, call: _Call) -> int | None:
        with self.changed:
            if call.begun == len(call.parts) or call.stop.is_set():
                return None
            call.begun += 1
            if call.begun == len(call.parts):
                self.calls.remove(call)
            return call.begun - 1

    def _end(self, call: _Call, own: int) -> None:
        """Wait for the helpers of a call: they read and write its arrays.

        A second Ctrl-C waits no longer.
        """
        with self.changed:
            if call in self.calls:
                self.calls.remove(call)
            self.busy -= 1  # others may work while this thread waits
            self.changed.notify_all()
        try:
            self._wait(call)
        except BaseException as error:
            call.fail(error)
            self._wait(call)
        finally:
            with self.changed:
                self.busy += 1 - own

    def _wait(self, call: _Call) -> None:
        with self.changed:
            while call.helping:
                self.changed.wait(_PATIENCE)

    def _hire(self, n_helpers: int) -> None:
        while self.helpers < n_helpers:
            helper = threading.Thread(target=self._help, name="topkopt", daemon=True)
            try:
                helper.start()
            except RuntimeError:  # no more threads, as when Python ends: the caller works alone
                return
            self.helpers += 1

    def _help(self) -> None:
        _alone_in_openmp()
        while True:
            call = self._await()
            place = self._begin(call)
            if place is not None:
                call.do(place)
            with self.changed:
                call.helping -= 1
                self.busy -= 1
                self.changed.notify_all()
            del call  # and with it the arrays of the caller

    def _await(self) -> _Call:
        """Return a call that has fewer threads than it asked for."""
        with self.changed:
            while True:
                for call in self.calls:
                    if self.busy < call.n_threads:
                        call.helping += 1
                        self.busy += 1
                        return call
                self.changed.wait()


def _alone_in_openmp() -> None:
    """Let a BLAS that is built on OpenMP, which counts for each thread, use one in this thread."""
    if sys.platform != "win32":  # where one number counts for all
        for library in ThreadpoolController().select(user_api="openmp").lib_controllers:
            library.set_num_threads(1)


class _Here(threading.local):
    counted = False  # among the threads at work


_here = _Here()
_held = _Held()
_pool = _Pool()


def _after_fork() -> None:
    """Begin anew: the helpers, and who held the limit of BLAS, have stayed in the parent."""
    global _held, _pool
    lost, _held, _pool = _held, _Held(), _Pool()
    _here.counted = False
    if lost.holder is not None:
        for library, count in zip(_blas().lib_controllers, lost.before, strict=True):
            library.set_num_threads(count)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
