"""What `solve` knows of a method: it advances, and vouches for where it is."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from topkopt.solvers.certificate import Certificate, pair_certificate
from topkopt.solvers.epochs import Examples
from topkopt.solvers.problem import Problem

__all__ = ["DualMethod", "Method"]


class Method(ABC):
    """A training on its way.

    Attributes
    ----------
    name : str
        What the history calls it.
    coef : ndarray
        The weights W whose objective is certified; with a kernel the dual blocks.
    dual : ndarray of shape (n, m)
        The dual blocks A of the certificate, always feasible.
    has_dual : bool
        Whether `dual` is there, or would have to be made.
    stuck : str
        Why no more can be reached, if that is so.
    ready : bool
        Whether the next certificate is expected to be the last.
    """

    has_dual = True
    stuck = ""
    ready = False

    name: str
    coef: NDArray
    dual: NDArray

    def __init__(self, problem: Problem):
        self.problem, self.data = problem, problem.data

    @abstractmethod
    def advance(self, budget: float) -> float:
        """Go on for a while, and return how many passes over the data that was.

        It is time for a certificate after `budget` passes, or before if the method says so by
        returning.
        """

    @abstractmethod
    def certificate(self) -> Certificate:
        """Return the certificate of `coef` and `dual`."""

    @abstractmethod
    def settle(self) -> None:
        """Remove what rounding has added step by step, before a result is vouched for."""


class DualMethod(Method):
    """Dual blocks A on their way up, and the coefficients W = X'A that belong to them."""

    def __init__(self, problem: Problem, examples: Examples, dual: NDArray | None):
        super().__init__(problem)
        self.examples, self.dual = examples, problem.data.held_dual(dual, problem.n_classes)
        self.all_rows = np.arange(problem.data.n_rows)
        self.settle()

    def sums(self) -> tuple[float, float, float]:
        """Return the sums of costs times losses and conjugates, and <A, scores>."""
        return self.data.sums(self.examples, self.coef, self.dual, self.all_rows)

    def certificate(self) -> Certificate:
        """Return the certificate of A and W = X'A."""
        return pair_certificate(self.problem, self.coef, self.dual, self.sums())

    def settle(self) -> None:
        """Compute W anew."""
        self.coef = self.dual  # lets go of the old W before there is a new one
        self.coef = self.data.coef_from(self.dual)
