"""Dual blocks of examples that are read in blocks: with each block some are looked at and changed.

Those of a hinge loss are mostly 0. Between two visits of a block its dual variables are packed, if
that saves memory, and so the whole is never there as an array unless someone asks for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.compact import is_packed, joined, pack, unpack

__all__ = ["BlockedDual"]


class BlockedDual:
    """A matrix that is kept in blocks of rows, all 0 at first.

    Parameters
    ----------
    shape : tuple
        The numbers n of examples and m of classes.
    dtype : dtype
        Of the entries.
    n_rows : int
        Rows in every block but the last.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, n_rows: int):
        self.shape, self.dtype, self.n_rows = shape, dtype, n_rows
        sizes = [min(n_rows, shape[0] - first) for first in range(0, shape[0], n_rows)]
        self.blocks = [pack(np.zeros((size, shape[1]), dtype)) for size in sizes]
        self.whole: NDArray | None = None  # where the blocks are that are not packed

    @classmethod
    def of(cls, dense: NDArray, n_rows: int) -> BlockedDual:
        """Return the same matrix in blocks."""
        made = cls(dense.shape, dense.dtype, n_rows)
        for first in range(0, dense.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            made[rows] = dense[rows]
        return made

    @property
    def size(self) -> int:
        """How many numbers are in memory."""
        return sum(array.size for block in self.blocks for array in block.values())

    def __getitem__(self, rows: slice | NDArray) -> NDArray:
        """Return a block, which may be changed if it is given back, or a copy of some rows."""
        if isinstance(rows, slice):
            return unpack(self.blocks[rows.start // self.n_rows], writeable=True)
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        for number, here in self._by_block(rows):
            found[here] = unpack(self.blocks[number])[rows[here] - number * self.n_rows]
        return found

    def __setitem__(self, rows: slice | NDArray, values: NDArray) -> None:
        if isinstance(rows, slice):
            self._keep(rows, values)
            return
        for number, here in self._by_block(rows):
            first = number * self.n_rows
            block = self[slice(first, first + self.n_rows)]
            block[rows[here] - first] = values[here]
            self._keep(slice(first, first + self.n_rows), block)

    def _keep(self, rows: slice, values: NDArray) -> None:
        """Keep a block packed, or at its place in the whole matrix."""
        number, held = rows.start // self.n_rows, pack(values)
        if not is_packed(held):
            if self.whole is None:
                self.whole = np.zeros(self.shape, self.dtype)
            if self.blocks[number].get("dense") is values:
                return
            held = {"dense": self.whole[rows]}
            held["dense"][...] = values
        self.blocks[number] = held

    def _by_block(self, rows: NDArray) -> list[tuple[int, NDArray]]:
        """Return the blocks in which rows are, and which of the rows these are."""
        numbers = rows // self.n_rows
        return [(int(each), np.flatnonzero(numbers == each)) for each in np.unique(numbers)]

    def packed(self) -> dict[str, NDArray]:
        """Return what `pack` would of the whole matrix."""
        if self.whole is not None and not any(map(is_packed, self.blocks)):
            return {"dense": self.whole}
        return joined(self.blocks)

    def copy(self) -> NDArray:
        """Return the whole matrix as an array."""
        return np.concatenate([unpack(block) for block in self.blocks])  # never the whole itself

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self.copy().astype(dtype or self.dtype, copy=False)
