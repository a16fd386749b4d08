"""Feature matrices as the solvers see them: dense rows, sparse rows or a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from topkopt import _sdca
from topkopt._sdca import Examples
from topkopt._validation import as_floating

__all__ = ["Data", "DenseData", "KernelData", "SparseData", "as_data"]

_CHUNK = 1 << 20  # entries looked at together, so that a memory-mapped X stays on the disk
_CACHE = 1 << 15  # bytes of W up to which no block is worth its bookkeeping
_SUMS_ROWS = 256  # most rows whose scores are computed together for a certificate


class Data(ABC):
    """n examples: their squared norms, epochs over them, and sums for the certificate.

    ``coef`` is W = X'A, or A itself for a kernel.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype
    square_norms: NDArray

    @abstractmethod
    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order."""

    @abstractmethod
    def sums(self, examples: Examples, coef: NDArray, dual: NDArray) -> tuple[float, float, float]:
        """Return the sums of costs times losses and conjugates, and <A, scores>."""

    @abstractmethod
    def coef_from(self, dual: NDArray) -> NDArray:
        """Return W = X'A anew, free of what rounding added step by step."""

    @abstractmethod
    def scores(self, coef: NDArray) -> NDArray:
        """Return the scores of all rows."""

    def auto_block(self, n_classes: int) -> int:
        """Return how many rows to take together."""
        return 1


class DenseData(Data):
    """Rows of a dense matrix, of any memory layout and never copied as a whole."""

    def __init__(self, X: NDArray):
        self.X = X
        self.n_rows, self.n_features = X.shape
        self.dtype = X.dtype
        self.square_norms = np.empty(self.n_rows)
        step = max(1, _CHUNK // max(1, X.shape[1]))
        for first in range(0, self.n_rows, step):
            rows = np.asarray(X[first : first + step])
            _check_finite(rows, "X")
            np.einsum(
                "ij,ij->i",
                rows,
                rows,
                dtype=np.float64,
                out=self.square_norms[first : first + step],
            )

    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order."""
        _sdca.dense_epoch(examples, self.X, coef, dual, order, block_size)

    def sums(self, examples: Examples, coef: NDArray, dual: NDArray) -> tuple[float, float, float]:
        """Return the sums of costs times losses and conjugates, and <A, X W>."""
        rows = np.clip(2 * _CHUNK // max(self.n_features, dual.shape[1]), 1, _SUMS_ROWS)
        return _sdca.dense_sums(examples, self.X, coef, dual, rows)

    def coef_from(self, dual: NDArray) -> NDArray:
        """Return W = X'A."""
        return np.ascontiguousarray(self.X.T @ dual)

    def scores(self, coef: NDArray) -> NDArray:
        """Return X W."""
        return self.X @ coef

    def auto_block(self, n_classes: int) -> int:
        """Return how many rows to take together.

        A block of B rows costs B/(2 m) of the two products that are always done for its Gram
        matrix and B/(4 d) for its corrections, and saves reading and writing W B times.
        """
        if self.n_features * n_classes * self.dtype.itemsize <= _CACHE:
            return 1
        return int(np.clip(min(n_classes // 4, self.n_features), 16, 256))


class KernelData(DenseData):
    """A Gram matrix K: W is never formed, the scores are K A."""

    def __init__(self, K: NDArray):
        super().__init__(K)
        self.square_norms = np.ascontiguousarray(np.diagonal(K), dtype=np.float64)
        if self.n_rows and self.square_norms.min() < 0:
            raise ValueError(
                f"X must be a Gram matrix when kernel=True, but its diagonal holds "
                f"{self.square_norms.min():g}; pass a positive semi-definite kernel."
            )

    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order; coef is dual."""
        _sdca.kernel_epoch(examples, self.X, dual, order, block_size)

    def coef_from(self, dual: NDArray) -> NDArray:
        """Return A itself."""
        return dual

    def auto_block(self, n_classes: int) -> int:
        """Return how many rows to take together."""
        return int(np.clip(self.n_rows // 16, 1, 128))


class SparseData(Data):
    """Rows of a CSR matrix; the cost of everything is proportional to the stored entries."""

    def __init__(self, X: Any):
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        _check_finite(X.data, "X")
        self.X = X
        self.n_rows, self.n_features = X.shape
        self.dtype = X.dtype
        width = np.result_type(X.indices, X.indptr)
        self.parts = X.data, X.indices.astype(width, copy=False), X.indptr.astype(width, copy=False)
        squares = X.data.astype(np.float64) ** 2
        self.square_norms = np.add.reduceat(np.append(squares, 0.0), X.indptr[:-1])
        self.square_norms[np.diff(X.indptr) == 0] = 0.0

    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order, one by one."""
        _sdca.sparse_epoch(examples, *self.parts, coef, dual, order)

    def sums(self, examples: Examples, coef: NDArray, dual: NDArray) -> tuple[float, float, float]:
        """Return the sums of costs times losses and conjugates, and <A, X W>."""
        return _sdca.sparse_sums(examples, *self.parts, coef, dual)

    def coef_from(self, dual: NDArray) -> NDArray:
        """Return W = X'A."""
        return np.ascontiguousarray(self.X.T @ dual)

    def scores(self, coef: NDArray) -> NDArray:
        """Return X W."""
        return self.X @ coef


def _check_finite(values: NDArray, name: str) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite entries; clean or impute it.")


def as_data(X: Any, kernel: bool) -> Data:
    """Wrap a dense or sparse matrix of examples, or a Gram matrix."""
    if scipy.sparse.issparse(X):
        if kernel:
            raise ValueError("X must be dense when kernel=True; call X.toarray() first.")
        if X.dtype.kind not in "biuf":
            raise TypeError(f"X must hold real numbers, got dtype {X.dtype}; convert it first.")
        csr = scipy.sparse.csr_array(X)
        if csr.dtype not in (np.float32, np.float64):
            csr = csr.astype(np.float64)
        return SparseData(csr)
    array = as_floating(X, "X")
    if array.ndim != 2:
        raise ValueError(f"X must be a matrix with one row per example, got shape {array.shape}.")
    if kernel and array.shape[0] != array.shape[1]:
        raise ValueError(
            f"X must be a square Gram matrix when kernel=True, got shape {array.shape}; "
            "pass the kernel between all pairs of training examples."
        )
    return KernelData(array) if kernel else DenseData(array)
