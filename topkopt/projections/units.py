"""Rows of any magnitude: in a unit of length in which no sum overflows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt._threads import Team
from topkopt._validation import Rows, check_scalar

__all__ = ["NO_BOUND", "check_bias", "in_unit", "longest_of", "solve_rows", "unit_for"]

# Kernels take lengths up to _LONG, and a bias or its inverse up to _MOST_BIAS: no sum, difference
# or quotient overflows. What is longer is measured in units of _UNIT.
_LONG, _UNIT = 2.0**800, 2.0**224
_MOST_BIAS = 2.0**200
_MOST = {4: float(np.finfo(np.float32).max), 8: float(np.finfo(np.float64).max)}  # by item size
NO_BOUND = 2.0**900  # of a sum that may stay below it: no sum of entries up to _LONG gets there


def longest_of(*lengths: NDArray) -> float:
    """Return the largest finite magnitude."""
    sizes = [max(float(length.max()), -float(length.min())) for length in lengths if length.size]
    if any(math.isinf(size) for size in sizes):
        return longest_of(*(length[np.isfinite(length)] for length in lengths))
    return max(sizes, default=0.0)


def solve_rows(
    kernel: Callable[..., None], team: Team, *sides: Rows, longest: float, **lengths: Any
) -> None:
    """Call kernel(part, unit, *sources, *targets) for parts of the rows, with a unit of length.

    Projections are homogeneous. So a row that could overflow, by itself or next to the longest
    length of the set, is measured in another unit: a power of two, so that nothing is rounded.
    """
    most = _MOST[sides[0].source.dtype.itemsize]
    if longest <= min(_LONG, most) and not any([side.huge for side in sides]):

        def solve(part: slice) -> None:
            sources, targets = [s.source[part] for s in sides], [s.target[part] for s in sides]
            kernel(part, 1.0, *sources, *targets)

        team.each_row(solve, len(sides[0].source), sum(side.size for side in sides))
        return
    results = [np.empty(side.source.shape) for side in sides]
    for i in range(len(results[0])):
        part = slice(i, i + 1)
        sources = [side.source[part].astype(np.float64) for side in sides]
        unit = unit_for(max(longest, longest_of(*sources)), **lengths)
        targets = [result[part] for result in results]
        kernel(part, unit, *(source / unit for source in sources), *targets)
        if any((np.abs(target) > most / unit).any() for target in targets):
            raise ValueError(
                f"x must have a projection that {sides[0].source.dtype} can hold (at most "
                f"{most:.2g}), but row {i} has none; scale the input and the set down."
            )
        for target in targets:
            target *= unit
    for result, side in zip(results, sides, strict=True):
        side.target[...] = result


def in_unit(length: NDArray, unit: float) -> NDArray:
    """Return a length measured in a unit."""
    return length if unit == 1.0 else length / unit


def unit_for(longest: float, **lengths: Any) -> float:
    """Return a unit for the longest length in which the others, if not 0, keep their digits."""
    if longest <= _LONG:
        return 1.0
    least = np.finfo(np.float64).tiny * _UNIT
    for name, length in lengths.items():
        size = np.abs(length)
        short = size[(size > 0) & (size < least)]
        if short.size:
            raise ValueError(
                f"{name} must be 0 or at least {least:.2g} next to numbers beyond {_LONG:.2g}, got "
                f"{short.flat[0]:.2g}; use -inf to exclude entries, or scale large numbers down."
            )
    return _UNIT


def check_bias(bias: float) -> float:
    """Return the bias, which is 0 where it would be lost."""
    bias = check_scalar(bias, "bias")
    if bias > _MOST_BIAS:
        raise ValueError(
            f"bias must be at most {_MOST_BIAS:.2g}, got {bias!r}; a larger one leaves nothing of "
            "the sum."
        )
    return bias if bias >= 1 / _MOST_BIAS else 0.0  # below, it is lost next to 1
