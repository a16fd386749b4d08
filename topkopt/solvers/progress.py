"""Records every certificate and tells people about it."""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.solution import State

__all__ = ["Progress"]

_LOGGER = logging.getLogger("topkopt")

# The columns of a history, and their names in a state.
_COLUMNS = {
    "epoch": "epoch",
    "seconds": "seconds",
    "primal": "primal",
    "dual": "dual_value",
    "gap": "gap",
    "method": "method",
}


class Progress:
    """The history of a training, shown on the terminal, the logger and to a callback.

    Parameters
    ----------
    tol : float
        The gap asked for.
    verbose : int
        1 shows one line on a terminal, 2 or more a line per certificate anywhere.
    callback : callable or None
        Called with each `State`; a true result asks to stop.
    title : str
        What every line begins with, such as the C of a path.
    """

    def __init__(
        self,
        tol: float,
        verbose: int = 0,
        callback: Callable[[State], Any] | None = None,
        title: str = "",
    ):
        self.tol, self.verbose, self.callback, self.title = tol, verbose, callback, title
        self.begin = time.perf_counter()
        self.states: list[State] = []
        self.shown: Callable[[], State | None] = lambda: None  # the state the callback saw last
        self.live = verbose == 1 and sys.stderr.isatty()

    def seconds(self) -> float:
        """Return the time since the start."""
        return time.perf_counter() - self.begin

    def resume(self, history: dict[str, NDArray]) -> None:
        """Go on with what an earlier training has recorded."""
        columns = [history[name].tolist() for name in _COLUMNS]
        self.states = [
            State(**dict(zip(_COLUMNS.values(), row, strict=True)), _arrays=[None, None])
            for row in zip(*columns, strict=True)
        ]
        if self.states:
            self.begin -= self.states[-1].seconds

    def check(self, state: State) -> bool:
        """Take note of a state; true if the callback asks to stop."""
        self.note(state)
        if self.callback is None:
            return False
        self.shown = weakref.ref(state)
        answer = self.callback(state)
        try:
            return bool(answer)
        except (TypeError, ValueError):
            raise TypeError(
                "callback must return True to stop, or False or None to go on, got "
                f"{type(answer).__name__}."
            ) from None

    def move_on(self) -> None:
        """Let a state that the callback has kept copy what is about to change."""
        state = self.shown()
        if state is not None:
            state.keep()

    def note(self, state: State) -> None:
        """Record a state and show it."""
        self.states.append(replace(state, _arrays=[None, None]))
        line = self.title + self._line(state)
        _LOGGER.info(line)
        if self.live:
            sys.stderr.write(f"\r{line:<78}")
            sys.stderr.flush()
        elif self.verbose >= 2:
            print(line, flush=True)

    def close(self) -> None:
        """End the line on the terminal, and let the last state have its own arrays."""
        self.move_on()
        if self.live:
            sys.stderr.write("\n")

    def history(self) -> dict[str, NDArray]:
        """Return what was recorded, as arrays."""
        return {
            key: np.array([getattr(state, name) for state in self.states])
            for key, name in _COLUMNS.items()
        }

    def _line(self, state: State) -> str:
        if np.isnan(state.gap):
            return f"iteration {state.epoch}  objective {state.primal:.8g}  {state.seconds:.1f} s"
        left = self._seconds_left()
        estimate = f"  about {left:.1f} s left" if left is not None else ""
        return (
            f"epoch {state.epoch}  gap {state.gap:.2e} -> {self.tol:.1e}  "
            f"{state.seconds:.1f} s{estimate}"
        )

    def _seconds_left(self) -> float | None:
        """Extrapolate the recent fall of the logarithm of the gap."""
        recent = [s for s in self.states[-6:] if s.gap > 0]
        if len(recent) < 2 or self.tol <= 0 or recent[-1].gap <= self.tol:
            return None
        fall = np.log(recent[0].gap / recent[-1].gap)
        if fall <= 0:
            return None
        span = recent[-1].seconds - recent[0].seconds
        return float(span / fall * np.log(recent[-1].gap / self.tol))
