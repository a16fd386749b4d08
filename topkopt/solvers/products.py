"""Matrix products on the threads of a team: dense ones are BLAS's, sparse ones go by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from topkopt._threads import Team, blas_threads
from topkopt.solvers.threads import worth_threads

__all__ = ["product", "pulled"]

# A sparse product makes so many multiplications in the time a kernel takes for a number.
_PER_NUMBER = 4


def product(X: Any, B: NDArray, team: Team) -> NDArray:
    """Return X B, for a dense matrix X or rows of a sparse one.

    Overflow is no warning here: the certificate finds it, and says more.
    """
    if not scipy.sparse.issparse(X):
        large = team.n_threads is not None and worth_threads(2.0 * X.size * B.shape[1])
        threads = blas_threads(team.size() if large else None)
        with threads, np.errstate(over="ignore", invalid="ignore"):
            return X @ B
    if X.format != "csr":
        return np.asarray(X @ B)
    ranges = team.ranges(X.shape[0], X.nnz * B.shape[1] / _PER_NUMBER)
    if len(ranges) == 1:
        return np.asarray(X @ B)
    return np.concatenate(team.run(lambda rows: np.asarray(X[rows] @ B), ranges))


def pulled(X: Any, A: NDArray, team: Team) -> NDArray:
    """Return X'A, in C order; each range of rows has a product of its own, added in their order."""
    if not scipy.sparse.issparse(X):
        return np.ascontiguousarray(product(X.T, A, team))
    ranges = team.ranges(X.shape[0], X.nnz * A.shape[1] / _PER_NUMBER)
    if len(ranges) == 1:
        return np.ascontiguousarray(X.T @ A)
    first, *others = team.run(lambda rows: np.asarray(X[rows].T @ A[rows]), ranges)
    for other in others:
        first += other
    return np.ascontiguousarray(first)
