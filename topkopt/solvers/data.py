"""Feature matrices as the solvers see them: dense rows, sparse rows or a kernel."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from topkopt._threads import ALONE, Team
from topkopt._validation import aligned
from topkopt.solvers import epochs
from topkopt.solvers.blocks import DenseBlocks, KernelBlocks
from topkopt.solvers.epochs import Examples
from topkopt.solvers.evaluation import dense_evaluation, scores_evaluation, sparse_evaluation
from topkopt.solvers.gram import check_symmetric, definite_shift
from topkopt.solvers.leading import lead_matrix_on, lead_on, lead_sparse_on
from topkopt.solvers.narrow import narrow_sparse_epoch
from topkopt.solvers.products import product, pulled
from topkopt.solvers.row_blocks import is_mapped
from topkopt.solvers.threads import worth_threads

__all__ = [
    "Data",
    "DenseData",
    "KernelData",
    "SparseData",
    "Sums",
    "Trail",
    "add_identity",
    "check_norms",
    "inner_product",
]

_PER_NUMBER = 32  # multiplications that take as long as a kernel's visit of a number
_SUMS_ROUNDING = 64  # units of rounding that the trace of a matrix of sums may be off
_TOUCHED = 4  # numbers of W in order that are moved while one is that a stored entry touches
_WIDE = 512  # bytes of a row of W above which a step is mostly the way through such rows
_CHUNK = 1 << 20  # entries looked at together
_CACHE = 1 << 15  # bytes of W up to which no block is worth its bookkeeping
_EVALUATED = 1 << 17  # entries of X in a block whose losses are evaluated together
_SUMS_ROWS = 256  # most rows whose scores are computed together for a certificate
_PRODUCT = 1 << 33  # multiplications in one product of a block, which Ctrl-C does not interrupt

Result = TypeVar("Result")
Sums = tuple[float, float, float]


@dataclass
class Trail:
    """What dual blocks and W were before the last pass, and how far to go on from there."""

    dual: Any
    coef: NDArray | None = None  # where it is needed
    momentum: float = 0.0

    def lead_coef_on(self, coef: NDArray) -> None:
        """Move W on by its own change: that of X'A, but for rounding."""
        if self.coef is None or self.momentum == 0:
            self.coef = coef.copy()
        else:
            lead_matrix_on(coef, self.coef, self.momentum)


class Data(ABC):
    """n examples: their squared norms, epochs over them, and sums for the certificate.

    ``coef`` is W = X'A, or A itself for a kernel. The team works on ranges of rows; what these add
    up is added in their order.
    """

    team: Team = ALONE

    n_rows: int
    n_features: int
    dtype: np.dtype
    X: Any
    square_norms: NDArray
    n_entries: int  # stored numbers
    n_held: int  # those of them that take memory

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: aligned(held) for name, held in state.items()})

    def held_dual(self, dual: NDArray | None, n_classes: int) -> Any:
        """Return dual blocks, 0 by default, as the methods that move them hold them."""
        return np.zeros((self.n_rows, n_classes), self.dtype) if dual is None else dual

    def shuffled(self, rng: Any, rows: NDArray) -> NDArray:
        """Return rows in a random order, for an epoch."""
        return rng.permutation(rows).astype(np.intp, copy=False)

    @abstractmethod
    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order."""

    def sums(self, examples: Examples, coef: NDArray, dual: NDArray, rows: NDArray) -> Sums:
        """Return the sums of costs times losses and conjugates, and <A, scores>, of some rows."""
        whole = len(rows) == self.n_rows
        ranges = self.team.ranges(len(rows), len(rows) * self.row_numbers(dual.shape[1]))
        if len(ranges) == 1:
            return self.range_sums(examples, coef, dual, rows, slice(None))

        def add_up(part: slice) -> Sums:
            if whole:
                own, count = examples.part(part), np.arange(part.stop - part.start)
                return self.range_sums(own, coef, dual[part], count, part)
            return self.range_sums(examples.part(slice(None)), coef, dual, rows[part], slice(None))

        found = self.team.run(add_up, ranges, blas=True)
        return tuple(map(sum, zip(*found, strict=True)))  # type: ignore[return-value]

    @abstractmethod
    def range_sums(
        self, examples: Examples, coef: NDArray, dual: NDArray, rows: NDArray, part: slice
    ) -> Sums:
        """Return the sums of some rows of a part, whose examples and duals are given."""

    def on(self, team: Team) -> Data:
        """Return these data with a team that works on them."""
        shared = copy.copy(self)
        shared.team = team
        return shared

    def row_numbers(self, n_classes: int) -> float:
        """Return how many numbers a kernel would visit in the time that a row's scores take."""
        return n_classes * (1.0 + self.n_entries / max(1, self.n_rows) / _PER_NUMBER)

    def by_ranges(
        self, examples: Examples, row_numbers: float, work: Callable[[Examples, slice], Result]
    ) -> list[Result]:
        """Return what work returns for ranges of all rows and the examples of each."""
        ranges = self.team.ranges(self.n_rows, self.n_rows * row_numbers)
        if len(ranges) == 1:
            return [work(examples, slice(None))]
        return self.team.run(lambda part: work(examples.part(part), part), ranges, blas=True)

    def prefers_few_classes(self, n_classes: int) -> bool:
        """Whether `narrow_epoch` is there, and a step is mostly the way through rows of W."""
        return False

    def narrow_epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, least: int
    ) -> int:
        """Take one dual step for each row in order, among the classes in use if these are few.

        Returns how many rows have few, but at least so many as the loss needs.
        """
        raise TypeError(f"{type(self).__name__} takes all classes together")

    @abstractmethod
    def coef_from(self, dual: NDArray) -> NDArray:
        """Return W = X'A anew, free of what rounding added step by step."""

    @abstractmethod
    def scores(self, coef: NDArray) -> NDArray:
        """Return the scores of all rows."""

    def rows(self, places: NDArray) -> Any:
        """Return a few rows."""
        return self.X[places]

    @abstractmethod
    def lead_on(
        self, trail: Trail, coef: NDArray, dual: Any, rows: NDArray, moved: NDArray
    ) -> None:
        """Move the dual blocks of some rows on along a trail, and W = X'A with them.

        OUT moved: whether the blocks had changed.
        """

    @abstractmethod
    def evaluate(
        self,
        examples: Examples,
        coef: NDArray,
        pull: NDArray,
        dual: NDArray | None = None,
        conjugates: bool = False,
    ) -> tuple[float, float]:
        """Fill pull with X'(cost v), v the gradients of the losses, and dual with -cost v.

        Returns the sums of costs times losses and, if dual is given or they are asked for,
        conjugates: those of -cost v as rounding leaves it.
        """

    def auto_block(self, n_classes: int) -> int:
        """Return how many rows to take together."""
        return 1

    def most_together(self) -> int | None:
        """Return how many rows can be taken together at the most; None for any number."""
        return None

    def product_size(self, n_classes: int, block_size: int) -> float:
        """Return the operations of one matrix product of an epoch."""
        return 0.0


class DenseData(Data):
    """Rows of a dense matrix, of any memory layout and never copied as a whole."""

    def __init__(self, X: NDArray):
        self._hold(X)
        self.square_norms = np.empty(self.n_rows)
        for rows, part in self.parts_of():
            np.einsum("ij,ij->i", part, part, dtype=np.float64, out=self.square_norms[rows])
        check_norms(self.square_norms)

    def _hold(self, X: NDArray) -> None:
        self.X = X
        self.n_rows, self.n_features = X.shape
        self.n_entries = X.size
        self.n_held = 0 if is_mapped(X) else X.size
        self.dtype = X.dtype
        for _, part in self.parts_of():
            _check_finite(part, "X")

    def parts_of(self) -> Iterator[tuple[slice, NDArray]]:
        """Yield a few rows at a time: a memory-mapped X is not read into memory as a whole."""
        step = max(1, _CHUNK // max(1, self.n_features))
        for first in range(0, self.n_rows, step):
            rows = slice(first, first + step)
            yield rows, np.asarray(self.X[rows])

    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order."""
        if self._in_blocks(order, dual.shape[1], block_size):
            DenseBlocks(examples, self.X, dual, order, block_size, coef).walk(self.team)
        else:
            epochs.dense_epoch(examples, self.X, coef, dual, order, block_size)

    def lead_on(
        self, trail: Trail, coef: NDArray, dual: Any, rows: NDArray, moved: NDArray
    ) -> None:
        """Move dual blocks on, and W by its own change."""
        lead_on(dual, trail.dual, trail.momentum, rows, moved)
        trail.lead_coef_on(coef)

    def _in_blocks(self, order: NDArray, n_classes: int, block_size: int) -> bool:
        """Whether the products of blocks are large enough for the team."""
        size = min(block_size, len(order))
        large = worth_threads(self.product_size(n_classes, size))
        return size > 1 and large and self.team.size() > 1

    def range_sums(
        self, examples: Examples, coef: NDArray, dual: NDArray, rows: NDArray, part: slice
    ) -> Sums:
        """Return the sums of costs times losses and conjugates, and <A, X W>, of some rows."""
        X = self.X if coef.any() else self.X[:, :0]  # there is nothing to multiply a W of 0 with
        coef = coef[: X.shape[1]]
        return epochs.dense_sums(examples, X[part], coef, dual, rows, self._sums_rows(dual))

    def _sums_rows(self, dual: NDArray) -> int:
        return int(np.clip(2 * _CHUNK // max(self.n_features, dual.shape[1]), 1, _SUMS_ROWS))

    def coef_from(self, dual: NDArray) -> NDArray:
        """Return W = X'A."""
        return pulled(self.X, dual, self.team)

    def scores(self, coef: NDArray) -> NDArray:
        """Return X W."""
        return product(self.X, coef, self.team)

    def evaluate(
        self,
        examples: Examples,
        coef: NDArray,
        pull: NDArray,
        dual: NDArray | None = None,
        conjugates: bool = False,
    ) -> tuple[float, float]:
        """Fill pull with X'(cost v), v the gradients of the losses, and dual with -cost v."""
        size = self._evaluation_rows(coef.shape[1])

        def evaluate(own: Examples, part: slice) -> tuple[NDArray, float, float]:
            target = np.empty_like(pull) if part.start else pull
            kept = None if dual is None else dual[part]
            return target, *dense_evaluation(
                own, self.X[part], coef, target, size, kept, conjugates
            )

        return _added(self.by_ranges(examples, self.row_numbers(coef.shape[1]), evaluate))

    def _evaluation_rows(self, m: int) -> int:
        return int(np.clip(_EVALUATED // max(self.n_features, m, 1), 256, 1024))

    def auto_block(self, n_classes: int) -> int:
        """Return how many rows to take together.

        A block of B rows costs B/(2 m) of the two products that are always done for its Gram
        matrix and B/(4 d) for its corrections, and saves reading and writing W B times.
        """
        if self.n_features * n_classes * self.dtype.itemsize <= _CACHE:
            return 1
        most = min(256, _PRODUCT // (self.n_features * n_classes))
        return int(np.clip(min(n_classes // 4, self.n_features), 16, max(16, most)))

    def most_together(self) -> int | None:
        """Return 1 where the inner products of rows are too large or too small for the dtype."""
        limits = np.finfo(self.dtype)
        largest = self.square_norms.max(initial=0.0)
        in_range = largest == 0 or limits.tiny / limits.eps <= largest <= limits.max
        return None if in_range else 1

    def product_size(self, n_classes: int, block_size: int) -> float:
        """Return the operations of one matrix product of an epoch."""
        return 2.0 * block_size * self.n_features * n_classes


class KernelData(DenseData):
    """A Gram matrix K: W is never formed, the scores are (K + diag(shift)) A.

    The duality gap bounds the distance to the optimum only if the matrix has no negative
    eigenvalue, and rounding alone gives a Gram matrix some. The shift, of the size of that rounding
    (0 for a row of zeros), moves them up: training and certificate are those of K with the shift.
    That it suffices is shown by a Cholesky factorisation (n^3/3 operations, and a copy of K in
    float64), unless the user vouches for K.
    """

    def __init__(self, K: NDArray, *, vouched: bool):
        self._hold(K)
        diagonal = np.ascontiguousarray(np.diagonal(K), dtype=np.float64)
        if self.n_rows and diagonal.min() < 0:
            raise ValueError(
                f"X must be a Gram matrix when kernel=True, but its diagonal holds "
                f"{diagonal.min():g}; pass a positive semi-definite kernel."
            )
        check_symmetric(K, diagonal.max(initial=0.0))
        self.shift = definite_shift(K, diagonal, vouched)
        self.square_norms = diagonal + self.shift

    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order; coef is dual."""
        if self._in_blocks(order, dual.shape[1], block_size):
            KernelBlocks(examples, self.X, dual, order, block_size, self.shift).walk(self.team)
        else:
            epochs.kernel_epoch(examples, self.X, dual, order, block_size, self.shift)

    def lead_on(
        self, trail: Trail, coef: NDArray, dual: Any, rows: NDArray, moved: NDArray
    ) -> None:
        """Move dual blocks on; there is no W."""
        lead_on(dual, trail.dual, trail.momentum, rows, moved)

    def range_sums(
        self, examples: Examples, coef: NDArray, dual: NDArray, rows: NDArray, part: slice
    ) -> Sums:
        """Return the sums of costs times losses and conjugates, and <A, scores>, of some rows."""
        size, shift = self._sums_rows(dual), self.shift[part]
        return epochs.dense_sums(examples, self.X[part], coef, dual, rows, size, shift)

    def coef_from(self, dual: NDArray) -> NDArray:
        """Return A itself."""
        return dual

    def scores(self, coef: NDArray) -> NDArray:
        """Return (K + diag(shift)) A."""
        return product(self.X, coef, self.team) + self.shift.astype(self.dtype)[:, None] * coef

    def evaluate(
        self,
        examples: Examples,
        coef: NDArray,
        pull: NDArray,
        dual: NDArray | None = None,
        conjugates: bool = False,
    ) -> tuple[float, float]:
        """Fill pull, which holds the scores of all rows, with cost v, and dual with -cost v."""
        size = self._evaluation_rows(coef.shape[1])

        def evaluate(own: Examples, part: slice) -> tuple[float, float]:
            kept = None if dual is None else dual[part]
            return scores_evaluation(own, pull[part], size, kept, conjugates)

        found = self.by_ranges(examples, coef.shape[1], evaluate)  # the scores are known
        return sum(losses for losses, _ in found), sum(terms for _, terms in found)

    def auto_block(self, n_classes: int) -> int:
        """Return how many rows to take together."""
        return int(np.clip(self.n_rows // 16, 1, 128))

    def most_together(self) -> int | None:
        """Return None: the inner products are given."""
        return None


class SparseData(Data):
    """Rows of a CSR matrix; the cost of everything is proportional to the stored entries."""

    def __init__(self, X: Any):
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        _check_finite(X.data, "X")
        self.X = X
        self.n_rows, self.n_features = X.shape
        self.n_entries = self.n_held = X.nnz
        self.dtype = X.dtype
        width = np.result_type(X.indices, X.indptr)
        self.parts = X.data, X.indices.astype(width, copy=False), X.indptr.astype(width, copy=False)
        with np.errstate(over="ignore"):
            squares = X.data.astype(np.float64) ** 2
        self.square_norms = np.add.reduceat(np.append(squares, 0.0), X.indptr[:-1])
        self.square_norms[np.diff(X.indptr) == 0] = 0.0
        check_norms(self.square_norms)

    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order, one by one."""
        epochs.sparse_epoch(examples, *self.parts, coef, dual, order)

    def prefers_few_classes(self, n_classes: int) -> bool:
        """Whether a step is mostly the way through rows of W."""
        return n_classes * self.dtype.itemsize >= _WIDE

    def narrow_epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, least: int
    ) -> int:
        """Take one dual step for each row in order, among the classes in use if these are few."""
        others = np.empty_like(order)
        able = narrow_sparse_epoch(examples, *self.parts, coef, dual, order, least, others)
        self.epoch(examples, coef, dual, others[: len(order) - able], 1)
        return able

    def lead_on(
        self, trail: Trail, coef: NDArray, dual: Any, rows: NDArray, moved: NDArray
    ) -> None:
        """Move dual blocks on, and W by its own change, or where few examples touch it."""
        start = self.parts[2]
        if _TOUCHED * int((start[rows + 1] - start[rows]).sum()) < self.n_features:
            lead_sparse_on(dual, trail.dual, trail.momentum, rows, moved, *self.parts, coef)
        else:
            lead_on(dual, trail.dual, trail.momentum, rows, moved)
            trail.lead_coef_on(coef)

    def range_sums(
        self, examples: Examples, coef: NDArray, dual: NDArray, rows: NDArray, part: slice
    ) -> Sums:
        """Return the sums of costs times losses and conjugates, and <A, X W>, of some rows."""
        data, indices, start = self._rows(part)
        if not coef.any():  # there is nothing to multiply a W of 0 with
            start = np.zeros_like(start)
        return epochs.sparse_sums(examples, data, indices, start, coef, dual, rows)

    def _rows(self, part: slice) -> tuple[NDArray, NDArray, NDArray]:
        """Return a range of rows, whose entries stay where they are."""
        data, indices, start = self.parts
        first, last, _ = part.indices(self.n_rows)
        return data, indices, start[first : last + 1]

    def coef_from(self, dual: NDArray) -> NDArray:
        """Return W = X'A."""
        return pulled(self.X, dual, self.team)

    def scores(self, coef: NDArray) -> NDArray:
        """Return X W."""
        return product(self.X, coef, self.team)

    def evaluate(
        self,
        examples: Examples,
        coef: NDArray,
        pull: NDArray,
        dual: NDArray | None = None,
        conjugates: bool = False,
    ) -> tuple[float, float]:
        """Fill pull with X'(cost v), v the gradients of the losses, and dual with -cost v."""

        def evaluate(own: Examples, part: slice) -> tuple[NDArray, float, float]:
            target = np.empty_like(pull) if part.start else pull
            kept = None if dual is None else dual[part]
            return target, *sparse_evaluation(
                own, *self._rows(part), coef, target, kept, conjugates
            )

        return _added(self.by_ranges(examples, self.row_numbers(coef.shape[1]), evaluate))


def _added(found: list[tuple[NDArray, float, float]]) -> tuple[float, float]:
    """Add G of all ranges to that of the first, and return the sums of the others."""
    for pull, _, _ in found[1:]:
        found[0][0][...] += pull
    return sum(losses for _, losses, _ in found), sum(terms for *_, terms in found)


def inner_product(a: NDArray, b: NDArray) -> float:
    """Return <a, b>, with float32 arrays summed in float64."""
    if a.dtype == np.float64:
        return float(np.vdot(a, b))
    return float(np.einsum("ij,ij->", a, b, dtype=np.float64))


def add_identity(matrix: NDArray) -> None:
    """Add I to a matrix of sums of squares, and as much as their rounding may have taken away."""
    rounding = _SUMS_ROUNDING * float(np.finfo(np.float64).eps) * float(np.trace(matrix))
    matrix[np.diag_indices_from(matrix)] += 1.0 + rounding


def _check_finite(values: NDArray, name: str) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite entries; clean or impute it.")


def check_norms(square_norms: NDArray) -> None:
    """Raise unless all squared norms of rows are finite."""
    if not np.isfinite(square_norms).all():
        row = int(np.flatnonzero(~np.isfinite(square_norms))[0])
        raise ValueError(
            f"X must have rows whose squared norm is finite, but that of row {row} overflows; "
            "scale the features, for example to unit variance or unit norm."
        )
