"""The duality gap: how far the objective can be from its optimum, and when that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topkopt.solvers.data import inner_product
from topkopt.solvers.problem import Problem

if TYPE_CHECKING:
    from topkopt.solvers.ascent import Ascent

__all__ = ["Certificate", "certify", "check_finite_objective"]

# How many units of rounding the difference of the two objectives may be off, next to the terms they
# are made of.
_ROUNDING = 128


@dataclass(frozen=True)
class Certificate:
    """The two objectives, their relative difference, and how much of that may be rounding."""

    primal: float
    dual_value: float
    gap: float
    rounding: float

    def reaches(self, tol: float) -> bool:
        """Whether the gap is known to be at most tol.

        A dual objective far above the primal one proves nothing: it is no bound then.
        """
        return -max(tol, self.rounding) <= self.gap <= tol


def certify(problem: Problem, ascent: Ascent) -> Certificate:
    """Return the certificate of the current dual blocks and coefficients."""
    losses_sum, conjugates, inner = ascent.sums()
    if ascent.coef is ascent.dual:  # <A, K A>, which only rounding can make negative
        square = max(0.0, inner)
    else:
        square = inner_product(ascent.coef, ascent.coef)
    primal = problem.scale * (losses_sum + 0.5 * square)
    dual_value = problem.scale * (-conjugates - 0.5 * square)
    check_finite_objective(problem, primal, dual_value)
    size = max(abs(primal), abs(dual_value))
    if size == 0:
        return Certificate(primal, dual_value, 0.0, 0.0)
    terms = problem.scale * (abs(losses_sum) + abs(conjugates) + square)
    rounding = _ROUNDING * float(np.finfo(problem.data.dtype).eps) * terms / size
    return Certificate(primal, dual_value, (primal - dual_value) / size, rounding)


def check_finite_objective(problem: Problem, *objectives: float) -> None:
    """Raise where the objective overflowed: nothing can be said of such a training."""
    if not np.isfinite(objectives).all():
        norm = np.sqrt(problem.data.square_norms.max())
        raise ValueError(
            f"X and C must keep the objective finite in {problem.data.dtype}, but it overflowed "
            f"with C={problem.C:g} and rows of norm up to {norm:.3g}; scale the features, for "
            "example to norm 1, or lower C."
        )
