"""Proximal-point Newton: every convex loss to as many digits as its arithmetic has.

A loss need not be smooth. With a centre c_i for each example (its last v_i) and sigma > 0,

    L_sigma(s) = max_v  <s,v> - L*(v) - sigma/2 |v - c|^2

is, and its gradient v and Hessian D are the prox of the loss and its derivative. Newton's method
minimises  1/2 |W|^2 + sum_i cost_i L_sigma,i(x_i W);  then the v are the new centres, sigma falls,
and it starts again. A = -cost v is feasible at every moment, and so there is always a certificate.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.certificate import Certificate, certify
from topkopt.solvers.curvature import changed_rows, proxes, sums
from topkopt.solvers.data import KernelData, inner_product
from topkopt.solvers.epochs import Examples
from topkopt.solvers.method import Method
from topkopt.solvers.newton_systems import solve_system
from topkopt.solvers.problem import Problem
from topkopt.solvers.shared_curvature import LOSS_WORK, SharedCurvature

__all__ = ["Newton", "StartedNewton", "pass_operations"]

# Another method goes first, for so many epochs or until its gap is down to _CLOSE.
_EPOCHS = 10
_CLOSE = 0.1
# A smaller sigma is never used, because the prox divides by it and would lose digits of the scores.
_LEAST = 1e-6
# Once sigma is this small, a gap that grows does so by rounding. Then sigma is raised by the factor
# _BACK.
_SMALL = 1e-3
_BACK = 64.0
# A centre is moved when the gradient has fallen to this share of its first size, or after so many
# systems.
_DONE = 0.1
_STEPS = 50
# A line search ends where the slope is down to this share of the first, or after so many points.
_FLAT = 0.25
_SEARCH = 40


class StartedNewton(Method):
    """Newton's method from where a few epochs of another method have ended.

    Parameters
    ----------
    start : Method
        Goes first, until its gap is small or it has advanced often enough.
    """

    def __init__(self, start: Method):
        super().__init__(start.problem)
        self.running, self.left, self.close = start, _EPOCHS, False
        self.coef, self.dual = start.coef, start.dual

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the method which is running."""
        return self.running.name

    def advance(self, budget: float) -> float:
        """Take an epoch, or minimise under one centre."""
        if (self.left <= 0 or self.close) and not isinstance(self.running, Newton):
            self.running = Newton(self.problem, self.running.dual)
        self.left -= 1
        passes = self.running.advance(budget)
        self.coef, self.dual = self.running.coef, self.running.dual
        return passes

    def certificate(self) -> Certificate:
        """Return the certificate of `coef` and `dual`."""
        found = self.running.certificate()
        self.close = self.close or found.gap <= _CLOSE
        return found

    def settle(self) -> None:
        """Take W = X'A for the A there is."""
        self.running.settle()
        self.coef, self.dual = self.running.coef, self.running.dual


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
        self.work: Any = _in_double(problem.data)
        self.linear = not isinstance(self.data, KernelData)
        self.cost, self.sigma = problem.cost, sigma
        self.visited = np.flatnonzero(problem.cost).astype(np.intp)
        self.dual, self.best = dual, np.inf
        self.v = np.zeros(dual.shape)
        self.coef = self.data.coef_from(dual)
        self._take_dual()
        self.settle()

    def settle(self) -> None:
        """Compute all that depends on W and A anew."""
        self.point = (self.coef if self.linear else self.dual).astype(np.float64)
        self.scores = self.work.scores(self.point)
        if self.data.dtype != np.float64:
            self._take_dual()
        self.certified = self.scores
        self.dual_square = self._square(self.work.coef_from(self.dual.astype(np.float64)))

    def certificate(self) -> Certificate:
        """Return the certificate of A and W; that W differs from X'A is part of the gap."""

        def add_up(own: Examples, part: slice) -> NDArray:
            return np.array(sums(own, self.certified[part], self.v[part]))

        found = self.data.by_ranges(self.examples, LOSS_WORK * self.problem.n_classes, add_up)
        losses, conjugates = np.sum(found, axis=0).tolist()
        square = self.dual_square
        if self.linear:
            square = self._square(self.point)
        gap = certify(self.problem, losses, square, conjugates, self.dual_square)
        if gap.gap > self.best and self.sigma <= _SMALL:
            # The rounding of v grows as sigma falls; a larger sigma takes it back.
            self.sigma *= _BACK
        self.best = min(self.best, gap.gap)
        return gap

    def _proxes(
        self, moved: NDArray, length: float, centre: NDArray, v: NDArray, rows: NDArray
    ) -> float:
        """Write the v of some rows, and return the slope of their losses in the direction."""

        def write(part: slice) -> float:
            own = self.examples.part(slice(None))
            return proxes(own, self.scores, moved, length, centre, self.sigma, v, rows[part])

        team = self.data.team
        ranges = team.ranges(len(rows), len(rows) * v.shape[1] * LOSS_WORK)
        return sum(team.run(write, ranges))

    def _take_dual(self) -> None:
        """Write v = -A/cost."""
        cost = self.cost[self.visited, None]
        self.v[self.visited] = self.dual[self.visited].astype(np.float64) / -cost

    def advance(self, budget: float) -> float:
        """Minimise under one centre, and move it."""
        centre, self.v = self.v, self.v.copy()
        self._proxes(self.scores, 0.0, centre, self.v, self.visited)
        gradient, seen = self._gradient()
        size = self._norm(gradient, seen)
        goal, passes, steps = _DONE * size, 1.0, 0
        while size > goal and steps < _STEPS:
            steps += 1
            passes += self._newton_step(centre, gradient, seen)
            gradient, seen = self._gradient()
            size = self._norm(gradient, seen)
        self._next_sigma(steps)
        self.dual = (-self.cost[:, None] * self.v).astype(self.data.dtype)
        if self.linear:
            self.coef, self.certified = self.point.astype(self.data.dtype), self.scores
            self.dual_square = self._square(self.point - gradient)
        else:  # A is all there is to predict with
            self.coef, self.certified = self.dual, self.scores - seen
            self.dual_square = self._inner(self.point - gradient, self.coef, self.certified)
        return passes

    def _next_sigma(self, steps: int) -> None:
        """Fall while the systems are few; what was too fast is taken back."""
        factor = 4.0 if steps >= _STEPS else 1.0 if steps > 10 else 0.5 if steps > 5 else 0.25
        self.sigma = min(max(self.sigma * factor, _LEAST), 1.0)

    def _newton_step(self, centre: NDArray, gradient: NDArray, seen: NDArray | None) -> float:
        """Go to where the objective is lowest in the direction of Newton; return the passes."""
        curvature = SharedCurvature(
            self.data.team, self.examples, self.scores, centre, self.sigma, self.v, self.visited
        )
        separable = self.problem.loss.separable
        step = -solve_system(self.work, curvature, self.cost, gradient, seen, separable)
        moved = self.work.scores(step)
        length, v = self._search(centre, gradient, step, moved)
        self.point = self.point + length * step
        self.scores = self.scores + length * moved
        self.v = v
        return 1.0

    def _search(
        self, centre: NDArray, gradient: NDArray, step: NDArray, moved: NDArray
    ) -> tuple[float, NDArray]:
        """Return how far to go, at most 1, and v there.

        Only slopes are compared: they keep their digits where differences of values do not. A v
        that is the same at both ends is the same in between, because |v(t) - v|^2 sigma is at most
        <v(t) - v, t moved>, which grows with t.
        """
        new = self.v.copy()

        def losses_slope(length: float, rows: NDArray) -> float:
            return self._proxes(moved, length, centre, new, rows)

        first = self._inner(gradient, step, moved)
        across, square = self._inner(self.point, step, moved), self._inner(step, step, moved)
        losses = losses_slope(1.0, self.visited)
        last = across + square + losses
        if last <= _FLAT * abs(first):
            return 1.0, new
        rows = changed_rows(self.v, new, self.visited)
        rest = losses - float(np.einsum("i,ij,ij->", self.cost[rows], moved[rows], new[rows]))
        low, high, low_slope, high_slope = 0.0, 1.0, first, last
        length, side = 1.0, 0
        for _ in range(_SEARCH):
            length = (low * high_slope - high * low_slope) / (high_slope - low_slope)
            if not low < length < high:
                length = 0.5 * (low + high)
            slope = across + length * square + rest + losses_slope(length, rows)
            if abs(slope) <= _FLAT * abs(first):
                break
            if slope > 0:
                high, high_slope = length, slope
                if side > 0:  # the other end has stayed twice: let it count for less
                    low_slope *= 0.5
                side = 1
            else:
                low, low_slope = length, slope
                if side < 0:
                    high_slope *= 0.5
                side = -1
        return length, new

    def _gradient(self) -> tuple[NDArray, NDArray | None]:
        """Return W + X'(cost v), and with a kernel its scores."""
        gradient = self.point + self.work.coef_from(self.cost[:, None] * self.v)
        return gradient, None if self.linear else self.work.scores(gradient)

    def _inner(self, a: NDArray, b: NDArray, b_scores: NDArray | None) -> float:
        """Return <a, b>, or with a kernel that of what they stand for."""
        return inner_product(a, b if b_scores is None or self.linear else b_scores)

    def _square(self, a: NDArray) -> float:
        return self._inner(a, a, None if self.linear else self.work.scores(a))

    def _norm(self, a: NDArray, a_scores: NDArray | None) -> float:
        return float(np.sqrt(max(0.0, self._inner(a, a, a_scores))))


def _in_double(data: Any) -> Any:
    """Return the data in float64, in which Newton's method computes."""
    if data.dtype == np.float64:
        return data
    double = copy.copy(data)
    double.X, double.dtype = data.X.astype(np.float64), np.dtype(np.float64)
    return double


def pass_operations(problem: Problem) -> float:
    """Return how many multiplications of a factorisation take as long as a pass.

    A pass multiplies each feature twice with each class, and spends about as long as 64 more
    multiplications on each entry of the dual blocks. A factorisation is eight times as fast.
    """
    data = problem.data
    return 8.0 * problem.n_classes * (2.0 * data.n_entries + 64.0 * data.n_rows)
