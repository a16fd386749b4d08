"""The forms in which rows come: Dask arrays, blocks that are computed elsewhere, and files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowsOfFile", "blocks_of", "grouped", "is_blocks", "is_dask_array", "length_of"]


@dataclass(frozen=True)
class RowsOfFile:
    """Rows of an array in a file that a worker maps into its memory.

    Parameters
    ----------
    path : str
        The file, as the workers can open it.
    first, last : int
        The rows from `first` to `last - 1`; by default all.
    dtype : str, optional
        For a file of plain numbers: their type. By default the file is one of `numpy.save`.
    n_columns : int, optional
        For a file of plain numbers: how many make up a row; by default each is a row.
    offset : int, default 0
        For a file of plain numbers: the bytes before them.

    Examples
    --------
    >>> from topkopt.distributed import RowsOfFile
    >>> X = [RowsOfFile("embeddings.npy", 0, 500_000), RowsOfFile("embeddings.npy", 500_000)]
    >>> y = [RowsOfFile("labels.npy", 0, 500_000), RowsOfFile("labels.npy", 500_000)]
    """

    path: str | os.PathLike[str]
    first: int = 0
    last: int | None = None
    dtype: str | None = None
    n_columns: int | None = None
    offset: int = 0

    def open(self) -> NDArray:
        """Return the rows; nothing is read yet.

        Returns
        -------
        ndarray
        """
        if self.dtype is None:
            whole = np.load(self.path, mmap_mode="r", allow_pickle=False)
        else:
            flat = np.memmap(self.path, self.dtype, "r", self.offset)
            whole = flat if self.n_columns is None else flat.reshape(-1, self.n_columns)
        rows = slice(self.first, len(whole) if self.last is None else self.last)
        if not 0 <= rows.start <= rows.stop <= len(whole):
            raise ValueError(
                f"first and last must be rows of {os.fspath(self.path)}, which has {len(whole)}, "
                f"got {self.first} and {self.last}."
            )
        return whole[rows]


def is_dask_array(data: Any) -> bool:
    """Whether data is a Dask array; Dask is not imported to find out."""
    return type(data).__module__.partition(".")[0] == "dask" and hasattr(data, "to_delayed")


def is_blocks(data: Any) -> bool:
    """Whether data is in blocks that Dask or files have."""
    listed = isinstance(data, (list, tuple)) and len(data) > 0
    return is_dask_array(data) or (listed and all(map(_is_block, data)))


def _is_block(block: Any) -> bool:
    package = type(block).__module__.partition(".")[0]
    return isinstance(block, RowsOfFile) or package in ("dask", "distributed")


def blocks_of(data: Any, name: str) -> list[Any]:
    """Return the row blocks of a Dask array, or those that are listed."""
    if not is_blocks(data):
        raise TypeError(
            f"{name} must be a Dask array, or a list of delayed blocks of rows, of futures or of "
            f"RowsOfFile, got {type(data).__name__}; dask.array.from_array makes a Dask array of "
            "what is in memory here, and topkopt.solve trains on it where it is."
        )
    if not is_dask_array(data):
        return list(data)
    if data.ndim == 2 and data.numblocks[1] > 1:
        data = data.rechunk({1: -1})
    return list(data.to_delayed().ravel())


def length_of(block: Any) -> int:
    """Return how many rows a block has."""
    return int((block.open() if isinstance(block, RowsOfFile) else block).shape[0])


def grouped(blocks: list[Any], count: int) -> list[list[Any]]:
    """Return neighbouring blocks in about equally long groups."""
    return [list(part) for part in np.array_split(np.array(blocks, object), count)]
