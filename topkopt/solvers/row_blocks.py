"""Examples that are read in blocks of rows and never held as a whole.

A source is anything with a `shape`, a `dtype` and slices of rows: a dataset of h5py, an array of
Zarr, a np.memmap, or an object of the user. While one block is worked on, a thread reads the next.
Every pass goes through the blocks from the first to the last, and an epoch of coordinate ascent
through all blocks in a random order and all rows of a block in another, so that a disk is read in
sequence. What is known of single examples (dual blocks, labels, costs) is in memory; the epochs and
evaluations see a slice of it with each block.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt._validation import as_floating

__all__ = ["RowBlocks", "is_large_file", "is_mapped", "is_stream"]

# A block of so many bytes is long enough for a disk, and small next to what is held anyway.
BLOCK_BYTES = 1 << 24
# A memory-mapped file of so many bytes is faster to read in blocks than page by page.
LARGE_FILE = 1 << 28
# A chunk of the source larger than so many blocks is read in pieces.
_LARGEST_CHUNK = 4


def is_stream(X: Any) -> bool:
    """Whether X is not an array, but can be read in blocks: it has a shape, a dtype and slices.

    >>> is_stream(np.eye(2))
    False
    """
    in_memory = ("__array_interface__", "__dlpack__", "__cuda_array_interface__")
    return (
        isinstance(getattr(X, "dtype", None), np.dtype)
        and isinstance(getattr(X, "shape", None), tuple)
        and hasattr(type(X), "__getitem__")
        and not isinstance(X, np.generic)
        and not hasattr(X, "nnz")
        and not any(hasattr(X, name) for name in in_memory)
    )


def is_mapped(X: Any) -> bool:
    """Whether an array is a view of a file: its memory is the file's, and can be given back."""
    while X is not None:
        if isinstance(X, (np.memmap, mmap.mmap)):
            return True
        X = X.obj if isinstance(X, memoryview) else getattr(X, "base", None)
    return False


def is_large_file(X: Any) -> bool:
    """Whether X is a memory-mapped array that is better read in blocks, and should not be copied.

    Pages that the system has at hand cost nothing in either way; others are waited for one by one.
    """
    return isinstance(X, np.ndarray) and X.nbytes >= LARGE_FILE and is_mapped(X)


class RowBlocks:
    """A matrix as a sequence of blocks of rows, checked as they come.

    Parameters
    ----------
    X : object
        With `shape` (n, d), a NumPy `dtype` of real numbers, and ``X[first:last]`` for rows, which
        returns an array or nested lists of that shape that nothing changes afterwards. `chunks`,
        if it is there as in Zarr and h5py, tells how many rows are stored together.

    Attributes
    ----------
    shape, dtype
        Those of the blocks: float32 for float16 and float32, else float64.
    n_rows : int
        Rows in every block but the last.
    """

    def __init__(self, X: Any):
        self.X, self.shape = X, tuple(map(int, X.shape))
        if len(self.shape) != 2:
            raise ValueError(
                f"X must be a matrix with one row per example, got shape {self.shape}."
            )
        self.given = np.dtype(X.dtype)
        if self.given.kind not in "biuf":
            raise TypeError(f"X must hold real numbers, got dtype {self.given}; convert it first.")
        single = self.given.kind == "f" and self.given.itemsize <= 4
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.n_rows = _rows_of_block(X, self.shape[1] * self.dtype.itemsize)
        self.at_hand = isinstance(X, np.ndarray) and not is_mapped(X)

    def slice_of(self, number: int) -> slice:
        """Return the rows of a block."""
        first = int(number) * self.n_rows
        return slice(first, min(first + self.n_rows, self.shape[0]))

    def __iter__(self) -> Iterator[tuple[slice, NDArray]]:
        """Yield all blocks, and which rows they are."""
        numbers = range(-(-self.shape[0] // self.n_rows))
        return self.in_turn([self.slice_of(number) for number in numbers])

    def in_turn(self, places: Sequence[slice]) -> Iterator[tuple[slice, NDArray]]:
        """Yield blocks in some order; a thread reads the one that comes next."""
        if self.at_hand or len(places) < 2:
            for rows in places:
                yield rows, self.read(rows)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="topkopt-read-ahead") as reader:
            coming = reader.submit(self.read, places[0])
            for place, rows in enumerate(places):
                block = coming.result()
                if place + 1 < len(places):
                    coming = reader.submit(self.read, places[place + 1])
                yield rows, block

    def visits(self, order: NDArray) -> Iterator[tuple[slice, NDArray, slice, NDArray]]:
        """Yield the blocks of the rows of `order`, in their turn.

        With each come the slice of its rows, the slice of `order` that is in it, and the places of
        these rows in the block.
        """
        turns = self.turns(order)
        blocks = self.in_turn([rows for rows, _, _ in turns])
        for (rows, span, places), (_, block) in zip(turns, blocks, strict=True):
            yield rows, block, span, places

    def turns(self, order: NDArray) -> list[tuple[slice, slice, NDArray]]:
        """Return the same without the blocks: their rows, the slices of `order`, and the places."""
        if not len(order):
            return []
        number = order // self.n_rows
        ends = [*(np.flatnonzero(np.diff(number)) + 1).tolist(), len(order)]
        found = []
        for first, last in zip([0, *ends[:-1]], ends, strict=True):
            rows = self.slice_of(number[first])
            found.append((rows, slice(first, last), order[first:last] - rows.start))
        return found

    def read(self, rows: slice) -> NDArray:
        """Return rows as a matrix of the promised shape and dtype, with finite entries."""
        name = f"X[{rows.start}:{rows.stop}]"
        found = self.X[rows]
        array = as_floating(found, name)
        shape = (rows.stop - rows.start, self.shape[1])
        kept = getattr(found, "dtype", self.given) == self.given
        if array.shape != shape or not kept:
            raise ValueError(
                f"{name} must have the shape {shape} and the dtype {self.given}, as X.shape and "
                f"X.dtype have said, got {array.shape} and {getattr(found, 'dtype', array.dtype)}; "
                "X must not change while it is read."
            )
        if not self.at_hand and is_mapped(array):
            array = np.array(array, order="C")  # by the reading thread: later nothing has to wait
        array = array.astype(self.dtype, copy=False)
        # The sum is faster, and finite if no entry is NaN or infinite; it may also overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(array.sum())
        if not (finite or np.isfinite(array).all()):
            raise ValueError(
                "X must be finite, got NaN or infinite entries in the rows "
                f"{rows.start} to {rows.stop - 1}; clean or impute it."
            )
        return array


def _rows_of_block(X: Any, row_bytes: int) -> int:
    """Return how many rows to read together: whole chunks, unless these are large."""
    rows = max(1, BLOCK_BYTES // max(1, row_bytes))
    chunks = getattr(X, "chunks", None)
    stored = chunks[0] if isinstance(chunks, tuple) and chunks else None
    if isinstance(stored, (int, np.integer)) and 0 < stored <= _LARGEST_CHUNK * rows:
        return int(stored) * max(1, rows // int(stored))
    return rows
