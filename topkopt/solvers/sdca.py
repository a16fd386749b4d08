"""Stochastic dual coordinate ascent: the exact maximiser for one example after the other.

The steps themselves are compiled, see ``epochs``. Two things make many of them needless:

- *Shrinking.* The duality gap is a sum of one non-negative part per example. Those whose part is
  next to nothing, and whose block did not change when they were visited last, are left alone until
  the others have closed most of the gap. Every round ends with a certificate over all examples,
  which finds those that were left alone too early.
- *Extrapolation* (Anderson acceleration). Once the same examples move on the same pieces, passes in
  a fixed order are an affine map, and its fixed point can be guessed from a few iterates. The guess
  is moved into the dual sets and taken only if the dual objective rises.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.certificate import Certificate
from topkopt.solvers.data import inner_product
from topkopt.solvers.epochs import Examples, conjugates, make_feasible
from topkopt.solvers.method import DualMethod
from topkopt.solvers.problem import Problem

__all__ = ["CoordinateAscent", "ShrinkingAscent"]

_NOTHING = 1e-3  # part of the mean gap of an example below which it may be left alone
_ROUND = 0.2  # part of the gap at which a round ends
_ENOUGH = 0.8  # part of the gap asked for at which a round ends in any case
_PATIENCE = 1.5  # factor between the passes after which the gap of the moving examples is looked at
_ITERATES = 5  # passes from whose differences a guess is made
_GUESS = _ITERATES + 1.0  # passes that a guess costs
_LOOK = 0.5  # passes that a look at the gap costs
_LONGEST_PAUSE = 64  # guesses left out, at most, after some that did not pay
_RIDGE = 1e-10  # added to the Gram matrix of the differences, relative to its trace


class CoordinateAscent(DualMethod):
    """One step per example and pass, in a fresh random order; the examples know their step."""

    def __init__(
        self, problem: Problem, examples: Examples, dual: NDArray, rng: Any, block_size: int
    ):
        super().__init__(problem, examples, dual)
        self.rng, self.block_size = rng, block_size
        self.visited = np.flatnonzero(problem.cost).astype(np.intp)

    def advance(self, budget: float) -> float:
        """Visit every example once."""
        self.visit(self.shuffled(self.visited))
        return min(1.0, budget)

    def shuffled(self, rows: NDArray) -> NDArray:
        """Return the rows in a random order."""
        return self.rng.permutation(rows).astype(np.intp, copy=False)

    def visit(self, order: NDArray) -> None:
        """Take one step for each row in order."""
        self.data.epoch(self.examples, self.coef, self.dual, order, self.block_size)


class ShrinkingAscent(CoordinateAscent):
    """Passes over the examples that still move, and guesses where these are heading."""

    def __init__(
        self,
        problem: Problem,
        examples: Examples,
        dual: NDArray,
        rng: Any,
        block_size: int,
        tol: float,
    ):
        super().__init__(problem, examples, dual, rng, block_size)
        self.tol = tol
        self.found: Certificate | None = None  # and the gap of each row with it, while it is true
        self.fresh = True  # no example was visited yet
        self.pause, self.failures = 0, 0  # guesses to leave out, and how many did not pay in a row

    def certificate(self) -> Certificate:
        """Return the certificate of A and W = X'A."""
        self.found = super().certificate()
        return self.found

    def advance(self, budget: float) -> float:
        """Visit the rows that move until most of the gap is closed; once all, if that is unknown.

        The budget is the number of passes after which a certificate is due.
        """
        found, self.found = self.found, None
        if found is None or self.fresh:
            self.fresh = False
            return super().advance(budget)
        gaps, n = self.examples.row_gaps, len(self.visited)
        gap = float(gaps.sum())
        rows = self.visited
        rows = rows[self.moved(rows) | (gaps[rows] > _NOTHING * gap / n)]
        asked = self.tol * max(abs(found.primal), abs(found.dual_value)) / self.problem.scale
        target = max(_ROUND * gap, _ENOUGH * asked)
        if not len(rows):
            return super().advance(budget)
        return self.round(rows, target, budget)

    def round(self, rows: NDArray, target: float, budget: float) -> float:
        """Visit those of the rows that move until their gap is on target; return the passes."""
        done, visits, look, n = 0.0, 0, 1, len(self.visited)
        while len(rows):
            share = len(rows) / n
            if done + share > budget:
                return budget
            if visits > 1 and done + _GUESS * share <= budget and self.may_guess(rows):
                self.guess(rows)
                visits += _ITERATES
                done += _GUESS * share
            else:
                self.visit(self.shuffled(rows))
                self.pause -= 1
                visits += 1
                done += share
            rows = rows[self.moved(rows)]
            if visits >= look:
                if len(rows) == n:  # then the certificate of all shows as much
                    break
                done += _LOOK * share
                if sum(self.data.sums(self.examples, self.coef, self.dual, rows)) <= target:
                    break
                look = max(visits + 1, int(_PATIENCE * visits))
        return min(done, budget)

    def moved(self, rows: NDArray) -> NDArray:
        """Whether the last step of each of the rows changed its block."""
        return self.examples.moved_rows[rows] != 0

    def may_guess(self, rows: NDArray) -> bool:
        """Whether guesses have paid lately, and their iterates need less memory than the data.

        With a kernel there is no W that tells what a guess is worth without another epoch.
        """
        if self.coef is self.dual:
            return False
        memory = (_ITERATES + 2) * len(rows) * self.problem.n_classes
        return self.pause <= 0 and memory <= self.data.n_entries + self.dual.size

    def guess(self, rows: NDArray) -> None:
        """Extrapolate from a few passes in one order."""
        order = self.shuffled(rows)
        iterates = [self.dual[order]]
        before = self.dual_value(iterates[0], self.coef, order)
        for _ in range(_ITERATES):
            self.visit(order)
            iterates.append(self.dual[order])
        now = self.dual_value(iterates[-1], self.coef, order)
        guessed = _fixed_point(iterates)
        make_feasible(self.examples, guessed, order)
        coef = self.data.coef_after(self.coef, guessed - iterates[-1], order)
        gain = self.dual_value(guessed, coef, order) - now
        if gain > 0:
            self.dual[order] = guessed
            self.coef = coef
        # A guess costs about as much as a pass, and pays if it brings as much.
        pays = gain >= (now - before) / _ITERATES
        self.failures = 0 if pays else min(2 * self.failures + 1, _LONGEST_PAUSE)
        self.pause = _ITERATES * self.failures

    def dual_value(self, blocks: NDArray, coef: NDArray, rows: NDArray) -> float:
        """Return the part of the dual objective that depends on the blocks of some rows."""
        return -conjugates(self.examples, blocks, rows) - 0.5 * inner_product(coef, coef)


def _fixed_point(iterates: list[NDArray]) -> NDArray:
    """Return the affine combination of iterates whose differences combine to the least change."""
    changes = np.stack([(b - a).ravel() for a, b in pairwise(iterates)])
    gram = (changes @ changes.T).astype(np.float64)
    gram[np.diag_indices_from(gram)] += _RIDGE * max(np.trace(gram), np.finfo(float).tiny)
    share = np.linalg.solve(gram, np.ones(len(gram)))
    share /= share.sum()
    guessed = np.zeros_like(iterates[0])
    for part, iterate in zip(share, iterates[1:], strict=True):
        guessed += guessed.dtype.type(part) * iterate
    return guessed
