"""Where a training starts: at 0, or at what an earlier solution knows of the same problem."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt import losses
from topkopt.solvers.choice import make_method
from topkopt.solvers.data import KernelData
from topkopt.solvers.lbfgs import make_lbfgs
from topkopt.solvers.method import Method
from topkopt.solvers.problem import Problem
from topkopt.solvers.scaling import scaled_blocks
from topkopt.solvers.settings import Settings
from topkopt.solvers.solution import Solution

__all__ = ["as_generator", "check_start_dual", "start", "start_coef"]


def start(
    problem: Problem, settings: Settings, warm_start: Solution | None, block_size: int
) -> Method:
    """Return the method, where it starts."""
    custom = isinstance(problem.loss, losses.CustomLoss)
    if settings.method == "lbfgs" or custom or not problem.loss.convex:
        return make_lbfgs(problem, start_coef(problem, warm_start), settings.keep_dual)
    if _goes_on_from_coef(problem, settings, warm_start):
        start_coef(problem, warm_start)
        dual = None
    else:
        dual = _start_dual(problem, warm_start)
    rng = as_generator(settings.random_state)
    return make_method(problem, settings, dual, warm_start, rng, block_size)


def _goes_on_from_coef(problem: Problem, settings: Settings, warm_start: Any) -> bool:
    """Whether "auto" continues a training without dual variables, by L-BFGS."""
    able = settings.method == "auto" and problem.loss.smooth
    return able and isinstance(warm_start, Solution) and warm_start.dual is None


def start_coef(problem: Problem, warm_start: Solution | None) -> NDArray | None:
    """Return weights to start from, or with a kernel what takes their place."""
    if warm_start is None:
        return None
    _check_warm_start(problem, warm_start)
    kernel = isinstance(problem.data, KernelData)
    start = warm_start.dual if kernel else warm_start.coef
    rows = problem.data.n_rows if kernel else problem.data.n_features
    if start is None or start.shape[0] != rows or (kernel and warm_start.coef is not None):
        name = "dual variables, and trained with a kernel," if kernel else "coef"
        raise ValueError(
            f"warm_start must be a Solution with {name} of shape ({rows}, {problem.n_classes}), "
            f"got {None if start is None else start.shape}."
        )
    return start


def _start_dual(problem: Problem, warm_start: Any) -> NDArray | None:
    """Return feasible dual variables to start from, None for 0."""
    if warm_start is None:
        return None
    check_start_dual(problem, warm_start)
    return scaled_blocks(problem, warm_start.dual, warm_start.cost, warm_start.coef)


def check_start_dual(problem: Problem, warm_start: Any) -> None:
    """Raise unless the solution has dual variables that can be gone on from."""
    _check_warm_start(problem, warm_start)
    if warm_start.loss != problem.loss:
        raise ValueError(
            f"warm_start must be a Solution for the same loss, got {warm_start.loss!r} for "
            f"{problem.loss!r}; its dual variables are not feasible here."
        )
    if warm_start.dual is None or warm_start.cost is None:
        raise ValueError(
            "warm_start must be a Solution with dual variables, got one without; train it with "
            "keep_dual=True."
        )


def _check_warm_start(problem: Problem, warm_start: Any) -> None:
    """Raise unless the solution is one for as many examples and classes."""
    if not isinstance(warm_start, Solution):
        raise TypeError(f"warm_start must be a Solution or None, got {type(warm_start).__name__}.")
    shape = (problem.data.n_rows, problem.n_classes)
    given = (warm_start.n_examples, warm_start.n_classes)
    if given != shape:
        raise ValueError(
            f"warm_start must be a Solution for {shape[0]} examples and {shape[1]} classes, "
            f"got one for {given[0]} and {given[1]}."
        )


def as_generator(random_state: Any) -> Any:
    """Return what draws the orders of epochs."""
    if hasattr(random_state, "permutation"):
        return random_state
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            "random_state must be None, a non-negative integer, a Generator or a RandomState, got "
            f"{random_state!r}."
        ) from None
