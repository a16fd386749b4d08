"""Stochastic dual coordinate ascent: the exact maximiser for one example after the other.

The steps themselves are compiled, see ``epochs``. Three things make many needless:

- *Shrinking.* The duality gap is a sum of one non-negative part per example. Those whose part is
  next to nothing, and whose block did not change when they were visited last, are left alone until
  the others have closed most of the gap. Every round ends with a certificate over all examples,
  which finds those that were left alone too early.
- *Few classes.* Where rows of W are wide and sparse data touch many of them, most passes of a round
  are among the classes whose dual variables are not 0; the others can come in in between.
- *Momentum.* A pass begins where the last ones lead, see ``momentum``, anew in every round.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.certificate import Certificate
from topkopt.solvers.data import Sums
from topkopt.solvers.epochs import Examples
from topkopt.solvers.method import DualMethod
from topkopt.solvers.momentum import Momentum
from topkopt.solvers.problem import Problem

__all__ = ["CoordinateAscent", "ShrinkingAscent"]

_NOTHING = 1e-3  # part of the mean gap of an example below which it may be left alone
_ROUND = 0.2  # part of the gap at which a round ends
_ENOUGH = 0.8  # part of the gap asked for at which a round ends in any case
_BEGINNING = 4  # half of the visits that the first round may take
_VISITS = 3  # visits of a round, if the gap falls fast: a certificate costs about half of one
_PATIENCE = 0.5  # part of the visits so far after which to look again at the latest
_LOOK = 0.5  # passes that a look at the gap costs
_DRIFT = 1e-2  # part of the gap asked for that W may be off by rounding, which momentum makes grow
_CLOSE = 0.1  # the gap from which on the classes in use are mostly known
_WIDE_EVERY = 4  # visits of a round, of which one looks at all classes
_NARROW = 0.4  # part of the work of a pass that is left where few classes are looked at


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
    """Rounds of passes with momentum over the examples that still move."""

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
        self.known: Sums | None = None  # of the certificate, likewise
        self.fresh = True  # no example was visited yet
        self.momentum, self.value = Momentum(self.data), -math.inf  # and the last dual objective
        self.pace = 0.0  # how fast the logarithm of the gap fell with each visit of the last round,
        self.length = _BEGINNING  # and how many these were
        self.open = False  # whether the last round ended without knowing the gap
        self.before = 0.0  # the gap when it began
        # Whether passes among few classes have paid; of many labels any number is in use.
        wide = problem.data.prefers_few_classes(problem.n_classes)
        self.narrow = wide and not problem.loss.multilabel
        self.least = _least_classes(problem.loss)

    def certificate(self) -> Certificate:
        """Return the certificate of A and W = X'A."""
        self.found = super().certificate()
        return self.found

    def sums(self) -> Sums:
        """Return the sums of the certificate, which the last look at all rows has found."""
        known, self.known = self.known, None
        return known or super().sums()

    def settle(self) -> None:
        """Compute W anew."""
        super().settle()
        self.known, self.drift = None, 0.0

    def advance(self, budget: float) -> float:
        """Visit the rows that move until most of the gap is closed; once all, if that is unknown.

        The budget is the number of passes after which a certificate is due.
        """
        found, self.found, self.known = self.found, None, None
        gaps, n = self.examples.row_gaps, len(self.visited)
        gap = float(gaps.sum()) if found is not None else 0.0
        if self.open:
            self.note(self.before, gap, self.length)
        self.before, self.open, self.ready = gap, True, False
        if found is None or self.fresh:
            self.fresh, self.length = False, _BEGINNING
            return super().advance(budget)
        rows = self.visited
        rows = rows[self.moved(rows) | (gaps[rows] > _NOTHING * gap / n)]
        asked = self.tol * max(abs(found.primal), abs(found.dual_value)) / self.problem.scale
        if not len(rows):
            return super().advance(budget)
        # A round that has lost ground is followed by one that cannot, and where the gap no longer
        # tells ground from rounding there are only such rounds.
        gained = found.dual_value >= self.value
        self.momentum.begin(on=gained and found.gap > found.rounding)
        self.value = found.dual_value
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
            narrow = close and self.narrow and visits % _WIDE_EVERY > 0
            rows, work = self.pass_over(rows, narrow)
            done += len(rows) / n * work
            visits += 1
            if visits >= look:
                if visits >= longest:
                    break
                done += _LOOK * share
                sums = self.data.sums(self.examples, self.coef, self.dual, rows)
                self.known = sums if len(rows) == n else None
                before, gap = gap, sum(sums)
                self.note(before, gap, visits - last)
                self.open = False
                if gap <= target:
                    break
                most = max(1, int(_PATIENCE * visits))
                look = min(longest, visits + self.visits_until(gap, target, most))
                last = visits
        self.length = visits
        self.drift += float(np.finfo(self.data.dtype).eps) * visits**1.5
        if self.drift > _DRIFT * self.tol:
            self.settle()
        return min(done, budget)

    def pass_over(self, rows: NDArray, narrow: bool) -> tuple[NDArray, float]:
        """Visit those of the rows that move once, perhaps among the classes in use.

        Returns these rows, and the part of the work of a whole visit.
        """
        self.known, given = None, rows
        try:
            rows = self.momentum.lead_on(self.examples, self.coef, self.dual, rows)
            order = self.shuffled(rows)
            if not narrow:
                self.visit(order)
                return rows, 1.0
            able = self.data.narrow_epoch(self.examples, self.coef, self.dual, order, self.least)
            self.narrow = able > _NARROW * len(rows)
            return rows, _NARROW
        except BaseException:  # such as Ctrl-C: rows that were not visited may be out of their sets
            self.momentum.take_back(self.dual, given)
            raise

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


def _least_classes(loss: Any) -> int:
    """Return how many classes there have to be for the loss to be defined."""
    places = getattr(loss, "k", None) or len(getattr(loss, "weights", None) or (1.0,))
    return 1 + places
