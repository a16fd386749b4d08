"""Newton systems (I + sum_i cost_i (x_i x_i') (x) D_i) Z = G, by the smaller of two factorisations.

The features times the classes are one size, the ranks of all D_i together the other (Woodbury's
identity). With a kernel only the second exists, and matrices like G and Z stand for X'G and X'Z.
Where both are large, which is so while sigma is, conjugate gradients find a Z that will do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from topkopt.solvers.curvature import Curvature
from topkopt.solvers.data import Data, KernelData, add_identity

__all__ = ["Direction", "solve_system"]

LARGEST = 6000  # the size of the largest system that is factorised
_RESIDUAL = 0.03  # of the right-hand side, that conjugate gradients leave
_PRODUCTS = 100  # of conjugate gradients at the most
_ENTRIES = 1 << 22  # of an array that is filled and used up again
FEW = 64  # features whose products by pairs are formed for all examples at once


class Direction:
    """The solution of a system, and the operations that it took."""

    def __init__(self, step: NDArray, operations: float):
        self.step, self.operations = step, operations


def solve_system(
    data: Data, curvature: Curvature, cost: NDArray, gradient: NDArray, scores: NDArray | None
) -> Direction:
    """Return Z for the right-hand side G.

    Parameters
    ----------
    data : Data
        The examples, in float64.
    curvature : Curvature
        The D_i that are not 0.
    cost : ndarray of shape (n,)
        C times the weight of each example.
    gradient : ndarray
        The right-hand side G.
    scores : ndarray of shape (n, m) or None
        The scores of all examples under G, with a kernel.
    """
    if curvature.rank == 0:
        return Direction(gradient, 0.0)
    size = np.inf if isinstance(data, KernelData) else gradient.size
    if min(size, curvature.rank) > LARGEST:
        if scores is None:
            return _by_products(data, curvature, cost, gradient)
        return _by_kernel_products(data, curvature, cost, gradient, scores)
    try:
        if size <= curvature.rank:
            return _by_features(data, curvature, cost, gradient)
        return _by_ranks(data, curvature, cost, gradient, scores)
    except np.linalg.LinAlgError:  # rounding left no positive matrix; the line search is safe
        return Direction(gradient, 0.0)


def _by_features(data: Any, curvature: Curvature, cost: NDArray, gradient: NDArray) -> Direction:
    """Factorise the Hessian, a class after the other."""
    (d, m), rows = gradient.shape, curvature.rows
    hessian = np.zeros((m, d, m, d))
    n_pairs = m * (m + 1) // 2
    first, second = np.triu_indices(m)
    add = _add_products if d <= FEW else _add_pairs
    blocks = np.zeros((n_pairs, d, d))
    step = max(16, _ENTRIES // max(n_pairs, d * (d + 1) // 2))
    for begin in range(0, len(rows), step):
        end = min(begin + step, len(rows))
        part = rows[begin:end]
        weights = curvature.pairs(begin, end) * cost[part]
        add(blocks, weights, _dense_rows(data, part))
    hessian[second, :, first, :] = blocks  # the lower triangle of the matrix
    flat = hessian.reshape(m * d, m * d)
    add_identity(flat)
    factor = scipy.linalg.cho_factor(flat.T, lower=False, overwrite_a=True, check_finite=False)
    solved = scipy.linalg.cho_solve(factor, gradient.T.ravel(), check_finite=False)
    size = float(m * d)
    operations = len(rows) * size * size / 2 + size**3 / 3
    return Direction(np.ascontiguousarray(solved.reshape(m, d).T), operations)


def _add_products(blocks: NDArray, weights: NDArray, X: NDArray) -> None:
    """Add X' diag(w) X for each row w of weights, from the products of all pairs of features."""
    d = X.shape[1]
    first, second = np.triu_indices(d)
    halves = weights @ (X[:, first] * X[:, second])
    blocks[:, first, second] += halves
    off = first != second
    blocks[:, second[off], first[off]] += halves[:, off]


def _add_pairs(blocks: NDArray, weights: NDArray, X: NDArray) -> None:
    """Add X' diag(w) X for each row w of weights, from the examples that it does not leave out."""
    for block, w in zip(blocks, weights, strict=True):
        used = np.flatnonzero(w)
        if used.size:
            part = X[used]
            block += part.T @ (part * w[used, None])


def _by_ranks(
    data: Any, curvature: Curvature, cost: NDArray, gradient: NDArray, scores: NDArray | None
) -> Direction:
    """Factorise I + U U', where each D_i = F_i'F_i gives the rows F (x) x of U."""
    rows = curvature.rows
    F, owner = curvature.factors()
    F *= np.sqrt(cost[rows])[owner, None]
    inner = F @ F.T
    gram = _gram(data, rows)
    step = max(1, _ENTRIES // len(owner))
    for begin in range(0, len(owner), step):
        part = slice(begin, begin + step)
        inner[part] *= gram[owner[part]][:, owner]
    del gram
    add_identity(inner)
    known = data.X[rows] @ gradient if scores is None else scores[rows]
    right = np.einsum("rm,rm->r", F, known[owner])
    factor = scipy.linalg.cho_factor(inner.T, lower=False, overwrite_a=True, check_finite=False)
    z = scipy.linalg.cho_solve(factor, right, check_finite=False)
    moved = np.zeros((data.n_rows, gradient.shape[1]))
    pulled = np.zeros((len(rows), gradient.shape[1]))
    np.add.at(pulled, owner, F * z[:, None])
    moved[rows] = pulled
    size, m = float(len(owner)), gradient.shape[1]
    operations = size**3 / 3 + size * size * m + len(rows) ** 2 * data.n_features
    return Direction(gradient - data.coef_from(moved), operations)


def _by_products(data: Any, curvature: Curvature, cost: NDArray, gradient: NDArray) -> Direction:
    """Conjugate gradients, scaled by the diagonal of the Hessian; any of their steps descends."""
    X, weight = data.X[curvature.rows], cost[curvature.rows, None]
    squares = X.multiply(X) if hasattr(X, "multiply") else X * X
    scale = 1.0 / (1.0 + squares.T @ (weight * curvature.diagonals()))
    solved, residual = np.zeros_like(gradient), gradient.copy()
    scaled = scale * residual
    direction, size = scaled, np.vdot(residual, scaled)
    goal, n_products = _RESIDUAL**2 * size, 0
    while size > goal and n_products < _PRODUCTS:
        image = direction + X.T @ (weight * curvature.apply(np.ascontiguousarray(X @ direction)))
        length = size / np.vdot(direction, image)
        solved += length * direction
        residual -= length * image
        scaled = scale * residual
        last, size = size, np.vdot(residual, scaled)
        direction = scaled + (size / last) * direction
        n_products += 1
    features = X.nnz if hasattr(X, "nnz") else X.size
    return Direction(solved, 2.0 * n_products * features * gradient.shape[1])


def _by_kernel_products(
    data: Any, curvature: Curvature, cost: NDArray, gradient: NDArray, scores: NDArray
) -> Direction:
    """Conjugate gradients in the metric of the kernel, with one product of it in each step."""
    rows = curvature.rows
    solved, residual, pulled = np.zeros_like(gradient), gradient.copy(), scores
    direction, seen, size = residual, pulled, np.vdot(residual, pulled)
    goal, n_products = _RESIDUAL**2 * size, 0
    while size > goal and n_products < _PRODUCTS:
        image = direction.copy()
        image[rows] += cost[rows, None] * curvature.apply(np.ascontiguousarray(seen[rows]))
        length = size / np.vdot(seen, image)
        solved += length * direction
        residual = residual - length * image
        pulled = data.scores(residual)
        last, size = size, np.vdot(residual, pulled)
        direction = residual + (size / last) * direction
        seen = pulled + (size / last) * seen
        n_products += 1
    return Direction(solved, float(n_products) * data.X.size * gradient.shape[1])


def _dense_rows(data: Any, rows: NDArray) -> NDArray:
    part = data.X[rows]
    return part.toarray() if hasattr(part, "toarray") else np.ascontiguousarray(part)


def _gram(data: Any, rows: NDArray) -> NDArray:
    """Return the inner products of some examples."""
    if isinstance(data, KernelData):
        gram = data.X[np.ix_(rows, rows)].astype(np.float64, copy=False)
        gram[np.diag_indices_from(gram)] += data.shift[rows]
        return gram
    part = data.X[rows]
    product = part @ part.T
    return product.toarray() if hasattr(product, "toarray") else product
