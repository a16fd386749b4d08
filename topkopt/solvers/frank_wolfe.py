"""Frank-Wolfe methods: every example moves towards a vertex of its dual set, all of them at once.

The vertices themselves are compiled, see ``vertices``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.data import inner_product
from topkopt.solvers.method import DualMethod
from topkopt.solvers.problem import Problem
from topkopt.solvers.vertices import ActiveSets, VertexExamples, scores_sums, toward_vertices

__all__ = ["ActiveSetFrankWolfe", "FrankWolfe"]


class FrankWolfe(DualMethod):
    """One step of all examples together: two matrix products, or one with a kernel."""

    examples: VertexExamples

    def __init__(self, problem: Problem, examples: VertexExamples, dual: NDArray):
        super().__init__(problem, examples, dual)
        self.change = np.zeros_like(dual)

    def settle(self) -> None:
        """Compute W and the scores anew."""
        super().settle()
        self.scores = np.ascontiguousarray(self.data.scores(self.coef))

    def sums(self) -> tuple[float, float, float]:
        """Return the sums of a certificate; the scores are known already."""
        return scores_sums(self.examples, self.scores, self.dual)

    def advance(self, budget: float) -> float:
        """Find a direction, and go to the best point of it."""
        gain, bend = self.direct()
        coef = self.data.coef_from(self.change)
        scores = self.data.scores(coef)
        bend += inner_product(self.change, scores)
        best = gain / bend if bend > 0 else np.inf
        step = min(1.0, best) if gain > 0 else 0.0
        self.move(step)
        self.scores += self.scores.dtype.type(step) * scores
        if self.coef is not self.dual:
            self.coef += self.coef.dtype.type(step) * coef
        self.note(best)
        return 1.0

    def direct(self) -> tuple[float, float]:
        """Fill `change`; return its gain, and how the smoothing bends it."""
        return toward_vertices(self.examples, self.scores, self.dual, self.change)

    def move(self, step: float) -> None:
        """Add a part of `change` to the dual blocks."""
        self.dual += self.dual.dtype.type(step) * self.change

    def note(self, best: float) -> None:
        """Learn from the best step along `change`, which may be beyond its end."""


class ActiveSetFrankWolfe(FrankWolfe):
    """Steps that can also take shares away from the vertices of earlier steps.

    The polytope is a product over the examples, and so every example has active vertices, a
    direction and a bound of its own. With one step length for all, the example that runs into its
    bound first would stop all others. Instead each example proposes to go `factor` of the way to
    its own best point, no further than its bound (where it drops a vertex), and the line search is
    along the sum of these proposals. Its result corrects the factor for the next time.
    """

    def __init__(self, problem: Problem, examples: VertexExamples, dual: NDArray, sets: ActiveSets):
        super().__init__(problem, examples, dual)
        self.sets, self.factor = sets, 1.0

    def direct(self) -> tuple[float, float]:
        """Fill `change` with the proposals of all examples."""
        return self.sets.propose(self.scores, self.change, self.factor)

    def move(self, step: float) -> None:
        """Shift shares, and mix the dual blocks anew from them."""
        self.sets.accept(step, self.dual)

    def note(self, best: float) -> None:
        """Aim at proposals whose sum is right as it is."""
        self.factor = float(np.clip(self.factor * best, 1.0 / self.data.n_rows, 1.0))
