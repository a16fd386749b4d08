"""Stochastic dual coordinate ascent: the exact maximiser for one example after the other.

The steps themselves are compiled, see ``epochs``. Three things make many of them needless:

- *Shrinking.* The duality gap is a sum of one non-negative part per example. Those whose part is
  next to nothing, and whose block did not change when they were visited last, are left alone until
  the others have closed most of the gap. Every round ends with a certificate over all examples,
  which finds those that were left alone too early.
- *Few classes.* Where rows of W are wide and sparse data touch many of them, most passes of a round
  are among the classes whose dual variables are not 0; the others can come in in between.
- *Extrapolation* (Anderson acceleration). Once the same examples move on the same pieces, passes in
  a fixed order are an affine map, and its fixed point can be guessed from a few iterates. The guess
  is moved into the dual sets and taken only if the dual objective rises.
"""

from __future__ import annotations

import math
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
_VISITS = 3  # visits of a round, if the gap falls fast: a certificate costs about half of one
_PATIENCE = 0.5  # part of the visits so far after which to look again at the latest
_ITERATES = 5  # passes from whose differences a guess is made
_GUESS = _ITERATES + 1.0  # passes that a guess costs
_LOOK = 0.5  # passes that a look at the gap costs
_LONGEST_PAUSE = 64  # guesses left out, at most, after some that did not pay
_CHUNK = 1 << 20  # numbers of an iterate looked at together
_CLOSE = 0.1  # the gap from which on the classes in use are mostly known
_WIDE_EVERY = 4  # visits of a round, of which one looks at all classes
_NARROW = 0.4  # part of the work of a pass that is left where few classes are looked at
_RIDGE = 1e-10  # added to the Gram matrix of the differences, relative to its trace


class CoordinateAscent(DualMethod):
    """One step per example and pass, in a fresh random order; the examples know their step."""

    def __init__(
        self, problem: Problem, examples: Examples, dual: NDArray | None, rng: Any, block_size: int
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
        return self.data.shuffled(self.rng, rows)

    def visit(self, order: NDArray) -> None:
        """Take one step for each row in order."""
        self.data.epoch(self.examples, self.coef, self.dual, order, self.block_size)


class ShrinkingAscent(CoordinateAscent):
    """Passes over the examples that still move, and guesses where these are heading."""

    def __init__(
        self,
        problem: Problem,
        examples: Examples,
        dual: NDArray | None,
        rng: Any,
        block_size: int,
        tol: float,
    ):
        super().__init__(problem, examples, dual, rng, block_size)
        self.tol = tol
        self.found: Certificate | None = None  # and the gap of each row with it, while it is true
        self.fresh = True  # no example was visited yet
        self.pause, self.failures = 0, 0  # guesses to leave out, and how many did not pay in a row
        self.pace, self.length = (
            0.0,
            1,
        )  # how fast the logarithm of the gap fell, in how many visits
        self.open = False  # whether the last round ended without knowing the gap
        self.before = 0.0  # the gap when it began
        self.narrow = not problem.loss.multilabel  # whether passes among few classes have paid
        self.least = _least_classes(problem.loss)

    def certificate(self) -> Certificate:
        """Return the certificate of A and W = X'A."""
        self.found = super().certificate()
        return self.found

    def advance(self, budget: float) -> float:
        """Visit the rows that move until most of the gap is closed; once all, if that is unknown.

        The budget is the number of passes after which a certificate is due.
        """
        found, self.found = self.found, None
        gaps, n = self.examples.row_gaps, len(self.visited)
        gap = float(gaps.sum()) if found is not None else 0.0
        if self.open:
            self.note(self.before, gap, self.length)
        self.before, self.open, self.ready = gap, True, False
        if found is None or self.fresh:
            self.fresh, self.length = False, 1
            return super().advance(budget)
        rows = self.visited
        rows = rows[self.moved(rows) | (gaps[rows] > _NOTHING * gap / n)]
        asked = self.tol * max(abs(found.primal), abs(found.dual_value)) / self.problem.scale
        if not len(rows):
            return super().advance(budget)
        part = min(_ROUND, math.exp(-_VISITS * self.pace))
        self.ready = part * gap <= _ENOUGH * asked
        return self.round(rows, max(part * gap, _ENOUGH * asked), budget, found.gap <= _CLOSE)

    def round(self, rows: NDArray, target: float, budget: float, close: bool) -> float:
        """Visit those of the rows that move until their gap is on target; return the passes.

        A round takes at most about twice as many visits as the last one: while the gap is large
        those that are left alone are soon needed again.
        """
        done, visits, last, n = 0.0, 0, 0, len(self.visited)
        longest = 2 * self.length + 1
        gap = float(self.examples.row_gaps[rows].sum())
        look = min(longest, self.visits_until(gap, target, max(self.length, _VISITS)))
        while len(rows):
            share = len(rows) / n
            if done + share > budget:
                return budget
            worth = visits > 1 and len(rows) < n and done + _GUESS * share <= budget
            if worth and self.may_guess(rows):
                self.guess(rows)
                visits += _ITERATES
                done += _GUESS * share
            else:
                narrow = close and self.narrow and visits % _WIDE_EVERY > 0
                done += share * self.pass_over(rows, narrow)
                self.pause -= 1
                visits += 1
            rows = rows[self.moved(rows)]
            if visits >= look:
                if len(rows) == n or visits >= longest:  # the certificate of all shows as much
                    break
                done += _LOOK * share
                before, gap = gap, sum(self.data.sums(self.examples, self.coef, self.dual, rows))
                self.note(before, gap, visits - last)
                self.open = False
                if gap <= target:
                    break
                most = max(1, int(_PATIENCE * visits))
                look = min(longest, visits + self.visits_until(gap, target, most))
                last = visits
        self.length = visits
        return min(done, budget)

    def pass_over(self, rows: NDArray, narrow: bool) -> float:
        """Visit the rows once, perhaps among the classes in use; return the part of the work."""
        order = self.shuffled(rows)
        if not narrow:
            self.visit(order)
            return 1.0
        able = self.data.narrow_epoch(self.examples, self.coef, self.dual, order, self.least)
        self.narrow = able > _NARROW * len(rows)
        return _NARROW

    def note(self, before: float, gap: float, visits: int) -> None:
        """Take note of how fast the gap fell."""
        self.pace = (math.log(before) - math.log(gap)) / visits if 0 < gap < before else 0.0

    def visits_until(self, gap: float, target: float, most: int) -> int:
        """Return how many visits the gap of the moving examples is expected to need."""
        if self.pace <= 0 or not 0 < target < gap:  # what tol=0 asks for may be 0
            return 1
        left = (math.log(gap) - math.log(target)) / self.pace
        return max(1, math.ceil(min(most, left)))

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
        return self.pause <= 0 and memory <= self.data.n_held + self.dual.size

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


def _least_classes(loss: Any) -> int:
    """Return how many classes there have to be for the loss to be defined."""
    places = getattr(loss, "k", None) or len(getattr(loss, "weights", None) or (1.0,))
    return 1 + places


def _fixed_point(iterates: list[NDArray]) -> NDArray:
    """Return the affine combination of iterates whose differences combine to the least change."""
    gram = np.zeros((_ITERATES, _ITERATES))
    step = max(1, _CHUNK // iterates[0].shape[1])
    for first in range(0, len(iterates[0]), step):
        parts = [iterate[first : first + step] for iterate in iterates]
        changes = np.stack([(b - a).ravel() for a, b in pairwise(parts)])
        gram += changes @ changes.T
    gram[np.diag_indices_from(gram)] += _RIDGE * max(np.trace(gram), np.finfo(float).tiny)
    share = np.linalg.solve(gram, np.ones(len(gram)))
    share /= share.sum()
    guessed = np.zeros_like(iterates[0])
    for part, iterate in zip(share, iterates[1:], strict=True):
        guessed += guessed.dtype.type(part) * iterate
    return guessed
