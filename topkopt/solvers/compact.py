"""Dual variables in little memory: those of a hinge loss are mostly 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CompactField", "is_packed", "joined", "pack", "unpack"]

# A matrix is packed if that takes no more than this share of its memory.
_WORTH = 0.5
# The rows are looked at in groups of about so many numbers.
_CHUNK = 1 << 20


def pack(dense: Any) -> dict[str, NDArray]:
    """Return arrays that hold a matrix: itself, or its entries that are not 0 and their places.

    >>> sorted(pack(np.eye(20)))
    ['columns', 'shape', 'starts', 'values']
    >>> sorted(pack(np.ones((2, 2))))
    ['dense']
    """
    if hasattr(dense, "packed"):
        return dense.packed()
    n, m = dense.shape
    index = np.min_scalar_type(max(m - 1, 0))
    ranges = [slice(*ends) for ends in _ranges(n, m)]
    total = sum(np.count_nonzero(dense[rows] != 0) for rows in ranges)
    size = total * (dense.itemsize + index.itemsize) + 8 * (n + 1)
    if size > _WORTH * dense.nbytes:
        return {"dense": dense}
    starts, last = np.zeros(n + 1, np.int64), 0
    values, columns = np.empty(total, dense.dtype), np.empty(total, index)
    for rows in ranges:
        part = np.ascontiguousarray(dense[rows])
        places = np.flatnonzero(part != 0)
        owners = places // m
        span = slice(last, last + len(places))
        values[span], columns[span] = part.ravel()[places], places - owners * m
        starts[rows.start + 1 : rows.stop + 1] = np.bincount(owners, minlength=len(part))
        last = span.stop
    np.cumsum(starts, out=starts)
    return {"values": values, "columns": columns, "starts": starts, "shape": np.array([n, m])}


def unpack(held: dict[str, NDArray], writeable: bool = False) -> NDArray:
    """Return the matrix; one that is made anew is read-only, if nobody would keep a change.

    >>> unpack(pack(np.eye(20))).sum()
    np.float64(20.0)
    """
    if "dense" in held:
        return held["dense"]
    n, m = held["shape"].tolist()
    starts = held["starts"]
    dense = np.zeros((n, m), held["values"].dtype)
    for first, last in _ranges(n, m):
        span = slice(starts[first], starts[last])
        rows = np.repeat(np.arange(last - first) * m, np.diff(starts[first : last + 1]))
        dense[first:last].ravel()[rows + held["columns"][span]] = held["values"][span]
    dense.flags.writeable = writeable
    return dense


def is_packed(held: dict[str, NDArray]) -> bool:
    """Whether it is not the matrix itself that is held."""
    return "dense" not in held


def joined(blocks: list[dict[str, NDArray]]) -> dict[str, NDArray]:
    """Return what holds the rows of all blocks, one after the other."""
    if not all(map(is_packed, blocks)):
        return pack(np.concatenate([unpack(block) for block in blocks]))
    stored = np.cumsum([0, *(len(block["values"]) for block in blocks)])
    ends = [block["starts"][1:] + first for block, first in zip(blocks, stored, strict=False)]
    shape = np.array([sum(map(len, ends)), blocks[0]["shape"][1]])
    values, columns = (np.concatenate([b[name] for b in blocks]) for name in ("values", "columns"))
    starts = np.concatenate([np.zeros(1, np.int64), *ends])
    return {"values": values, "columns": columns, "starts": starts, "shape": shape}


def _ranges(n: int, m: int) -> list[tuple[int, int]]:
    step = max(1, _CHUNK // max(1, m))
    return [(first, min(first + step, n)) for first in range(0, n, step)]


class CompactField:
    """A field of a dataclass that holds a matrix packed, also when it is pickled, or None."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        held = vars(instance)[self.name]
        return unpack(held) if isinstance(held, dict) else held

    def __set__(self, instance: Any, matrix: NDArray | None) -> None:
        vars(instance)[self.name] = None if matrix is None else pack(matrix)
