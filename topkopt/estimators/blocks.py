"""Examples that are read in blocks, for linear classifiers: to train on, and to score."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, validate_data

from topkopt.estimators.clusters import by_chunks, is_dask_array
from topkopt.solvers.row_blocks import RowBlocks, is_stream

__all__ = ["WithConstant", "by_blocks", "refuse_stream", "validate_stream"]


class WithConstant:
    """Examples with one more feature, which is the same for all and stands for the intercept."""

    def __init__(self, X: Any, constant: float):
        self.blocks, self.constant = RowBlocks(X), constant
        self.shape = (self.blocks.shape[0], self.blocks.shape[1] + 1)
        self.dtype = self.blocks.dtype
        self.chunks = getattr(X, "chunks", None)

    def __getitem__(self, rows: slice) -> NDArray:
        part = self.blocks.read(rows)
        return np.hstack([part, np.full((len(part), 1), self.constant, self.dtype)])


def refuse_stream(X: Any, use: str) -> None:
    """Raise if X is read in blocks, and would have to be an array."""
    if is_stream(X):
        raise ValueError(
            f"X must be an array or a sparse matrix for {use}, got {type(X).__name__}, which is "
            "read in blocks; load it with numpy.asarray."
        )


def validate_stream(estimator: Any, X: Any, y: Any, reset: bool, multi_output: bool) -> Any:
    """Return X as it is, with y if it is given; solve checks the blocks as they come."""
    RowBlocks(X)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if isinstance(y, str) and y == "no_validation":
        return X
    y = validate_data(estimator, y=y, multi_output=multi_output)
    check_consistent_length(X, y)
    return X, y


def by_blocks(method: Any) -> Any:
    """Let a method of an estimator take the examples a block after the other.

    Of a Dask array it makes another one, of which nothing is computed yet.
    """

    @functools.wraps(method)
    def each(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if is_dask_array(X):
            return by_chunks(functools.partial(method, self), X, *args, **options)
        if not is_stream(X):
            return method(self, X, *args, **options)
        if not self._is_linear():
            refuse_stream(X, f"kernel={self.kernel!r}")
        blocks = RowBlocks(X)
        parts = [method(self, part, *args, **options) for _, part in blocks]
        # Without a row the method says what is wrong.
        return np.concatenate(parts) if parts else method(self, np.empty(blocks.shape))

    return each
