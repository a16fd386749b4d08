"""Proximal-point Newton: every convex loss to as many digits as its arithmetic has.

A loss need not be smooth. With a centre c_i for each example (its last v_i) and sigma > 0,

    L_sigma(s) = max_v  <s,v> - L*(v) - sigma/2 |v - c|^2

is, and its gradient v and Hessian D are the prox of the loss and its derivative. Newton's method
minimises  1/2 |W|^2 + sum_i cost_i L_sigma,i(x_i W);  then the v are the new centres, and sigma falls.
A = -cost v is feasible at every moment, and so there is always a certificate.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.certificate import Certificate, certify, pair_certificate
from topkopt.solvers.curvature import Curvature, envelopes, losses_sum
from topkopt.solvers.data import KernelData, inner_product
from topkopt.solvers.method import Method
from topkopt.solvers.newton_systems import solve_system
from topkopt.solvers.problem import Problem

__all__ = ["Newton"]

_FALL = 4.0  # of sigma from one centre to the next
_LEAST = 1e-6  # sigma, below which the prox loses the digits of its argument
_DONE = 0.1  # how far the gradient falls under one centre
_STEPS = 30  # systems under one centre at the most
_HALVINGS = 30
_ARMIJO = 1e-4


class Newton(Method):
    """Newton's method from dual blocks that some other method has brought close.

    Parameters
    ----------
    problem : Problem
        What is trained.
    dual : ndarray of shape (n, m)
        Feasible dual blocks to start from.
    sigma : float, default 1.0
        The first sigma; scores have the unit of margins, which is 1.
    """

    name = "newton"

    def __init__(self, problem: Problem, dual: NDArray, sigma: float = 1.0):
        super().__init__(problem)
        self.examples = problem.examples()
        self.work = _in_double(problem.data)
        self.linear = not isinstance(self.data, KernelData)
        self.cost, self.sigma = problem.cost, sigma
        self.visited = np.flatnonzero(problem.cost).astype(np.intp)
        self.dual = dual
        self.v = np.zeros(dual.shape)
        self.v[self.visited] = dual[self.visited] / -self.cost[self.visited, None]
        self.conjugates = 0.0
        self.settle()

    def settle(self) -> None:
        """Take W = X'A for the A there is."""
        self.coef = self.data.coef_from(self.dual)
        self.point = self.work.coef_from(self.dual.astype(np.float64, copy=False))
        self.scores = self.work.scores(self.point)
        self.settled = True

    def certificate(self) -> Certificate:
        """Return the certificate of W, which need not be X'A before it is settled, and A."""
        if self.settled:
            sums = self.data.sums(self.examples, self.coef, self.dual)
            return pair_certificate(self.problem, self.coef, self.dual, sums)
        total = losses_sum(self.examples, self.scores)
        square = self._inner(self.point, self.point, self.scores)
        return certify(self.problem, total, square, self.conjugates, self.dual_square)

    def advance(self) -> float:
        """Minimise under one centre, and move it."""
        centre, self.v = self.v, np.zeros_like(self.v)
        passes, first = 0.0, np.inf
        value = self._smoothed(self.scores, centre, self.v)
        for step in range(_STEPS):
            gradient, pull = self._gradient()
            size = self._norm(gradient)
            first = min(first, size) if step == 0 else first
            if size <= _DONE * first and step > 0:
                break
            fallen, spent = self._newton_step(centre, gradient, value)
            passes += spent
            if fallen is None:  # rounding is all that is left
                break
            value = fallen
        else:
            gradient, pull = self._gradient()
        self.dual_square = self._square(self.point - gradient)
        self.sigma = max(self.sigma / _FALL, _LEAST)
        self.dual = self._as_dual(self.v)
        self.coef = self.point.astype(self.data.dtype) if self.linear else self.dual
        self.settled = False
        return passes + 0.5

    def _newton_step(
        self, centre: NDArray, gradient: NDArray, value: float
    ) -> tuple[float | None, float]:
        """Take one step; return the new value, None if there is none lower, and the passes."""
        curvature = Curvature(
            self.examples, self.scores, centre, self.sigma, self.v, self.visited
        )
        known = None if self.linear else self.work.scores(gradient)
        found = solve_system(self.work, curvature, self.cost, gradient, known)
        step = -found.step
        moved = self.work.scores(step)
        passes = 1.0 + found.operations / self._pass_operations()
        slope = self._inner(gradient, step, moved)
        if slope >= 0.0:
            return None, passes
        across = self._inner(self.point, step, moved)
        square = self._inner(step, step, moved)
        start, v, length = value, self.v, 1.0
        old = 0.5 * self._inner(self.point, self.point, self.scores)
        slack = 1e-15 * abs(value)
        for _ in range(_HALVINGS):
            trial = self.scores + length * moved
            losses, conjugates = envelopes(
                self.examples, trial, centre, self.sigma, v, self.visited
            )
            new = old + length * (across + 0.5 * length * square) + losses
            if new <= start + _ARMIJO * length * slope + slack:
                self.point = self.point + length * step
                self.scores, self.conjugates = trial, conjugates
                return new, passes
            length *= 0.5
            passes += 0.5
        envelopes(self.examples, self.scores, centre, self.sigma, v, self.visited)
        return None, passes

    def _smoothed(self, scores: NDArray, centre: NDArray, v: NDArray) -> float:
        """Write v, and return the value that Newton's method lowers."""
        losses, self.conjugates = envelopes(
            self.examples, scores, centre, self.sigma, v, self.visited
        )
        return 0.5 * self._inner(self.point, self.point, self.scores) + losses

    def _gradient(self) -> tuple[NDArray, NDArray]:
        """Return W + X'(cost v) and its second term."""
        pull = self.work.coef_from(self.cost[:, None] * self.v)
        return self.point + pull, pull

    def _inner(self, a: NDArray, b: NDArray, b_scores: NDArray) -> float:
        """Return <a, b>, or with a kernel that of what they stand for."""
        return inner_product(a, b if self.linear else b_scores)

    def _square(self, a: NDArray) -> float:
        return self._inner(a, a, a if self.linear else self.work.scores(a))

    def _norm(self, a: NDArray) -> float:
        return float(np.sqrt(max(0.0, self._square(a))))

    def _as_dual(self, v: NDArray) -> NDArray:
        return (-self.cost[:, None] * v).astype(self.data.dtype)

    def _pass_operations(self) -> float:
        """Return the multiplications of an epoch of coordinate ascent."""
        X: Any = self.data.X
        return 2.0 * self.problem.n_classes * (X.nnz if hasattr(X, "nnz") else X.size)


def _in_double(data: Any) -> Any:
    """Return the data in float64, in which Newton's method computes."""
    if data.dtype == np.float64:
        return data
    double = copy.copy(data)
    double.X, double.dtype = data.X.astype(np.float64), np.dtype(np.float64)
    return double
