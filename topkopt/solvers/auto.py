"""The method that is expected to be first at the gap asked for, chosen on the way.

A smooth loss is trained by L-BFGS from the start where its preconditioner knows most of the
Hessian, and where an evaluation takes a fraction of an epoch, whose every step is a search. Only
where the data are so small that an epoch is over before a step of L-BFGS has begun is there nothing
to gain. Every other training begins with epochs of coordinate ascent. Each certificate tells how
fast the gap falls, and so how many passes are left at that pace. From there on

- a smooth loss goes on with L-BFGS when many passes are left, because an evaluation is cheaper than
  an epoch and its pace does not fall with C; a smoothed one only with the preconditioner;
- another loss goes on with Newton's method when the systems that it will need are small enough that
  they cost less than the passes that are left.

A method that cannot go on gives way again, and so does L-BFGS after as many evaluations as passes
were left. All decisions follow from counted passes and operations, never from the clock, so that a
seed repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.certificate import Certificate, certify
from topkopt.solvers.data import DenseData, KernelData, inner_product
from topkopt.solvers.lbfgs import make_lbfgs
from topkopt.solvers.method import Method
from topkopt.solvers.newton import Newton, pass_operations
from topkopt.solvers.newton_systems import system_operations
from topkopt.solvers.preconditioner import blocks_pay
from topkopt.solvers.problem import Problem
from topkopt.solvers.settings import Settings
from topkopt.solvers.streams import StreamData

__all__ = ["Auto"]

# L-BFGS is first where an epoch takes as long as so many of its evaluations,
_EVALUATIONS = 3.0
# and as long as so many where few are needed, as the condition of the Hessian is below a bound.
_FEW_EVALUATIONS, _CONDITION = 1.5, 30.0
# The condition is estimated from so many rows, by so many steps of a power iteration.
_SAMPLE, _POWERS = 1024, 3
# An entry of the scores costs so many operations of a product in double precision, where the step
# of an example is searched for and where its loss is evaluated; so does an entry of a row that is
# gathered.
_SEARCHED, _EVALUATED, _GATHERED = 2200.0, 220.0, 16.0
# So many multiplications take less time than what surrounds a step of L-BFGS.
_SMALL = 5e5
# L-BFGS is not gone on with if no more passes than these are left.
_FEW = 40.0
# The pace tells how many passes are left once the gap is this small, or after so many passes.
_NEAR, _LATE = 0.1, 50.0
# It is the best pace since one of so many certificates before the last one.
_LOOKS = 3
# The gap falls by this factor in some seven systems of Newton's method, and each takes about twice
# the operations of its factorisation.
_PER_SYSTEM, _SYSTEMS = 3.0, 16.0
# Where passes would be too many, Newton's method may take so many times as long as they.
_BEYOND = 10.0


def _lbfgs_is_first(problem: Problem, settings: Settings) -> bool:
    """Whether L-BFGS is expected to be first whatever the gap asked for, or saves the memory."""
    if isinstance(problem.data, StreamData):
        return problem.loss.smooth
    steps = settings.along_path and not settings.keep_dual and type(problem.data) is DenseData
    able = _is_for_lbfgs(problem)
    pays = able and (steps or blocks_pay(problem) or _epochs_are_long(problem))
    return pays and pass_operations(problem) > _SMALL


def _is_for_lbfgs(problem: Problem) -> bool:
    """Whether a loss is smooth by nature, not by smoothing.

    The dual blocks of a smoothed hinge are mostly at rest, so that passes of coordinate ascent soon
    visit few examples, while its gradient changes fast, for which L-BFGS takes many evaluations.
    """
    return problem.loss.declaration.smooth is True


def _epochs_are_long(problem: Problem) -> bool:
    """Whether an epoch with its certificate takes as long as several evaluations.

    Both multiply the rows with W, and what they find with the rows. An epoch searches for a step
    of each example, gathers the rows of its blocks and multiplies them with each other. So that is
    for few classes or single precision, in which products are faster; and for dense data with more
    examples than features.
    """
    data, m, d = problem.data, problem.n_classes, problem.data.n_features
    if type(data) is not DenseData or 2 * d > data.n_rows:
        return False
    entries = 8.0 / data.dtype.itemsize * m
    epoch = 6.0 * d * m + _SEARCHED * entries + (_GATHERED + 2.0 * data.auto_block(m)) * d
    ratio = epoch / (4.0 * d * m + _EVALUATED * entries)
    return ratio >= _EVALUATIONS or (ratio >= _FEW_EVALUATIONS and _condition(problem) < _CONDITION)


def _condition(problem: Problem) -> float:
    """Return about the largest eigenvalue of the Hessian, whose smallest is 1.

    The curvatures of the losses are taken for half of their bound.
    """
    data = problem.data
    rows = np.linspace(0, data.n_rows - 1, min(_SAMPLE, data.n_rows)).astype(np.intp)
    some = data.rows(rows).astype(np.float64, copy=False)
    weight = 0.5 * problem.loss.curvature * problem.cost[rows] * (data.n_rows / len(rows))
    direction, largest = np.random.default_rng(0).standard_normal(data.n_features), 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # Of huge features it is infinite or NaN.
        for _ in range(_POWERS):
            direction = some.T @ (weight * (some @ direction))
            largest = float(np.linalg.norm(direction))
            direction /= largest or 1.0
    return 1.0 + largest


class Standing(Method):
    """A W and dual blocks that an earlier training has left; another method goes on from them."""

    def __init__(self, problem: Problem, coef: NDArray, dual: NDArray, name: str):
        super().__init__(problem)
        self.coef, self.dual, self.name = coef, dual, name

    def advance(self, budget: float) -> float:
        """Stand still."""
        return 0.0

    def certificate(self) -> Certificate:
        """Return the certificate of the two, of which the first need not be X'A of the other."""
        rows, pull = np.arange(self.data.n_rows), self.data.coef_from(self.dual)
        losses, conjugates, _ = self.data.sums(self.problem.examples(), self.coef, self.dual, rows)
        square, dual_square = inner_product(self.coef, self.coef), inner_product(pull, pull)
        return certify(self.problem, losses, square, conjugates, dual_square)

    def settle(self) -> None:
        """Nothing has moved."""


class Auto(Method):
    """What will be first, judged again at every certificate; mostly coordinate ascent at first.

    Parameters
    ----------
    problem : Problem
        What is trained, with a convex loss.
    ascent : callable
        Makes a coordinate ascent from dual blocks.
    dual : ndarray of shape (n, m) or None
        Feasible dual blocks to start from; None for 0, or where a smooth loss goes on from `coef`.
    settings : Settings
        The gap asked for, whether the dual blocks will be, too, and the most passes.
    coef : ndarray of shape (d, m), optional
        The W that goes with them, if it is not that of coordinate ascent.
    last : str
        The method that ended the training which this one continues, if there was one.
    """

    def __init__(
        self,
        problem: Problem,
        ascent: Callable[[NDArray | None], Any],
        dual: NDArray | None,
        settings: Settings,
        coef: NDArray | None = None,
        last: str = "",
    ):
        super().__init__(problem)
        self.ascent, self.tol, self.keep_dual = ascent, settings.tol, settings.keep_dual
        self.max_epochs = settings.max_epochs
        self.tired: set[str] = set()  # methods that gave way and are not tried again
        self.passes, self.last_pass = 0.0, math.inf  # and the one with which L-BFGS gives way
        self.seen: list[tuple[float, float]] = []  # passes and gap, since the method began
        self.current: Any
        if dual is None and coef is not None:
            self.current = make_lbfgs(problem, coef, self.keep_dual)
        elif dual is not None and coef is not None and last in ("lbfgs", "newton"):
            self.current = Standing(problem, coef, dual, last)
        elif _lbfgs_is_first(problem, settings):
            start = coef if coef is not None or dual is None else self.data.coef_from(dual)
            self.current = make_lbfgs(problem, start, self.keep_dual)
        else:
            self.current = ascent(dual)

    # The face of a method is that of the current one.

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the current method."""
        return self.current.name

    @property
    def coef(self) -> NDArray:  # type: ignore[override]
        """The W of the current method."""
        return self.current.coef

    @property
    def dual(self) -> NDArray:  # type: ignore[override]
        """The dual blocks of the current method."""
        return self.current.dual

    @property
    def has_dual(self) -> bool:  # type: ignore[override]
        """Whether the current method has them."""
        return self.current.has_dual

    @property
    def stuck(self) -> str:  # type: ignore[override]
        """Why no method can go on; L-BFGS and Newton's method are followed by another one."""
        return self.current.stuck if self.name == "sdca" else ""

    @property
    def ready(self) -> bool:  # type: ignore[override]
        """Whether the next certificate of the current method is expected to be the last."""
        return self.current.ready

    def settle(self) -> None:
        """Settle the current method."""
        self.current.settle()

    def certificate(self) -> Certificate:
        """Return the certificate of the current method."""
        found = self.current.certificate()
        self.seen.append((self.passes, found.gap))
        return found

    def advance(self, budget: float) -> float:
        """Choose a method, and go on with it for a while."""
        chosen = self._choose()
        if chosen != self.name or isinstance(self.current, Standing):
            self._go_on_with(chosen)
        done = self.current.advance(budget)
        self.passes += done
        return done

    def _go_on_with(self, name: str) -> None:
        if not isinstance(self.current, Standing):
            self.tired.add(self.name)
        self.seen = self.seen[-1:]
        if name == "lbfgs":
            kernel = isinstance(self.data, KernelData)
            start = self.current.dual if kernel else self.current.coef
            self.current = make_lbfgs(self.problem, start, self.keep_dual)
        elif name == "newton":
            self.current = Newton(self.problem, self.current.dual)
        else:
            self.current = self.ascent(self.current.dual)

    def _choose(self) -> str:
        """Return the method to go on with."""
        if isinstance(self.current, Standing):
            return "lbfgs" if self.problem.loss.smooth else "sdca"
        if self.name != "sdca":
            tired = self.current.stuck or (self.name == "lbfgs" and self.passes > self.last_pass)
            return "sdca" if tired else self.name
        left = self._passes_left()
        self.last_pass = self.passes + left
        able = _is_for_lbfgs(self.problem)
        if "lbfgs" not in self.tired and left > _FEW and (able or self._blocks_pay()):
            return "lbfgs"
        if self.passes + left > self.max_epochs:
            left *= _BEYOND
        pays = not able and "newton" not in self.tired and self._newton_passes() < left
        return "newton" if pays else "sdca"

    def _blocks_pay(self) -> bool:
        """Whether the preconditioner of L-BFGS knows most of the Hessian of a smoothed loss."""
        return self.problem.loss.smooth and blocks_pay(self.problem)

    def _passes_left(self) -> float:
        """Return how many passes are left at the best pace since one of the last certificates.

        The gap of coordinate ascent does not fall evenly: one slow round says little.
        """
        now, low = self.seen[-1]
        early = self.passes < _LATE and low > _NEAR
        if len(self.seen) < 3 or self.tol <= 0 or early:
            return 0.0
        paces = [
            math.log(high / low) / (now - before)
            for before, high in self.seen[-_LOOKS - 1 : -1]
            if 0 < low < high
        ]
        return math.log(low / self.tol) / max(paces) if paces else math.inf

    def _newton_passes(self) -> float:
        """Return about how many passes Newton's method would cost until the gap asked for."""
        gap = self.seen[-1][1]
        if isinstance(self.data, StreamData) or not 0 < self.tol < gap:
            return math.inf
        moving = int(np.count_nonzero(self.current.examples.moved_rows))
        system = system_operations(self.problem, moving)
        systems = _SYSTEMS * math.log(gap / self.tol) / math.log(_PER_SYSTEM)
        return systems * (1.0 + system / pass_operations(self.problem))
