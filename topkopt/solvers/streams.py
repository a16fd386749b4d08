"""Examples that are read in blocks, as the solvers see them.

Every pass goes through the blocks from the first to the last, and an epoch of coordinate ascent
through all blocks in a random order and all rows of a block in another, so that a disk is read in
sequence. What is known of single examples (dual blocks, labels, costs) is in memory: with each
block the compiled passes over dense rows see a slice of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.blocked_dual import BlockedDual
from topkopt.solvers.data import DenseData, Trail, check_norms
from topkopt.solvers.epochs import Examples
from topkopt.solvers.leading import lead_on
from topkopt.solvers.products import product, pulled
from topkopt.solvers.row_blocks import RowBlocks

__all__ = ["STREAMED", "StreamData"]

STREAMED = ("auto", "sdca", "lbfgs")  # methods that do not need all rows at once


class StreamData(DenseData):
    """Dense rows of which a few blocks are in memory at a time."""

    n_held = 0

    def __init__(self, X: Any):
        self.X = self.blocks = RowBlocks(X)
        self.n_rows, self.n_features = self.blocks.shape
        self.n_entries = self.n_rows * self.n_features
        self.dtype = self.blocks.dtype
        self.square_norms = np.empty(self.n_rows)
        for rows, part in self.parts_of():
            np.einsum("ij,ij->i", part, part, dtype=np.float64, out=self.square_norms[rows])
        check_norms(self.square_norms)

    def block(self, rows: slice, part: NDArray) -> DenseData:
        """Return a block as data of its own, which were checked when they were read."""
        block = object.__new__(DenseData)
        vars(block).update(vars(self))
        block.X, block.n_rows, block.n_entries = part, len(part), part.size
        block.square_norms = self.square_norms[rows]
        return block

    def parts_of(self) -> Iterator[tuple[slice, NDArray]]:
        """Yield the blocks."""
        return iter(self.blocks)

    def rows(self, places: NDArray) -> NDArray:
        """Return a few rows."""
        read = [self.blocks.read(slice(place, place + 1)) for place in places.tolist()]
        return np.concatenate(read)

    def held_dual(self, dual: Any, n_classes: int) -> BlockedDual:
        """Return dual blocks, 0 by default, that are packed between two visits."""
        if isinstance(dual, BlockedDual):
            return dual
        if dual is None:
            return BlockedDual((self.n_rows, n_classes), self.dtype, self.blocks.n_rows)
        return BlockedDual.of(dual, self.blocks.n_rows)

    def shuffled(self, rng: Any, rows: NDArray) -> NDArray:
        """Return increasing rows in a random order of blocks, and of the rows within each."""
        ends = np.flatnonzero(np.diff(rows // self.blocks.n_rows)) + 1
        parts = np.split(rows, ends)
        order = [rng.permutation(parts[place]) for place in rng.permutation(len(parts))]
        return np.concatenate(order).astype(np.intp, copy=False)

    def epoch(
        self, examples: Examples, coef: NDArray, dual: NDArray, order: NDArray, block_size: int
    ) -> None:
        """Take one dual step for each row in order."""
        for rows, part, _, places in self.blocks.visits(order):
            block, moved = self.block(rows, part), dual[rows]
            block.epoch(examples.part(rows), coef, moved, places, block_size)
            dual[rows] = moved

    def sums(
        self, examples: Examples, coef: NDArray, dual: NDArray, rows: NDArray
    ) -> tuple[float, float, float]:
        """Return the sums of costs times losses and conjugates, and <A, X W>, of some rows."""
        total = np.zeros(3)
        for here, part, _, places in self.blocks.visits(rows):
            seen = examples.part(here)
            total += self.block(here, part).sums(seen, coef, dual[here], places)
        losses, conjugates, inner = total.tolist()
        return losses, conjugates, inner

    def coef_from(self, dual: NDArray) -> NDArray:
        """Return W = X'A."""
        coef = np.zeros((self.n_features, dual.shape[1]))
        for rows, part in self.parts_of():
            coef += pulled(part, dual[rows], self.team)
        return coef.astype(self.dtype, copy=False)

    def lead_on(
        self, trail: Trail, coef: NDArray, dual: Any, rows: NDArray, moved: NDArray
    ) -> None:
        """Move dual blocks on, block by block, and W by its own change."""
        for here, _, places in self.blocks.turns(rows):
            now, last = dual[here], trail.dual[here]
            lead_on(now, last, trail.momentum, places, moved[here])
            dual[here], trail.dual[here] = now, last
        trail.lead_coef_on(coef)

    def scores(self, coef: NDArray) -> NDArray:
        """Return X W."""
        scores = np.empty((self.n_rows, coef.shape[1]), np.result_type(self.dtype, coef))
        for rows, part in self.parts_of():
            scores[rows] = product(part, coef, self.team)
        return scores

    def evaluate(
        self,
        examples: Examples,
        coef: NDArray,
        pull: NDArray,
        dual: NDArray | None = None,
        conjugates: bool = False,
    ) -> tuple[float, float]:
        """Fill pull with X'(cost v), v the gradients of the losses, and dual with -cost v."""
        total, part_pull = np.zeros(2), np.empty_like(pull)
        pull[...] = 0.0
        for rows, part in self.parts_of():
            seen, kept = examples.part(rows), None if dual is None else dual[rows]
            total += self.block(rows, part).evaluate(seen, coef, part_pull, kept, conjugates)
            pull += part_pull
        losses, conjugates_sum = total.tolist()
        return losses, conjugates_sum
