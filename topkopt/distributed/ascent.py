"""Coordinate ascent on a partition, while others climb as well: the rounds of CoCoA+.

In a round every partition k is given W = X'A and looks for changes D of its own dual blocks that
raise

    - sum_i cost_i L*(-(a_i + d_i) / cost_i) - <W, X_k'D> - s/2 |X_k'D|^2 .

With s = K, the number of partitions, the changes that they find may all be added: |sum_k U_k|^2 is
at most K sum_k |U_k|^2, so the dual objective of all rises by no less than what they have counted.
A step for one example, with V = W + s X_k'D as it is by then, maximises

    - cost_i L*(-a_i / cost_i) - <x_i'V - s |x_i|^2 a_old, a_i> - s/2 |x_i|^2 |a_i|^2 ,

and moves V by s x_i (a_i - a_old)'. Both are those of ordinary coordinate ascent at V, with costs
and dual blocks that are s times as large. That is how they are kept here: nothing of X is scaled or
copied, and the steps are those of ``epochs``.

A round is a step of a proximal gradient method for the dual, in the metric of s/2 |U_k|^2, and
gains from momentum as such a method does: the partitions look for changes from where b times the
last changes would have led, Y = A + b (A - A_before), with

    V = W_Y + s (X_k'A_k - X_k'Y_k) = W_Y - s b U_k ,

where U_k is the last change of X_k'A_k, which a partition keeps. A itself never leaves the dual
sets. Momentum has led too far when <Y - A_new, A_new - A>, in that metric, is positive.

Most examples settle early. As on one machine, only those that still move are visited until most of
the gap is closed; see ``rounds``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from topkopt._validation import aligned
from topkopt.distributed.partition import Partition, Sum, Terms
from topkopt.solvers.data import inner_product
from topkopt.solvers.epochs import make_feasible
from topkopt.solvers.training import block_size_for

__all__ = [
    "Ascent",
    "Sweep",
    "begin",
    "dual_of",
    "moving_gap",
    "packed",
    "pull_of",
    "resume",
    "sums_of",
    "visit",
]


@dataclass(frozen=True)
class Ascent:
    """Dual blocks on their way up; never changed, but replaced by the next ones.

    Attributes
    ----------
    blocks : ndarray of shape (n, m)
        The dual blocks, times `scale`.
    scale : float
        The s above.
    moved : ndarray of shape (n,)
        Whether the last step of an example changed its block.
    rows : ndarray
        Those that are visited.
    change : ndarray of shape (d, m)
        The last change of X'A: the U_k above.
    """

    blocks: NDArray
    scale: float
    moved: NDArray
    rows: NDArray
    change: NDArray

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: aligned(held) for name, held in state.items()})

    def __sizeof__(self) -> int:
        """Return the bytes it takes."""
        held = self.blocks, self.moved, self.rows, self.change
        return object.__sizeof__(self) + sum(array.nbytes for array in held)


@dataclass(frozen=True)
class Sweep:
    """How the rows are visited.

    Attributes
    ----------
    passes : int
        How often, before the changes are added to those of the other partitions.
    part, parts : int
        Which of how many parts of the rows, if they are not visited all at once.
    seed : tuple of int
        Draws their order.
    block_size : int or str
        How many are taken together.
    momentum : float
        The b above.
    threshold : float or None
        Choose the rows anew: those that move, or whose part of the gap is larger; all if it is
        negative. None keeps those that still move.
    """

    passes: int
    part: int
    parts: int
    seed: tuple[int, ...]
    block_size: int | str
    momentum: float
    threshold: float | None


def begin(
    partition: Partition,
    terms: Terms,
    scale: float,
    dual: NDArray | None = None,
    cost: NDArray | None = None,
) -> Ascent:
    """Return dual blocks to start from: 0, or such that -a_i/cost_i is that of given ones."""
    n, m = partition.data.n_rows, terms.n_classes
    blocks = np.zeros((n, m), partition.data.dtype)
    new = partition.costs(terms.C)
    if dual is not None and cost is not None:
        ratio = np.divide(scale * new, cost, out=np.zeros(n), where=cost > 0)
        blocks[:] = dual * ratio[:, None]
    change = np.zeros((partition.data.n_features, m), blocks.dtype)
    rows = np.flatnonzero(new).astype(np.intp)
    return Ascent(blocks, scale, np.ones(n, bool), rows, change)


def visit(
    partition: Partition,
    ascent: Ascent,
    ahead: NDArray,
    gaps: NDArray | None,
    terms: Terms,
    sweep: Sweep,
) -> tuple[Ascent, Sum]:
    """Take steps; return where they lead, and what they change.

    `ahead` is W_Y. The numbers of the sum are the steps, the rows that still move, and whether
    momentum leads too far, if positive; its matrix is the change of X'A.
    """
    data, scale = partition.data, ascent.blocks.dtype.type(ascent.scale)
    rows = ascent.rows
    if sweep.threshold is not None:
        rows = _chosen(partition, ascent, gaps, sweep.threshold)
    rng, visits = np.random.default_rng(sweep.seed), 0
    size = block_size_for(sweep.block_size, data, terms.n_classes)
    blocks, moved = ascent.blocks.copy(), ascent.moved.copy()
    push = ascent.blocks.dtype.type(sweep.momentum) * ascent.change
    start = ahead - scale * push
    coef = start.copy()
    with partition.lock:
        examples = partition.examples(terms, ascent.scale)
        for _ in range(sweep.passes):
            order = np.array_split(rng.permutation(rows), sweep.parts)[sweep.part]
            data.epoch(examples, coef, blocks, np.ascontiguousarray(order), size)
            moved[order] = examples.moved_rows[order] != 0
            visits += len(order)
            if sweep.part == sweep.parts - 1:
                rows = rows[moved[rows]]
    change = (coef - start) / scale
    too_far = inner_product(push, change) - inner_product(change, change)
    after = Ascent(blocks, ascent.scale, moved, rows, change)
    return after, Sum(np.array([visits, len(rows), too_far]), change)


def _chosen(
    partition: Partition, ascent: Ascent, gaps: NDArray | None, threshold: float
) -> NDArray:
    """Return the rows that move, or whose part of the gap is above the threshold."""
    wanted = ascent.moved | (threshold < 0)
    if gaps is not None:
        wanted |= gaps > threshold
    return np.flatnonzero(wanted & (partition.weight > 0)).astype(np.intp)


def sums_of(
    partition: Partition, ascent: Ascent, coef: NDArray, terms: Terms
) -> tuple[NDArray, NDArray]:
    """Return sums for a certificate, and the gap of each row.

    The sums are costs times losses and conjugates, <A, scores>, and the bytes of a copy of A.
    """
    rows = np.arange(partition.data.n_rows)
    with partition.lock:
        examples = partition.examples(terms, ascent.scale)
        sums = partition.data.sums(examples, coef, ascent.blocks, rows)
        gaps = examples.row_gaps / ascent.scale
    return np.append(np.array(sums) / ascent.scale, _packed_bytes(ascent.blocks)), gaps


def moving_gap(partition: Partition, ascent: Ascent, coef: NDArray, terms: Terms) -> float:
    """Return the part of the gap that the rows have which are visited."""
    with partition.lock:
        examples = partition.examples(terms, ascent.scale)
        sums = partition.data.sums(examples, coef, ascent.blocks, ascent.rows)
    return sum(sums) / ascent.scale


def pull_of(partition: Partition, ascent: Ascent) -> Sum:
    """Return X'A."""
    pull = partition.data.coef_from(ascent.blocks)
    return Sum(np.zeros(0), pull / pull.dtype.type(ascent.scale))


def dual_of(partition: Partition, ascent: Ascent, terms: Terms) -> NDArray:
    """Return A, whose blocks are feasible after the rounding of a division too."""
    dual = ascent.blocks / ascent.blocks.dtype.type(ascent.scale)
    with partition.lock:
        rows = np.arange(partition.data.n_rows)
        make_feasible(partition.examples(terms), dual, rows)
    return dual


def packed(_: Partition, ascent: Ascent) -> Any:
    """Return the dual blocks as they take the fewest bytes: most of a hinge loss are 0."""
    blocks = ascent.blocks
    return scipy.sparse.csr_array(blocks) if _packed_bytes(blocks) < blocks.nbytes else blocks


def _packed_bytes(blocks: NDArray) -> int:
    index = np.dtype(np.int32).itemsize
    sparse = np.count_nonzero(blocks) * (blocks.itemsize + index) + (len(blocks) + 1) * index
    return min(int(sparse), blocks.nbytes)


def resume(partition: Partition, terms: Terms, scale: float, copy: Any) -> Ascent:
    """Return the ascent that a copy was made of, or one from 0 without a copy."""
    ascent = begin(partition, terms, scale)
    if copy is not None:
        ascent.blocks[:] = copy.toarray() if scipy.sparse.issparse(copy) else copy
    return ascent
