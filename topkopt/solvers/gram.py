"""What is to be known of a Gram matrix before a certificate can rest on it."""

from __future__ import annotations

import numpy as np
import scipy.linalg.lapack
from numpy.typing import NDArray

__all__ = ["check_symmetric", "definite_shift"]

# So many rows and columns are compared with their mirror image at once,
_TILE = 512
# and entries may differ from theirs by so many units of rounding.
_ASYMMETRY = 256


def check_symmetric(K: NDArray, largest: float) -> None:
    """Raise unless K equals its transpose, but for the rounding of its entries."""
    slack = _ASYMMETRY * np.finfo(K.dtype).eps * largest
    n = K.shape[0]
    for first in range(0, n, _TILE):
        for second in range(first, n, _TILE):
            upper = K[first : first + _TILE, second : second + _TILE]
            lower = K[second : second + _TILE, first : first + _TILE]
            apart = np.abs(upper - lower.T)
            if apart.max() > slack:
                place = np.unravel_index(np.argmax(apart), apart.shape)
                i, j = int(place[0]) + first, int(place[1]) + second
                raise ValueError(
                    f"X must be symmetric when kernel=True, but X[{i}, {j}] = {K[i, j]:.6g} and "
                    f"X[{j}, {i}] = {K[j, i]:.6g}; pass the kernel between all pairs of training "
                    "examples, or (X + X.T) / 2 if that is what you mean."
                )


def definite_shift(K: NDArray, diagonal: NDArray, vouched: bool) -> NDArray:
    """Return what is added to the diagonal of K to make it positive semi-definite."""
    n, limits = len(K), np.finfo(K.dtype)
    unit = max(float(limits.eps) * diagonal.max(initial=0.0), float(limits.smallest_subnormal))
    zero = diagonal == 0
    zero[zero] = ~K[zero].any(axis=1)
    # Independent rounding of n entries in a row adds up to about sqrt(n) units, at worst to n.
    for size in (np.sqrt(n) * unit, n * unit):
        shift = np.where(zero, 0.0, size)
        if vouched or _has_cholesky(K, shift):
            return shift
    raise ValueError(
        f"X must be positive semi-definite when kernel=True, but adding {n * unit:.2g} to its "
        "diagonal leaves it an eigenvalue below 0, and no certificate would hold; choose another "
        "kernel, such as rbf, or remove the negative eigenvalues (numpy.linalg.eigh)."
    )


def _has_cholesky(K: NDArray, shift: NDArray) -> bool:
    """Whether K + diag(shift) has a Cholesky factorisation, which shows that it is definite."""
    shifted = np.array(K, dtype=np.float64, order="F")
    # A row of zeros has no part in it; its pivot may be any positive number.
    shifted[np.diag_indices_from(shifted)] += np.where(shift > 0, shift, 1.0)
    return scipy.linalg.lapack.dpotrf(shifted, lower=1, overwrite_a=1, clean=0)[1] == 0
