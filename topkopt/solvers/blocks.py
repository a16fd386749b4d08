"""Epochs of coordinate ascent on several threads: the products of a block, and the next block.

The steps of a block follow each other on one thread. Meanwhile the others make the inner products
of the block that comes next. Then each thread has a range of classes to itself: it brings W up to
date there, and computes the scores of the next block. These are the iterates of one thread, up to
rounding.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from topkopt._threads import Team
from topkopt.solvers.epochs import Examples, add_product, gather_rows, walk_known_block

__all__ = ["DenseBlocks", "KernelBlocks"]

_LIVE = 3  # blocks in use: W is still to hear of one, one is walked, one is gathered


class DenseBlocks:
    """An epoch over dense rows.

    Parameters
    ----------
    examples : Examples
        What is known of the rows.
    X : ndarray of shape (n, d)
        The rows.
    dual : ndarray of shape (n, m)
        Their dual blocks, which are updated.
    order : ndarray of intp
        The rows to visit.
    block_size : int
        How many are taken together.
    coef : ndarray of shape (d, m)
        W = X'A, which is updated; for a kernel A itself.
    """

    def __init__(
        self,
        examples: Examples,
        X: NDArray,
        dual: NDArray,
        order: NDArray,
        block_size: int,
        coef: NDArray,
    ):
        self.examples, self.X, self.dual, self.coef = examples, X, dual, coef
        self.blocks = [order[at : at + block_size] for at in range(0, len(order), block_size)]
        size, width, m = min(block_size, len(order)), X.shape[1], dual.shape[1]
        self.rows = [np.empty((size, width), X.dtype) for _ in range(_LIVE)]
        self.products = [np.empty(size * size, X.dtype) for _ in range(_LIVE)]
        self.scores, self.change = (np.empty((size, m), X.dtype) for _ in range(2))

    def walk(self, team: Team) -> None:
        """Take one step for each row in order."""
        some_classes = team.ranges(self.dual.shape[1], np.inf)
        n_shares = len(some_classes)
        share = _cut(len(self.rows[0]), n_shares)
        team.run(partial(self.gather, 0), share)
        team.run(partial(self.multiply, 0), share, blas=True)
        for place in range(len(self.blocks)):
            both = list(zip(some_classes, share, strict=True))
            team.run(partial(self.move_on, place), both, blas=True)
            others = _cut(len(self.rows[0]), max(1, n_shares - 1))
            team.run(partial(self.step, place), [None, *others], blas=True)
        team.run(partial(self.tell, len(self.blocks)), some_classes, blas=True)

    def step(self, place: int, part: slice | None) -> None:
        """Take the steps of a block, or prepare a part of the next one."""
        if part is not None:
            self.multiply(place + 1, part)
            return
        block = self.blocks[place]
        scores, change = self.scores[: len(block)], self.change[: len(block)]
        walk_known_block(self.examples, block, scores, self.products_of(place), self.dual, change)

    def move_on(self, place: int, part: tuple[slice, slice]) -> None:
        """Compute the scores of a block in some classes, and gather some rows of the next one."""
        classes, share = part
        self.tell(place, classes)
        scores = self.scores[: len(self.blocks[place])]
        add_product(False, self.rows_of(place), self.coef, scores, False, classes)
        self.gather(place + 1, share)

    def tell(self, place: int, classes: slice) -> None:
        """Bring W up to date with the block before, in some classes."""
        if place > 0:
            change = self.change[: len(self.blocks[place - 1])]
            add_product(True, self.rows_of(place - 1), change, self.coef, True, classes)

    def gather(self, place: int, share: slice) -> None:
        """Copy some rows of a block."""
        if place < len(self.blocks):
            gather_rows(self.X, self.blocks[place][share], self.rows_of(place)[share])

    def multiply(self, place: int, share: slice) -> None:
        """Compute the inner products of some rows of a block with all of it."""
        if place < len(self.blocks):
            rows = self.rows_of(place)
            np.matmul(rows[share], rows.T, out=self.products_of(place)[share])

    def rows_of(self, place: int) -> NDArray:
        """Return where the rows of a block are."""
        return self.rows[place % _LIVE][: len(self.blocks[place])]

    def products_of(self, place: int) -> NDArray:
        """Return where the inner products of a block are."""
        size = len(self.blocks[place])
        return self.products[place % _LIVE][: size * size].reshape(size, size)


class KernelBlocks(DenseBlocks):
    """An epoch over the Gram matrix X + diag(shift); the scores follow from the dual blocks."""

    def __init__(
        self,
        examples: Examples,
        X: NDArray,
        dual: NDArray,
        order: NDArray,
        block_size: int,
        shift: NDArray,
    ):
        super().__init__(examples, X, dual, order, block_size, dual)
        self.shift = shift.astype(X.dtype)

    def tell(self, place: int, classes: slice) -> None:
        """Do nothing: the dual blocks are what the scores are made of."""

    def gather(self, place: int, share: slice) -> None:
        """Copy some rows of a block, with the shift on their diagonal."""
        super().gather(place, share)
        if place < len(self.blocks):
            block = self.blocks[place][share]
            self.rows_of(place)[share][np.arange(len(block)), block] += self.shift[block]

    def multiply(self, place: int, share: slice) -> None:
        """Pick the inner products of some rows of a block with all of it."""
        if place < len(self.blocks):
            self.products_of(place)[share] = self.rows_of(place)[share][:, self.blocks[place]]


def _cut(n_rows: int, n_shares: int) -> list[slice]:
    """Return so many contiguous ranges; the last blocks of an epoch may leave some empty."""
    ends = [share * n_rows // n_shares for share in range(n_shares + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]
