"""Telling whether data are those of the last time, without keeping them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from topkopt.solvers.row_blocks import RowBlocks, is_stream

__all__ = ["fingerprint"]


def fingerprint(features: Any, labels: NDArray) -> str:
    """Return a hash of the labels and of the examples, of which it takes one random projection.

    That costs one pass over a dense or sparse matrix, and tells matrices apart that differ by more
    than rounding.

    >>> fingerprint(np.eye(2), np.arange(2)) == fingerprint(np.eye(2, order="F"), np.arange(2))
    True
    >>> fingerprint(np.eye(2), np.arange(2)) == fingerprint(-np.eye(2), np.arange(2))
    False
    """
    if is_stream(features):
        features = RowBlocks(features)
    direction = np.random.default_rng(0).standard_normal(features.shape[1], features.dtype.type)
    if isinstance(features, RowBlocks):
        parts = [np.einsum("ij,j->i", part, direction) for _, part in features]
        projected = np.concatenate(parts)
    elif scipy.sparse.issparse(features):
        projected = features @ direction
    else:  # not by BLAS, whose last digits may depend on the number of its threads
        projected = np.einsum("ij,j->i", features, direction)
    digest = hashlib.blake2b(digest_size=16)
    for array in (projected, labels):
        digest.update(repr((features.shape, array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
