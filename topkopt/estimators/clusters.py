"""Dask arrays, for linear classifiers: to train on where they are, and to score when wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from topkopt._extras import require
from topkopt.distributed.rows import is_dask_array
from topkopt.estimators.checks import encode_classes

__all__ = ["by_chunks", "check_training", "is_dask_array", "on_cluster", "with_constant"]


def on_cluster(X: Any) -> bool:
    """Whether X is a Dask array, and there is a cluster to train on; else it is read in blocks."""
    if not is_dask_array(X):
        return False
    try:
        require("distributed").get_client()
    except (ImportError, ValueError):
        return False
    return True


def check_training(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights to train on; the estimator learns its classes."""
    if estimator.kernel != "linear":
        raise ValueError(
            f"kernel must be 'linear' for Dask arrays, got {estimator.kernel!r}; a kernel needs "
            "all examples in one place: call compute() on X."
        )
    if estimator.warm_start:
        raise ValueError(
            "warm_start must be False for Dask arrays, got True; use topkopt.distributed.solve."
        )
    X = in_one_column(X)
    validate_data(estimator, X, skip_check_array=True)
    estimator.classes_, labels = labels_of(y)
    if estimator.class_weight is not None:  # which counts the labels
        labels, sample_weight = (
            part.compute() if is_dask_array(part) else part for part in (labels, sample_weight)
        )
        sample_weight = estimator._example_weights(sample_weight, labels)
    estimator._prepare(X, None)
    return X, labels, sample_weight


def in_one_column(X: Any) -> Any:
    """Return an array of rows whose chunks hold whole rows."""
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix with one row per example, got shape {X.shape}.")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def with_constant(X: Any, constant: float) -> Any:
    """Return an array with one more feature, which is the same for all."""

    def widened(rows: Any) -> Any:
        column = np.full((rows.shape[0], 1), constant, rows.dtype)
        if scipy.sparse.issparse(rows):
            return scipy.sparse.hstack([rows, scipy.sparse.csr_array(column)], format="csr")
        return np.hstack([rows, column])

    X = in_one_column(X)
    chunks = (X.chunks[0], (X.shape[1] + 1,))
    return X.map_blocks(widened, chunks=chunks, dtype=X.dtype, meta=X._meta)


def labels_of(y: Any) -> tuple[NDArray, Any]:
    """Return the classes, and the number of each example's class; of a Dask array as one."""
    if not is_dask_array(y):
        return encode_classes(column_or_1d(y))
    if y.ndim != 1:
        raise ValueError(f"y must hold one class per example, got shape {y.shape}.")
    classes, _ = encode_classes(require("dask.array").unique(y).compute())
    return classes, y.map_blocks(lambda part: np.searchsorted(classes, part), dtype=np.intp)


def by_chunks(method: Callable[..., NDArray], X: Any, *args: Any, **options: Any) -> Any:
    """Return what a method makes of rows, as a Dask array of which nothing is computed yet."""
    X = in_one_column(X)
    one = method(np.zeros((1, X.shape[1]), X.dtype), *args, **options)

    def made(rows: Any) -> NDArray:
        return method(rows, *args, **options) if rows.shape[0] else one[:0]

    shape: dict[str, Any] = {"drop_axis": 1}
    if one.ndim == 2:
        shape = {"chunks": (X.chunks[0], (one.shape[1],))}
    return X.map_blocks(made, dtype=one.dtype, meta=one[:0], **shape)
