"""L-BFGS for smooth losses: preconditioned, certified at every evaluation.

One evaluation is a pass over the data, see ``evaluation``; the direction comes from the last steps,
see ``quasi_newton``, and from a preconditioner.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt import losses
from topkopt.solvers.certificate import (
    Certificate,
    Stationarity,
    certify,
    check_finite_objective,
    pair_certificate,
)
from topkopt.solvers.data import KernelData
from topkopt.solvers.method import Method
from topkopt.solvers.objective import KernelObjective, LinearObjective, Point
from topkopt.solvers.preconditioner import Preconditioner, make_preconditioner
from topkopt.solvers.problem import Problem
from topkopt.solvers.quasi_newton import Memory

__all__ = ["LBFGS", "make_lbfgs"]

# The memory holds so many steps.
_MEMORY = 10
# A line search ends where the conditions of Wolfe hold: the objective has fallen by the first share
# of what the slope at the start promises, and the slope itself to the second share of that.
_DECREASE, _SLOPE = 1e-4, 0.9
# A line search gives up after so many evaluations.
_TRIALS = 20
# The rounding of an objective is taken for so many units of its last digit.
_NOISE = 16


class LBFGS(Method):
    """Steps of W along directions that the last steps suggest; the dual blocks follow from W.

    Parameters
    ----------
    problem : Problem
        With a smooth loss.
    start : ndarray
        The W to start from, or the A with a kernel.
    keep_dual : bool
        Whether `dual` will be asked for; else it is not made, and n times m numbers are saved.
    """

    name = "lbfgs"

    def __init__(self, problem: Problem, start: NDArray, keep_dual: bool = True):
        super().__init__(problem)
        self.has_dual = keep_dual
        self.examples = problem.examples()
        self.custom = isinstance(problem.loss, losses.CustomLoss)
        self.objective = self._objective()
        self.preconditioner = self._preconditioner()
        if problem.loss.convex:  # else the curvature there may be negative
            self.preconditioner.begin_at(start)
        self.memory = Memory(_MEMORY, start.size)
        self.noise = _NOISE * float(np.finfo(self.data.dtype).eps)
        self.evaluations = 0
        self.point = self.best = self._evaluate(start.astype(np.float64))
        check_finite_objective(problem, self.point.primal)
        self.lifted = self.preconditioner.solve(self.point.gradient)
        self.first_pull = float(np.abs(self._pull_image(self.point)).max(initial=0.0))
        self._dual: NDArray | None = None

    def _objective(self) -> LinearObjective:
        return LinearObjective(self.problem, self.examples)

    def _preconditioner(self) -> Preconditioner:
        return make_preconditioner(self.problem, self.examples)

    def _pull_image(self, point: Point) -> NDArray:
        return point.pull()

    # What is vouched for ----------------------------------------------------------------------

    @property
    def coef(self) -> NDArray:  # type: ignore[override]
        """The W of the lowest objective."""
        return self.point.coef

    @property
    def dual(self) -> NDArray:  # type: ignore[override]
        """The dual blocks of the highest dual objective, made when they are asked for."""
        if self._dual is None:
            dual = self.problem.zero_dual()
            self._evaluate_best(dual)
            self._dual = dual
        return self._dual

    def certificate(self) -> Certificate:
        """Return the certificate of the current W and the best dual blocks so far."""
        point, best = self.point, self.best
        if not self.problem.loss.convex:
            primal = self.problem.scale * point.primal
            check_finite_objective(self.problem, primal)
            steepest = float(np.abs(point.image).max(initial=0.0))
            residual = steepest / self.first_pull if self.first_pull > 0 else 0.0
            return Stationarity(primal, np.nan, np.nan, 0.0, residual)
        return certify(self.problem, point.losses, point.square, best.conjugates, best.pull_square)

    def settle(self) -> None:
        """Compute conjugates and X'A from the dual blocks as they are kept, or would be."""
        if self.has_dual:
            self._dual = self.problem.zero_dual()
        elif not self.problem.loss.convex or self.custom:
            return
        self._evaluate_best(self._dual)

    def _evaluate_best(self, dual: NDArray | None) -> None:
        """Fill the dual blocks, if they are given, and look at what rounding leaves of them."""
        best, pull = self.best, np.empty(self.objective.shape)
        _, conjugates = self.data.evaluate(self.examples, best.coef, pull, dual, True)
        if self.problem.loss.convex:
            if not self.custom:
                best.inner = conjugates + best.losses
            best.pull_square = float(np.vdot(pull, pull))

    # How it moves -----------------------------------------------------------------------------

    def _evaluate(self, parameters: NDArray) -> Point:
        self.evaluations += 1
        return self.objective.at(parameters)

    def advance(self, budget: float) -> float:
        """Take one step, and return how often the data were looked at."""
        before = self.evaluations
        if before >= self.preconditioner.due:
            self.preconditioner.look(self.point.coef, self.point.gradient, before)
            self.memory.lift(lambda change: self._lift(change).ravel())
            self.lifted = self.preconditioner.solve(self.point.gradient)
            self.evaluations += 1
        found = self._search(self._direction())
        if found is None and len(self.memory):
            self.memory.forget()
            found = self._search(self._direction())
        if found is None:
            self.stuck = "no step lowers the objective any more"
            if self.custom:
                self.stuck += " (do the gradients of the loss belong to its values?)"
        else:
            self._move(found)
        return float(self.evaluations - before)

    def _lift(self, change: NDArray) -> NDArray:
        return self.preconditioner.solve(change.reshape(self.objective.shape))

    def _direction(self) -> NDArray:
        direction = self.memory.direction(self.point.image.ravel(), self.lifted.ravel())
        return direction.reshape(self.objective.shape)

    def _move(self, found: Point) -> None:
        old, lifted = self.point, self.preconditioner.solve(found.gradient)
        change = found.gradient - old.gradient
        same = lifted is found.gradient
        if self.custom and self.problem.loss.convex:
            self._check_convex(found)
        self.memory.add(
            (found.parameters - old.parameters).ravel(),
            change.ravel(),
            change.ravel() if same else (lifted - self.lifted).ravel(),
            old.image.ravel(),
        )
        self.point, self.lifted = found, lifted
        if found.dual_value >= self.best.dual_value:
            self.best, self._dual = found, None

    def _check_convex(self, found: Point) -> None:
        """Raise where the losses are below one of their tangents: nothing would be certified."""
        old = self.point
        step = found.parameters - old.parameters
        rise = found.losses - old.losses
        before = float(np.vdot(step, old.image)) - _metric_product(step, old)
        after = float(np.vdot(step, found.image)) - _metric_product(step, found)
        slack = self.noise * (abs(found.losses) + abs(old.losses) + abs(before) + abs(after))
        if not before - slack <= rise <= after + slack:
            raise ValueError(
                f"{self.problem.loss!r} must be convex and have the gradients of its values, but "
                f"a step changed the sum of losses by {rise:.6g}, and the gradients allow "
                f"{before:.6g} to {after:.6g}; correct them (scipy.optimize.check_grad), or pass "
                "convex=False."
            )

    def _search(self, direction: NDArray) -> Point | None:
        """Return a point of the line where the objective and its slope have fallen enough."""
        origin = self.point
        slope = float(np.vdot(direction, origin.image))
        if not slope < 0:
            return None
        low: Any = (0.0, origin.primal, slope)
        high: Any = None
        step = 1.0 if len(self.memory) else self._first_step(slope)
        allowed = self.noise * abs(origin.primal)
        for _ in range(_TRIALS):
            point = self._evaluate(origin.parameters + step * direction)
            here = (step, point.primal, float(np.vdot(direction, point.image)))
            if not here[1] <= origin.primal + _DECREASE * step * slope + allowed:
                high = here
            elif here[2] < _SLOPE * slope:
                low = here
            elif here[2] > -_SLOPE * slope:
                high = here
            else:
                return point
            step = _next_step(low, high)
            if high is not None and not abs(high[0] - low[0]) > 1e-14 * high[0]:
                return None
        return None

    def _first_step(self, slope: float) -> float:
        """Return a step to begin with: 1 if the direction has a length that means something."""
        if type(self.preconditioner) is not Preconditioner:
            return 1.0
        return min(1.0, 1.0 / math.sqrt(-slope))


class KernelLBFGS(LBFGS):
    """The same for a kernel, where the result is one A: that of the dual blocks."""

    def _objective(self) -> LinearObjective:
        return KernelObjective(self.problem, self.examples)

    def _pull_image(self, point: Point) -> NDArray:
        return point.pull_image  # type: ignore[return-value]

    @property
    def coef(self) -> NDArray:  # type: ignore[override]
        """The A of `dual`."""
        return self.dual

    @property
    def dual(self) -> NDArray:  # type: ignore[override]
        """Dual blocks; where there is no dual problem, what the scores are made of."""
        if not self.problem.loss.convex:
            return self.point.coef
        if self._dual is None:
            self._dual = (-self.point.pull()).astype(self.data.dtype)
        return self._dual

    def certificate(self) -> Certificate:
        """Return the certificate of the dual blocks and the scores that they have."""
        point = self.point
        if not self.problem.loss.convex:
            return super().certificate()
        if self._settled is not None:
            return self._settled
        scores = np.negative(point.pull_image).astype(self.data.dtype)  # type: ignore[arg-type]
        total, _ = self.data.evaluate(self.examples, point.coef, scores)
        return certify(self.problem, total, point.pull_square, point.conjugates, point.pull_square)

    _settled: Certificate | None = None

    def settle(self) -> None:
        """Compute the certificate from the dual blocks alone."""
        if self.problem.loss.convex and not self.custom:
            sums = self.data.sums(self.examples, self.dual, self.dual, np.arange(self.data.n_rows))
            self._settled = pair_certificate(self.problem, self.dual, self.dual, sums)

    def _move(self, found: Point) -> None:
        super()._move(found)
        self._dual = self._settled = None


def _metric_product(step: NDArray, point: Point) -> float:
    """Return the inner product of a step and W."""
    image = point.parameters if point.pull_image is None else point.image - point.pull_image
    return float(np.vdot(step, image))


def _next_step(low: Any, high: Any) -> float:
    """Return where a cubic through two points is least, within what is sensible."""
    if high is None:
        return 4.0 * low[0] if low[0] > 0 else 1.0
    (a, at_a, slope_a), (b, at_b, slope_b) = low, high
    width = b - a
    step = 0.5 * (a + b)
    if math.isfinite(at_b) and math.isfinite(slope_b):
        theta = slope_a + slope_b - 3.0 * (at_b - at_a) / width
        square = theta * theta - slope_a * slope_b
        if square > 0:
            root = math.copysign(math.sqrt(square), width)
            bottom = slope_b - slope_a + 2.0 * root
            if bottom != 0:
                step = b - width * (slope_b + root - theta) / bottom
    else:
        step = a + 0.1 * width
    return min(max(step, a + 0.05 * width), b - 0.05 * width)


def make_lbfgs(
    problem: Problem,
    start: NDArray | None,
    keep_dual: bool = True,
    linear: type[LBFGS] = LBFGS,
) -> LBFGS:
    """Return the method at a W, or at an A with a kernel; at 0 if none is given."""
    kernel = isinstance(problem.data, KernelData)
    rows = problem.data.n_rows if kernel else problem.data.n_features
    if isinstance(problem.loss, losses.CustomLoss):
        problem.loss.check(problem.n_classes)
    if start is None:
        start = np.zeros((rows, problem.n_classes))
    return KernelLBFGS(problem, start) if kernel else linear(problem, start, keep_dual)
