"""The methods that climb the dual problem, behind one face: what `solve` calls an epoch.

An `Ascent` holds the dual blocks A and the coefficients that belong to them. It advances by one
epoch, and returns the sums that a certificate is made of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt import losses
from topkopt.solvers.data import Data, inner_product
from topkopt.solvers.epochs import Examples
from topkopt.solvers.problem import Problem
from topkopt.solvers.vertices import ActiveSets, VertexExamples, scores_sums, toward_vertices

__all__ = ["METHODS", "Ascent", "check_method", "make_ascent"]

METHODS = ("sdca", "frank_wolfe", "away_step", "pairwise", "block_frank_wolfe")


def check_method(method: str, loss: losses.Loss) -> None:
    """Raise unless the method exists and can train the loss."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    if method != "sdca" and not loss.declaration.vertices:
        able = ", ".join(cls.__name__ for cls in losses.classes() if cls.declaration.vertices)
        raise ValueError(
            f"method={method!r} needs a loss with vertices ({able}), got {loss!r}; use "
            "method='sdca', which trains every loss."
        )


class Ascent(ABC):
    """Dual blocks on their way up.

    Attributes
    ----------
    coef : ndarray
        W = X'A, or A itself for a kernel.
    dual : ndarray of shape (n, m)
        The dual blocks A.
    """

    def __init__(self, data: Data, examples: Examples, dual: NDArray):
        self.data, self.examples, self.dual = data, examples, dual
        self.refresh()

    @abstractmethod
    def advance(self) -> None:
        """Climb for one epoch."""

    def sums(self) -> tuple[float, float, float]:
        """Return the sums of costs times losses and conjugates, and <A, scores>."""
        return self.data.sums(self.examples, self.coef, self.dual)

    def refresh(self) -> None:
        """Compute what depends on A anew, free of what rounding added step by step."""
        self.coef = self.dual  # lets go of the old W before there is a new one
        self.coef = self.data.coef_from(self.dual)


class CoordinateAscent(Ascent):
    """One step per example and epoch, in a fresh random order; the examples know their step."""

    def __init__(
        self,
        data: Data,
        examples: Examples,
        dual: NDArray,
        visited: NDArray,
        rng: Any,
        block_size: int,
    ):
        super().__init__(data, examples, dual)
        self.visited, self.rng, self.block_size = visited, rng, block_size

    def advance(self) -> None:
        """Visit every example once."""
        order = self.rng.permutation(self.visited).astype(np.intp, copy=False)
        self.data.epoch(self.examples, self.coef, self.dual, order, self.block_size)


class FrankWolfe(Ascent):
    """One step of all examples together: two matrix products, or one with a kernel."""

    examples: VertexExamples

    def __init__(self, data: Data, examples: VertexExamples, dual: NDArray):
        super().__init__(data, examples, dual)
        self.change = np.zeros_like(dual)

    def refresh(self) -> None:
        """Compute W and the scores anew."""
        super().refresh()
        self.scores = np.ascontiguousarray(self.data.scores(self.coef))

    def sums(self) -> tuple[float, float, float]:
        """Return the sums of a certificate; the scores are known already."""
        return scores_sums(self.examples, self.scores, self.dual)

    def advance(self) -> None:
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

    def __init__(self, data: Data, examples: VertexExamples, dual: NDArray, sets: ActiveSets):
        super().__init__(data, examples, dual)
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


def make_ascent(
    method: str, problem: Problem, dual: NDArray, warm: bool, rng: Any, block_size: int
) -> Ascent:
    """Return the ascent of a method, from dual blocks that are not 0 if it starts warm."""
    data = problem.data
    loss: Any = problem.loss
    visited = np.flatnonzero(problem.cost).astype(np.intp)
    if method == "sdca":
        return CoordinateAscent(data, problem.examples(), dual, visited, rng, block_size)
    parameters = dict(loss._parameters())
    hard = type(loss)(**{**parameters, "smoothing": 0.0})
    examples = problem.examples(VertexExamples, hard, parameters.get("envelope") == "all")
    if method == "block_frank_wolfe":
        return CoordinateAscent(data, examples, dual, visited, rng, block_size)
    if method == "frank_wolfe":
        return FrankWolfe(data, examples, dual)
    weights = np.array(parameters.get("weights") or [1.0 / hard.k] * hard.k)
    origin = dual.astype(np.float64) if warm else None
    sets = ActiveSets(examples, weights, origin, data.n_rows, method == "pairwise")
    return ActiveSetFrankWolfe(data, examples, dual, sets)
