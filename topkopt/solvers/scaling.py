"""How the dual blocks of one training become those that the next one, with another C, starts from.

The gradient -a_i/C_i of a loss is feasible for every C. If it is kept, a_i and W grow with C. That
is right where examples are at a bound of their loss. Where the loss can be made small, W hardly
changes with C, and a_i should be kept. For a larger C this is feasible as well: the feasible set of
gradients is convex and contains 0, and -a_i/C_i moves towards it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.data import inner_product
from topkopt.solvers.epochs import conjugates
from topkopt.solvers.problem import Problem

__all__ = ["scaled_blocks"]

_ALIKE = 1e-9  # part by which C times the weights may grow differently for two examples


def scaled_blocks(problem: Problem, dual: NDArray, cost: NDArray, coef: NDArray | None) -> NDArray:
    """Return the better of two feasible starts: the blocks as they are, or grown with the costs.

    Parameters
    ----------
    problem : Problem
        What is to be trained.
    dual : ndarray of shape (n, m)
        Feasible dual blocks of other costs.
    cost : ndarray of shape (n,)
        These costs.
    coef : ndarray of shape (d, m) or None
        The W that goes with the blocks, if there is one.
    """
    ratio = np.divide(problem.cost, cost, out=np.zeros_like(problem.cost), where=cost > 0)
    grown = (dual * ratio[:, None]).astype(problem.data.dtype)
    rows = np.flatnonzero(problem.cost * cost > 0).astype(np.intp)
    if coef is None or not rows.size or np.ptp(ratio[rows]) > _ALIKE * ratio[rows[0]]:
        return grown
    growth = float(ratio[rows[0]])
    if growth <= 1.0:
        return grown
    kept = np.where(ratio[:, None] > 0, dual, 0).astype(problem.data.dtype)
    examples, square = problem.examples(), inner_product(coef, coef)

    def objective(blocks: NDArray, factor: float) -> float:
        return -conjugates(examples, blocks[rows], rows) - 0.5 * factor**2 * square

    return kept if objective(kept, 1.0) > objective(grown, growth) else grown
