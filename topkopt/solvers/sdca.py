"""Stochastic dual coordinate ascent: the exact maximiser for one example after the other.

The steps themselves are compiled, see ``epochs``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.epochs import Examples
from topkopt.solvers.method import DualMethod
from topkopt.solvers.problem import Problem

__all__ = ["CoordinateAscent"]


class CoordinateAscent(DualMethod):
    """One step per example and epoch, in a fresh random order; the examples know their step."""

    def __init__(
        self, problem: Problem, examples: Examples, dual: NDArray, rng: Any, block_size: int
    ):
        super().__init__(problem, examples, dual)
        self.rng, self.block_size = rng, block_size
        self.visited = np.flatnonzero(problem.cost).astype(np.intp)

    def advance(self) -> float:
        """Visit every example once."""
        order = self.rng.permutation(self.visited).astype(np.intp, copy=False)
        self.data.epoch(self.examples, self.coef, self.dual, order, self.block_size)
        return 1.0
