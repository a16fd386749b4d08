"""The primal objective and its gradient at a W, with the certificate that comes with them.

By Fenchel-Young the conjugates of v, the gradients of the losses, are <s,v> less the losses. So
with G = X'(cost v) the dual blocks A = -cost v have, in the scale 1/2 |W|^2 + sum_i cost_i L_i, the
objective sum_i cost_i L_i - <W,G> - 1/2 |G|^2, which is 1/2 |W + G|^2 below that of W: the
square of the gradient is the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.data import inner_product
from topkopt.solvers.epochs import Examples
from topkopt.solvers.problem import Problem

__all__ = ["KernelObjective", "LinearObjective", "Point"]


@dataclass(eq=False)
class Point:
    """Parameters and what is known of the objective there.

    Attributes
    ----------
    parameters : ndarray of float64
        W, or A with a kernel; `coef` are the same in the precision of the data.
    gradient, image : ndarray of float64
        W + G, and what inner products with it are taken with: itself, or K times it.
    losses : float
        The sum of costs times losses.
    square, inner, pull_square : float
        |W|^2, <W,G> and |G|^2.
    pull_image : ndarray or None
        With a kernel, K times cost v.
    """

    parameters: NDArray
    coef: NDArray
    gradient: NDArray
    image: NDArray
    losses: float
    square: float
    inner: float
    pull_square: float
    pull_image: NDArray | None = None

    @property
    def primal(self) -> float:
        """The objective."""
        return self.losses + 0.5 * self.square

    @property
    def conjugates(self) -> float:
        """The sum of costs times conjugates of the gradients of the losses."""
        return self.inner - self.losses

    @property
    def dual_value(self) -> float:
        """The dual objective of A = -cost v."""
        return -self.conjugates - 0.5 * self.pull_square

    def pull(self) -> NDArray:
        """Return G, or cost v with a kernel."""
        return self.gradient - self.parameters


class LinearObjective:
    """The parameters are W."""

    def __init__(self, problem: Problem, examples: Examples):
        self.problem, self.data, self.examples = problem, problem.data, examples
        self.shape = (problem.data.n_features, problem.n_classes)

    def rounded(self, parameters: NDArray) -> tuple[NDArray, NDArray]:
        """Return parameters that the precision of the data can hold, in both precisions."""
        coef = parameters.astype(self.data.dtype, copy=False)
        return coef.astype(np.float64, copy=False), coef

    def at(self, parameters: NDArray) -> Point:
        """Evaluate."""
        parameters, coef = self.rounded(parameters)
        pull = np.empty(self.shape)
        losses, _ = self.data.evaluate(self.examples, coef, pull)
        square, inner = inner_product(parameters, parameters), inner_product(parameters, pull)
        pull_square = inner_product(pull, pull)
        pull += parameters
        return Point(parameters, coef, pull, pull, losses, square, inner, pull_square)


class KernelObjective(LinearObjective):
    """The parameters are A, with W = X'A; inner products are those of W."""

    def __init__(self, problem: Problem, examples: Examples):
        super().__init__(problem, examples)
        self.shape = (problem.data.n_rows, problem.n_classes)

    def at(self, parameters: NDArray) -> Point:
        """Evaluate."""
        parameters, coef = self.rounded(parameters)
        scores = np.ascontiguousarray(self.data.scores(coef))
        pull = scores.copy()
        losses, _ = self.data.evaluate(self.examples, coef, pull)
        pull_image = self.data.scores(pull)
        return Point(
            parameters,
            coef,
            parameters + pull,
            np.add(scores, pull_image, dtype=np.float64),
            losses,
            max(0.0, inner_product(coef, scores)),
            inner_product(pull, scores),
            max(0.0, inner_product(pull, pull_image)),
            pull_image,
        )
