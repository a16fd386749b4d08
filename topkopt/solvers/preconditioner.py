"""What L-BFGS takes for the inverse Hessian before it has learnt anything.

The Hessian of 1/2 |W|^2 + sum_i cost_i L_i is made of blocks, one for each pair of classes; that of
class j with itself is I + X' diag(cost h_j) X, where h_j are second derivatives of the losses.
Before anything is known of them, each h is taken for half of its bound, which makes one matrix for
all classes. Later the h are those at the W of that moment. Where a loss depends on differences of
scores alone, its gradients sum to 0 over the classes, and so do the columns of the best W. The
blocks do not know of that, so what they give is made to sum to 0 as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topkopt.losses import Loss
from topkopt.solvers.data import Data, DenseData, KernelData, add_identity
from topkopt.solvers.epochs import Examples
from topkopt.solvers.evaluation import dense_curvatures
from topkopt.solvers.problem import Problem

__all__ = [
    "Preconditioner",
    "SharedBlock",
    "blocks_pay",
    "bound_block",
    "few_features",
    "make_preconditioner",
]

# An entry of the scores costs so many operations beside those of the matrix products.
_ENTRY = 60
# Examples are taken in groups that have about so many products of two features.
_PRODUCTS = 1 << 17
# With more features than this, or more numbers in the blocks of all classes, the blocks cost more
# than they save.
_FEATURES = 128
_MOST = 1 << 24
# The blocks are computed after so many evaluations at the earliest.
_FIRST = 3
# Before the first look the evaluations cost about so many times as much as a look: many a training
# is over by then.
_WAIT = 4
# Between two looks the evaluations cost so many times as much as a look.
_BETWEEN = 4


class Preconditioner:
    """The identity."""

    due = np.inf  # After so many evaluations it is to look at W.

    def solve(self, gradient: NDArray) -> NDArray:
        """Return what it takes for the inverse Hessian, times a gradient."""
        return gradient

    def begin_at(self, coef: NDArray) -> None:
        """Take note of the W that a training starts from."""

    def look(self, coef: NDArray, gradient: NDArray, evaluations: float) -> None:
        """Learn from where the training is."""


class SharedBlock(Preconditioner):
    """One block for all classes, from a bound."""

    def __init__(self, block: NDArray):
        add_identity(block)
        # So few features are solved for at every step that a factor would be slower to work with.
        self.shared = _inverse(block)

    def solve(self, gradient: NDArray) -> NDArray:
        """Solve with the block."""
        return self.shared @ gradient


class ClassBlocks(SharedBlock):
    """A block for each class, from second derivatives; at first those of a bound."""

    def __init__(self, problem: Problem, examples: Examples):
        super().__init__(bound_block(problem.data, problem.loss, problem.cost))
        self.data, self.examples = problem.data, examples
        self.inverse: NDArray | None = None
        self.work = _look_work(problem) / _evaluation_work(problem)
        self.due = max(_FIRST, _WAIT * self.work - _FIRST)

    def begin_at(self, coef: NDArray) -> None:
        """Look at once where a training goes on from a W that an earlier one has left."""
        if coef.any():
            self.due = 0.0

    def solve(self, gradient: NDArray) -> NDArray:
        """Solve with the block of each class."""
        if self.inverse is None:
            return super().solve(gradient)
        columns = gradient.T
        if self.centred:
            columns = columns - columns.mean(axis=0)
        solved = np.matmul(self.inverse, columns[:, :, None])[:, :, 0]
        if self.centred:
            solved -= solved.mean(axis=0)
        return np.ascontiguousarray(solved.T)

    def look(self, coef: NDArray, gradient: NDArray, evaluations: float) -> None:
        """Compute the blocks anew."""
        d, m = coef.shape
        pairs = d * (d + 1) // 2
        packed = np.zeros((m, pairs))
        together = int(np.clip(_PRODUCTS // pairs, 16, 256))
        W = coef.astype(np.float64, copy=False)
        for rows, X in self.data.parts_of():  # type: ignore[attr-defined]
            self._add_up(packed, self.examples.part(rows), X, W, together)
        blocks = np.empty((m, d, d))
        upper = np.triu_indices(d)
        blocks[:, upper[0], upper[1]] = blocks[:, upper[1], upper[0]] = packed
        for block in blocks:
            add_identity(block)
        self.inverse = _inverse(blocks)
        size = np.abs(gradient).max()
        self.centred = bool(np.abs(gradient.sum(axis=1)).max() <= 1e-4 * size)
        self.due = evaluations + max(evaluations + 2, _BETWEEN * self.work)

    def _add_up(
        self, packed: NDArray, examples: Examples, X: NDArray, W: NDArray, together: int
    ) -> None:
        """Add the blocks of some examples to those packed, a range of rows on each thread."""

        def add(part: slice) -> NDArray:
            own = np.zeros_like(packed) if part.start else packed
            some = X[part].astype(np.float64, copy=False)
            dense_curvatures(examples.part(part), some, W, own, together)
            return own

        numbers = len(X) * W.shape[1] * (1.0 + packed.shape[1] / 32)
        team = self.data.team
        for other in team.run(add, team.ranges(len(X), numbers), blas=True)[1:]:
            packed += other


def _inverse(blocks: NDArray) -> NDArray:
    """Return symmetric inverses of symmetric matrices."""
    inverse = np.linalg.inv(blocks)
    return 0.5 * (inverse + np.swapaxes(inverse, -1, -2))


def make_preconditioner(problem: Problem, examples: Examples) -> Preconditioner:
    """Return the one that is worth its work."""
    return ClassBlocks(problem, examples) if blocks_pay(problem) else Preconditioner()


def blocks_pay(problem: Problem) -> bool:
    """Whether there are few enough features for a block of each class, and rows to fill it."""
    data = problem.data
    if isinstance(data, KernelData) or not isinstance(data, DenseData):
        return False
    return few_features(problem)


def few_features(problem: Problem) -> bool:
    """Whether there are so few features, if they are dense."""
    data, d, m = problem.data, problem.data.n_features, problem.n_classes
    if not (0 < 2 * d <= data.n_rows and np.isfinite(problem.loss.curvature)):
        return False
    return d <= _FEATURES and d * d * m <= _MOST


def _evaluation_work(problem: Problem) -> float:
    return problem.data.n_rows * problem.n_classes * (4.0 * problem.data.n_features + _ENTRY)


def _look_work(problem: Problem) -> float:
    d, m, n = problem.data.n_features, problem.n_classes, problem.data.n_rows
    return n * m * (d * (d + 1.0) + 2.0 * d + _ENTRY) + 2.0 * m * d**3


def bound_block(data: Data, loss: Loss, cost: NDArray) -> NDArray:
    """Return X' diag(cost h) X in double precision, with h half the bound of the curvature."""
    gram = np.zeros((data.n_features, data.n_features))
    roots = np.sqrt(0.5 * loss.curvature * cost)
    for rows, part in data.parts_of():  # type: ignore[attr-defined]
        weighted = part * roots[rows, None]
        gram += weighted.T @ weighted
    return gram
