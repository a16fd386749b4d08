"""How to train, as opposed to what."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from topkopt._threads import as_team
from topkopt._validation import check_flag, check_k, check_scalar
from topkopt.solvers.solution import State

__all__ = ["Settings", "check_settings"]


@dataclass(frozen=True)
class Settings:
    """How to train; see `solve`."""

    method: str = "auto"
    tol: float = 1e-3
    max_epochs: int = 1000
    check_every: int | str = "auto"
    random_state: Any = None
    block_size: int | str = "auto"
    callback: Callable[[State], Any] | None = None
    verbose: int = 0
    on_interrupt: str = "raise"
    keep_dual: bool = True
    n_threads: int | None = None
    checkpoint: str | None = None
    along_path: bool = False  # whether another training starts where this one ends


def check_settings(**given: Any) -> Settings:
    """Return settings whose values make sense."""
    settings = Settings(**given)
    check_scalar(settings.tol, "tol", remedy="0 trains for max_epochs.")
    check_k(settings.max_epochs, np.iinfo(np.intp).max, "any number", name="max_epochs")
    _check_auto(settings.check_every, "check_every", np.iinfo(np.intp).max, "any number")
    _check_auto(settings.block_size, "block_size", np.iinfo(np.int32).max, "2**31 - 1")
    try:
        operator.index(settings.verbose)
    except TypeError:
        raise TypeError(f"verbose must be an integer, got {settings.verbose!r}.") from None
    if settings.callback is not None and not callable(settings.callback):
        raise TypeError(
            f"callback must be a function of a State, or None, got {settings.callback!r}."
        )
    check_flag(settings.keep_dual, "keep_dual")
    if settings.on_interrupt not in ("raise", "return"):
        raise ValueError(f"on_interrupt must be raise or return, got {settings.on_interrupt!r}.")
    as_team(settings.n_threads)
    return settings


def _check_auto(value: Any, name: str, most: int, meaning: str) -> None:
    """Raise unless the value is a positive integer or "auto"."""
    if not isinstance(value, str):
        check_k(value, most, meaning, name=name)
    elif value != "auto":
        raise ValueError(f"{name} must be a positive integer or 'auto', got {value!r}.")
