"""The duality gap: how far the objective can be from its optimum, and when that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.data import inner_product
from topkopt.solvers.problem import Problem

__all__ = ["Certificate", "Stationarity", "certify", "check_finite_objective", "pair_certificate"]

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


@dataclass(frozen=True)
class Stationarity(Certificate):
    """All that can be said without a dual problem: how much of the pull of the losses is left."""

    residual: float

    def reaches(self, tol: float) -> bool:
        """Whether the gradient is at most tol of the pull of the losses at the start."""
        return self.residual <= tol


def pair_certificate(
    problem: Problem, coef: NDArray, dual: NDArray, sums: tuple[float, float, float]
) -> Certificate:
    """Return the certificate of dual blocks A and the W = X'A that belongs to them.

    The sums are those of costs times losses and conjugates, and <A, scores>.
    """
    losses_sum, conjugates, inner = sums
    # <A, K A> of a kernel can only be negative by rounding.
    square = max(0.0, inner) if coef is dual else inner_product(coef, coef)
    return certify(problem, losses_sum, square, conjugates, square)


def certify(
    problem: Problem, losses_sum: float, square: float, conjugates: float, dual_square: float
) -> Certificate:
    """Return the certificate of a W and dual blocks A.

    Parameters
    ----------
    problem : Problem
        What is trained.
    losses_sum, square : float
        The sum of costs times losses under W, and |W|^2.
    conjugates, dual_square : float
        The sum of costs times conjugates of A, and |X'A|^2.
    """
    primal = problem.scale * (losses_sum + 0.5 * square)
    dual_value = problem.scale * (-conjugates - 0.5 * dual_square)
    check_finite_objective(problem, primal, dual_value)
    size = max(abs(primal), abs(dual_value))
    if size == 0:
        return Certificate(primal, dual_value, 0.0, 0.0)
    terms = abs(losses_sum) + abs(conjugates) + 0.5 * (square + dual_square)
    rounding = _ROUNDING * float(np.finfo(problem.data.dtype).eps) * problem.scale * terms / size
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
