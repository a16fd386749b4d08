"""What a matrix of the user is to the solvers: dense, sparse, a kernel, or read in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from topkopt._validation import aligned, as_floating, check_csr
from topkopt.solvers.data import Data, DenseData, KernelData, SparseData
from topkopt.solvers.row_blocks import is_stream
from topkopt.solvers.streams import StreamData

__all__ = ["as_data"]


def as_data(X: Any, kernel: bool | str, sampling: str = "auto") -> Data:
    """Wrap a matrix of examples, dense, sparse or read in blocks, or a Gram matrix."""
    stream = is_stream(X)
    if kernel and (stream or sampling == "blocks"):
        raise ValueError(
            "X must be an array in memory, with sampling='rows', when kernel=True: every step "
            "needs the kernel with all examples."
        )
    if stream:
        if sampling == "rows":
            raise ValueError(
                "sampling must be 'blocks' or 'auto' for X that is read in blocks, got 'rows'; "
                f"load it with numpy.asarray for single rows, got {type(X).__name__}."
            )
        return StreamData(X)
    if scipy.sparse.issparse(X):
        return _as_sparse(X, kernel, sampling)
    if sampling == "blocks" and isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        return StreamData(X)
    array = as_floating(X, "X")
    if array.ndim != 2:
        raise ValueError(f"X must be a matrix with one row per example, got shape {array.shape}.")
    if sampling == "blocks":
        return StreamData(array)
    if not kernel:
        return DenseData(array)
    if array.shape[0] != array.shape[1]:
        raise ValueError(
            f"X must be a square Gram matrix when kernel=True, got shape {array.shape}; "
            "pass the kernel between all pairs of training examples."
        )
    return KernelData(array, vouched=kernel == "psd")


def _as_sparse(X: Any, kernel: bool | str, sampling: str) -> SparseData:
    if kernel:
        raise ValueError("X must be dense when kernel=True; call X.toarray() first.")
    if sampling == "blocks":
        raise ValueError(
            "sampling must be 'rows' or 'auto' for a sparse X, which is held in memory, got "
            "'blocks'."
        )
    return SparseData(_as_csr(X))


def _as_csr(X: Any) -> Any:
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix with one row per example, got shape {X.shape}.")
    if X.dtype.kind not in "biuf":
        raise TypeError(f"X must hold real numbers, got dtype {X.dtype}; convert it first.")
    check_csr(X, "X")
    csr = aligned(scipy.sparse.csr_array(X))
    return csr if csr.dtype in (np.float32, np.float64) else csr.astype(np.float64)
