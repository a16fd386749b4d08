"""Newton systems (I + sum_i cost_i (x_i x_i') (x) D_i) Z = G, by the smaller of two factorisations.

Here (x) is the Kronecker product. One matrix to factorise has the size of the features times the
classes, the other, by Woodbury's identity, that of the ranks of all D_i together. With a kernel
only the second exists, and matrices like G and Z stand for X'G and X'Z. Both are large while sigma
is large: then conjugate gradients find a Z that is good enough. A loss that is a sum over the
classes has diagonal D_i, which leave one small system for each class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from topkopt._threads import Team
from topkopt.solvers.data import Data, KernelData, add_identity
from topkopt.solvers.problem import Problem
from topkopt.solvers.products import product, pulled
from topkopt.solvers.shared_curvature import SharedCurvature
from topkopt.solvers.threads import threads_for

__all__ = ["solve_system", "system_operations"]

# Systems up to this size are factorised, larger ones solved by conjugate gradients.
LARGEST = 6000
# Conjugate gradients end when the residual is down to this share of the right-hand side, or after
# so many products.
_RESIDUAL = 0.03
_PRODUCTS = 100
# Examples are taken in groups, for which arrays of about so many entries are filled.
_ENTRIES = 1 << 22
# The block of a moving example can move in so many directions, on average.
_RANK = 1.5
# With no more features than this, their products by pairs are formed once for all classes.
FEW = 64


def solve_system(
    data: Data,
    curvature: SharedCurvature,
    cost: NDArray,
    gradient: NDArray,
    scores: NDArray | None,
    separable: bool = False,
) -> NDArray:
    """Return Z for the right-hand side G.

    Parameters
    ----------
    data : Data
        The examples, in float64.
    curvature : SharedCurvature
        The D_i that are not 0.
    cost : ndarray of shape (n,)
        C times the weight of each example.
    gradient : ndarray
        The right-hand side G.
    scores : ndarray of shape (n, m) or None
        The scores of all examples under G, with a kernel.
    separable : bool, default False
        Whether all D_i are diagonal.
    """
    if curvature.rank == 0:
        return gradient
    kernel = isinstance(data, KernelData)
    features = np.inf if kernel else data.n_features
    size, rank = features * gradient.shape[1], curvature.rank
    try:
        if separable:
            weights = cost[curvature.rows, None] * curvature.diagonals()
            if np.minimum(features, np.count_nonzero(weights, axis=0)).max() <= LARGEST:
                return _by_classes(data, curvature.rows, weights, gradient, scores)
        if min(size, rank) > LARGEST:
            if scores is None:
                return _by_products(data, curvature, cost, gradient)
            return _by_kernel_products(data, curvature, cost, gradient, scores)
        if size <= rank:
            return _by_features(data, curvature, cost, gradient)
        return _by_ranks(data, curvature, cost, gradient, scores)
    except np.linalg.LinAlgError:  # rounding left no positive matrix; the line search is safe
        return gradient


def system_operations(problem: Problem, moving: int) -> float:
    """Return about how many operations a system takes while so many examples move.

    It is infinite if the system would not be factorised.
    """
    m = problem.n_classes
    features = np.inf if isinstance(problem.data, KernelData) else problem.data.n_features
    if problem.loss.separable:
        size = min(features, moving)
        return m * (size**3 / 3 + moving * size**2 / 2) if size <= LARGEST else np.inf
    features *= m
    size = min(features, _RANK * moving)
    if size > LARGEST:
        return np.inf
    return size**3 / 3 + (moving * size**2 / 2 if size == features else size**2 * m)


def _by_classes(
    data: Any, rows: NDArray, weights: NDArray, gradient: NDArray, scores: NDArray | None
) -> NDArray:
    """Factorise the Hessian of each class alone; weights are cost_i times the diagonal of D_i."""
    known = product(data.X[rows], gradient, data.team) if scores is None else scores[rows]
    solved, moved = gradient.copy(), np.zeros((data.n_rows, gradient.shape[1]))
    for j, weight in enumerate(weights.T):
        used = np.flatnonzero(weight)
        part, roots = rows[used], np.sqrt(weight[used])
        if scores is None and data.n_features <= len(used):
            X = _dense_rows(data, part) * roots[:, None]
            solved[:, j] = _solve_plus_identity(X.T @ X, gradient[:, j], data.team)
        elif len(used):
            gram = _gram(data, part) * np.outer(roots, roots)
            right = roots * known[used, j]
            moved[part, j] = roots * _solve_plus_identity(gram, right, data.team)
    return solved - data.coef_from(moved)


def _solve_plus_identity(matrix: NDArray, right: NDArray, team: Team) -> NDArray:
    """Solve with I and a matrix of sums of squares, of which the lower triangle is used up."""
    add_identity(matrix)
    with threads_for(len(matrix) ** 3 / 3, team):
        factor = scipy.linalg.cho_factor(
            matrix.T, lower=False, overwrite_a=True, check_finite=False
        )
        return scipy.linalg.cho_solve(factor, right, check_finite=False)


def _by_features(
    data: Any, curvature: SharedCurvature, cost: NDArray, gradient: NDArray
) -> NDArray:
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
        add(blocks, weights, _dense_rows(data, part), data.team)
    hessian[second, :, first, :] = blocks  # the lower triangle of the matrix
    solved = _solve_plus_identity(hessian.reshape(m * d, m * d), gradient.T.ravel(), data.team)
    return np.ascontiguousarray(solved.reshape(m, d).T)


def _add_products(blocks: NDArray, weights: NDArray, X: NDArray, team: Team) -> None:
    """Add X' diag(w) X for each row w of weights, from the products of all pairs of features."""
    d = X.shape[1]
    first, second = np.triu_indices(d)
    products = np.empty((len(X), len(first)))

    def multiply(rows: slice) -> None:
        np.multiply(X[rows][:, first], X[rows][:, second], out=products[rows])

    team.run(multiply, team.ranges(len(X), products.size))
    halves = product(weights, products, team)
    blocks[:, first, second] += halves
    off = first != second
    blocks[:, second[off], first[off]] += halves[:, off]


def _add_pairs(blocks: NDArray, weights: NDArray, X: NDArray, team: Team) -> None:
    """Add X' diag(w) X for each row w of weights, from the examples that it does not leave out."""

    def add(some: slice) -> None:
        for block, w in zip(blocks[some], weights[some], strict=True):
            used = np.flatnonzero(w)
            if used.size:
                part = X[used]
                block += part.T @ (part * w[used, None])

    numbers = np.count_nonzero(weights) * X.shape[1] * (1.0 + X.shape[1] / 32)
    team.run(add, team.ranges(len(blocks), numbers), blas=True)


def _by_ranks(
    data: Any, curvature: SharedCurvature, cost: NDArray, gradient: NDArray, scores: NDArray | None
) -> NDArray:
    """Factorise I + U U', where each D_i = F_i'F_i gives the rows F (x) x of U."""
    rows = curvature.rows
    F, owner = curvature.factors()
    F *= np.sqrt(cost[rows])[owner, None]
    inner = product(F, F.T, data.team)
    gram = _gram(data, rows)
    step = max(1, _ENTRIES // len(owner))
    for begin in range(0, len(owner), step):
        part = slice(begin, begin + step)
        inner[part] *= gram[owner[part]][:, owner]
    del gram
    known = product(data.X[rows], gradient, data.team) if scores is None else scores[rows]
    right = np.einsum("rm,rm->r", F, known[owner])
    z = _solve_plus_identity(inner, right, data.team)
    moved = np.zeros((data.n_rows, gradient.shape[1]))
    of_rows = np.zeros((len(rows), gradient.shape[1]))
    np.add.at(of_rows, owner, F * z[:, None])
    moved[rows] = of_rows
    return gradient - data.coef_from(moved)


def _by_products(
    data: Any, curvature: SharedCurvature, cost: NDArray, gradient: NDArray
) -> NDArray:
    """Conjugate gradients, scaled by the diagonal of the Hessian; any of their steps descends."""
    X, weight = data.X[curvature.rows], cost[curvature.rows, None]
    squares = X.multiply(X) if hasattr(X, "multiply") else X * X
    scale = 1.0 / (1.0 + squares.T @ (weight * curvature.diagonals()))
    solved, residual = np.zeros_like(gradient), gradient.copy()
    scaled = scale * residual
    direction, size = scaled, np.vdot(residual, scaled)
    goal, n_products = _RESIDUAL**2 * size, 0
    while size > goal and n_products < _PRODUCTS:
        seen = np.ascontiguousarray(product(X, direction, data.team))
        image = direction + pulled(X, weight * curvature.apply(seen), data.team)
        length = size / np.vdot(direction, image)
        solved += length * direction
        residual -= length * image
        scaled = scale * residual
        last, size = size, np.vdot(residual, scaled)
        direction = scaled + (size / last) * direction
        n_products += 1
    return solved


def _by_kernel_products(
    data: Any, curvature: SharedCurvature, cost: NDArray, gradient: NDArray, scores: NDArray
) -> NDArray:
    """Conjugate gradients in the metric of the kernel, with one product of it in each step."""
    rows = curvature.rows
    solved, residual, image_scores = np.zeros_like(gradient), gradient.copy(), scores
    direction, seen, size = residual, image_scores, np.vdot(residual, image_scores)
    goal, n_products = _RESIDUAL**2 * size, 0
    while size > goal and n_products < _PRODUCTS:
        image = direction.copy()
        image[rows] += cost[rows, None] * curvature.apply(np.ascontiguousarray(seen[rows]))
        length = size / np.vdot(seen, image)
        solved += length * direction
        residual = residual - length * image
        image_scores = data.scores(residual)
        last, size = size, np.vdot(residual, image_scores)
        direction = residual + (size / last) * direction
        seen = image_scores + (size / last) * seen
        n_products += 1
    return solved


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
    if hasattr(part, "toarray"):
        return (part @ part.T).toarray()
    return product(part, part.T, data.team)
